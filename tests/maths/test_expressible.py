"""Advantages reduced to what a network can follow, against least squares, and to what other samples confirm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.maths import expressible

STATES, FEATURES, ACTIONS = 7, 3, 4


@pytest.fixture
def problem():
    """A uniform softmax policy, linear in its features; both worlds hold every action once in every state.

    All means are exact, and each half confirms all that the other says.
    """
    features = jax.random.normal(jax.random.PRNGKey(0), (STATES, FEATURES))
    state, action = (x.reshape(-1) for x in jnp.meshgrid(jnp.arange(STATES), jnp.arange(ACTIONS), indexing="ij"))
    state, action = jnp.repeat(state, 2), jnp.repeat(action, 2)
    params = {"weight": jnp.zeros((FEATURES, ACTIONS))}

    def log_probs(p):
        return jax.nn.log_softmax(features @ p["weight"])

    def log_prob(p):
        return log_probs(p)[state, action]

    def mean_kl(p):
        old = log_probs(params)
        return jnp.mean(jnp.sum(jnp.exp(old) * (old - log_probs(p)), -1))

    signals = jnp.repeat(jax.random.normal(jax.random.PRNGKey(1), (2, STATES * ACTIONS)), 2, axis=1)
    return log_prob, mean_kl, params, signals


def project(log_prob, mean_kl, params, signals, damping, iterations):
    split = expressible.halves(2, signals.shape[1])
    past = expressible.start(len(signals))
    return expressible.project(log_prob, mean_kl, params, signals, split, past, damping, iterations)[0]


def test_without_damping_it_is_least_squares_on_the_scores(problem):
    log_prob, _, params, signals = problem
    scores = np.asarray(jax.jacobian(log_prob)(params)["weight"], np.float64).reshape(signals.shape[1], -1)
    seen = project(*problem, 0.0, 50)
    for signal, projected in zip(np.asarray(signals), np.asarray(seen), strict=True):
        coefficients, *_ = np.linalg.lstsq(scores, signal, rcond=1e-6)
        np.testing.assert_allclose(projected, scores @ coefficients, atol=1e-4)
        assert np.linalg.norm(projected) < 0.9 * np.linalg.norm(signal)


def test_what_the_network_expresses_is_kept_and_the_rest_dropped(problem):
    *policy, signals = problem
    once = project(*problem, 0.0, 50)
    np.testing.assert_allclose(project(*policy, once, 0.0, 50), once, atol=1e-4)
    np.testing.assert_allclose(project(*policy, signals - once, 1e-3, 50), 0.0, atol=1e-4)


def test_damping_and_few_steps_shrink(problem):
    size = lambda *how: float(jnp.linalg.norm(project(*problem, *how)))  # noqa: E731
    assert 0 < size(1.0, 50) < size(0.1, 50) < size(0.0, 50)
    assert 0 < size(0.0, 1) < size(0.0, 50)


# A Gaussian policy of unit deviation, linear in 20 features: its scores are (action − mean) × features.
DIMENSIONS, SAMPLES, WORLDS = 20, 400, 4
TRUTH = np.zeros((2, DIMENSIONS))
TRUTH[0, 0], TRUTH[1, :2] = 0.3, (0.06, 0.08)  # gradients of reward and cost


@jax.jit
def one_batch(past, key):
    """Noisy advantages: what the batch promises, what is confirmed, and what is true of steps along A and −A_c."""
    state_key, action_key, noise_key = jax.random.split(key, 3)
    features = jax.random.normal(state_key, (SAMPLES, DIMENSIONS))
    action = jax.random.normal(action_key, (SAMPLES,))
    scores = action[:, None] * features
    signals = jnp.asarray(TRUTH) @ scores.T + jax.random.normal(noise_key, (2, SAMPLES))

    def log_prob(p):
        return -0.5 * (action - features @ p) ** 2

    def mean_kl(p):
        return 0.5 * jnp.mean((features @ p) ** 2)

    split = expressible.halves(WORLDS, SAMPLES)
    found, now = expressible.project(log_prob, mean_kl, jnp.zeros(DIMENSIONS), signals, split, past, 0.1, 30)
    steps = jnp.stack([found[0], -found[1]])
    x = jnp.linalg.lstsq(scores, steps.T)[0].T
    return now, (steps @ signals.T / SAMPLES, steps @ found.T / SAMPLES, x @ jnp.asarray(TRUTH).T)


def test_confirmed_changes_come_true_where_the_batch_promises_too_much():
    past = expressible.start(2)
    seen = []
    for key in jax.random.split(jax.random.PRNGKey(3), 300):
        past, changes = one_batch(past, key)
        seen.append(changes)
    promised, confirmed, true = (np.mean(np.asarray(parts[30:]), axis=0) for parts in zip(*seen, strict=True))
    # Steps along −A_c: the fall in cost is mostly noise of the batch.
    assert promised[1, 1] < 2.5 * true[1, 1] < 0
    np.testing.assert_allclose(confirmed[1, 1], true[1, 1], rtol=0.25)
    np.testing.assert_allclose(confirmed[0, 0], true[0, 0], rtol=0.15)


def test_pure_noise_keeps_the_least_share():
    within = jnp.array([[2.0, 0.0], [0.0, 5.0]])
    kept = expressible.confirmed(expressible.Opinions(jnp.array([[2.0, 0.0], [0.0, -1.0]]), within))
    np.testing.assert_allclose(kept, [[1.0, 0.0], [0.0, expressible.LEAST]], atol=1e-5)


def test_it_is_h_over_k_for_any_scale():
    within, across = np.array([[4.0, 3e-3], [3e-3, 9e-6]]), np.array([[2.0, 1e-3], [1e-3, 4e-6]])
    kept = expressible.confirmed(expressible.Opinions(jnp.asarray(across), jnp.asarray(within)))
    np.testing.assert_allclose(kept, across @ np.linalg.inv(within), rtol=1e-3)
