"""Ctrl-C, SIGTERM and SIGHUP: what is complete is saved, the process ends as schedulers expect, in any case soon."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import cppo
from cppo.runs import checkpoint
from cppo.runs.engine import iterations
from cppo.runs.member import Member
from cppo.runs.options import Options
from cppo.runs.plan import make_plan
from cppo.runs.signals import SIGNALS, Heeded
from cppo.runs.training import ensure

OPTIONS = dict(algo="ppo", env="ProbeBox", seeds=2, show=False, tensorboard=False)


def rows(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in ("seconds", "check")} for line in lines]


# Ctrl-C has a test with the command line (test_engine.py).
@pytest.mark.parametrize(
    "number", [one if one == signal.SIGTERM else pytest.param(one, marks=pytest.mark.slow) for one in SIGNALS]
)
def test_a_signal_saves_the_last_iteration_and_ends_with_its_status(number, tmp_path):
    def kill(rows):
        if rows[0]["iteration"] == 2:
            os.kill(os.getpid(), number)

    handlers = [signal.getsignal(one) for one in SIGNALS]
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit) as ended:
        cppo.train(**OPTIONS, steps=4000, out=tmp_path / "run", callback=kill)
    assert getattr(ended.value, "code", 128 + number) == 128 + number
    assert checkpoint.latest(tmp_path / "run" / "checkpoints").name == checkpoint.name_of(2)
    assert [signal.getsignal(one) for one in SIGNALS] == handlers
    assert rows(tmp_path / "run")[-1]["iteration"] == 2


def test_the_second_signal_raises_at_once():
    with Heeded(busy=True) as signals, pytest.raises(SystemExit):
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.asked()
        os.kill(os.getpid(), signal.SIGTERM)


STUCK = """
import sys, time
from cppo.runs.signals import Heeded, ends_within
with ends_within(float(sys.argv[1])), Heeded(busy=True):
    print("ready", flush=True)
    time.sleep(60)  # as a compiled program: it knows nothing of the request
"""


@pytest.mark.parametrize(("patience", "number", "times"), [(0.5, signal.SIGTERM, 1), (60.0, signal.SIGHUP, 2)])
def test_the_command_line_ends_in_time_or_at_the_second_signal(patience, number, times):
    command = [sys.executable, "-c", STUCK, str(patience)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.1)
    assert process.wait(timeout=50) == 128 + number


@pytest.mark.slow
def test_a_batch_on_the_host_is_given_up_and_what_was_before_it_is_saved(tmp_path):
    settings = {"batch_size": 40, "num_envs": 2, "hidden": (8,)}
    plan = make_plan("ppo", "PointGoal1", backend="threads", steps=160, settings=settings)
    asked = []

    def stop():
        asked.append(len(asked))
        return asked[-1] > 30  # within the second batch of twenty steps

    loop = iterations([Member(plan, tmp_path / "run", lambda *_: None)], None, Options(show=False), stop)
    assert [step.number for step in loop] == [1]
    assert checkpoint.latest(tmp_path / "run" / "checkpoints").name == checkpoint.name_of(1)
    ensure(plan, tmp_path / "run", Options(show=False))
    ensure(plan, tmp_path / "whole", Options(show=False))
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    last, undisturbed = (
        checkpoint.load(checkpoint.latest(tmp_path / name / "checkpoints")) for name in ("run", "whole")
    )
    assert all(np.array_equal(last[0][name], undisturbed[0][name], equal_nan=True) for name in undisturbed[0])
