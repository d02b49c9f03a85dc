"""A run that needs no compiler, broken at every operation on its files; ``test_faults.py`` starts this as a program.

``faults.c`` counts what the process does below the run's folder, and kills or fails one operation. Each attempt is a
forked child; afterwards another child gives the command again, without a fault, until the run is finished.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from cppo.errors import TrainingError, Unsaved, UsageError
from cppo.maths.replay_buffer import Replay, Transitions
from cppo.runs import checkpoint, engine, member, training
from cppo.runs.checkpoint import checkpoints_of
from cppo.runs.group import Group, GroupState
from cppo.runs.learner import TrainState
from cppo.runs.saving import Saver
from cppo.runs.sealed import read_json
from cppo.runs.timing import Clock

ITERATIONS, STEPS, CAPACITY = 5, 4, 6
QUICK = {"batch_size": 100, "num_envs": 10}


class Agent(NamedTuple):
    policy: Any
    replay: Any


class Sums(Group):
    """In place of ``Group``: each iteration adds to a number, and to a replay of the last numbers."""

    def __init__(self, plans, stop=None):
        self.env, self.clock, self.learners = SimpleNamespace(resumable=True), Clock(), [None]

    def start(self, restart=0):
        number, flags = np.zeros((1, CAPACITY), np.float32), np.zeros((1, CAPACITY), bool)
        obs = np.zeros((1, CAPACITY, 1), np.float32)
        steps = Transitions(obs, obs.copy(), obs.copy(), number, obs.copy(), flags)
        return _state(Agent(np.ones((1, 3)), Replay(steps, np.zeros(1, np.int32))))

    def iterate(self, state):
        agent = state.sections[0].agent
        policy, (steps, added) = np.sqrt(agent.policy * 2.5), agent.replay
        steps = Transitions(*(leaf.copy() for leaf in steps))
        for step in range(int(added[0]), int(added[0]) + STEPS):
            steps.reward[0, step % CAPACITY] = policy[0, 0] + step
        quantities = {"return": policy[:, 0], "cost": policy[:, :1], "waiting": [False], "nonfinite": [0]}
        quantities |= {"_bad": [-1], "_negative": [-1], "_sound": [True]}
        metrics = {name: np.asarray(value) for name, value in quantities.items()}
        return _state(Agent(policy, Replay(steps, added + np.int32(STEPS)))), [metrics]

    def split(self, state):
        return list(state.sections)

    def join(self, states):
        return GroupState(tuple(states), None)


def _state(agent: Agent) -> GroupState:
    nothing: Any = None
    return GroupState((TrainState(agent, nothing, nothing, nothing, None),), None)


def again(folder: Path) -> None:
    """What a person types: the same command, and where it says to resume, that."""
    quiet = {"checkpoint_seconds": 0.0, "show": False}
    try:
        training.train("ppo_lag", "ProbeBox", steps=100 * ITERATIONS, settings=QUICK, out=folder, **quiet)
    except UsageError as error:
        if f"--resume {folder}" not in str(error):
            raise
        training.resume(folder, **quiet)


def attempt(folder: Path, **fault: Any) -> str:
    """How a child ended: finished, killed, or the line that it said; a traceback is an ``AssertionError``."""
    said = folder.with_name("said")
    said.write_text("")
    child = os.fork()
    if child == 0:
        os.environ.update({f"FAULT_{name.upper()}": str(value) for name, value in fault.items()})
        try:
            again(folder)
            said.write_text("finished")
        except (Unsaved, UsageError, TrainingError) as error:
            said.write_text(f"{type(error).__name__}: {error}")
        except BaseException:
            said.write_text(traceback.format_exc())
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    words = "killed" if os.WIFSIGNALED(status) else said.read_text()
    assert words in ("killed", "finished") or "\n" not in words, words
    return words


def content(folder: Path) -> dict[str, Any]:
    """All that a run left, but for its timing. Files may lie there that a kill kept from being removed."""
    rows = [
        {**json.loads(line), "seconds": 0, "check": ""} for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]
    state, meta = restored(folder, None)
    seeds = [{**seed, "wall_seconds": 0} for seed in read_json(folder / "summary.json")["seeds"]]
    config = {name: read_json(folder / name) for name in ("config.json", "versions.json")}
    return {"rows": rows, "state": [leaf.tolist() for leaf in state], "at": meta["iteration"], "end": seeds} | config


def restored(folder: Path, name: str | None) -> tuple[list[np.ndarray], dict[str, Any]]:
    """A saved state with its replay, verified, by default the newest."""
    state, meta = Saver(checkpoints_of(folder)).load(Sums([]).start().sections[0], name)
    policy, (steps, added) = state.agent
    return [policy, *steps, added], meta


def operations(folder: Path) -> list[str]:
    """What an undisturbed run does to files, from nothing to its end."""
    log = folder.with_name("log")
    assert attempt(folder, root=folder, log=log) == "finished"
    return log.read_text().splitlines()


def sweep(base: Path, kind: str, every: int, lasting: bool) -> dict[str, Any]:
    whole, broken = base / "whole", base / "broken"
    total = len(operations(whole))
    wanted, ends = content(whole), Counter()
    for number in range(1, total + 1, every):
        shutil.rmtree(broken, ignore_errors=True)
        on = {"on": 1} if lasting else {}
        end = attempt(broken, root=broken, at=number, kind=kind, **on)
        for path in checkpoint.by_iteration(checkpoints_of(broken)):
            restored(broken, path.name)  # whatever is there is whole
        ends[end.split(":")[0]] += 1
        last = attempt(broken) if end != "finished" else end
        assert last == "finished", f"operation {number}: {end}; then {last}"
        assert content(broken) == wanted, f"operation {number}: {end}"
    return {"operations": total, "ends": ends}


if __name__ == "__main__":
    engine.Group = Sums  # pyright: ignore[reportAttributeAccessIssue]
    member.versions = lambda: {"cppo": "as tested"}
    print(json.dumps(sweep(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "lasting")))
