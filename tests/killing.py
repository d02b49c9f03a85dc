"""Command-line training killed at random moments, and gone on with until it is done; also a program of its own:

python tests/killing.py CASE KILLS FOLDER     prints the counts after each run (``CASES`` lists the cases)
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from cppo.runs import checkpoint
from cppo.runs.checkpoint import checkpoints_of

SMALL = ["batch_size=100", "num_envs=10"]
QUICK = [*SMALL, "epochs=2", "value_epochs=2"]
THREADS = ["batch_size=200", "num_envs=4", "epochs=2", "value_epochs=2"]
REPLAY = [*SMALL, "replay_size=1000", "value_steps=5", "states=32", "actions=4"]
GYMNASIUM = ["--env", "sample_envs:LineSample-v0", "--cost-limit", "3", "--env-workers", "1"]
CASES = {
    "cppo": ["--algo", "cppo", "--env", "ProbeBox", "--steps", "4000", "--set", *QUICK],
    "ppo_lag": ["--algo", "ppo_lag", "--env", "ProbeTwo", "--steps", "4000", "--set", *QUICK],
    "focops": ["--algo", "focops", "--env", "ProbeState", "--steps", "4000", "--set", *QUICK],
    "cpo": ["--algo", "cpo", "--env", "ProbeBox", "--steps", "4000", "--set", *SMALL],
    "cvpo": ["--algo", "cvpo", "--env", "ProbeBox", "--steps", "3000", "--set", *REPLAY],
    "threads": ["--algo", "ppo_lag", "--env", "PointGoal1", "--steps", "3000", "--set", *THREADS],
    "gymnasium": ["--algo", "ppo_lag", *GYMNASIUM, "--steps", "3000", "--set", *QUICK],
}
HERE = Path(__file__).parent
QUIET = ["--checkpoint-seconds", "0", "--no-tensorboard"]
LIBRARIES = "cppo.commands.cli, cppo.runs.training, cppo.runs.engine, cppo.runs.loggers, cppo.algos, cppo.envs"
# Importing takes a quarter of a run's time, and changes no file.
STARTER = f"""
import json, os, sys, {LIBRARIES}
for line in sys.stdin:
    words, said = json.loads(line)
    child = os.fork()
    if not child:
        for file in (1, 2):
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), file)
        sys.exit(cppo.commands.cli.main(words))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Starter:
    """Starts ``cppo train``, one at a time, as forks of a process that has imported the libraries and done no more."""

    def __init__(self, log: Path) -> None:
        paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        # What is killed need not be optimised.
        variables = {**os.environ, "PYTHONPATH": paths, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
        self.log, self._process = log, subprocess.Popen([sys.executable, "-c", STARTER], env=variables, **pipes)

    def start(self, *words: str | Path) -> int:
        """Its process."""
        assert self._process.stdin is not None
        self.log.unlink(missing_ok=True)
        line = json.dumps([["train", *map(str, words), *QUIET], str(self.log)])
        self._process.stdin.write(f"{line}\n".encode())
        return self.end()

    def runs(self) -> bool:
        return not select.select([self._process.stdout], [], [], 0)[0]

    def end(self) -> int:
        """The exit status of what was started, once it has ended."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def command(*words: str | Path) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    every = [sys.executable, "-m", "cppo", "train", *map(str, words), *QUIET]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(every, env=variables, **pipes)


def words_for(case: str, folder: Path) -> list[str | Path]:
    """The first command; or, where the run has begun, the one that the first one would tell to give."""
    if (folder / "config.json").is_file():
        return ["--resume", folder]
    return [*CASES[case], "--seeds", "1", "--out", folder]


def finish(starter: Starter, case: str, folder: Path) -> None:
    starter.start(*words_for(case, folder))
    assert starter.end() == 0, starter.log.read_text()


def result(folder: Path) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Rows without their times, and the last saved state; of a replay, what its segments hold in order."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    arrays, meta = checkpoint.load(checkpoint.latest(checkpoints_of(folder)))
    parts = [checkpoint.load(checkpoints_of(folder) / one["file"])[0] for one in meta.get("replay", [])]
    if parts:
        rewards = np.concatenate([part["reward"] for part in parts], axis=1)
        arrays = {**arrays, "replay": rewards[:, -1000:]}
    return [{name: value for name, value in row.items() if name not in ("seconds", "check")} for row in rows], arrays


def same(ours: Any, theirs: Any, exact: bool) -> bool:
    if not exact:  # episodes of Gymnasium start afresh: all iterations are there, once
        return [row["iteration"] for row in ours[0]] == [row["iteration"] for row in theirs[0]]
    equal = [np.array_equal(ours[1][name], array, equal_nan=array.dtype != bool) for name, array in theirs[1].items()]
    return ours[0] == theirs[0] and all(equal)


def rounds(case: str, kills: int, base: Path, seed: int = 0, tell: bool = False) -> dict[str, Any]:
    """Kill ``kills`` processes, up to three of a run; how many runs ended as an undisturbed one."""
    base.mkdir(parents=True, exist_ok=True)
    rng, counts, starter = random.Random(f"{case} {seed}"), Counter(), Starter(base / "said")
    finish(starter, case, base / "whole")
    began = time.monotonic()
    shutil.rmtree(base / "whole")
    finish(starter, case, base / "whole")  # programs are compiled by now
    seconds, wanted = time.monotonic() - began, result(base / "whole")
    while counts["kills"] < kills:
        folder = base / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        for _ in range(rng.randint(1, 3)):
            process = starter.start(*words_for(case, folder))
            time.sleep(rng.uniform(0.0, seconds))
            with contextlib.suppress(ProcessLookupError):
                if starter.runs():
                    os.kill(process, signal.SIGKILL)
            if starter.end() == -signal.SIGKILL:
                counts["kills"] += 1
                counts[_moment(folder)] += 1
        finish(starter, case, folder)
        equal = same(result(folder), wanted, exact=case != "gymnasium")
        counts["equal" if equal else "different"] += 1
        assert equal, folder
        if tell:
            print(case, json.dumps(counts), flush=True)
    starter.close()
    return dict(counts)


def _moment(folder: Path) -> str:
    if not (folder / "config.json").is_file():
        return "before the start"
    return "after" if (folder / "metrics.jsonl").exists() else "start"


if __name__ == "__main__":
    rounds(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), tell=True)
