"""The registry: what it says of an environment is what the built one says, and asking builds nothing."""

import subprocess
import sys
from functools import partial

import pytest
import sample_envs

import cppo
from cppo import envs
from cppo.envs.gymnasium import env as gym_env
from cppo.envs.gymnasium import pool
from cppo.envs.registry import TABLE
from cppo.runs.plan import load_plan, make_plan
from cppo.types import UsageError

ASKING = """
import sys
from cppo import envs
for name in envs.names():
    assert envs.spec(name).name == name and envs.backends(name)
from cppo.runs.plan import make_plan
make_plan("ppo", "CarPush1")
heavy = {"mujoco", "warp", "PIL", "gymnasium", "imageio_ffmpeg"} & set(sys.modules)
assert not heavy, heavy
"""
HERE = [(name, backend) for name in TABLE for backend in TABLE[name].backends if backend != "warp"]


@pytest.mark.parametrize(("name", "backend"), HERE)
def test_the_spec_is_the_built_environment_s(name, backend):
    env = envs.build(name, 1, backend)
    assert env.spec == envs.spec(name) == envs.describe(name, backend).spec
    assert (env.backend, env.num_envs) == (backend, 1)


def test_asking_imports_neither_mujoco_nor_what_draws():
    subprocess.run([sys.executable, "-c", ASKING], check=True)


@pytest.mark.parametrize("name", list(TABLE))
def test_a_plan_builds_nothing(name, monkeypatch, tmp_path):
    monkeypatch.setattr(envs, "build", None)
    made = make_plan("ppo", name)
    made.save(tmp_path, {})
    assert load_plan(tmp_path) == made


def test_what_a_row_names_exists():
    for name, row in TABLE.items():
        for part in (row.view, row.replay, row.bare, *row.backends.values()):
            assert part is None or callable(part)
        if row.view is not None:
            assert envs.view(name).seconds > 0


def test_a_gymnasium_environment_is_started_once_for_its_spec(monkeypatch, tmp_path):
    """One process to learn what it is like, closed again, and one for each worker."""
    started = []

    class Counted(pool.Process):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            started.append(self)

    monkeypatch.setattr(pool, "Process", Counted)
    gym_env.describe.cache_clear()
    settings = {"batch_size": 40, "num_envs": 4, "min_episodes": 1, "value_epochs": 1, "epochs": 1}
    env = envs.from_gymnasium(partial(sample_envs.limited, steps=10), workers=2)
    assert len(started) == 1 and started[0]._child.poll() is not None
    cppo.train("ppo", env, steps=40, out=tmp_path / "run", cost_limit=5.0, settings=settings, show=False)
    assert len(started) == 3
    assert all(process._child.poll() is not None for process in started)


def test_the_best_backend_that_works_is_chosen(monkeypatch):
    monkeypatch.setattr(envs.warp, "available", lambda: True)
    assert envs.choose("AntCircle") == "warp" and envs.choose("ProbeBox") == "jax"
    monkeypatch.setattr(envs.warp, "available", lambda: False)
    assert envs.choose("AntCircle") == "threads"
    with pytest.raises(UsageError, match="Did you mean 'AntCircle'"):
        envs.spec("AntCircel")
    with pytest.raises(UsageError, match="use one of: warp, threads"):
        envs.choose("AntCircle", "jax")


def test_names_of_safety_gymnasium_mean_the_built_in_tasks():
    from cppo.study.definition import Part, Study

    for theirs, ours in (("SafetyPointGoal1-v0", "PointGoal1"), ("cppo/ProbeBox-v0", "ProbeBox")):
        assert envs.spec(theirs) is envs.spec(ours) and envs.backends(theirs) == envs.backends(ours)
        assert envs.describe(theirs).spec.name == envs.build(theirs, 1).spec.name == ours
        assert make_plan("cppo", theirs).env == ours
    assert envs.view("SafetyCarPush1-v0").reach == envs.view("CarPush1").reach
    study = Study("mine", [Part(envs=["SafetyPointGoal1-v0", "AntCircle"])])
    assert {run.env for run in study.cut(["SafetyPointGoal1-v0"]).runs()} == {"PointGoal1"}


def test_the_benchmark_s_limit_is_told():
    assert envs.remark("PointGoal1") is None
    assert "limit of 25." in str(envs.remark("SafetyPointGoal1-v0"))
    assert "--cost-limit 12.5 12.5" in str(envs.remark("SafetyPointGoal2-v0"))
