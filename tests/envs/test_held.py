"""A held action is the same action given several times by hand: sums, ends, next episodes, on every kind of backend."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import OnDevice, build, keys_of

from cppo import envs
from cppo.envs.batched import JaxEnv, Transition
from cppo.envs.gymnasium.env import GymnasiumEnv, Source
from cppo.envs.held import Held, holding
from cppo.runs.collect import DeviceCollector
from cppo.types import Box, EnvSpec

HOLD = 4


class Mortal:
    """A walk that ends by chance in every third step or so; costs and rewards tell its steps apart."""

    spec = EnvSpec("Mortal", (2,), Box((-1.0,), (1.0,)), ("a", "b"), (1.0, 1.0), 12)

    def reset(self, key):
        place = jax.random.normal(key, (2,))
        return place, place

    def step(self, state, action, key):
        moved = state + 0.1 * action + 0.01 * jax.random.normal(key, (2,))
        ends = jax.random.uniform(jax.random.fold_in(key, 1)) < 0.3
        return moved, Transition(moved, moved[0], moved * jnp.array([1.0, 2.0]), ends)


def by_hand(one, key, actions, hold):
    """What a world by itself goes through: of each decision the sums, the last observation, ends, the next one."""
    state, obs = one.init(key[None])
    found = [obs[0]]
    for action in actions:
        reward, cost = 0.0, 0.0
        for _ in range(hold):
            state, step = one.advance(state, action[None])
            reward, cost = reward + step.reward[0], cost + step.cost[0]
            if step.terminated[0] | step.truncated[0]:
                break
        found.append((step.obs[0], step.final_obs[0], reward, cost, step.terminated[0], step.truncated[0]))
    return found


def held(env, keys, actions):
    """The same of all worlds at once, by world."""
    held_env = holding(env, HOLD)
    advance = jax.jit(held_env.advance) if env.jittable else held_env.advance
    state, obs = held_env.init(keys)
    steps = []
    for action in actions:
        state, step = advance(state, action)
        steps.append(step[:6])
    envs.close(held_env)
    return [[obs[world], *(tuple(part[world] for part in step) for step in steps)] for world in range(len(keys))]


def assert_same(ours, theirs):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=1e-5, atol=1e-6)


def check(make, decisions):
    """Returns how many decisions an end cut short."""
    keys = keys_of(3, 3)
    size = make(1).spec.action.size
    actions = np.random.default_rng(0).uniform(-1, 1, (decisions, 3, size)).astype(np.float32)
    found = held(make(3), keys, actions)
    for world in range(3):
        assert_same(found[world], by_hand(make(1), keys[world], actions[:, world], HOLD))
    return sum(bool(step[4]) for world in found for step in world[1:])


def test_decisions_of_worlds_that_end_at_any_time_are_steps_by_hand():
    assert check(lambda number: JaxEnv(Mortal(), number), 12) > 5


@pytest.mark.parametrize("name", ["PointCircle", "HopperVelocity"])
def test_decisions_of_real_worlds_are_steps_by_hand(name):
    ends = check(lambda number: build(name, number, "auto"), 15)
    assert (ends > 0) == (name == "HopperVelocity")


def test_decisions_of_gymnasium_s_worlds_are_steps_by_hand():
    made = []

    def make(number):
        made.append(GymnasiumEnv(Source("sample_envs:LineSample-v0", workers=1), number))
        return made[-1]

    try:
        assert check(make, 8) > 0
    finally:
        for env in made:
            env.close()


def test_a_device_collects_what_a_host_steps():
    env = OnDevice(Mortal(), 6)
    drawn = jax.random.uniform(jax.random.PRNGKey(1), (9, 6, 1), minval=-1.0)
    act = lambda structure, leaves, obs, keys, t: (drawn[t].reshape(2, 3, 1), drawn[t])  # noqa: E731
    state, obs = Held(env, HOLD).init(keys_of(0, 6))
    collected = DeviceCollector(Held(env, HOLD), act, 9)
    last, _, rollout = collected(
        (), [], state, jnp.array(obs).reshape(2, 3, 2), jax.random.split(jax.random.PRNGKey(0))
    )
    assert env.attended == [4] * 9  # of its 7 steps no second decision is whole
    state, _ = Held(env, HOLD).init(keys_of(0, 6))
    for t in range(9):
        state, step = Held(env, HOLD).advance(state, drawn[t])
        wanted = (step.final_obs, step.reward, step.cost, step.terminated, step.truncated)
        assert_same(tuple(part[:, t] for part in rollout[2:7]), tuple(x.reshape(2, 3, *x.shape[1:]) for x in wanted))
    assert_same(last, state)
    assert bool(jnp.any(rollout.terminated))


def test_ages_are_in_decisions():
    env = Held(JaxEnv(Mortal(), 3), HOLD)
    assert env.spec.episode_length == 3
    state, _ = env.init(keys_of(0, 3), np.array([0, 1, 2]))
    assert state.age.tolist() == [0, 4, 8]
