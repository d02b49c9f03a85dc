"""Where results come from, and when they could be had again."""

import subprocess

import numpy as np
import pytest

from cppo.algos.cppo import tracking
from cppo.runs import provenance


@pytest.fixture
def package(tmp_path):
    """A package of one file, committed; returns it, its commit, and git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("1")
    try:
        git("init", "-q")
    except OSError:
        pytest.skip("no git")
    git("add", "package/__init__.py")
    git("commit", "-q", "-m", "first")
    return folder, git("rev-parse", "HEAD"), git


def test_versions():
    found = provenance.versions()
    assert found["numpy"] == np.__version__ and found["python"].count(".") == 2 and found["cpu_count"] >= 1
    assert {"cppo", "platform", "cpu", "device", "jax", "jaxlib", "equinox", "optax", "mujoco"} <= set(found)
    assert len(found["code"]) == 16 and found["installed"] is False  # tests run on a checkout
    assert found["constants"]["algos.cppo.tracking.BACK_OFF"] == tracking.BACK_OFF
    assert found["constants"]["runs.episodes.WINDOW"] == 100
    assert all("settings" not in name for name in found["constants"])


def test_the_commit_is_that_of_the_package_only(package, monkeypatch):
    folder, commit, git = package
    clean = {"git_commit": commit, "git_modified": False}
    assert provenance.commit(folder) == clean
    (folder.parent / "notes.txt").write_text("beside the package")
    monkeypatch.setenv(provenance.COMMIT, "f" * 40)  # a checkout knows better
    assert provenance.commit(folder) == clean
    (folder / "more.py").write_text("a module that the commit lacks")
    assert provenance.commit(folder)["git_modified"] is True
    git("add", "package/more.py")
    git("commit", "-q", "-m", "second")
    assert provenance.commit(folder) == {"git_commit": git("rev-parse", "HEAD"), "git_modified": False}
    (folder / "__init__.py").write_text("2")
    assert provenance.commit(folder)["git_modified"] is True


def test_a_copy_is_told_its_commit(tmp_path, monkeypatch):
    (tmp_path / "__init__.py").write_text("1")
    monkeypatch.delenv(provenance.COMMIT, raising=False)
    assert provenance.commit(tmp_path) == {"git_commit": None, "git_modified": None}
    monkeypatch.setenv(provenance.COMMIT, "a" * 40)
    assert provenance.commit(tmp_path) == {"git_commit": "a" * 40, "git_modified": False}
    monkeypatch.setenv(provenance.COMMIT, "a" * 40 + "-modified")
    assert provenance.commit(tmp_path) == {"git_commit": "a" * 40, "git_modified": True}


def test_the_digest_is_of_names_and_contents(tmp_path):
    (tmp_path / "a.py").write_text("1")
    found = []
    for change in (lambda: None, lambda: (tmp_path / "a.py").write_text("2"), lambda: (tmp_path / "b.py").touch()):
        change()
        provenance.digest.cache_clear()
        found.append(provenance.digest(tmp_path))
    assert len(set(found)) == 3
    provenance.digest.cache_clear()
    assert provenance.digest(tmp_path) == found[-1]


def test_what_could_not_be_had_again():
    clean = {"git_commit": "a", "git_modified": False, "cppo": "1", "code": "x"}
    assert provenance.problems([clean]) == provenance.problems([clean, clean | {"jax": "2"}]) == []
    assert provenance.problems([clean | {"git_modified": True}]) == ["made with a modified tree"]
    assert provenance.problems([clean | {"git_commit": None}]) == ["the code's commit is not known"]
    assert provenance.problems([clean | {"git_commit": None, "installed": True}]) == []
    for other in ({"git_commit": "b"}, {"code": "y"}):
        assert provenance.problems([clean, clean | other]) == ["runs of several commits"]
