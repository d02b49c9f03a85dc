"""The E-step of MPO and CVPO against a general convex solver."""

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.maths import nonparametric

KL = 0.1
solve = jax.jit(nonparametric.reweight)


def problem(seed, m, kind="general", states=6, actions=5):
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.full(actions, 3.0), states)
    adv = rng.standard_normal((states, actions)) * 10.0 ** rng.uniform(-2, 2)
    cost = rng.standard_normal((m, states, actions)) * 10.0 ** rng.uniform(-2, 2, (m, 1, 1))
    if kind == "parallel":
        cost[0] = 0.5 * adv
    if kind == "costless":
        cost[-1] = 0.0
    means = [np.sum(prior * x, axis=-1, keepdims=True) for x in (adv, cost)]
    return prior, adv - means[0], cost - means[1]


def reference(prior, adv, cost, budget):
    """The best mean of q A, or None where Clarabel finds no feasible q; and the least reachable first cost."""
    q = cp.Variable(prior.shape)
    states = prior.shape[0]
    near = [cp.sum(q, axis=1) == 1, cp.sum(cp.rel_entr(q, prior)) / states <= KL]
    sizes = np.sqrt(np.mean(np.sum(prior * cost**2, -1), -1)) + 1e-12
    costs = [cp.sum(cp.multiply(q, c / s)) / states <= d / s for c, s, d in zip(cost, sizes, budget, strict=True)]
    scale = np.sqrt(np.mean(np.sum(prior * adv**2, -1)))
    best = cp.Problem(cp.Maximize(cp.sum(cp.multiply(q, adv / scale)) / states), near + costs)
    best.solve(cp.CLARABEL)
    value = best.value * scale if best.status in ("optimal", "optimal_inaccurate") else None
    least = cp.Problem(cp.Minimize(cp.sum(cp.multiply(q, cost[0] / sizes[0])) / states), near)
    least.solve(cp.CLARABEL)
    return value, least.value * sizes[0]


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("kind", ["general", "parallel", "costless"])
def test_weights_are_the_solvers(kind, m):
    seen = set()
    for seed in range(8):
        prior, adv, cost = problem(seed, m, kind)
        sizes = np.sqrt(np.mean(np.sum(prior * cost**2, -1), -1)) * np.sqrt(2 * KL)
        share = np.random.default_rng(seed).choice([2.0, 0.3, 0.0, -0.3, -0.6], m)
        if m == 1:
            share = np.array([(2.0, 0.3, 0.0, -0.3, -0.7, -1.5)[seed % 6]])
        if kind == "costless":
            share[-1] = abs(share[-1])
        budget = share * sizes
        found = solve(*(jnp.asarray(x, jnp.float32) for x in (np.log(prior), adv, cost, budget)), KL)
        value, least = reference(prior, adv, cost, budget)
        q = np.exp(np.asarray(found.log_q, np.float64))
        assert float(found.kl) <= KL * 1.02
        assert bool(found.feasible) == (value is not None)
        scale = np.sqrt(np.mean(np.sum(prior * adv**2, -1)) * 2 * KL)
        if value is not None:
            assert bool(found.converged)
            assert abs(np.mean(np.sum(q * adv, -1)) - value) <= 0.02 * scale
            seen.add("bound" if np.any(np.asarray(found.price) > 1e-4) else "free")
        else:
            seen.add("infeasible")
            if m == 1:
                assert np.mean(np.sum(q * cost[0], -1)) <= least + 0.03 * sizes[0]
    if kind == "general" and m == 1:
        assert seen == {"free", "bound", "infeasible"}


def test_without_constraints_the_whole_divergence_is_used():
    prior, adv, cost = problem(0, 1)
    found = nonparametric.unconstrained(jnp.log(prior), jnp.asarray(adv), jnp.asarray(cost), jnp.array([-1.0]), KL)
    np.testing.assert_allclose(float(found.kl), KL, rtol=1e-3)
    value, _ = reference(prior, adv, cost, np.array([1e6]))
    np.testing.assert_allclose(np.mean(np.sum(np.exp(found.log_q) * adv, -1)), value, rtol=1e-3)


def test_small_divergence_is_a_gaussian_step():
    """KL ≈ Var(A)/2η² for small ε, so η ≈ σ/√(2ε)."""
    prior, adv, cost = problem(3, 1)
    found = nonparametric.unconstrained(jnp.log(prior), jnp.asarray(adv), jnp.asarray(cost), jnp.array([0.0]), 1e-4)
    sigma = np.sqrt(np.mean(np.sum(prior * adv**2, -1)))
    np.testing.assert_allclose(float(found.temperature), sigma / np.sqrt(2e-4), rtol=0.05)


def test_flat_advantages_change_nothing():
    prior, adv, cost = problem(3, 1)
    found = solve(jnp.log(prior), jnp.asarray(adv) * 0, jnp.asarray(cost) * 0, jnp.array([1.0]), KL)
    np.testing.assert_allclose(np.exp(found.log_q), prior, atol=1e-6)
