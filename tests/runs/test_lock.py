"""A run's folder belongs to one process at a time: with locks, without, and from two machines."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import faulty
import pytest

import cppo
from cppo.errors import Unsaved, UsageError
from cppo.runs import engine, lock
from cppo.runs.lock import OWNER, claim, owned

# The package's front, which imports JAX, is left out: what is tried here is quick.
HOLD = """
import sys, time, types
from pathlib import Path
sys.modules["cppo"] = types.ModuleType("cppo")
sys.modules["cppo"].__path__ = [sys.argv[3]]
from cppo.runs import lock
lock.BEAT, lock.PATIENCE = 0.2, 10
if sys.argv[2] != "working":
    lock._lock = lambda descriptor: {"none": None, "local": True}[sys.argv[2]]
with lock.claim(Path(sys.argv[1])) as mine:
    print(mine, flush=True)
    time.sleep(60 if mine else 0)
"""
MACHINES = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"']  # then a name, then a command


def holding(folder, locks, before=()):
    return [*before, sys.executable, "-c", HOLD, str(folder), locks, str(Path(cppo.__file__).parent)]


@pytest.fixture
def hold(tmp_path):
    """Start a process that holds ``tmp_path/run``, with locks that are ``working``, ``none`` or ``local``."""
    started = []

    def start(locks="working", before=()):
        command = holding(tmp_path / "run", locks, before)
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "True\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def free(folder):
    with claim(folder) as mine:
        return mine


def locks_are(monkeypatch, kind):
    monkeypatch.setattr(lock, "BEAT", 0.2)
    monkeypatch.setattr(lock, "PATIENCE", 10)
    if kind != "working":
        monkeypatch.setattr(lock, "_lock", lambda descriptor: {"none": None, "local": True}[kind])


def test_one_owner_until_it_is_done_or_dead(tmp_path, hold):
    folder = tmp_path / "run"
    with claim(folder) as mine, claim(folder) as again:
        assert (mine, again) == (True, False)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
    other = hold()
    assert not free(folder)
    with pytest.raises(UsageError, match=rf"another process is training in .*process {other.pid} on"), owned(folder):
        pass
    kill(other)
    assert (folder / OWNER).exists() and free(folder) and not (folder / OWNER).exists()


def test_a_deleted_lock_file_lets_nobody_in_and_comes_back(tmp_path, hold):
    hold()
    (tmp_path / "run" / OWNER).unlink()
    assert not free(tmp_path / "run")
    until = time.monotonic() + 60
    while not (tmp_path / "run" / OWNER).exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert (tmp_path / "run" / OWNER).exists()


def test_a_folder_moved_while_it_trains_is_still_taken(tmp_path, hold):
    hold()
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    assert not free(tmp_path / "elsewhere")
    time.sleep(0.5)
    assert not (tmp_path / "run").exists()


def test_without_locks_a_sign_of_life_stands_in_and_that_is_said_once(tmp_path, hold, monkeypatch, capsys):
    folder = tmp_path / "run"
    other = hold("none")
    locks_are(monkeypatch, "none")
    monkeypatch.setattr(lock, "_told", set())
    assert not free(folder) and not free(folder)
    (folder / OWNER).unlink()
    time.sleep(1.0)  # it comes back
    assert not free(folder)
    assert capsys.readouterr().err.count("has no locks") == 1
    kill(other)
    assert free(folder)
    with claim(folder) as mine, claim(folder) as again:  # one process alone
        assert (mine, again) == (True, False)


def test_two_newcomers_without_locks_are_one_owner(tmp_path, monkeypatch):
    locks_are(monkeypatch, "none")
    command = holding(tmp_path / "run", "none")
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.stdout.readline() for process in both if process.stdout)
    for process in both:
        kill(process)
    assert said == ["False\n", "True\n"]


@pytest.mark.parametrize("locks", ["working", "local", "none"])
def test_two_machines_on_one_network_folder(tmp_path, hold, monkeypatch, capfd, locks):
    """``local``: each machine grants itself the lock, as some mounts do."""
    if not shutil.which("unshare") or subprocess.run([*MACHINES, "a", "true"], capture_output=True).returncode:
        pytest.skip("no hostname of one's own is permitted here (unshare --uts)")
    folder = tmp_path / "run"
    other = hold(locks, [*MACHINES, "machine-a"])
    locks_are(monkeypatch, locks)
    with pytest.raises(UsageError, match=r"another process is training in .* on machine-a"), owned(folder):
        pass
    third = holding(folder, locks, [*MACHINES, "machine-b"])
    assert subprocess.run(third, capture_output=True, text=True, timeout=300).stdout == "False\n"
    kill(other)
    assert free(folder)
    assert "watching for" in capfd.readouterr().err


def test_an_owner_that_lost_its_folder_stops_without_a_word_in_it(tmp_path, monkeypatch):
    """It slept for an hour where there are no locks, and another process has gone on with its run."""
    monkeypatch.setattr(lock, "BEAT", 60.0)
    folder, other = tmp_path / "run", {"token": "another", "pid": 7, "host": "machine-b", "boot": "", "beats": 1}

    def take_over(rows):
        if rows[0]["iteration"] == 2:
            (folder / OWNER).write_text(json.dumps(other))

    monkeypatch.setattr(engine, "Group", faulty.Sums)
    how = {"settings": faulty.QUICK, "checkpoint_seconds": 0, "callback": take_over, "show": False}
    with pytest.raises(Unsaved, match="taken over by process 7 on machine-b"):
        cppo.train("ppo_lag", "ProbeBox", steps=400, out=folder, **how)
    assert sorted(path.name[11:19] for path in folder.glob("checkpoints/c*")) == [f"0000000{at}" for at in range(3)]
    assert json.loads((folder / OWNER).read_text()) == other


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path):
    folder, victim = tmp_path / "run", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("precious")
    os.symlink(victim, folder / OWNER)
    with pytest.raises(Unsaved, match="no run can be trained in"), owned(folder):
        pass
    assert victim.read_text() == "precious"


def test_training_refuses_a_folder_that_is_in_use(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "Group", faulty.Sums)
    cppo.train("ppo_lag", "ProbeBox", steps=200, settings=faulty.QUICK, out=tmp_path / "run", show=False)
    with claim(tmp_path / "run"):
        before = sorted(path.name for path in (tmp_path / "run").rglob("*"))
        with pytest.raises(UsageError, match="another process is training"):
            cppo.train("ppo_lag", "ProbeBox", steps=200, out=tmp_path / "run", overwrite=True, show=False)
        with pytest.raises(UsageError, match="another process is training"):
            cppo.resume(tmp_path / "run", steps=400, show=False)
        assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == before
    assert cppo.resume(tmp_path / "run", steps=400, show=False).summary["steps"] == 400
