"""A run's folder belongs to one process at a time."""

import signal
import subprocess
import sys

import pytest

import cppo
from cppo.claim import claim
from cppo.types import UsageError

HOLD = """
import sys, time
from pathlib import Path
from cppo.claim import claim
with claim(Path(sys.argv[1])) as mine:
    print(mine, flush=True)
    time.sleep(60)
"""


def test_one_owner_until_it_is_done_or_dead(tmp_path):
    folder = tmp_path / "run"
    with claim(folder) as mine, claim(folder) as again:
        assert (mine, again) == (True, False)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "True\n"
    with claim(folder) as mine:
        assert not mine
    other.send_signal(signal.SIGKILL)
    other.wait()
    with claim(folder) as mine:
        assert mine


def test_training_refuses_a_folder_that_is_in_use(tmp_path):
    quick = {"epochs": 2, "value_epochs": 2, "batch_size": 100, "num_envs": 10}
    cppo.train("ppo_lag", "ProbeBox", steps=200, settings=quick, out=tmp_path / "run", show=False)
    before = sorted(path.name for path in (tmp_path / "run").rglob("*"))
    with claim(tmp_path / "run"):
        with pytest.raises(UsageError, match="another process is training"):
            cppo.train("ppo_lag", "ProbeBox", steps=200, out=tmp_path / "run", overwrite=True, show=False)
        with pytest.raises(UsageError, match="another process is training"):
            cppo.resume(tmp_path / "run", steps=400, show=False)
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == before
    assert cppo.resume(tmp_path / "run", steps=400, show=False).summary["steps"] == 400
