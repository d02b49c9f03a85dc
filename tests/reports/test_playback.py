"""Recorded episodes: what scenes show, policies with memory, runs that cannot be replayed."""

import jax
import numpy as np
import pytest

from cppo import envs
from cppo.algos import get
from cppo.networks import networks_for
from cppo.reports import playback as replay
from cppo.reports import report
from cppo.runs.plan import make_plan
from cppo.runs.run import Policy
from cppo.types import UsageError


def untrained(env, **settings):
    plan = make_plan("ppo", env, settings={"hidden": (8, 8), **settings})
    networks = networks_for(plan.build_env(1).spec, plan.settings)
    return Policy(networks, plan.settings, get("ppo").init(networks, plan.settings, jax.random.PRNGKey(0)))


def first_frame(env):
    core = envs.build(env, 1, "threads")
    state, _ = core.init(jax.random.split(jax.random.PRNGKey(0), 1))
    view = envs.view(env)
    frame = view.look(state)
    nothing = np.zeros(2)
    return replay._episode(view, 0, [frame, frame, frame], nothing, nothing, np.array([False, True]))


def test_all_vases_are_shown_within_the_view():
    episode = first_frame("PointGoal2")
    vases = np.array([one["at"][:2] for one in episode["fixed"] if one["kind"] == "vase"])
    assert len(np.unique(vases, axis=0)) == 10
    x, y, side = episode["view"]
    for one in episode["fixed"]:
        assert x <= one["at"][0] - one["size"] and one["at"][0] + one["size"] <= x + side, one
        assert y <= one["at"][1] - one["size"] and one["at"][1] + one["size"] <= y + side, one


@pytest.mark.parametrize(("env", "axes"), [("PointCircle0", []), ("PointCircle1", ["x"]), ("CarCircle2", ["x", "y"])])
def test_circle_tasks_show_their_circle_and_walls_and_no_goal(env, axes):
    fixed = first_frame(env)["fixed"]
    assert [one["size"] for one in fixed if one["kind"] == "ring"] == [1.5]
    bands = [one for one in fixed if one["kind"] == "band"]
    assert [one["axis"] for one in bands] == axes and all(one["size"] == 1.125 for one in bands)
    assert not [one for one in fixed if one["kind"] == "goal"]


@pytest.mark.parametrize("hold", [1, 5])
def test_policies_with_memory_are_replayed_as_they_were_trained(hold, monkeypatch):
    policy, asked = untrained("PointCircle", encoder="gru", memory=3, hold=hold), []

    def act(obs, deterministic, seed):
        asked.append((np.asarray(obs), Policy.act(policy, obs)))
        return asked[-1][1]

    monkeypatch.setattr(policy, "act", act)
    (episode,) = replay.record(policy, "PointCircle", seed=4)
    agent = next(one for one in episode["moving"] if one["kind"] == "agent")
    assert len(agent["track"]) == len(episode["cost"]) == 51 and len(asked) == 50 // hold
    env = make_plan("ppo", "PointCircle", settings={"encoder": "gru", "memory": 3, "hold": hold}).build_env(1)
    advance, (state, obs), reward = jax.jit(env.advance), env.init(jax.random.split(jax.random.PRNGKey(4), 1)), 0.0
    for seen, action in asked:
        np.testing.assert_allclose(seen, obs, atol=1e-6)
        state, step = advance(state, action)
        obs, reward = step.obs, reward + step.reward[0]
    assert sum(episode["reward"]) == pytest.approx(float(reward), abs=0.03)  # rounded to three digits


def test_a_replay_that_fails_leaves_the_others(tmp_path, monkeypatch, capsys):
    runs = {("PointCircle", algo, ""): [(0, tmp_path / algo)] for algo in ("cppo", "cpo")}
    monkeypatch.setattr(report, "finished_runs", lambda folder: runs)

    def of_run(place, seed, episodes, steps, checkpoint):
        if place.name == "cppo":
            raise UsageError("no checkpoint\nmore")
        return ["episode"] * episodes

    monkeypatch.setattr(replay, "of_run", of_run)
    about = {"env": "PointCircle", "variant": "", "steps": 100, "cost_limits": {"cost": 5.0}}
    groups = [{**about, "algo": algo, "seeds": [{"seed": 0, "final_return": 1.0}]} for algo in ("cppo", "cpo")]
    first, second = report.record_episodes(tmp_path, {"groups": groups}, 2)
    assert first["error"] == "UsageError: no checkpoint" and "episodes" not in first
    assert second["episodes"] == ["episode"] * 2
    assert "cppo: UsageError: no checkpoint" in capsys.readouterr().out
