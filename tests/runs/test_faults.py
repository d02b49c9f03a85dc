"""Kills and failing disks at every operation on a run's files; folders that move; disks that are full for a while."""

import errno
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import faulty
import killing
import pytest

from cppo.errors import Unsaved, UsageError
from cppo.runs import engine, member, training
from cppo.runs.appended import Appended
from cppo.runs.lock import OWNER
from cppo.runs.sealed import read_json
from cppo.study import execute

HERE = Path(faulty.__file__).parent
KINDS = {
    "kill": ("kill", "once"),
    "torn write": ("tear", "once"),
    "full once": (errno.ENOSPC, "once"),
    "full for good": (errno.ENOSPC, "lasting"),
    "quota": (errno.EDQUOT, "lasting"),
    "broken once": (errno.EIO, "once"),
    "broken for good": (errno.EIO, "lasting"),
    "read-only": (errno.EROFS, "lasting"),
    "no permission": (errno.EACCES, "lasting"),
    "gone once": (errno.ENOENT, "once"),
}
SHORT = {"kill": 6, "torn write": 23, "full once": 23, "full for good": 17}  # one operation in so many


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The library that breaks operations on files."""
    if not sys.platform.startswith("linux") or not shutil.which("cc"):
        pytest.skip("faults are put below the C library of Linux, which needs a C compiler (cc)")
    library = tmp_path_factory.mktemp("shim") / "faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "faults.c", "-ldl"], check=True)
    return library


def sweep(shim, folder, kind, every):
    what, how = KINDS[kind]
    paths = os.pathsep.join([str(Path(engine.__file__).parents[2]), str(HERE)])
    variables = {**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, faulty.__file__, str(folder), str(what), str(every), how]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", SHORT)
def test_some_operations_broken(shim, tmp_path, kind):
    found = sweep(shim, tmp_path, kind, SHORT[kind])
    assert found["operations"] > 80 and sum(found["ends"].values()) >= found["operations"] // SHORT[kind]
    assert set(found["ends"]) <= ({"killed"} if kind in ("kill", "torn write") else {"finished", "Unsaved"})


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_broken(shim, tmp_path, kind):
    found = sweep(shim, tmp_path, kind, 1)
    print(kind, found)
    assert sum(found["ends"].values()) == found["operations"]


@pytest.mark.slow
@pytest.mark.parametrize("case", killing.CASES)
def test_processes_killed_at_random_moments(tmp_path, case):
    counts = killing.rounds(case, 29, tmp_path)
    print(case, counts)
    assert counts["kills"] >= 29 and "different" not in counts


# --- in this process, with a training that needs no compiler ----------------------------------------------------------


@pytest.fixture
def train(monkeypatch, tmp_path):
    """Train in ``tmp_path/disk/run``, saved at every iteration; ``at`` are things to do after some of them."""
    monkeypatch.setattr(engine, "Group", faulty.Sums)
    monkeypatch.setattr(member, "versions", lambda: {"cppo": "as tested"})
    (tmp_path / "disk").mkdir()
    faulty.again(tmp_path / "whole")

    def start(at=None, folder=tmp_path / "disk" / "run", show=False):
        def callback(rows):
            (at or {}).get(rows[0]["iteration"], lambda: None)()

        how = {"settings": faulty.QUICK, "checkpoint_seconds": 0.0, "callback": callback, "show": show}
        training.train("ppo_lag", "ProbeBox", steps=100 * faulty.ITERATIONS, out=folder, **how)

    return start


def assert_whole(tmp_path, folder):
    assert faulty.content(folder) == faulty.content(tmp_path / "whole")


def test_a_moved_folder_ends_the_run_and_leaves_no_fragments(tmp_path, train):
    run, place = tmp_path / "disk" / "run", tmp_path / "elsewhere"
    with pytest.raises(Unsaved, match=r"moved or deleted while it trained.*--resume"):
        train({3: partial(run.rename, place)})
    assert not run.exists() and not (place / OWNER).exists()
    assert max(path.name for path in place.glob("checkpoints/c*")) == "checkpoint-00000003.safetensors"
    faulty.again(place)
    assert_whole(tmp_path, place)


@pytest.mark.parametrize("above", [False, True])
def test_a_deleted_folder_does_not_come_back(tmp_path, train, above):
    run = tmp_path / "disk" / "run"
    with pytest.raises(Unsaved, match="moved or deleted"):
        train({3: partial(shutil.rmtree, run.parent if above else run)})
    assert not run.exists() and run.parent.exists() != above


def test_another_run_in_the_place_of_a_moved_one_is_not_written_to(tmp_path, train):
    run, place = tmp_path / "disk" / "run", tmp_path / "elsewhere"

    def replace():
        run.rename(place)
        shutil.copytree(tmp_path / "whole", run)

    with pytest.raises(Unsaved, match="moved or deleted"):
        train({2: replace})
    assert_whole(tmp_path, run)
    faulty.again(place)
    assert_whole(tmp_path, place)


def test_checkpoints_that_somebody_removed_are_written_anew_and_whole(tmp_path, train):
    run = tmp_path / "disk" / "run"
    train({4: partial(shutil.rmtree, run / "checkpoints")})
    assert_whole(tmp_path, run)


@pytest.fixture
def disk(tmp_path, train):
    """A real small file system in the place of ``tmp_path/disk``."""
    place = tmp_path / "disk"
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system of one's own is not permitted here (mount)")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk):
    with pytest.raises(OSError, match="No space left"), open(disk / "filler", "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)


def test_a_disk_full_for_a_while_is_told_once_and_costs_nothing(tmp_path, train, disk, capsys):
    train({2: partial(fill, disk), 4: (disk / "filler").unlink}, show=None)
    said = capsys.readouterr().out
    assert said.count("cannot be saved (No space left on device). Training goes on") == 1
    assert said.count("saved again") == 1
    assert_whole(tmp_path, disk / "run")


def test_a_disk_full_to_the_end_is_an_error_and_what_was_saved_stays(tmp_path, train, disk):
    with pytest.raises(Unsaved, match=r"could not be saved in .* \(No space left on device\).*--resume"):
        train({2: partial(fill, disk)})
    with pytest.raises(Unsaved, match="No space left"):
        faulty.again(disk / "run")
    (disk / "filler").unlink()
    assert {path.name[11:19] for path in (disk / "run").glob("checkpoints/c*")} == {"00000000", "00000001", "00000002"}
    faulty.again(disk / "run")
    assert_whole(tmp_path, disk / "run")


def test_a_disk_that_turns_read_only(tmp_path, train, disk):
    remount = ["mount", "-o", "remount,{}", str(disk)]

    def turn(how):
        subprocess.run([word.format(how) for word in remount], check=True)

    # A file that is open for writing keeps the kernel from it; so a run that has stopped is gone on with.
    shutil.copytree(tmp_path / "whole", disk / "run")
    (disk / "run" / "summary.json").unlink()
    turn("ro")
    for folder in (disk / "run", disk / "other"):
        with pytest.raises(Unsaved, match="Read-only file system"):
            faulty.again(folder)
    turn("rw")
    faulty.again(disk / "run")
    assert_whole(tmp_path, disk / "run")


def test_a_file_in_the_way(tmp_path, train):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(UsageError, match="is a file; choose another --out"):
        train(folder=tmp_path / "file")
    with pytest.raises(UsageError, match="Not a directory"):
        train(folder=tmp_path / "file" / "run")
    assert (tmp_path / "file").read_text() == "precious"


def test_what_a_start_cannot_have_left_is_not_removed(tmp_path, train):
    run = tmp_path / "disk" / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "versions.json.partial").write_text("{")
    with pytest.raises(UsageError, match="nothing was saved in"):
        training.resume(run, show=False)
    (run / "thesis.tex").write_text("precious")
    with pytest.raises(UsageError, match="not a run of cppo"):
        train()
    (run / "thesis.tex").rename(tmp_path / "thesis.tex")
    train()
    assert_whole(tmp_path, run)


def test_a_study_that_cannot_save_goes_on_by_the_same_command(tmp_path, train, disk):
    plan = training.load_plan(tmp_path / "whole")

    def study(at):
        def callback(rows):
            at.get(rows[0]["iteration"], lambda: None)()

        options = training.Options(checkpoint_seconds=0.0, tensorboard=False, show=False, callback=callback)
        execute.run_members([(plan, disk / "run")], lambda: False, options)

    with pytest.raises(Unsaved, match="No space left"):
        study({2: partial(fill, disk)})
    (disk / "filler").unlink()
    assert not (disk / "run" / "error.json").exists()
    study({})
    assert_whole(tmp_path, disk / "run")
    assert read_json(disk / "run" / "summary.json")["steps"] == 500


def test_what_a_full_disk_does_not_take_is_written_later_and_once(tmp_path, monkeypatch):
    file, room = Appended(tmp_path / "file"), [3, 0, 100]
    write = os.write

    def short(descriptor, data):
        free = room[0]
        if not free:
            del room[0]
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= min(free, len(data))
        return write(descriptor, bytes(data[:free]))

    monkeypatch.setattr(os, "write", short)
    file.write(b"abcd\n")
    with pytest.raises(OSError, match="No space"):
        file.sync()
    file.write(b"efgh\n")
    file.sync()
    file.close()
    assert (tmp_path / "file").read_bytes() == b"abcd\nefgh\n"
