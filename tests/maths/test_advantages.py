"""GAE against hand arithmetic and against its definition."""

import jax.numpy as jnp
import numpy as np
import pytest

from cppo.maths.advantages import centred, gae


def column(*values):
    return jnp.asarray(values, jnp.float32)[:, None]


def test_two_steps_by_hand():
    # δ₀ = 1 + 0.5·3 − 2 = 0.5; δ₁ = 2 + 0.5·4 − 3 = 1; A₁ = 1; A₀ = 0.5 + 0.5·0.8·1 = 0.9
    false = column(0, 0).astype(bool)
    got = gae(column(1, 2), column(2, 3), column(3, 4), false, false, 0.5, 0.8)
    np.testing.assert_allclose(got[:, 0], [0.9, 1.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("terminated", "truncated", "expected"), [(True, False, 1 - 2), (False, True, 1 + 0.5 * 3 - 2)]
)
def test_only_a_true_end_drops_the_future(terminated, truncated, expected):
    ends = column(terminated, 0).astype(bool), column(truncated, 0).astype(bool)
    got = gae(column(1, 2), column(2, 3), column(3, 4), *ends, 0.5, 0.8)
    np.testing.assert_allclose(got[0, 0], expected, rtol=1e-6)


def test_decay_one_is_the_monte_carlo_advantage():
    rng = np.random.default_rng(0)
    reward, value = jnp.asarray(rng.normal(size=(2, 20, 3)), jnp.float32)
    next_value = jnp.concatenate([value[1:], jnp.zeros((1, 3))])
    last = np.zeros((20, 3), bool)
    last[-1] = True
    got = gae(reward, value, next_value, jnp.asarray(last), jnp.zeros((20, 3), bool), 0.9, 1.0)
    discounts = 0.9 ** np.arange(20)
    np.testing.assert_allclose(got[0], discounts @ reward - value[0], rtol=2e-4, atol=1e-5)


def test_centring_keeps_the_scale():
    values = jnp.asarray([1.0, 3.0, 8.0])
    assert float(centred(values).mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(centred(values).std()) == pytest.approx(float(values.std()))
