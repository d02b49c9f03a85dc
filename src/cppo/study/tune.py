"""Search for settings with Optuna: feasible first, then the highest return.

A trial is one training run. It is feasible when every seed ends within every limit; feasible trials come before
infeasible ones, those by return, these by how far they broke a limit. The sampler (TPE with constraints) knows both.
From half of the run on, a trial whose cost, extrapolated along its own trend, stays above a limit is given up.
Everything is kept in one folder, so that a search goes on where it was stopped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cppo import algos, files
from cppo.envs import VectorEnv
from cppo.errors import reason_of
from cppo.runs.metrics import cost_columns, place
from cppo.runs.plan import Plan, make_plan
from cppo.runs.sealed import write_json
from cppo.runs.training import train
from cppo.settings import read
from cppo.types import TrainingError, UsageError

JOURNAL = "study.journal"
BEST = "best.json"


@dataclass(frozen=True)
class Range:
    """Values that a setting may take: an interval (of whole numbers where the setting has them), or a list."""

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()


class Trial(NamedTuple):
    number: int
    settings: dict[str, Any]
    earned: float | None  # mean final return of the seeds
    violation: float | None  # worst excess over a limit as a share of it, at most 0 where feasible
    state: str


def parse_space(items: Sequence[str], algo: str) -> dict[str, Range]:
    """``["kl=0.005:0.05:log", "reuse=1|2|4"]`` as ranges of an algorithm's settings.

    >>> parse_space(["kl=0.005:0.05:log"], "cppo")
    {'kl': Range(low=0.005, high=0.05, log=True, choices=())}
    """
    fields = {field.name: field for field in algos.get(algo).settings.__dataclass_fields__.values()}
    space = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or name not in fields:
            known = "" if name in fields or not name else f" (unknown setting {name!r})"
            raise UsageError(f"--set-space {item!r}{known}: write name=low:high, name=low:high:log or name=a|b.")
        if "|" in text:
            space[name] = Range(choices=tuple(read(fields[name], part) for part in text.split("|")))
            continue
        parts = text.split(":")
        try:
            low, high = (float(part) for part in parts[:2])
        except ValueError:
            raise UsageError(f"--set-space {item!r}: write name=low:high or name=low:high:log.") from None
        logarithmic = parts[2:] == ["log"]
        if (parts[2:] and not logarithmic) or not low < high or (logarithmic and low <= 0):
            raise UsageError(f"--set-space {item!r}: low must be below high, and above 0 with :log.")
        space[name] = Range(low, high, logarithmic)
    if not space:
        raise UsageError("name at least one setting to search, for example --set-space kl=0.005:0.05:log.")
    return space


def hopeless(costs: np.ndarray, limit: float, iterations: int) -> bool:
    """Whether a cost curve will end above its limit.

    ``costs`` are the costs of the iterations so far out of ``iterations``. From half of them on, a line is fitted to
    the newer half; with the benefit of two standard errors it must come down to the limit by the end.

    >>> falling, flat = np.linspace(100, 60, 50), np.full(50, 100.0)
    >>> hopeless(falling, 25, 100), hopeless(falling, 10, 100), hopeless(flat, 25, 100), hopeless(flat[:40], 25, 100)
    (False, True, True, False)
    """
    if len(costs) < max(4, iterations / 2):
        return False
    recent = costs[len(costs) // 2 :]
    recent = recent[np.isfinite(recent)]
    if len(recent) < 3 or np.min(recent) <= limit:
        return False
    time = np.arange(len(recent)) - (len(recent) - 1) / 2
    slope = float(time @ recent / (time @ time))
    rest = recent - recent.mean() - slope * time
    ahead = iterations - len(costs) + (len(recent) - 1) / 2
    spread = float(rest @ rest) / max(len(recent) - 2, 1)
    error = (spread * (1 / len(recent) + ahead**2 / float(time @ time))) ** 0.5
    return float(recent.mean() + slope * ahead - 2 * error) > limit


def tune(
    algo: str,
    env: str | VectorEnv,
    space: Mapping[str, Range] | Sequence[str],
    *,
    trials: int = 20,
    steps: int | None = None,
    seeds: int = 2,
    seed: int = 0,
    cost_limit: float | tuple[float, ...] | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path = "runs/tune",
    show: bool = True,
) -> list[Trial]:
    """Run trials until ``trials`` are done, earlier ones in ``out`` included, and return them, the best first."""
    optuna = _optuna()
    ranges = dict(space) if isinstance(space, Mapping) else parse_space(space, algo)
    if trials < 1:
        raise UsageError(f"trials is {trials}; it must be at least 1.")
    fixed = dict(settings or {})
    plan = make_plan(algo, env, seeds=seeds, seed=seed, steps=steps, cost_limit=cost_limit, settings=fixed)
    folder = Path(out)
    study = _search_in(folder, optuna, f"{plan.algo} on {plan.env}")
    done = len(_finished(study))
    study.sampler = optuna.samplers.TPESampler(seed=seed + done, n_startup_trials=8)  # minds constraints that are set
    whole = {field.name for field in algos.get(algo).settings.__dataclass_fields__.values() if str(field.type) == "int"}

    def objective(trial: Any) -> float:
        chosen = {name: _suggest(trial, name, limits, name in whole) for name, limits in ranges.items()}
        give_up = _GiveUp(plan, trial, optuna.TrialPruned)
        run = train(
            algo,
            env,
            steps=plan.steps,
            seeds=seeds,
            seed=seed,
            out=files.unlinked(folder / f"trial-{trial.number:04d}"),
            cost_limit=tuple(plan.cost_limits.values()),
            settings=fixed | chosen,
            overwrite=True,
            tensorboard=False,
            show=False,
            callback=give_up,
        )
        _tell_violation(trial, _violation(run.summary["seeds"]))
        earned = run.summary["final_return"]
        if earned is None:
            raise optuna.TrialPruned("no episode ended")
        return float(earned)

    if show and done:
        print(f"{done} trials are done already in {folder}; going on.")
    study.optimize(objective, n_trials=max(0, trials - done), callbacks=[_tell] if show else [], catch=(TrainingError,))
    ranked = rank([_as_trial(trial) for trial in study.trials])
    if ranked:
        best = ranked[0]
        write_json(folder / BEST, best._asdict() | {"set": set_line(best)})
    return ranked


def _search_in(folder: Path, optuna: Any, name: str) -> Any:
    """The search kept in ``folder``, begun where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / JOURNAL
    os.close(files.open_end(path))  # Optuna writes at the end of whatever has its name
    try:
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
        return optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
    except Exception as error:  # its lines are read with assertions and worse
        raise UsageError(f"{path} is damaged ({reason_of(error)}); move it away to search anew.") from None


