"""What a study found, as one small JSON record from which every figure and table is made.

``digest`` reads run folders; ``load`` takes the record where it lies already (``results/`` of this repository). Curves
are means over at most ``POINTS`` equal stretches of training, so that a record stays small however long the runs were.
Whatever depends on the machine's speed stands under ``timing`` and ``measured``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cppo import log
from cppo import plan as plans
from cppo.settings import as_dict
from cppo.study import published, stats
from cppo.study.execute import MANIFEST, read_manifest
from cppo.study.groups import failure, finished_steps
from cppo.types import UsageError

FILE = "results.json"
MEASURED = "measured.json"  # what ``measure`` adds to a study's folder
FORMAT = 1
POINTS = 100
SCATTER = 200
DIAGNOSTICS = (
    "kl",
    "kl_limit",
    "tracking_error",
    "theta",
    "theta_reward",
    "theta_feasible",
    "calibration",
    "multiplier",
)
DIGITS = 5
KL_TO_VARIANCE = 2 * math.log(2) - 1

Record = dict[str, Any]


def load(folder: Path, steps: int | None = None) -> Record:
    """The record of a study's folder, of any folder of runs, or one that was saved; ``steps`` as in ``digest``."""
    folder = Path(folder)
    path = folder if folder.is_file() else folder / FILE
    if (folder / MANIFEST).is_file() or (not path.is_file() and _run_folders(folder)):
        return digest(folder, steps)
    if not path.is_file():
        raise UsageError(f"{folder} holds no study, no runs and no {FILE}; name the folder that cppo study wrote.")
    if steps is not None:
        raise UsageError(f"{path} is a finished record; --steps needs the folder of the runs themselves.")
    record = log.read_json(path)
    if record.get("format") != FORMAT or "groups" not in record:
        raise UsageError(f"{path} is no record of format {FORMAT}, which cppo report writes as {FILE}.")
    return record


def save(record: Record, folder: Path) -> Path:
    """Keep the record; it is long, so without spaces."""
    log.write_json(folder / FILE, record, compact=True)
    return folder / FILE


def digest(folder: Path, steps: int | None = None) -> Record:
    """Everything worth keeping of the finished runs in ``folder``, failed and unfinished ones listed.

    Runs of one environment are compared at the same number of steps: that of the shortest of them. With ``steps``, the
    first so many environment steps of every run that has made them, finished or not.
    """
    if steps is not None and steps < 1:
        raise UsageError(f"--steps is {steps}; it must be at least 1, for example --steps 100000.")
    entries, name, title = _entries(folder)
    made: dict[str, list[tuple[Record, int]]] = {}
    unfinished, failed, versions = [], [], []
    for entry in entries:
        place = entry["folder"]
        problem = entry.get("error") or (failure(place) if place else None)
        finished = bool(place) and _is_finished(entry)
        covered = _covered(entry, steps) if place and (finished or steps) else 0
        if covered:
            made.setdefault(entry["env"], []).append((entry, covered))
            found = json.loads((place / "versions.json").read_text())
            if found not in versions:
                versions.append(found)
        if problem and not finished:
            failed.append({**_which(entry), "error": problem})
        elif not covered:
            unfinished.append(_which(entry))
    groups: dict[tuple[str, str, str], Record] = {}
    for runs in made.values():
        least = min(covered for _, covered in runs)
        for entry, _ in runs:
            failed += _add(groups, entry, least)
    measured = folder / MEASURED
    return {
        "format": FORMAT,
        "name": name,
        "title": title,
        "groups": list(groups.values()),
        "longer": {env: most for env, runs in made.items() if (most := _longer(runs))},
        "unfinished": unfinished,
        "failed": failed,
        "versions": versions,
        **({"measured": json.loads(measured.read_text())} if measured.is_file() else {}),
    }


def _which(entry: Record) -> Record:
    return {key: entry[key] for key in ("env", "algo", "variant", "seed")}


def _longer(runs: list[tuple[Record, int]]) -> int | None:
    """Steps of the longest run, where not all are as long."""
    covered = [steps for _, steps in runs]
    return max(covered) if max(covered) > min(covered) else None


def run_folders(folder: Path) -> dict[tuple[str, str, str], list[tuple[int, Path]]]:
    """Finished runs by environment, algorithm and variant: seeds with their folders."""
    found: dict[tuple[str, str, str], list[tuple[int, Path]]] = {}
    if not (folder / MANIFEST).is_file() and not _run_folders(folder):
        return found
    for entry in _entries(folder)[0]:
        if entry["folder"] and _is_finished(entry):
            key = (entry["env"], entry["algo"], entry["variant"])
            found.setdefault(key, []).append((entry["seed"], entry["folder"]))
    return found


