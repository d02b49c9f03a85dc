"""Runs that advance together end as each would have alone."""

import jax
import numpy as np
import pytest

from cppo import envs
from cppo import plan as plans
from cppo.envs.batched import JaxEnv
from cppo.envs.probes import ProbeState
from cppo.study.lockstep import Lockstep


def alone(plan, iterations):
    learner = plan.learner()
    state, found = learner.start(), []
    for _ in range(iterations):
        state, metrics = learner.iterate(state)
        found.append(jax.device_get(metrics))
    return state, found


def together(group, state, iterations):
    found = []
    for _ in range(iterations):
        state, metrics = group.iterate(state)
        found.append(metrics)
    return state, found


def assert_same(group, members, iterations, rtol):
    state, found = together(group, group.start(), iterations)
    for index in members:
        plan, own = group.plans[index], group.split(state)[index]
        expected, metrics = alone(plan, iterations)
        for iteration in range(iterations):
            for name in ("return", "cost", "episodes"):
                np.testing.assert_allclose(
                    found[iteration][index][name], metrics[iteration][name], rtol=rtol, err_msg=f"{plan.algo} {name}"
                )
        ours, theirs = jax.tree.leaves(own.agent.policy), jax.tree.leaves(jax.device_get(expected.agent.policy))
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=10 * rtol)  # Adam divides rounding by small gradients
        assert jax.tree.structure(own.host_env) == jax.tree.structure(expected.host_env)


@pytest.mark.slow
def test_lanes_with_other_seeds_and_numbers_equal_separate_runs():
    group = Lockstep(
        [
            plans.make("ppo_lag", "ProbeBox", seed=seed, settings={"kl": kl, "cost_limit": limit})
            for seed, kl, limit in ((3, 0.02, 3.0), (4, 0.01, 4.0))
        ]
    )
    assert len(group.learners) == 1
    assert_same(group, [1], 2, 1e-4)


class OnHost(JaxEnv):
    """A probe that pretends to live outside JAX."""

    jittable = False
    backend = "host"

    def __init__(self, world, num_envs):
        super().__init__(world, num_envs)
        self._init, self._advance = jax.jit(super().init), jax.jit(super().advance)

    def init(self, keys, ages=None):
        return jax.device_get(self._init(keys, ages))

    def advance(self, state, actions):
        return jax.device_get(self._advance(state, actions))


def host_plans(env="ProbeState", other="ppo", **settings):
    return [
        plans.make("ppo_lag", env, seed=0, settings=settings),
        plans.make(other, env, seed=1, settings=settings),
        plans.make("ppo_lag", env, seed=2, settings=settings),
    ]


@pytest.fixture
def on_host(monkeypatch):
    monkeypatch.setattr(envs, "build", lambda name, num_envs, backend="auto": OnHost(ProbeState(), num_envs))


def test_several_algorithms_share_one_batch_of_worlds(on_host):
    group = Lockstep(host_plans(num_envs=4, batch_size=80))
    assert [len(learner.seeds) for learner in group.learners] == [2, 1]
    assert group.shared and group.env.num_envs == 12
    assert_same(group, [1, 2], 2, 1e-4)


def test_a_group_goes_on_from_its_members_states(on_host):
    group = Lockstep(host_plans(num_envs=4, batch_size=80))
    middle, _ = together(group, group.start(), 1)
    straight, _ = together(group, middle, 1)
    rejoined, _ = together(group, group.join(group.split(middle)), 1)
    for a, b in zip(jax.tree.leaves(straight), jax.tree.leaves(rejoined), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    own, expected = group.split(group.start())[1], group.plans[1].learner().start()
    for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(jax.device_get(expected)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6)


@pytest.mark.slow
def test_mujoco_worlds_are_shared():
    group = Lockstep(host_plans("PointGoal1", "cpo", num_envs=2, batch_size=60, value_epochs=2))
    assert group.shared and group.env.num_envs == 6
    assert_same(group, [0, 1, 2], 2, 1e-4)
