"""The bang-bang switch and the running moments."""

import jax.numpy as jnp
import numpy as np
import pytest

from cppo.maths import normalise, switch


def test_switch_has_a_gap():
    seen = []
    state = jnp.asarray([False])
    for cost in (4.0, 5.0, 5.1, 4.5, 4.1, 4.0, 4.5, 5.0, 6.0):
        state = switch.step(state, jnp.asarray([cost]), jnp.asarray([5.0]), 0.8)
        seen.append(bool(state[0]))
    assert seen == [False, False, True, True, True, False, False, False, True]


def test_each_constraint_has_its_own_switch():
    state = switch.step(jnp.asarray([False, True]), jnp.asarray([6.0, 0.5]), jnp.asarray([5.0, 1.0]), 0.8)
    assert state.tolist() == [True, False]


def test_merged_moments_equal_those_of_all_data():
    rng = np.random.default_rng(1)
    parts = [rng.normal(3.0, 5.0, size=(n, 2)).astype(np.float32) for n in (10, 200, 37)]
    stats = normalise.empty((2,))
    for part in parts:
        stats = normalise.observe(stats, jnp.asarray(part))
    everything = np.concatenate(parts)
    np.testing.assert_allclose(stats.mean, everything.mean(0), rtol=1e-5)
    np.testing.assert_allclose(stats.sum_squares / stats.count, everything.var(0), rtol=1e-4)


def test_small_signals_are_not_blown_up():
    data = jnp.asarray([[0.0, -10.0], [0.2, 10.0]])
    stats = normalise.observe(normalise.empty((2,)), data)
    shrunk = normalise.apply(stats, data, floor=1.0)
    assert float(jnp.abs(shrunk[:, 0]).max()) == pytest.approx(0.1)
    assert float(jnp.abs(shrunk[:, 1]).max()) == pytest.approx(1.0)
    np.testing.assert_allclose(normalise.apply(stats, data, floor=1e-3)[:, 0], [-1.0, 1.0], rtol=1e-4)


def test_nothing_seen_leaves_observations_alone():
    assert normalise.apply(normalise.empty((2,)), jnp.asarray([3.0, -700.0]), floor=1.0).tolist() == [3.0, -700.0]