def _tell(study: Any, trial: Any) -> None:
    print(f"trial {trial.number}: {_line(_as_trial(trial))}", flush=True)


class _GiveUp:
    """A callback that ends a trial which cannot become feasible."""

    def __init__(self, plan: Plan, trial: Any, stop: type[Exception]):
        self._plan, self._trial, self._stop = plan, trial, stop
        self._columns = cost_columns(plan.cost_limits)
        self._costs: dict[str, list[float]] = {name: [] for name in plan.cost_limits}

    def __call__(self, rows: list[dict[str, Any]]) -> None:
        for name, column in self._columns.items():
            known = [row[column] for row in rows if row[column] is not None]
            self._costs[name].append(float(np.mean(known)) if known else float("nan"))
        for name, limit in self._plan.cost_limits.items():
            if hopeless(np.asarray(self._costs[name]), limit, self._plan.iterations):
                last = self._costs[name][-1]
                _tell_violation(self._trial, max((last - limit) / (limit or 1.0), 1e-6))
                raise self._stop(f"{name} is {last:.3g} and will not come down to {limit:g}")


def rank(trials: list[Trial]) -> list[Trial]:
    """Feasible trials by return, then the others by how little they broke their limits; failed ones are left out."""
    known = [(trial, trial.violation) for trial in trials if trial.violation is not None]

    def key(one: tuple[Trial, float]) -> tuple[bool, float]:
        trial, over = one
        return place(over <= 0 and trial.earned is not None, trial.earned or 0.0, over)

    return [trial for trial, _ in sorted(known, key=key)]


def set_line(trial: Trial) -> str:
    """What to type to train with a trial's settings."""
    values = {name: f"{x:.4g}" if isinstance(x, float) else str(x) for name, x in trial.settings.items()}
    return "--set " + " ".join(f"{name}={value}" for name, value in values.items())


def _tell_violation(trial: Any, share: float) -> None:
    trial.set_constraint("violation", share)
    trial.set_user_attr("violation", share)


def _violation(rows: list[dict[str, Any]]) -> float:
    """The worst excess over a limit as a share of it, over seeds and constraints; infinite cost where none is known."""
    worst = -np.inf
    for row in rows:
        costs, limits = (x if isinstance(x, dict) else {"": x} for x in (row["final_cost"], row["cost_limit"]))
        for name, limit in limits.items():
            cost = None if "error" in row else costs.get(name)
            worst = max(worst, 1e6 if cost is None else (cost - limit) / (limit or 1.0))
    return float(worst)


def _suggest(trial: Any, name: str, values: Range, whole: bool) -> Any:
    if values.choices:
        return trial.suggest_categorical(name, list(values.choices))
    if whole:
        return trial.suggest_int(name, int(values.low), int(values.high), log=values.log)
    return trial.suggest_float(name, values.low, values.high, log=values.log)


def _as_trial(trial: Any) -> Trial:
    earned = trial.value if trial.state.name == "COMPLETE" else None
    return Trial(trial.number, dict(trial.params), earned, trial.user_attrs.get("violation"), trial.state.name.lower())


def _finished(study: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED", "FAIL")]


def _line(trial: Trial) -> str:
    kept = "unknown" if trial.violation is None else "feasible" if trial.violation <= 0 else "infeasible"
    earned = "given up" if trial.earned is None else f"return {trial.earned:.2f}"
    return f"{earned}, {kept}, {set_line(trial)}"


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UsageError("the search needs Optuna: pip install 'cppo[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
