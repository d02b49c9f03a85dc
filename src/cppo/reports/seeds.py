"""One seed of a run as a record keeps it: how it ended, how training went, and its curves.

Curves are means over at most ``POINTS`` equal stretches of training, so that a record stays small however long the runs
were.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from cppo.algos.cppo import KL_TO_VARIANCE
from cppo.reports import stats
from cppo.reports.series import logged, numbers
from cppo.runs.metrics import cost_columns, measures

POINTS = 100
SCATTER = 200
DIAGNOSTICS = (
    "kl",
    "kl_limit",
    "tracking_error",
    "theta",
    "theta_reward",
    "theta_feasible",
    "multiplier",
)
DIGITS = 5


def rounded(values: Any) -> Any:
    """A number, or an array as a list, with few digits; what is not finite is None."""
    if np.ndim(values):
        return [rounded(value) for value in values]
    return float(f"{values:.{DIGITS}g}") if math.isfinite(values) else None


def condensed(frame: pd.DataFrame, summary: dict[str, Any], limits: dict[str, float]) -> dict[str, Any]:
    """The entry of a seed, from its metrics and its part of the run's summary."""
    columns = cost_columns(limits)
    costs = np.stack([numbers(frame, column) for column in columns.values()])
    steps, returns = numbers(frame, "steps"), numbers(frame, "return")
    how = stats.training(steps, returns, costs, list(limits.values()))
    final = summary["final_cost"]
    parts = np.array_split(np.arange(len(frame)), min(len(frame), POINTS))
    curve = {"steps": steps[[part[-1] for part in parts]], "return": _means(returns, parts)}
    curve |= {name: _means(numbers(frame, column), parts) for name, column in columns.items()}
    curve |= {column: _means(numbers(frame, column), parts) for column in measures(frame.columns).values()}
    return {
        "seed": summary["seed"],
        "final_return": summary["final_return"],
        "final_cost": final if isinstance(final, dict) else dict.fromkeys(limits, final),
        "feasible": summary["feasible"],
        **({"final_task": summary["final_task"]} if "final_task" in summary else {}),
        **how._asdict(),
        "switches": _switches(frame),
        "updates": _updates(frame),
        "curve": _plain(curve),
        "diagnostics": _plain(_diagnostics(frame, parts)),
        "timing": {"wall_seconds": round(float(frame["seconds"].iloc[-1]), 2)},
    }


def _diagnostics(frame: pd.DataFrame, parts: list[np.ndarray]) -> dict[str, np.ndarray]:
    found = {name: _means(numbers(frame, name), parts) for name in DIAGNOSTICS if logged(frame, name)}
    if "mode" in frame:
        found["recovery"] = _means(np.asarray(frame["mode"] == "recovery", float), parts)
    if logged(frame, "previous_predicted_cost_change"):
        chosen = np.unique(np.linspace(0, len(frame) - 1, SCATTER).astype(int))
        found["predicted"] = numbers(frame, "previous_predicted_cost_change")[chosen]
        found["realised"] = numbers(frame, "realised_cost_change")[chosen]
    return found


def _switches(frame: pd.DataFrame) -> int | None:
    """How often the update changed between normal and recovery; None where it never recovered."""
    recovery = np.asarray(frame["mode"] == "recovery") if "mode" in frame else np.zeros(0, bool)
    return int(np.sum(recovery[1:] != recovery[:-1])) if recovery.any() else None


def _updates(frame: pd.DataFrame) -> dict[str, float | None]:
    """Means over all updates of what the paper says of one; None where the method does not log it.

    ``target_kl`` is E[v log v], which the paper's appendix E puts between δ and δ' = δ/(2 ln 2 − 1) as long as v < 2;
    ``target_kl_within`` is the share of updates for which that holds.
    """
    if "mode" in frame:
        frame = frame.loc[np.asarray(frame["mode"] != "waiting")]  # the others were computed, but not made
    names = ("kl", "tracking_error", "bound_share", "above_two_share", "target_kl")
    found: dict[str, np.ndarray] = {name: numbers(frame, name) for name in names if logged(frame, name)}
    if "target_kl" in found:
        least = numbers(frame, "kl_limit")
        found["target_kl_within"] = (found["target_kl"] >= least) & (found["target_kl"] <= least / KL_TO_VARIANCE)
    if "mode" in frame:
        found["recovery"] = np.asarray(frame["mode"] == "recovery")
    return {name: rounded(_known_mean(values)) for name, values in found.items()}


def _known_mean(values: np.ndarray) -> float:
    known = np.asarray(values, float)[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


def _means(values: np.ndarray, parts: list[np.ndarray]) -> np.ndarray:
    """Means of the known values of each stretch."""
    return np.array([_known_mean(values[part]) for part in parts])


def _plain(arrays: dict[str, np.ndarray]) -> dict[str, list[float | None]]:
    return {name: rounded(values) for name, values in arrays.items()}
