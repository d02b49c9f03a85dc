"""Episodes of the final policies of a study, by which a record can say what means over batches do not: how costly the
worst tenth of episodes are, and how many are over the limit.

Every policy plays fresh episodes with sampled actions, as in training, from one stream for all, which neither
evaluations nor certificates use. What was played is kept beside the runs and not played again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cppo import envs
from cppo.policies.evaluate import fresh_worlds, rollout
from cppo.reports.folders import Key, finished_runs
from cppo.reports.seeds import rounded
from cppo.runs.run import Run
from cppo.runs.sealed import read_json, write_json
from cppo.types import UsageError

FILE = "scored.json"
STREAM = 3_000_000
WORLDS = 50

Played = dict[str, Any]


def write(folder: Path, episodes: int) -> Path:
    """Play ``episodes`` of each finished run's policies in ``folder``, and keep what they earned and cost."""
    if episodes < 1:
        raise UsageError(f"--score is {episodes}; it is the number of episodes of each policy, for example 100.")
    known = {(*_key(one), one["seed"]): one for one in read(folder)}
    kept = []
    for key, runs in finished_runs(folder).items():
        for seed, place in runs:
            steps, before = Run(place).steps, known.get((*key, seed))
            if before is None or before["steps"] != steps or len(before["return"]) < episodes:
                before = {**dict(zip(("env", "algo", "variant"), key, strict=True)), "seed": seed, "steps": steps}
                before |= _played(place, seed, episodes)
            kept.append(before)
    if not kept:
        raise UsageError(f"{folder} holds no finished run whose policies could play; leave --score out.")
    write_json(folder / FILE, {"stream": STREAM, "policies": kept}, compact=True)
    return folder / FILE


def read(folder: Path) -> list[Played]:
    path = folder / FILE
    return read_json(path)["policies"] if path.is_file() else []


def of(played: list[Played], key: Key, seed: int, steps: int) -> Played | None:
    """The episodes of one policy, which has to be that of the last step that the record covers."""
    for one in played:
        if (_key(one), one["seed"], one["steps"]) == (key, seed, steps):
            return {name: one[name] for name in ("return", "cost")}
    return None


def _key(one: Played) -> Key:
    return one["env"], one["algo"], one["variant"]


def _played(place: Path, seed: int, episodes: int) -> Played:
    run = Run(place)
    worlds = fresh_worlds(run.plan, min(WORLDS, episodes))
    try:
        totals = rollout(run.policy(seed), worlds, episodes, deterministic=False, seed=STREAM)
    finally:
        envs.close(worlds.core)
    costs = dict(zip(run.plan.cost_limits, totals.cost.T, strict=True))
    return {"return": rounded(totals.reward), "cost": {name: rounded(values) for name, values in costs.items()}}