def _entries(folder: Path) -> tuple[list[Record], str, str]:
    """One entry for each run and seed."""
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder)
        entries = [
            {**entry, "folder": folder / "runs" / entry["id"] if entry["id"] else None} for entry in manifest["runs"]
        ]
        return entries, manifest["name"], manifest["title"]
    entries = []
    for place in _run_folders(folder):
        plan = plans.load(place)
        entries += [
            {"env": plan.env, "algo": plan.algo, "variant": "", "seed": seed, "folder": place} for seed in plan.seeds
        ]
    # Runs that differ in their settings, or have a seed twice, are told apart by the folders' names.
    several = _several(entries)
    entries = [
        {**entry, "variant": entry["folder"].name if (entry["env"], entry["algo"]) in several else ""}
        for entry in entries
    ]
    return entries, folder.resolve().name, ""


def _several(entries: list[Record]) -> set[tuple[str, str]]:
    """Pairs of environment and algorithm whose runs are not seeds of one thing."""
    seen: dict[tuple[str, str], tuple[list[int], list[Any]]] = {}
    for entry in entries:
        seeds, settings = seen.setdefault((entry["env"], entry["algo"]), ([], []))
        seeds.append(entry["seed"])
        own = as_dict(plans.load(entry["folder"]).settings)
        if own not in settings:
            settings.append(own)
    return {pair for pair, (seeds, settings) in seen.items() if len(set(seeds)) < len(seeds) or len(settings) > 1}


def _is_finished(entry: Record) -> bool:
    """Whether the run has the steps that were last asked for, by the study or by its own plan."""
    place: Path = entry["folder"]
    return (place / plans.FILE).is_file() and finished_steps(place) >= _asked(entry)


def _asked(entry: Record) -> int:
    """Environment steps that were last asked for, in whole batches."""
    plan = plans.load(entry["folder"])
    batch = plan.settings.batch_size
    return -(-(entry.get("steps") or plan.steps) // batch) * batch


def _covered(entry: Record, steps: int | None) -> int:
    """Environment steps of the run that count: those asked for, or the last logged ones up to ``steps``; 0 where it has
    not made them. A run may have logged more while it is extended."""
    place: Path = entry["folder"]
    if steps is None:
        return _asked(entry)
    if not (place / log.METRICS).is_file():
        return 0
    logged = _numbers(log.read_metrics(place), "steps")
    return int(logged[logged <= steps].max(initial=0)) if logged.max(initial=0) >= steps else 0


def _run_folders(folder: Path) -> list[Path]:
    if (folder / plans.FILE).is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob(f"*/{plans.FILE}"))


def _add(groups: dict[tuple[str, str, str], Record], entry: Record, steps: int) -> list[Record]:
    """Take the first ``steps`` of a run into its group; a seed with other settings than the first is left out, and said
    so."""
    place: Path = entry["folder"]
    plan = plans.load(place)
    settings = as_dict(plan.settings)
    about = {
        "env": plan.env,
        "algo": plan.algo,
        "variant": entry["variant"],
        "backend": plan.backend,
        "steps": steps,
        "cost_limits": plan.cost_limits,
        "settings": settings,
    }
    key = (entry["env"], entry["algo"], entry["variant"])
    group = groups.get(key, {**about, "seeds": []})
    mine, theirs = ({"backend": one["backend"], **one["settings"]} for one in (about, group))
    other = [name for name, value in mine.items() if theirs.get(name) != value]
    if other:
        words = ", ".join(f"{name} {mine[name]}, not {theirs.get(name)}" for name in other)
        return [{**_which(entry), "error": f"left out: it has other settings than the first seed ({words})"}]
    frame = log.read_metrics(place)
    frame = frame.loc[(frame["seed"] == entry["seed"]) & (frame["steps"] <= steps)]
    if frame.empty:
        return [
            {**_which(entry), "error": f"left out: one batch of it is longer than the {steps:,} steps of another run"}
        ]
    if steps == finished_steps(place):
        summaries = json.loads((place / "summary.json").read_text())
    else:
        summaries = log.summarise(frame, plan.cost_limits, float(_numbers(frame, "seconds")[-1]), steps)
    summary = next(row for row in summaries["seeds"] if row["seed"] == entry["seed"])
    group["seeds"].append(_seed(frame, summary, plan.cost_limits))
    groups[key] = group
    return []


