"""The non-parametric E-step of MPO and CVPO: the best reweighting of sampled actions near the policy, by its dual.

For states s with actions a of prior weight π(a|s) (sampled actions: 1/K each; Discrete: all of them), advantages
A(s,a) and A_ci(s,a) of zero prior mean in every state, find q that solves (the constrained E-step of
Liu et al. 2022; without costs, the non-parametric E-step of Abdolmaleki et al. 2018)

    maximise E_s Σ_a q A    subject to    E_s KL(q‖π) ≤ ε,    E_s Σ_a q A_ci ≤ d'_i.

The solution is q ∝ π exp((A − Σ λ_i A_ci)/η), where η > 0 and λ ≥ 0 minimise the convex dual of Liu et al. 2022

    η ε + Σ λ_i d'_i + η E_s log Σ_a π exp((A − Σ λ_i A_ci)/η).

A projected Newton method with backtracking solves it in the units of the advantages' standard deviations.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

ITERATIONS = 40
HALVINGS = 12
# In standard deviations of A. Met only where A is all but parallel to the costs that bind (q would chase the last per
# cent of reward) or where π has nothing left to gain; a floor keeps the dual smooth enough for single precision.
SMALLEST_TEMPERATURE = 0.02
LARGEST_PRICE = 100.0  # reached only where the budgets are out of reach: q then descends on cost alone, to 1%


class Weights(NamedTuple):
    """The reweighting and its multipliers."""

    log_q: Float[Array, "state action"]
    temperature: Float[Array, ""]  # η, reward units
    price: Float[Array, " constraint"]  # λ, reward per cost
    kl: Float[Array, ""]  # E_s KL(q‖π)
    cost_change: Float[Array, " constraint"]  # E_s Σ_a q A_c
    feasible: Bool[Array, ""]  # whether all budgets are met
    converged: Bool[Array, ""]


def reweight(
    log_prior: Float[Array, "state action"],
    adv: Float[Array, "state action"],
    cost_adv: Float[Array, "constraint state action"],
    budget: Float[Array, " constraint"],
    kl: Array | float,
) -> Weights:
    """Solve the problem above. No constraint (m = 0) is MPO's E-step."""
    m = budget.shape[0]
    prior = jnp.exp(log_prior)
    spread = lambda x: jnp.sqrt(jnp.mean(jnp.sum(prior * x**2, axis=-1), axis=-1) + 1e-12)  # noqa: E731
    size, sizes = spread(adv), spread(cost_adv)
    A, A_c, d = adv / size, cost_adv / sizes[:, None, None], budget / sizes
    lower = jnp.concatenate([jnp.array([SMALLEST_TEMPERATURE]), jnp.zeros(m)])
    upper = jnp.concatenate([jnp.array([jnp.inf]), jnp.full(m, LARGEST_PRICE)])

    def log_q(z: Array) -> Array:
        return jax.nn.log_softmax(log_prior + (A - jnp.tensordot(z[1:], A_c, 1)) / z[0], axis=-1)

    def dual(z: Array) -> Array:
        exponent = log_prior + (A - jnp.tensordot(z[1:], A_c, 1)) / z[0]
        return z[0] * kl + z[1:] @ d + z[0] * jnp.mean(jax.nn.logsumexp(exponent, axis=-1))

    def newton(z: Array, _: None) -> tuple[Array, None]:
        value, slope, curve = dual(z), jax.grad(dual)(z), jax.hessian(dual)(z)
        held = ((z <= lower) & (slope > 0)) | ((z >= upper) & (slope < 0))
        free = ~held
        curve = jnp.where(free[:, None] & free, curve, 0.0)
        ridge = 1e-6 * (1.0 + jnp.trace(curve))
        direction = -jnp.linalg.solve(curve + jnp.diag(ridge + held), slope * free)
        # Where A is parallel to a cost the curvature vanishes along a ray: no step is longer than z is large.
        direction = direction * jnp.minimum(1.0, jnp.min((1.0 + z) / jnp.maximum(jnp.abs(direction), 1e-12)))
        lengths = 0.5 ** jnp.arange(HALVINGS)
        ends = jnp.clip(z + lengths[:, None] * direction, lower, upper)
        values = jax.vmap(dual)(ends)
        best = jnp.argmin(jnp.where(jnp.isnan(values), jnp.inf, values))
        return jnp.where(values[best] < value, ends[best], z), None

    start = jnp.concatenate([(1.0 / jnp.sqrt(2.0 * jnp.asarray(kl)))[None], jnp.zeros(m)])
    z, _ = jax.lax.scan(newton, start, None, length=ITERATIONS)
    logs = log_q(z)
    q = jnp.exp(logs)
    divergence = jnp.mean(jnp.sum(q * (logs - log_prior), axis=-1))
    change = jnp.mean(jnp.sum(q * A_c, axis=-1), axis=-1)
    feasible = jnp.all(change <= d + 1e-2 * jnp.sqrt(2.0 * jnp.asarray(kl)))
    slope = jax.grad(dual)(z)
    flat = jnp.where(z <= lower, jnp.minimum(slope, 0.0), jnp.where(z >= upper, jnp.maximum(slope, 0.0), slope))
    converged = jnp.max(jnp.abs(flat[1:]), initial=jnp.abs(flat[0])) < 1e-2 * jnp.sqrt(2.0 * jnp.asarray(kl))
    return Weights(logs, z[0] * size, z[1:] * size / sizes, divergence, change * sizes, feasible, converged)


def unconstrained(log_prior: Array, adv: Array, cost_adv: Array, budget: Array, kl: Array | float) -> Weights:
    """MPO's rule: the same problem without its costs; says what they would do all the same."""
    found = reweight(log_prior, adv, cost_adv[:0], budget[:0], kl)
    change = jnp.mean(jnp.sum(jnp.exp(found.log_q) * cost_adv, axis=-1), axis=-1)
    return found._replace(price=jnp.zeros_like(budget), cost_change=change)
