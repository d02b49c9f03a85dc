"""The projection of advantages onto the network's tangent space, against least squares."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.maths import expressible

STATES, FEATURES, ACTIONS = 7, 3, 4


@pytest.fixture
def problem():
    """A uniform softmax policy, linear in its features, with every action once in every state: all means are exact."""
    features = jax.random.normal(jax.random.PRNGKey(0), (STATES, FEATURES))
    state, action = (x.reshape(-1) for x in jnp.meshgrid(jnp.arange(STATES), jnp.arange(ACTIONS), indexing="ij"))
    params = {"weight": jnp.zeros((FEATURES, ACTIONS))}

    def log_probs(p):
        return jax.nn.log_softmax(features @ p["weight"])

    def log_prob(p):
        return log_probs(p)[state, action]

    def mean_kl(p):
        old = log_probs(params)
        return jnp.mean(jnp.sum(jnp.exp(old) * (old - log_probs(p)), -1))

    signals = jax.random.normal(jax.random.PRNGKey(1), (2, STATES * ACTIONS))
    return log_prob, mean_kl, params, signals


def test_without_damping_it_is_least_squares_on_the_scores(problem):
    log_prob, mean_kl, params, signals = problem
    scores = np.asarray(jax.jacobian(log_prob)(params)["weight"], np.float64).reshape(STATES * ACTIONS, -1)
    seen = expressible.project(log_prob, mean_kl, params, signals, 0.0, 50)
    for signal, projected in zip(np.asarray(signals), np.asarray(seen), strict=True):
        coefficients, *_ = np.linalg.lstsq(scores, signal, rcond=1e-6)
        np.testing.assert_allclose(projected, scores @ coefficients, atol=1e-4)
        assert np.linalg.norm(projected) < 0.9 * np.linalg.norm(signal)


def test_what_the_network_expresses_is_kept_and_the_rest_dropped(problem):
    log_prob, mean_kl, params, signals = problem
    once = expressible.project(log_prob, mean_kl, params, signals, 0.0, 50)
    again = expressible.project(log_prob, mean_kl, params, once, 0.0, 50)
    np.testing.assert_allclose(again, once, atol=1e-4)
    rest = expressible.project(log_prob, mean_kl, params, signals - once, 1e-3, 50)
    np.testing.assert_allclose(rest, 0.0, atol=1e-4)


def test_damping_and_few_steps_shrink(problem):
    log_prob, mean_kl, params, signals = problem
    size = lambda *how: float(jnp.linalg.norm(expressible.project(log_prob, mean_kl, params, signals, *how)))  # noqa: E731
    assert 0 < size(1.0, 50) < size(0.1, 50) < size(0.0, 50)
    assert 0 < size(0.0, 1) < size(0.0, 50)
