"""A policy trained on our PointGoal1 earns and costs the same in the official one.

Its interpreter is made by scripts/make_safety_gymnasium.sh and named by CPPO_SAFETY_GYMNASIUM.
"""

import os

import pytest

import cppo

PYTHON = os.environ.get("CPPO_SAFETY_GYMNASIUM")
EPISODES = int(os.environ.get("CPPO_SAFETY_GYMNASIUM_EPISODES", "24"))


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="CPPO_SAFETY_GYMNASIUM does not name an interpreter with safety-gymnasium")
def test_returns_and_costs_agree_with_the_official_environment(tmp_path):
    settings = {"batch_size": 10_000, "num_envs": 20, "value_epochs": 10}
    run = cppo.train("ppo", "PointGoal1", steps=150_000, settings=settings, out=tmp_path / "run", show=False)
    official = cppo.envs.from_gymnasium("safety_gymnasium:SafetyPointGoal1-v0", python=PYTHON, workers=2)
    ours = cppo.evaluate(run, episodes=4 * EPISODES)["policies"]
    theirs = cppo.evaluate(run, episodes=EPISODES, num_envs=8, env=official)["policies"]
    for here, there in zip(ours, theirs, strict=True):
        print(here["actions"], here["return"], there["return"], here["cost"], there["cost"])
        assert here["length"] == there["length"] == 1000
        for a, b in ((here["return"], there["return"]), (here["cost"]["cost"], there["cost"]["cost"])):
            # Half-widths are 1.96 standard errors: three standard errors of the difference, four comparisons.
            assert abs(a["mean"] - b["mean"]) <= 1.5 * (a["half_width"] ** 2 + b["half_width"] ** 2) ** 0.5
    assert ours[0]["return"]["mean"] > 1.0  # it has learned something that could differ
