"""Projection-based Constrained Policy Optimization (Yang et al. 2020): a reward step, then the nearest feasible point.

    x₀ = √(2δ/gᵀH⁻¹g) H⁻¹g                                             (reward improvement step)
    x  = the point nearest to x₀ with b_iᵀx ≤ d'_i, in the metric L    (projection step; for one constraint:)

    x  = x₀ − max(0, (bᵀx₀ − d')/(bᵀL⁻¹b)) L⁻¹b,     L = H ("kl") or I ("l2").

The projection divides by the metric (L⁻¹b), it never multiplies by it. Two deviations: a projected step that leaves the
trust region (an exceeded limit may lie far away) is shortened to its edge, and a line search holds the true KL to δ and
the true costs to their budgets, or to no rise where they are exceeded already.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array

from cppo.algos.on_policy import Agent, OnPolicy, fit_critics, init_agent, observe, prepare
from cppo.maths import costs, cpo_dual, surrogate, trust_region
from cppo.networks import Networks
from cppo.settings import setting, settings
from cppo.types import Batch, Key, Metrics


@settings
class PCPOSettings(OnPolicy, trust_region.Region):
    """Settings of PCPO."""

    projection: str = setting(
        "kl", "Metric of the projection: the policy's KL or plain parameters.", choices=("kl", "l2")
    )


def init(networks: Networks, settings: PCPOSettings, key: Key) -> Agent:
    return init_agent(networks, settings, key, ())


def update(networks: Networks, settings: PCPOSettings, agent: Agent, batch: Batch, key: Key) -> tuple[Agent, Metrics]:
    """One natural gradient step, projected, with line search; then the critics."""
    data = prepare(networks, settings, agent, batch)
    limit = jnp.asarray(settings.cost_limit)
    budget = costs.budget(limit, batch.episodes, settings.cost_discount, settings.cost_unit)
    terms = surrogate.around(networks.policy, agent.policy, data.obs, data.action)
    signals = jnp.concatenate([data.adv[None], data.cost_adv])

    # Reward step to the edge of the ball.
    near = trust_region.model(terms, agent.policy, signals, settings)
    gradients, solved = near.gradients, near.solved.x
    size = gradients[0] @ solved[0]
    reward_step = jnp.sqrt(2.0 * settings.kl / jnp.maximum(size, 1e-12)) * solved[0]

    # Projection onto the budgets, and back into the ball if it lies outside.
    inverse_costs = solved[1:] if settings.projection == "kl" else gradients[1:]  # L⁻¹b
    gram = gradients[1:] @ inverse_costs.T
    found = cpo_dual.project(gradients[1:] @ reward_step, (gram + gram.T) / 2.0, budget)
    step = reward_step + found.along_costs @ inverse_costs
    step = step * jnp.minimum(1.0, jnp.sqrt(2.0 * settings.kl / jnp.maximum(step @ near.product(step), 1e-12)))

    def acceptable(flat: Array) -> Array:
        return (near.mean_kl(flat) <= settings.kl) & jnp.all(near.changes(flat)[1:] <= jnp.maximum(budget, 0.0))

    searched = trust_region.backtrack(
        acceptable, near.params, step, shrink=settings.search_shrink, tries=settings.search_tries
    )
    metrics: Metrics = near.told(searched, batch.episodes.length, settings) | {"status": found.status}
    agent = agent._replace(policy=near.as_tree(searched.params))
    agent, critic_metrics = fit_critics(networks, settings, agent, data, key)
    return observe(agent, batch), metrics | critic_metrics
