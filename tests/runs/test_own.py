"""Runs that the user started himself go on without a word, wherever they lie; others ask first."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import sample_envs

import cppo
from cppo.imports import Trust, search_path
from cppo.runs import own
from cppo.runs.plan import load_plan, make_plan
from cppo.runs.sealed import read_json, write_sealed
from cppo.types import UsageError

SMALL = {"batch_size": 40, "num_envs": 4, "min_episodes": 1, "value_epochs": 1, "epochs": 1, "hidden": (4,)}
WORLD = "from sample_envs import LongLine as Mine\nfrom sample_envs import one as price\n"
QUIET = {"show": False, "tensorboard": False}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return tmp_path / "state" / "cppo" / "runs"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on an environment of the user's own, started in ``project``; ``elsewhere`` has a stranger's module."""
    place = tmp_path_factory.mktemp("own")
    for name, text in (("project", WORLD), ("elsewhere", "raise SystemExit('a stranger')")):
        (place / name).mkdir()
        (place / name / "my_world.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        patch.chdir(place / "project")
        env = cppo.envs.from_gymnasium("my_world:Mine", cost="my_world:price", episode_length=10, workers=1)
        cppo.train("ppo_lag", env, steps=40, out="run", cost_limit=5.0, settings=SMALL, **QUIET)
    return place


@pytest.fixture
def mine(trained, tmp_path, monkeypatch):
    """A copy of the run's folder and of what is noted, seen from elsewhere."""
    shutil.copytree(trained / "state", tmp_path / "state")
    monkeypatch.chdir(trained / "elsewhere")
    return Path(shutil.copytree(trained / "project" / "run", tmp_path / "run"))


def test_an_own_run_goes_on_from_anywhere_with_the_modules_of_then(mine, tmp_path, state):
    assert len(list(state.iterdir())) == 1
    assert cppo.resume(mine, steps=80, **QUIET).summary["steps"] == 80
    assert len(list(state.iterdir())) == 1  # its length is no part of what is noted
    moved = shutil.move(mine, tmp_path / "moved")
    assert cppo.resume(moved, steps=120, **QUIET).summary["steps"] == 120
    result = cppo.evaluate(moved, episodes=2, num_envs=1)
    assert result["policies"][0]["cost"]["cost"]["mean"] == 10.0  # the price of then


def test_other_settings_are_not_his(mine):
    config = mine / "config.json"
    saved = read_json(config)
    for change in ({"gymnasium": saved["gymnasium"] | {"cost": "my_world:other"}}, {"cost_limits": {"cost": 6.0}}):
        write_sealed(config, saved | change)
        with pytest.raises(UsageError, match=r"'my_world:Mine' \(from .*elsewhere.*add --trust"):
            cppo.resume(mine, steps=80, **QUIET)
    config.write_text(json.dumps(saved, indent=1))  # the same in another form, as an earlier version wrote it
    assert load_plan(mine).trust.vouched


def test_nothing_in_the_folder_vouches_for_it(mine, state):
    shutil.move(state, mine / "state" / "cppo" / "runs")
    with pytest.raises(UsageError, match="nobody but its files asks for it"):
        cppo.resume(mine, steps=80, **QUIET)
    assert not state.exists()


def test_trust_holds_for_one_command(trained, mine, state, monkeypatch):
    shutil.rmtree(state)
    monkeypatch.chdir(trained / "project")
    assert cppo.resume(mine, steps=80, trust=True, **QUIET).summary["steps"] == 80
    with pytest.raises(UsageError, match="--trust"):
        cppo.resume(mine, steps=120, **QUIET)


def test_an_environment_named_anew_needs_no_trust(mine, state):
    shutil.rmtree(state)
    env = cppo.envs.from_gymnasium(sample_envs.limited, cost=sample_envs.one, workers=1)
    assert cppo.resume(mine, steps=80, env=env, **QUIET).summary["steps"] == 80


def test_what_is_cppo_s_own_is_not_noted(tmp_path, state):
    make_plan("ppo", "ProbeBox", settings=SMALL).save(tmp_path, {})
    assert not state.exists()


def test_a_state_folder_that_cannot_be_written_stops_nothing(tmp_path, caplog, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    plan = make_plan("sample_algorithms:NOISE", "ProbeBox", settings=SMALL)
    plan.save(tmp_path, {})
    assert "--trust" in caplog.text
    assert not load_plan(tmp_path).trust.vouched


@pytest.mark.parametrize("content", ["", "[]", '{"place": 3}', '{"place": "here"}', "{}"])
def test_a_damaged_note_is_none(content, state):
    own.note({"algo": "x"}, "/somewhere")
    assert own.place_of({"algo": "x", "steps": 3}) == "/somewhere"
    next(state.iterdir()).write_text(content)
    assert own.place_of({"algo": "x"}) is None


def test_an_own_algorithm_and_encoder_are_found_where_they_were(tmp_path, monkeypatch):
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder, text in ((project, "from sample_algorithms import NOISE as ROW"), (elsewhere, "raise SystemExit")):
        folder.mkdir()
        (folder / "my_row.py").write_text(text)
    monkeypatch.chdir(project)
    cppo.train("my_row:ROW", "ProbeBox", steps=40, out="run", settings=SMALL, **QUIET)
    sys.modules.pop("my_row")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", ["", *(entry for entry in sys.path if entry != str(project))])
    assert np.isfinite(cppo.load(project / "run").act(np.ones(1), deterministic=False)).all()
    shutil.rmtree(project / "__pycache__", ignore_errors=True)
    (project / "my_row.py").unlink()
    sys.modules.pop("my_row")
    run = cppo.load(project / "run")
    assert len(run.metrics()) == 1  # its curves need no code
    with pytest.raises(UsageError, match="cannot be imported"):
        run.act(np.ones(1))


def test_the_working_directory_is_searched_only_for_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/lib", *sys.path])
    assert search_path(None)[0] == "/lib" and str(tmp_path) not in search_path(None)
    assert search_path("/mine")[:2] == ["/mine", "/lib"]
    assert search_path("")[:2] == [str(tmp_path), "/lib"]
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert search_path(None)[:2] == [str(tmp_path), "/lib"]  # the user's word


def test_what_is_shown_is_one_line_of_bounded_length():
    bad = "a\nb\x1b[2J\u202e:" + "x" * 10_000
    with pytest.raises(UsageError) as refused:
        Trust((("environment", bad),), vouched=False, whose="run").ask()
    text = str(refused.value)
    assert text.isprintable() and len(text) < 600


def test_an_interpreter_is_the_same_from_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(Path(sys.executable).parent)
    monkeypatch.setenv("PYTHONPATH", str(Path(sample_envs.__file__).parent))  # another interpreter has its own modules
    env = cppo.envs.from_gymnasium("sample_envs:limited", python=f"./{Path(sys.executable).name}", workers=1)
    assert env.core.source.python == sys.executable
