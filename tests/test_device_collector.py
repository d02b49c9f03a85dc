"""The two ways of ``DeviceCollector`` on an environment that is a JAX function and only looks like one outside JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.collect import DeviceCollector
from cppo.types import Step


class Drift:
    """Four worlds: a position moves by the action; attended steps are counted."""

    unattended = 5

    def __init__(self):
        self.attended = []

    def inputs(self, state, actions):
        return jnp.concatenate([state, actions], 1)

    def run(self, inputs):
        return self.call(inputs, "host")

    def call(self, inputs, mode):
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
def test_compiled_steps_are_those_driven_from_the_host(length, shares):
    keys = jax.random.split(jax.random.PRNGKey(0), 2)  # two seeds of two worlds
    results = []
    for mode in ("host", "GRAPH"):
        env = Drift()
        state = jnp.zeros((4, 1))
        collector = DeviceCollector(env, act, length, mode)
        results.append(collector((), [jnp.asarray(0.5)], state, state.reshape(2, 2, 1), keys))
        assert env.attended == ([1] * length if mode == "host" else shares)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), *results)
    assert results[0][2].reward.shape == (2, length, 2)
