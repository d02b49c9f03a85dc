"""A finished run of a million lines of metrics, 64 seeds in 15,625 iterations, without the training; also a program:

python tests/long_run.py FOLDER [LINES]     makes the run, and prints seconds and memory of the commands that read it
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from cppo.runs import checkpoint, sealed
from cppo.runs.metrics import METRICS, RunWriter, read_metrics, summarise
from cppo.runs.plan import make_plan
from cppo.runs.provenance import versions

SEEDS = 64
COMMANDS = {
    "plot": ["plot", "{run}"],
    "watch": ["watch", "{run}", "--once"],
    "report": ["report", "{run}", "--episodes", "0", "--out", "{run}-report"],
}
NAMES = ["return", "length", "episodes", "kl", "entropy", "value_loss", "cost_value_loss", "multiplier", "rate_scale"]
NAMES += ["value_explained", "cost_value_explained", "predicted_reward_change", "nonfinite", "clip_share"]


def make(folder: Path, lines: int) -> Path:
    """Rows as PPO-Lagrangian writes them, of noise around curves that learn."""
    count = lines // SEEDS
    plan = make_plan("ppo_lag", "PointCircle", seeds=SEEDS, steps=count * 1000, settings={"batch_size": 1000})
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    with RunWriter(folder, tensorboard=False) as writer:
        for iteration in range(1, count + 1):
            noise = rng.normal(1.0, 0.1, (SEEDS, len(NAMES) + 1)).astype(np.float32) * np.float32(iteration / count)
            rows = []
            for seed, values in enumerate(noise.tolist()):
                row = {"iteration": iteration, "steps": iteration * 1000, "seed": seed, "mode": "normal"}
                row |= {"cost": values[0], **dict(zip(NAMES, values[1:], strict=True)), "seconds": iteration * 0.5}
                rows.append(row | {"episodes": 5, "nonfinite": 0})
            writer.write(rows)
    checkpoint.save(folder / "checkpoints", count, {"nothing": np.zeros(1)}, {"config": plan.saved()})
    plan.save(folder, versions())
    summary = summarise(read_metrics(folder), plan.cost_limits, 100.0, count * 1000)  # which leaves a compact copy
    sealed.write_sealed(folder / "summary.json", summary)
    return folder


# A process counts as its own what the one that forked it had in memory, so a small one starts the command.
LAUNCHER = """
import os, subprocess, sys
with subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL) as process:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
print(process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""


def measured(words: list[str]) -> tuple[float, float]:
    """Seconds of processor and megabytes that a command takes; on a machine that is busy its time would say nothing."""
    command = [sys.executable, "-c", LAUNCHER, sys.executable, "-m", "cppo", *words]
    code, seconds, megabytes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert code == "0", words
    return float(seconds), float(megabytes)


def table(run: Path) -> dict[str, tuple[float, float]]:
    return {name: measured([word.format(run=run) for word in words]) for name, words in COMMANDS.items()}


if __name__ == "__main__":
    began = time.monotonic()
    made = make(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
    print(f"{(made / METRICS).stat().st_size / 1e6:.0f} MB, made in {time.monotonic() - began:.0f} s", flush=True)
    for name, words in COMMANDS.items():
        print(name, *measured([word.format(run=made) for word in words]), flush=True)
