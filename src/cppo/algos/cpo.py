"""Constrained Policy Optimization (Achiam et al. 2017): the best step in the part of the trust region that is feasible.

The update's own problem with reward (gradient g) and costs (b_i) linear and KL quadratic:

    maximise gᵀx  subject to  b_iᵀx ≤ d'_i,  ½ xᵀHx ≤ δ,

solved exactly for any number of constraints (``maths/cpo_dual.py``); where it has no solution, the step of least
violation (their recovery: pure descent on cost). d' and b share one unit, the mean over samples of (ratio − 1) A_c:
d' = (d − J_c)/T (docs/cost-contract.md). The line search then asks the true surrogates for what the model promised: KL
within δ; no cost above its budget, or, where that is already exceeded, no rise; reward not lower unless some limit is
exceeded.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from cppo.algos.common import Agent, OnPolicy, fit_critics, init_agent, observe, prepare
from cppo.maths import costs, cpo_dual, surrogate, trust_region
from cppo.networks import Networks
from cppo.settings import settings
from cppo.types import Batch, Key, Metrics


@settings
class CPOSettings(OnPolicy, trust_region.Region):
    """Settings of CPO: those of every second-order method."""


def init(networks: Networks, settings: CPOSettings, key: Key) -> Agent:
    return init_agent(networks, settings, key, ())


def update(networks: Networks, settings: CPOSettings, agent: Agent, batch: Batch, key: Key) -> tuple[Agent, Metrics]:
    """One constrained natural step with line search, then the critics."""
    data = prepare(networks, settings, agent, batch)
    limit = jnp.asarray(settings.cost_limit)
    budget = costs.budget(limit, batch.episodes, settings.cost_discount, settings.cost_unit)
    signals = jnp.concatenate([data.adv[None], data.cost_adv])
    terms = surrogate.around(networks.policy, agent.policy, data.obs, data.action)
    params, as_tree = ravel_pytree(agent.policy)

    def changes(flat: Array) -> Array:
        """Predicted change of reward and costs, per step."""
        return signals @ (terms.ratio(as_tree(flat)) - 1.0) / data.adv.size

    def mean_kl(flat: Array) -> Array:
        return terms.mean_kl(as_tree(flat))

    # The model: gradients g, b_1 … b_m, their natural directions, and all inner products.
    product = trust_region.fisher_product(mean_kl, params, settings.damping)
    gradients = jax.jacrev(changes)(params)
    solved = jax.vmap(lambda v: trust_region.conjugate_gradient(product, v, settings.solver_iterations))(gradients)
    gram = gradients @ solved.x.T
    gram = (gram + gram.T) / 2.0
    found = cpo_dual.solve(gram[0, 0], gram[0, 1:], gram[1:, 1:], budget, jnp.sqrt(2.0 * settings.kl))
    step = jnp.concatenate([found.along_gradient[None], found.along_costs]) @ solved.x

    # The truth: backtrack until the surrogates themselves agree.
    recovering = found.status == cpo_dual.Status.INFEASIBLE
    lengths = jnp.sqrt(jnp.maximum(jnp.diagonal(gram)[1:], 1e-20))

    def acceptable(flat: Array) -> Array:
        reward, cost = jnp.split(changes(flat), [1])
        reward_met = jnp.any(budget < 0) | (reward[0] >= 0)
        return (mean_kl(flat) <= settings.kl) & costs_met(cost, budget, lengths, recovering) & reward_met

    searched = trust_region.backtrack(
        acceptable, params, step, shrink=settings.search_shrink, tries=settings.search_tries
    )
    change = batch.episodes.length * changes(searched.params)
    metrics = {
        "recovering": recovering,
        "status": found.status,
        "kl": mean_kl(searched.params),
        "kl_limit": jnp.asarray(settings.kl),
        "search_accepted": searched.accepted,
        "search_tries": searched.tries,
        "solver_residual": jnp.max(solved.residual),
        "predicted_reward_change": change[0],
        "predicted_cost_change": change[1:],
    }
    agent = agent._replace(policy=as_tree(searched.params))
    agent, critic_metrics = fit_critics(networks, settings, agent, data, key)
    return observe(agent, batch), metrics | critic_metrics


def costs_met(cost: Array, budget: Array, lengths: Array, recovering: Array) -> Array:
    """Whether changes of the costs keep their budgets or, in recovery, make the largest violation no larger.

    Violations count in lengths of the gradients; a cost without a gradient, which no step can mend, counts for none.

    >>> move = lambda *cost: bool(costs_met(jnp.array(cost), jnp.array([-0.1, 0.05]), jnp.array([1e-10, 2.0]), True))
    >>> move(0.0, 0.05), move(0.0, 5.0)
    (True, False)
    """
    violation = lambda change: jnp.max(jnp.where(lengths > 1e-8, (change - budget) / lengths, -jnp.inf))  # noqa: E731
    less_violated = violation(cost) <= jnp.maximum(violation(jnp.zeros_like(cost)), 0.0)
    return jnp.where(recovering, less_violated, jnp.all(cost <= jnp.maximum(budget, 0.0)))
