"""Twenty short runs, killed five times at random, give the report of an undisturbed study."""

import json
import random
import signal
import subprocess
import sys
import time

import pytest

from cppo.reports import records as results
from cppo.reports import report

TOML = """
title = "Twenty short runs"
seeds = 4
steps = 4000
[settings]
epochs = 2
value_epochs = 2
batch_size = 100
num_envs = 10
[[part]]
envs = ["ProbeBox", "ProbeState"]
algos = ["cppo", "ppo_lag"]
[[part]]
envs = ["ProbeBox"]
algos = ["ppo_lag"]
variants = { "small steps" = { kl = 0.002 } }
"""


def command(study, out):
    words = [
        sys.executable,
        "-m",
        "cppo",
        "study",
        str(study),
        "--out",
        str(out),
        "--checkpoint-seconds",
        "0",
    ]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def written(folder):
    return sum(path.stat().st_size for path in folder.glob("runs/*/metrics.jsonl"))


@pytest.mark.slow
def test_five_kills_change_nothing(tmp_path):
    study = tmp_path / "twenty.toml"
    study.write_text(TOML)
    assert command(study, tmp_path / "whole").wait() == 0
    total, kills = written(tmp_path / "whole"), 0
    for number in range(1, 6):
        process = command(study, tmp_path / "killed")
        # Somewhere in the next sixth of the work, whatever it is doing then: compiling, training, saving.
        goal = total * (number - random.random()) / 6
        while process.poll() is None and written(tmp_path / "killed") < goal:
            time.sleep(0.01)
        time.sleep(random.random() * 0.3)
        kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert kills == 5
    assert command(study, tmp_path / "killed").wait() == 0
    whole, killed = (results.digest(tmp_path / name) for name in ("whole", "killed"))
    for group in (*whole["groups"], *killed["groups"]):
        for seed in group["seeds"]:
            del seed["timing"]
    assert sum(len(group["seeds"]) for group in whole["groups"]) == 20
    assert json.dumps(killed) == json.dumps(whole)
    assert report.render(killed, []) == report.render(whole, [])
