"""How a policy responds, against a case that is known exactly: contexts s, actions a = W s + σ ε, reward aᵀ M s."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.maths import response

SIGMA = 0.5
REWARD = np.array([[1.0, 0.0, 0.5], [0.0, -0.5, 0.0]])
COST = np.array([[0.6, 0.4, 0.0], [0.2, 0.0, 0.7]])
GROUPS, SAMPLES = 5, 40
METRIC = jnp.full(6, SIGMA**-2)  # E[(∇_W log π)²] = E[s²]/σ² with contexts of unit variance
EXACT = np.array([[np.sum(a * b) for b in (REWARD, COST)] for a in (REWARD, COST)]) * SIGMA**2


def log_prob(params, samples):
    context, action = samples
    z = (action - context @ params.reshape(2, 3).T) / SIGMA
    return -0.5 * jnp.sum(z**2, axis=1)


def one_batch(key):
    """Gradients of every group at W = 0, where ∇J = M; advantages carry noise that no action explains."""
    keys = jax.random.split(key, 3)
    context = jax.random.normal(keys[0], (GROUPS, SAMPLES, 3))
    action = SIGMA * jax.random.normal(keys[1], (GROUPS, SAMPLES, 2))
    signals = jnp.stack([jnp.einsum("gna,ab,gnb->gn", action, m, context) for m in (REWARD, COST)], axis=1)
    signals += 5.0 * jax.random.normal(keys[2], signals.shape)
    return response.gradients(log_prob, jnp.zeros(6), (context, action), signals)


@pytest.fixture(scope="module")
def batches():
    return jax.jit(jax.vmap(one_batch))(jax.random.split(jax.random.PRNGKey(0), 4000))


def standard_errors(found, exact):
    return np.abs(np.mean(found, axis=0) - exact) / (np.std(found, axis=0) / np.sqrt(len(found)))


def test_between_groups_the_response_is_unbiased(batches):
    """Centring within a group of n leaves 1 − 1/n of a gradient."""
    found = np.asarray(jax.vmap(lambda g: response.between(g, METRIC))(batches))
    assert np.all(standard_errors(found, EXACT * (1 - 1 / SAMPLES) ** 2) < 3)
    assert np.any(found[:, 0, 0] < 0)  # of noise alone it would be negative half of the time


def test_from_one_batch_it_is_mostly_noise(batches):
    found = np.asarray(jax.vmap(lambda g: response.promised(g, METRIC))(batches))
    assert found[:, 0, 0].mean() > 2 * EXACT[0, 0] and found[:, 1, 1].mean() > 2 * EXACT[1, 1]


def test_the_angle_of_mean_responses_is_the_true_one(batches):
    mean = jnp.mean(jax.vmap(lambda g: response.between(g, METRIC))(batches), axis=0)
    exact = np.arccos(EXACT[0, 1] / np.sqrt(EXACT[0, 0] * EXACT[1, 1]))
    assert float(response.angle(mean, 0, 1)) == pytest.approx(exact, abs=0.05)
    assert np.isnan(response.angle(mean.at[1, 1].set(-0.1), 0, 1))


def test_what_other_worlds_confirm_of_a_step_is_what_it_does(batches):
    """Each batch's step down its own cost gradient, mixed with some reward: promised many times what it brings."""

    def one(found):
        reward, cost = jnp.mean(found, axis=0)
        step = (0.5 * reward - cost) / METRIC
        exact = jnp.stack([jnp.sum(m.ravel() * step) for m in (REWARD, COST)])
        return response.confirmed_change(found, METRIC, step), jnp.stack([reward, cost]) @ step, exact

    confirmed, promised, exact = (np.asarray(x) for x in jax.vmap(one)(batches))
    error = confirmed - exact * (1 - 1 / SAMPLES)
    assert np.all(np.abs(error.mean(0)) < 3 * error.std(0) / np.sqrt(len(error)))
    assert promised[:, 1].mean() < 2 * exact[:, 1].mean() < 0


def test_the_metric_is_the_mean_square_of_the_score():
    """Contexts of different sizes, actions drawn anew from a policy that is not at 0."""
    size, blocks = 20, 3000
    scale = jnp.array([1.0, 2.0, 0.0])
    context = scale * jax.random.normal(jax.random.PRNGKey(1), (blocks, size, 3))
    params = jnp.arange(6.0)

    def draw(p, block, key):
        mean = block @ params.reshape(2, 3).T
        action = mean + SIGMA * jax.random.normal(key, mean.shape)
        return log_prob(p, (block, jax.lax.stop_gradient(action)))

    found = response.fisher_diagonal(draw, params, context, size, jax.random.PRNGKey(2))
    exact = np.tile(np.asarray(scale) ** 2, 2) / SIGMA**2
    np.testing.assert_allclose(found, exact + response.FLOOR * exact.mean(), rtol=0.08)
    assert float(found.min()) > 0
