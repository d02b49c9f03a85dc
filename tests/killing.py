"""Command-line training killed at random moments, and gone on with until it is done; also a program of its own:

python tests/killing.py CASE KILLS FOLDER     prints the counts after each run (``CASES`` lists the cases)
"""

from __future__ import annotations

import json
import os
import random
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


def command(*words: str | Path) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    every = [sys.executable, "-m", "cppo", "train", *map(str, words), "--checkpoint-seconds", "0", "--no-tensorboard"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(every, env=variables, **pipes)


def words_for(case: str, folder: Path) -> list[str | Path]:
    """The first command; or, where the run has begun, the one that the first one would tell to give."""
    if (folder / "config.json").is_file():
        return ["--resume", folder]
    return [*CASES[case], "--seeds", "1", "--out", folder]


def finish(case: str, folder: Path) -> None:
    process = command(*words_for(case, folder))
    said = process.communicate()[0]
    assert process.returncode == 0, said


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
    rng, counts = random.Random(f"{case} {seed}"), Counter()
    finish(case, base / "whole")
    began = time.monotonic()
    shutil.rmtree(base / "whole")
    finish(case, base / "whole")  # programs are compiled by now
    seconds, wanted = time.monotonic() - began, result(base / "whole")
    while counts["kills"] < kills:
        folder = base / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        for _ in range(rng.randint(1, 3)):
            process = command(*words_for(case, folder))
            time.sleep(rng.uniform(0.0, seconds))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                counts["kills"] += 1
                begun = (folder / "config.json").is_file()
                moment = (
                    "before the start" if not begun else "after" if (folder / "metrics.jsonl").exists() else "start"
                )
                counts[moment] += 1
            process.communicate()
        finish(case, folder)
        equal = same(result(folder), wanted, exact=case != "gymnasium")
        counts["equal" if equal else "different"] += 1
        assert equal, folder
        if tell:
            print(case, json.dumps(counts), flush=True)
    return dict(counts)


if __name__ == "__main__":
    rounds(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), tell=True)
