"""Batches of the near past, brought up to date."""

import jax
import jax.numpy as jnp
import numpy as np

from cppo import algos
from cppo.algos.cppo import CPPOSettings, reuse
from cppo.envs.probes import ProbeTwo
from cppo.networks import Networks
from cppo.types import Batch


def batch(value):
    number, flag = jnp.full((3, 2), value), jnp.zeros((3, 2), bool)
    wide = jnp.full((3, 2, 2), value)
    return Batch(number[..., None], wide, number[..., None], number, wide, flag, flag, number, None)


def past(count):
    settings = CPPOSettings(reuse=count, batch_size=6, num_envs=2)
    return reuse.nothing(Networks(ProbeTwo.spec, (8, 8), "tanh"), settings)


def test_the_newest_comes_first_and_the_oldest_goes():
    kept = past(3)
    for value in (1.0, 2.0, 3.0, 4.0):
        joined, then, kept = reuse.join(kept, batch(value), jnp.full((3, 2), -value))
    assert joined.reward.shape == (3, 6)
    np.testing.assert_array_equal(joined.reward[0], [4, 4, 3, 3, 2, 2])
    np.testing.assert_array_equal(then[0], [-4, -4, -3, -3, -2, -2])


def test_the_first_batch_stands_in_for_a_missing_past():
    joined, _, _ = reuse.join(past(3), batch(7.0), jnp.zeros((3, 2)))
    np.testing.assert_array_equal(joined.reward, 7.0)


def test_reuse_of_one_is_the_batch_itself():
    joined, _, _ = reuse.join(past(1), batch(7.0), jnp.zeros((3, 2)))
    assert joined.reward.shape == (3, 2)


def test_weights_are_clipped():
    now, then = jnp.asarray([0.0, 0.1, 5.0, -5.0]), jnp.zeros(4)
    np.testing.assert_allclose(reuse.weights(now, then), [1.0, np.exp(0.1), 2.0, 0.5], rtol=1e-6)


def test_states_of_any_algorithm_are_arrays_with_names():
    networks = Networks(ProbeTwo.spec, (8, 8), "tanh")
    algorithm = algos.get("cppo")
    state = algorithm.init(networks, CPPOSettings(cost_limit=(1.0, 1.0)), jax.random.PRNGKey(0))
    assert all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(state))
