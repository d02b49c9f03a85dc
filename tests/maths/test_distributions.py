"""Densities, divergences and entropies against SciPy and Monte Carlo."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cppo.maths.distributions import Categorical, Gaussian

OLD = Gaussian(jnp.asarray([0.1, -0.4]), jnp.asarray([-0.3, 0.2]))
NEW = Gaussian(jnp.asarray([0.3, -0.2]), jnp.asarray([-0.1, 0.1]))
ARMS = Categorical(jnp.asarray([0.5, -1.0, 0.2]))
OTHER_ARMS = Categorical(jnp.asarray([0.0, 0.3, -0.2]))


def test_gaussian_log_prob_matches_scipy():
    action = np.asarray([0.4, 0.9])
    expected = stats.norm(OLD.mean, np.exp(OLD.log_std)).logpdf(action).sum()
    assert float(OLD.log_prob(jnp.asarray(action))) == pytest.approx(expected, rel=1e-5)
    assert float(OLD.entropy()) == pytest.approx(stats.norm(OLD.mean, np.exp(OLD.log_std)).entropy().sum(), rel=1e-5)


@pytest.mark.parametrize(("old", "new"), [(OLD, NEW), (ARMS, OTHER_ARMS)])
def test_kl_is_the_expected_log_ratio(old, new):
    samples = jax.vmap(old.sample)(jax.random.split(jax.random.PRNGKey(0), 200_000))
    log_ratio = jax.vmap(lambda a: old.log_prob(a) - new.log_prob(a))(samples)
    error = 4 * float(log_ratio.std()) / len(log_ratio) ** 0.5
    assert float(old.kl(new)) == pytest.approx(float(log_ratio.mean()), abs=error)
    assert float(old.kl(old)) == pytest.approx(0.0, abs=1e-6)


def test_kl_sums_over_action_dimensions():
    twice = Gaussian(jnp.tile(OLD.mean, 2), jnp.tile(OLD.log_std, 2))
    twice_new = Gaussian(jnp.tile(NEW.mean, 2), jnp.tile(NEW.log_std, 2))
    assert float(twice.kl(twice_new)) == pytest.approx(2 * float(OLD.kl(NEW)), rel=1e-5)


def test_categorical_matches_its_probabilities():
    probabilities = np.asarray(jax.nn.softmax(ARMS.logits))
    for arm in range(3):
        assert float(ARMS.log_prob(jnp.asarray(arm))) == pytest.approx(np.log(probabilities[arm]), rel=1e-5)
    assert float(ARMS.entropy()) == pytest.approx(stats.entropy(probabilities), rel=1e-5)
    assert int(ARMS.mode()) == 0