def _seed(frame: pd.DataFrame, summary: Record, limits: dict[str, float]) -> Record:
    columns = log.cost_columns(limits)
    costs = np.stack([_numbers(frame, column) for column in columns.values()])
    steps, returns = _numbers(frame, "steps"), _numbers(frame, "return")
    how = stats.training(steps, returns, costs, _numbers(frame, "episodes"), list(limits.values()))
    final = summary["final_cost"]
    parts = _stretches(len(frame))
    curve = {"steps": steps[[part[-1] for part in parts]], "return": _means(returns, parts)}
    curve |= {name: _means(_numbers(frame, column), parts) for name, column in columns.items()}
    diagnostics = {name: _means(_numbers(frame, name), parts) for name in DIAGNOSTICS if _logged(frame, name)}
    if "mode" in frame:
        diagnostics["recovery"] = _means(np.asarray(frame["mode"] == "recovery", float), parts)
    if _logged(frame, "previous_predicted_cost_change"):
        chosen = np.unique(np.linspace(0, len(frame) - 1, SCATTER).astype(int))
        diagnostics["predicted"] = _numbers(frame, "previous_predicted_cost_change")[chosen]
        diagnostics["realised"] = _numbers(frame, "realised_cost_change")[chosen]
    seconds = float(frame["seconds"].iloc[-1])
    return {
        "seed": summary["seed"],
        "final_return": summary["final_return"],
        "final_cost": final if isinstance(final, dict) else dict.fromkeys(limits, final),
        "feasible": summary["feasible"],
        **how._asdict(),
        "switches": _switches(frame),
        "updates": _updates(frame),
        "curve": _plain(curve),
        "diagnostics": _plain(diagnostics),
        "timing": {"wall_seconds": round(seconds, 2)},
    }


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
    found: dict[str, np.ndarray] = {name: _numbers(frame, name) for name in names if _logged(frame, name)}
    if "target_kl" in found:
        least = _numbers(frame, "kl_limit")
        found["target_kl_within"] = (found["target_kl"] >= least) & (found["target_kl"] <= least / KL_TO_VARIANCE)
    if "mode" in frame:
        found["recovery"] = np.asarray(frame["mode"] == "recovery")
    return {name: rounded(_known_mean(values)) for name, values in found.items()}


