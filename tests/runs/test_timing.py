"""Where the time goes: the clock, the split of a run, and the sentence at its end."""

import numpy as np
import pytest

import cppo
from cppo.runs import timing
from cppo.runs.group import Group
from cppo.runs.plan import make_plan


def test_sentence_adds_up():
    seconds = {"physics": 5.0, "environment": 1.0, "acting": 1.0, "update": 2.0, "other": 1.0}
    inside = {"M-step": 0.5, "E-step": 0.1, "critics": 0.4}
    said = timing.sentence({"first_iteration": 3.0, "iterations": 9, "seconds": seconds, "update": inside})
    assert "physics 50%" in said and "update 20% (M-step 50%, E-step 10%, critics 40% of it)" in said
    assert "compilation 3.0 s" in said
    assert "already" in timing.sentence({"first_iteration": 0.0, "iterations": 0, "seconds": {"other": 0.1}})
    assert "only iteration" in timing.sentence({"first_iteration": 3.0, "iterations": 1, "seconds": {"other": 0.1}})


def test_a_jitted_environment_is_not_told_apart(tmp_path):
    run = cppo.train("ppo", "ProbeBox", seeds=2, steps=1200, out=tmp_path / "run", show=False, tensorboard=False)
    spent = run.summary["time"]
    assert set(spent["seconds"]) == {"compiled", "other"} and spent["iterations"] == 3
    assert spent["steps_per_second"] > 800 / (run.summary["wall_seconds"] - spent["first_iteration"]) * 0.99
    assert 0 < spent["seconds"]["compiled"] < run.summary["wall_seconds"]


def stepped(algo):
    settings = {"batch_size": 100, "num_envs": 10, "value_epochs": 2, "epochs": 2, "hidden": (8, 8), "min_episodes": 1}
    group = Group([make_plan(algo, "CarCircle1", settings=settings)])
    group.iterate(group.start())
    return group


@pytest.mark.parametrize(
    ("algo", "parts"),
    [
        pytest.param("ppo", ["policy", "critics"], marks=pytest.mark.slow),
        pytest.param("cppo", ["M-step", "E-step", "critics"], marks=pytest.mark.slow),
    ],
)
def test_a_host_environment_and_an_update_are_split(algo, parts):
    group = stepped(algo)
    seconds = group.clock.seconds
    assert set(seconds) == {"physics", "environment", "acting", "update"}
    assert all(value > 0 for value in seconds.values())
    assert seconds["physics"] <= group.env.threads.seconds  # the reset stepped MuJoCo, too
    shares = timing.update_shares(group.learners[0], 60.0)
    assert list(shares) == parts and min(shares.values()) > 0
    np.testing.assert_allclose(sum(shares.values()), 1.0)
