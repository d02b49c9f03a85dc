"""Several algorithms on one problem, side by side: ordinary runs, one table, one figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from cppo import algos, envs, files
from cppo.reports import ranking
from cppo.runs.options import Options
from cppo.runs.plan import Plan, make_plan
from cppo.runs.run import Run, standing
from cppo.runs.sealed import write_json
from cppo.runs.training import ensure
from cppo.types import UsageError

FIGURE = "compare.png"
RESULT = "compare.json"


@dataclass(frozen=True)
class Comparison:
    """Finished runs by algorithm, in the order asked for."""

    folder: Path
    runs: dict[str, Run]

    @property
    def standings(self) -> list[ranking.Standing]:
        """Best first."""
        return ranking.ranked(
            ranking.standing(name, run.summary, run.plan.cost_limits) for name, run in self.runs.items()
        )

    @property
    def title(self) -> str:
        plan = next(iter(self.runs.values())).plan
        seeds = f"seed {plan.seeds[0]}" if len(plan.seeds) == 1 else f"seeds {plan.seeds[0]} to {plan.seeds[-1]}"
        return f"{plan.env}: {plan.steps:,} steps, {seeds}"

    def table(self) -> Table:
        return ranking.table(self.standings, self.title)

    def figure(self, path: Path | None = None) -> Path:
        """Learning curves of return and costs with their limits, all algorithms; returns where it was written."""
        from cppo.reports.curves import learning_curves

        path = path or self.folder / FIGURE
        limits = next(iter(self.runs.values())).plan.cost_limits
        learning_curves([(name, run.metrics()) for name, run in self.runs.items()], limits, path, self.title)
        return path

    def save(self) -> Path:
        """The figure, and the ranking as JSON, in the comparison's folder."""
        result = {"title": self.title, "ranking": [row.as_dict() for row in self.standings]}
        write_json(self.folder / RESULT, result)
        return self.figure()


def compare(
    env: str = "PointCircle",
    algorithms: Sequence[str] = ("cppo", "cpo", "ppo_lag", "trpo_lag"),
    *,
    steps: int | None = None,
    seeds: int = 4,
    seed: int = 0,
    out: str | Path | None = None,
    cost_limit: float | tuple[float, ...] | None = None,
    backend: str = "auto",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    tell: Callable[[str], None] | None = None,
    **options: Any,
) -> Comparison:
    """Train ``algorithms`` on ``env`` one after another, each an ordinary run in ``out``/ALGORITHM.

    Called again, it goes on where it was stopped and repeats nothing that is finished. ``settings`` maps an algorithm
    to its changed settings; ``options`` (``show``, ``tensorboard``, ``checkpoint_seconds``, ``loggers``, ``callback``)
    go to every run. Everything is checked before anything starts.
    """
    how = Options(**options)
    if how.rules or how.stop_after is not None:
        raise UsageError("a comparison is over the same steps: stop_when and stop_after are for cppo.train.")
    env = envs.named(env)
    folder = Path(out) if out is not None else Path("runs") / f"compare-{env}"
    common = dict(steps=steps, seeds=seeds, seed=seed, cost_limit=cost_limit, backend=backend)
    planned = _plans(env, algorithms, settings or {}, common)
    states = {name: standing(plan, files.unlinked(folder / name)) for name, plan in planned.items()}
    done: dict[str, Run] = {}
    for number, (name, plan) in enumerate(planned.items(), start=1):
        if tell is not None:
            words = {"new": "", "stopped": ", going on where it stopped", "finished": " is finished already"}
            tell(f"{number} of {len(planned)}: {name}{words[states[name]]}")
        done[name] = ensure(plan, folder / name, how)
    return Comparison(folder, done)


def _plans(
    env: str, names: Sequence[str], settings: Mapping[str, Mapping[str, Any]], common: dict[str, Any]
) -> dict[str, Plan]:
    if not names:
        raise UsageError("name at least one algorithm, for example --algos cppo,cpo,ppo_lag.")
    if len(set(names)) < len(names):
        raise UsageError(f"{', '.join(names)}: each algorithm can be compared once.")
    for name in settings:
        if name not in names:
            algos.get(name)
            raise UsageError(f"settings are given for {name}, which is not compared; add it to --algos or leave them.")
    return {name: make_plan(name, env, settings=settings.get(name), **common) for name in names}


def read_settings(assignments: Sequence[str]) -> dict[str, dict[str, str]]:
    """``["cpo.kl=0.02", "cppo.beta=0.5"]`` by algorithm.

    >>> read_settings(["cpo.kl=0.02", "cppo.beta=0.5", "cpo.damping=0.2"])
    {'cpo': {'kl': '0.02', 'damping': '0.2'}, 'cppo': {'beta': '0.5'}}
    """
    chosen: dict[str, dict[str, str]] = {}
    for item in assignments:
        place, equals, value = item.partition("=")
        name, dot, setting = place.strip().partition(".")
        if not (equals and dot and name and setting):
            raise UsageError(f"--set {item!r}: write ALGORITHM.name=value, for example --set cpo.kl=0.02.")
        chosen.setdefault(name, {})[setting] = value.strip()
    return chosen