def _known_mean(values: np.ndarray) -> float:
    known = np.asarray(values, float)[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


def _stretches(length: int) -> list[np.ndarray]:
    return [part for part in np.array_split(np.arange(length), min(length, POINTS)) if len(part)]


def _means(values: np.ndarray, parts: list[np.ndarray]) -> np.ndarray:
    """Means of the known values of each stretch."""
    return np.array([_known_mean(values[part]) for part in parts])


def _numbers(frame: pd.DataFrame, column: str) -> np.ndarray:
    return np.asarray(frame[column], dtype=float)


def _logged(frame: pd.DataFrame, column: str) -> bool:
    return column in frame and bool(np.isfinite(_numbers(frame, column)).any())


def _plain(arrays: dict[str, np.ndarray]) -> dict[str, list[float | None]]:
    return {name: rounded(values) for name, values in arrays.items()}


def rounded(values: Any) -> Any:
    """A number, or an array as a list, with few digits; what is not finite is None."""
    if np.ndim(values):
        return [rounded(value) for value in values]
    return float(f"{values:.{DIGITS}g}") if math.isfinite(values) else None


def summaries(record: Record) -> list[Record]:
    """One row a group: final return and cost, feasibility and training, with intervals, ranked within each environment.

    Variants are not ranked.
    """
    seconds = {_key(one): one["seconds"] for one in record.get("measured", {}).get("update_times", ())}
    rows = [{**_summary(group), "update_seconds": seconds.get(_key(group))} for group in record["groups"]]
    for env in dict.fromkeys(row["env"] for row in rows):
        here = [row for row in rows if row["env"] == env]
        _rank([row for row in here if not row["variant"]], "rank")
    return rows


def _key(one: Record) -> tuple[str, str, str]:
    return one["env"], one["algo"], one["variant"]


def path_summaries(record: Record) -> list[Record]:
    """How recovery updates went, one row for each environment, number of targets and β: means over seeds.

    A path *arrives* with the first epoch after which the predicted cost is within the limit.
    """
    found: dict[tuple[str, int, float], list[Record]] = {}
    for seed in record.get("measured", {}).get("paths", ()):
        for way in seed["ways"]:
            cost, reward = np.array(way["cost_change"]), np.array(way["reward_change"])
            within = np.flatnonzero(cost <= seed["needed"])
            found.setdefault((seed["env"], way["waypoints"], way["beta"]), []).append(
                {
                    "arrived": len(within) > 0,
                    "epochs": float(within[0]) if len(within) else None,
                    "reward_then": reward[within[0]] if len(within) else None,
                    "cost_share": cost[-1] / seed["needed"],
                    "reward": reward[-1],
                    "kl": way["kl"][-1],
                }
            )
    return [
        {
            **dict(zip(("env", "waypoints", "beta"), key, strict=True)),
            "seeds": len(seeds),
            "arrived": sum(seed["arrived"] for seed in seeds),
            **{
                name: _mean([seed[name] for seed in seeds if seed[name] is not None])
                for name in ("epochs", "reward_then", "cost_share", "reward", "kl")
            },
        }
        for key, seeds in found.items()
    ]


def _rank(rows: Iterable[Record], name: str) -> None:
    by_algo = {row["algo"]: row for row in rows}
    standings = [stats.Standing(algo, row["mean_return"], row["relative_cost"]) for algo, row in by_algo.items()]
    for place, algo in enumerate(stats.rank(standings), start=1):
        by_algo[algo][name] = place


def _summary(group: Record) -> Record:
    seeds = group["seeds"]
    known = [seed for seed in seeds if seed["final_return"] is not None]
    returns = np.array([seed["final_return"] for seed in known])
    costs = {
        name: np.array([seed["final_cost"][name] for seed in known if seed["final_cost"][name] is not None])
        for name in group["cost_limits"]
    }
    relative = [
        values.mean() / max(limit, 1e-9) if len(values) else math.inf
        for values, limit in zip(costs.values(), group["cost_limits"].values(), strict=True)
    ]
    feasible = sum(bool(seed["feasible"]) for seed in seeds)
    number = lambda name: [x for seed in seeds if (x := seed.get(name)) is not None and math.isfinite(x)]  # noqa: E731
    return {
        **{name: group[name] for name in ("env", "algo", "variant", "steps", "cost_limits")},
        "seeds": len(seeds),
        "return_iqm": stats.bootstrap([returns]),
        "mean_return": float(returns.mean()) if len(returns) else math.nan,
        "mean_return_t": stats.mean_t(returns),
        "cost": {name: stats.mean_t(values) for name, values in costs.items()},
        "worst_cost": {name: float(values.max()) if len(values) else math.nan for name, values in costs.items()},
        "relative_cost": float(max(relative, default=0.0)),
        "within": stats.wilson(feasible, len(seeds)),
        "within_count": feasible,
        "violation_rate": _mean(number("violation_rate")),
        "excess_cost": _mean(number("excess_cost")),
        "first_feasible": _mean(number("first_feasible")),
        "never_feasible": sum("first_feasible" in seed for seed in seeds) - len(number("first_feasible")),
        "to_90": _mean(number("to_90")),
        # A seed that never recovered did not switch, if its method can recover: as some other seed shows.
        "switches": _mean([seed.get("switches") or 0 for seed in seeds]) if number("switches") else None,
        "updates": {name: _mean(values) for name, values in _by_name(seeds).items()},
        "published": published.figures(group["env"], group["algo"], group["variant"]),
        "rank": None,
    }


def _by_name(seeds: list[Record]) -> dict[str, list[float]]:
    names = dict.fromkeys(name for seed in seeds for name in seed.get("updates", ()))
    return {
        name: [seed["updates"][name] for seed in seeds if seed.get("updates", {}).get(name) is not None]
        for name in names
    }


def improvements(record: Record, algo: str = "cppo") -> list[Record]:
    """How probably a seed of ``algo`` beats one of each other algorithm, infeasible seeds counting as worst.

    A seed's value is its return when it ended within its limits; else it stands behind all feasible ones, by excess.
    """
    values: dict[tuple[str, str], np.ndarray] = {}
    for group in record["groups"]:
        if not group["variant"]:
            values[group["env"], group["algo"]] = np.array([_worth(seed, group) for seed in group["seeds"]])
    rows = []
    for other in dict.fromkeys(name for _, name in values if name != algo):
        envs = [env for env, name in values if name == other and (env, algo) in values]
        if envs:
            interval = stats.improvement_interval(
                [values[env, algo] for env in envs], [values[env, other] for env in envs]
            )
            rows.append({"algo": algo, "other": other, "envs": envs, "probability": interval})
    return rows


def _worth(seed: Record, group: Record) -> float:
    if seed["feasible"] and seed["final_return"] is not None:
        return float(seed["final_return"])
    over = [
        (math.inf if cost is None else cost) / max(group["cost_limits"][name], 1e-9)
        for name, cost in seed["final_cost"].items()
    ]
    return -1e9 * (1.0 + max(over, default=0.0))


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def without_timing(record: Record) -> Record:
    """The record less what depends on the machine's speed, for comparisons."""
    groups = [
        {**group, "seeds": [{k: v for k, v in seed.items() if k != "timing"} for seed in group["seeds"]]}
        for group in record["groups"]
    ]
    return {**record, "groups": groups}
