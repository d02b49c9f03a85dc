"""``DeviceCollector`` on an environment that is a JAX function and only looks like one outside JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.runs.collect import DeviceCollector
from cppo.types import Step


class Drift:
    """Four worlds: a position moves by the action; attended steps are counted."""

    unattended = 5

    def __init__(self):
        self.attended = []

    def inputs(self, state, actions):
        return jnp.concatenate([state, actions], 1)

    def call(self, inputs):
        return inputs[:, :1] + 0.1 * inputs[:, 1:]

    def finish(self, state, moved):
        ended = moved[:, 0] > 1.0
        after = jnp.where(ended[:, None], 0.0, moved)
        never = jnp.zeros_like(ended)
        return after, Step(after, moved, moved[:, 0], moved, ended, never)

    def attend(self, state, steps=1):
        self.attended.append(steps)
        return state


def act(structure, leaves, obs, keys, t):
    draw = jax.vmap(lambda key, seen: leaves[0] + jax.random.uniform(jax.random.fold_in(key, t), seen.shape))
    actions = draw(keys, obs)
    return actions, actions.reshape(-1, 1)


@pytest.mark.parametrize(("length", "shares"), [(20, [5] * 4), (3, [3]), (11, [4, 4, 3])])
def test_compiled_steps_are_single_steps(length, shares):
    keys = jax.random.split(jax.random.PRNGKey(0), 2)  # two seeds of two worlds
    env, leaves = Drift(), [jnp.asarray(0.5)]
    start = (jnp.zeros((4, 1)), jnp.zeros((2, 2, 1)))  # the collector takes over the buffers of a state
    last, obs, rollout = DeviceCollector(env, act, length)((), leaves, *start, keys)
    assert env.attended == shares
    state = jnp.zeros((4, 1))
    for t in range(length):
        action, env_action = act((), leaves, state.reshape(2, 2, 1), keys, t)
        seen = state
        state, step = env.finish(state, env.call(env.inputs(state, env_action)))
        wanted = (seen, action, step.final_obs, step.reward, step.cost, step.terminated, step.truncated)
        for part, single in zip(rollout, wanted, strict=False):
            np.testing.assert_allclose(part[:, t], single.reshape(part[:, t].shape), atol=1e-6)
    np.testing.assert_allclose(last, state, atol=1e-6)
    np.testing.assert_allclose(obs.reshape(4, 1), state, atol=1e-6)
    assert rollout.reward.shape == (2, length, 2) and bool(jnp.any(rollout.terminated)) == (length > 10)
