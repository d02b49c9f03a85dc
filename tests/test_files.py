"""What ``files`` writes is whole or absent, and lies where it was named."""

import errno
import os
import tracemalloc

import pytest

from cppo import files
from cppo.runs import folder
from cppo.types import UsageError


@pytest.fixture
def places(tmp_path):
    """A run's folder and a victim beside it."""
    (tmp_path / "run").mkdir()
    (tmp_path / "victim").write_text("mine")
    yield tmp_path / "run", tmp_path / "victim"
    assert (tmp_path / "victim").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["run", "victim"]


@pytest.mark.parametrize("name", ["a", "a.partial"])
@pytest.mark.parametrize("target", ["../victim", "../nothing", "."])
def test_a_link_is_replaced(name, target, places):
    run, _ = places
    (run / name).symlink_to(target)
    files.write_text(run / "a", "new")
    assert (run / "a").read_text() == "new" and not (run / "a").is_symlink()
    assert os.listdir(run) == ["a"]


def test_a_file_is_as_the_user_s_other_files_are(places):
    run, victim = places
    files.write_atomically(run / "a", b"new")
    assert (run / "a").stat().st_mode == victim.stat().st_mode


def test_after_an_error_the_old_file_stands(places):
    run, _ = places
    files.write_text(run / "a", "old")
    with pytest.raises(RuntimeError), files.replacing(run / "a") as partial:
        partial.write_text("half")
        raise RuntimeError
    assert (run / "a").read_text() == "old" and os.listdir(run) == ["a"]


@pytest.mark.parametrize("names", [2, 1])
def test_a_second_name_takes_no_memory_also_where_a_disk_has_only_one(names, places, monkeypatch):
    def refuse(*where, **how):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if names == 1:
        monkeypatch.setattr(os, "link", refuse)
    run, _ = places
    (run / "a").write_text("old")
    os.truncate(run / "a", 2**24)
    tracemalloc.start()
    files.also_called(run / "a", run / "b")
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()
    assert (run / "a").read_bytes() == (run / "b").read_bytes() and sorted(os.listdir(run)) == ["a", "b"]


def test_lines_are_not_appended_through_a_link(places):
    run, victim = places
    for target in (victim, "../nothing"):
        (run / "a").unlink(missing_ok=True)
        (run / "a").symlink_to(target)
        with pytest.raises(UsageError, match="is a link"):
            files.open_end(run / "a")
    (run / "b").symlink_to(victim)
    for opened, text in ((files.open_new, b"new"), (files.open_end, b", newer")):
        file = opened(run / "b")
        os.write(file, text)
        os.close(file)
    assert (run / "b").read_text() == "new, newer"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "../a", "a\\b", "a\0b", 3, None])
def test_a_name_from_a_file_leads_nowhere_else(name, places):
    with pytest.raises(UsageError, match="is no name of something"):
        files.inside(places[0], name)


def test_folders_inside_are_folders_and_the_named_one_may_be_a_link(places):
    run, _ = places
    (run / "inner").symlink_to(".")
    with pytest.raises(UsageError, match="is a link"):
        files.subfolder(run, "inner")
    named = run / "named"
    (run / "real").mkdir()
    named.symlink_to("real")
    files.write_text(files.subfolder(named, "below") / "a", "new")
    assert (run / "real" / "below" / "a").read_text() == "new"
    assert files.subfolder(named, "below").is_dir()  # again


def test_emptied_are_links_and_not_what_they_lead_to(places):
    run, victim = places
    (run / "a").symlink_to(victim)
    (run / "b").symlink_to("..")
    (run / "c").mkdir()
    (run / "c" / "d").symlink_to(victim)
    folder.empty(run)
    assert os.listdir(run) == []
