"""Trust Region Policy Optimization (Schulman et al. 2015), alone or with a multiplier for each constraint.

Maximise the surrogate E[π_θ/π A] subject to mean KL(π‖π_θ) ≤ δ: along H⁻¹g, to the edge of the ball in the quadratic
model, then back until the true KL is within δ and the true surrogate has grown (the paper's appendix on solving the
constrained problem). A is the penalised advantage (``maths/multipliers.py``): ``NONE`` gives TRPO, ``LAGRANGIAN`` and
``PID`` the methods with multipliers.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from cppo.algos.on_policy import Agent, OnPolicy, fit_critics, init_agent, observe, prepare
from cppo.maths import multipliers, surrogate, trust_region
from cppo.maths.multipliers import Multiplier
from cppo.networks import Networks
from cppo.settings import settings
from cppo.types import Batch, Key, Metrics


@settings
class TRPOSettings(OnPolicy, trust_region.Region, surrogate.Bonus):
    """Settings of TRPO."""


@settings
class TRPOLagSettings(TRPOSettings, multipliers.Lagrangian):
    """Settings of TRPO-Lagrangian."""


@settings
class TRPOPIDSettings(TRPOSettings, multipliers.Control):
    """Settings of TRPO with a PID multiplier."""


def init(networks: Networks, settings: TRPOSettings, key: Key, multiplier: Multiplier = multipliers.NONE) -> Agent:
    return init_agent(networks, settings, key, multiplier.init(settings, networks.spec.num_costs))


def update(
    networks: Networks,
    settings: TRPOSettings,
    agent: Agent,
    batch: Batch,
    key: Key,
    multiplier: Multiplier = multipliers.NONE,
) -> tuple[Agent, Metrics]:
    """Move the multipliers, then the policy by one natural gradient step, then the critics."""
    data = prepare(networks, settings, agent, batch)
    prices = multiplier.update(settings, agent.extra, batch.episodes.cost, jnp.asarray(settings.cost_limit))
    adv = multiplier.penalised(data.adv, data.cost_adv, prices.value)
    terms = surrogate.around(networks.policy, agent.policy, data.obs, data.action)
    params, as_tree = ravel_pytree(agent.policy)

    def gain(flat: Array) -> Array:
        new = as_tree(flat)
        return jnp.mean(terms.ratio(new) * adv + settings.entropy * terms.entropy(new))

    def mean_kl(flat: Array) -> Array:
        return terms.mean_kl(as_tree(flat))

    product = trust_region.fisher_product(mean_kl, params, settings.damping)
    before, gradient = jax.value_and_grad(gain)(params)
    solved = trust_region.conjugate_gradient(product, gradient, settings.solver_iterations)
    size = solved.x @ product(solved.x)
    step = jnp.sqrt(2.0 * settings.kl / jnp.maximum(size, 1e-12)) * solved.x
    found = trust_region.backtrack(
        lambda flat: (mean_kl(flat) <= settings.kl) & (gain(flat) > before),
        params,
        step,
        shrink=settings.search_shrink,
        tries=settings.search_tries,
    )

    policy = as_tree(found.params)
    change = terms.ratio(policy) - 1.0
    metrics: Metrics = {
        "kl": mean_kl(found.params),
        "kl_limit": jnp.asarray(settings.kl),
        "search_accepted": found.accepted,
        "search_tries": found.tries,
        "solver_residual": solved.residual,
        "predicted_reward_change": batch.episodes.length * jnp.mean(data.adv * change),
        "predicted_cost_change": batch.episodes.length * jnp.mean(data.cost_adv * change, axis=1),
    } | multiplier.metrics(prices)
    agent = agent._replace(policy=policy, extra=prices)
    agent, critic_metrics = fit_critics(networks, settings, agent, data, key)
    return observe(agent, batch), metrics | critic_metrics
