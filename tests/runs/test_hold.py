"""Runs whose actions are held: what a person reads is in steps, what an algorithm sees in decisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import offer

import cppo
from cppo import envs
from cppo.envs.batched import Transition
from cppo.maths import costs
from cppo.networks import scale_action
from cppo.policies.evaluate import evaluate
from cppo.runs import health
from cppo.runs.group import Group
from cppo.runs.learner import learner_for
from cppo.runs.plan import make_plan
from cppo.types import Box, EnvSpec, UsageError

QUIET = dict(show=False, tensorboard=False)
SMALL = {"hidden": (8,), "value_epochs": 2}


class Toll:
    """Every step earns 2 and costs 1, whatever is done: episodes of 20 steps return 40 and cost 20."""

    spec = EnvSpec("Toll", (1,), Box((-1.0,), (1.0,)), ("cost",), (30.0,), 20)

    def reset(self, key):
        return jnp.zeros(()), jnp.zeros(1)

    def step(self, state, action, key):
        return state + 1, Transition((state + 1)[None], jnp.asarray(2.0), jnp.ones(1), jnp.asarray(False))


@pytest.mark.parametrize("worlds", [4, 40])  # rollouts of two episodes; of a fifth of one, where J_c is taken by age
def test_rows_and_evaluations_count_steps_and_undiscounted_sums(worlds, tmp_path, monkeypatch):
    offer(monkeypatch, "Toll", Toll())
    settings = SMALL | {"batch_size": 160, "num_envs": worlds, "hold": 2, "min_episodes": 4}
    run = cppo.train("ppo_lag", "Toll", steps=1600, out=tmp_path / "run", settings=settings, eval_every=800, **QUIET)
    frame = run.metrics()
    known = frame[frame["mode"] != "waiting"]
    assert frame["steps"].tolist() == list(range(160, 1601, 160))
    assert len(known) > 3
    for name, value in {"length": 20.0, "return": 40.0, "cost": 20.0}.items():
        np.testing.assert_allclose(known[name].astype(float), value, rtol=1e-5)
    np.testing.assert_allclose(frame["eval_cost"].dropna().astype(float), 20.0)
    row = evaluate(run, episodes=3)["policies"][0]
    assert (row["length"], row["return"]["mean"], row["cost"]["cost"]["mean"]) == (20.0, 40.0, 20.0)


def test_discounts_are_of_a_step_and_budgets_of_a_decision(monkeypatch):
    offer(monkeypatch, "Toll", Toll())
    settings = SMALL | {"batch_size": 160, "num_envs": 4, "hold": 5, "discount": 0.9, "cost_discount": 0.8}
    plan = make_plan("ppo_lag", "Toll", settings=settings)
    group = Group([plan])
    learner, state = group.learners[0], group.start().sections[0]
    taken = jax.tree.map(lambda leaf: leaf[0], learner.settings)
    assert taken.discount == pytest.approx(0.9**5) and taken.cost_discount == pytest.approx(0.8**5)
    assert plan.settings.discount == 0.9 and taken.gae_decay == pytest.approx(plan.settings.gae_decay)
    _, batch, _ = learner.next_update(taken, jax.tree.map(lambda leaf: leaf[0], state))
    assert batch.reward.shape == (8, 4) and batch.reward[0, 0] == 10.0
    seen = batch.episodes
    assert seen.discounted_cost[0] == pytest.approx(5 * sum(0.8 ** (5 * k) for k in range(4)))
    per_decision = [costs.budget(jnp.array([30.0]), seen, taken.cost_discount, unit)[0] for unit in costs.UNITS]
    np.testing.assert_allclose(per_decision, (30 - 20) / 4, rtol=1e-5)


def test_the_first_batch_is_the_environment_s_own():
    """What an update sees of PointCircle, stepped by hand with the same actions."""
    hold = 5
    plan = make_plan("ppo", "PointCircle", settings=SMALL | {"batch_size": 400, "num_envs": 4, "hold": hold})
    learner, group = learner_for([plan], plan.build_env(4)), Group([plan])
    state = jax.tree.map(lambda leaf: leaf[0], group.start().sections[0])
    _, batch, _ = learner.next_update(jax.tree.map(lambda leaf: leaf[0], learner.settings), state)
    env = envs.build("PointCircle", 4)
    raw, obs = env.init(jax.random.split(jax.random.split(jax.random.PRNGKey(0), 3)[1], 4))
    step_once, returns, spent = jax.jit(env.advance), np.zeros(4), np.zeros(4)
    for t in range(50 // hold):
        np.testing.assert_allclose(batch.obs[t], obs, atol=1e-6)
        for _ in range(hold):
            raw, step = step_once(raw, scale_action(env.spec, batch.action[t]))
            returns, spent = returns + step.reward, spent + step.cost[:, 0]
        obs = step.obs
    rows = slice(0, 50 // hold)
    np.testing.assert_allclose(batch.reward[rows].sum(0), returns, rtol=1e-4)
    np.testing.assert_allclose(batch.cost[rows].sum(0)[:, 0], spent, rtol=1e-4)
    assert batch.truncated[50 // hold - 1].all() and not batch.truncated[: 50 // hold - 1].any()


def test_a_resumed_run_on_threads_goes_on_bit_for_bit(tmp_path):
    settings = SMALL | {"batch_size": 100, "num_envs": 5, "hold": 5, "min_episodes": 1}
    options = dict(algo="ppo", env="HopperVelocity", settings=settings, **QUIET)
    whole = cppo.train(steps=400, out=tmp_path / "whole", **options)
    cppo.train(steps=200, out=tmp_path / "parts", **options)
    parts = cppo.resume(tmp_path / "parts", steps=400, **QUIET)
    columns = [name for name in whole.metrics().columns if name != "seconds"]
    assert parts.metrics()[columns].equals(whole.metrics()[columns])
    ours, theirs = (run._parameters[0] for run in (parts, whole))
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name], equal_nan=True) for name in ours)


@pytest.mark.parametrize("algo", ["cppo", "mpo"])
def test_methods_that_keep_samples_keep_decisions(algo, tmp_path):
    off = {"replay_size": 40, "value_steps": 2, "states": 8, "actions": 4}
    settings = {"hidden": (8,), "batch_size": 200, "num_envs": 4, "hold": 5}
    settings |= {"reuse": 3, "exact": False} if algo == "cppo" else off
    run = cppo.train(algo, "PointCircle", steps=600, out=tmp_path / "run", settings=settings, **QUIET)
    assert run.metrics()["steps"].tolist() == [200, 400, 600]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hold": 3}, "hold 3 does not divide the 50 steps of an episode of PointCircle; use for example --set hold=2"),
        ({"hold": 5, "num_envs": 30, "batch_size": 1000}, "num_envs 30 × hold 5; .* batch_size=900"),
        ({"hold": 0}, "hold is 0; it must be at least 1"),
    ],
)
def test_what_does_not_fit_is_said(settings, words):
    with pytest.raises(UsageError, match=words):
        make_plan("ppo", "PointCircle", settings=settings)


def test_the_first_bad_step_is_named_in_steps():
    plan = make_plan("ppo", "PointCircle", settings={"batch_size": 100, "num_envs": 4, "hold": 5})
    assert health._step(plan, 2, np.int64(3)) == 100 + 15 + 1
