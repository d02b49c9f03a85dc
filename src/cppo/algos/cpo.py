"""Constrained Policy Optimization (Achiam et al. 2017): the best step in the part of the trust region that is feasible.

The update's own problem with reward (gradient g) and costs (b_i) linear and KL quadratic:

    maximise gᵀx  subject to  b_iᵀx ≤ d'_i,  ½ xᵀHx ≤ δ,

solved exactly for any number of constraints (``maths/cpo_dual.py``); where it has no solution, the step of least
violation (their recovery: pure descent on cost). d' and b share one unit, the mean over samples of (ratio − 1) A_c:
d' = (d − J_c)/T (docs/cost-contract.md). The line search then asks the true surrogates for what the model promised: KL
within δ; no cost above its budget, or, where that is already exceeded, no rise; reward not lower unless some limit is
exceeded.

Which budget an update is given is a rule, a value (``Budgets``):

    printed      d', the room there is
    hysteresis   the same, but from J_c > d until J_c ≤ h d the deepest fall that the region allows (``cpo-hyst`` in the
                 records of Milosevic, Müller & Scherf 2025, which begin it only where a budget is out of reach)
    shares       m · reach,  m = 5 (d − J_c)/d between −0.95 and 1,  reach = √(2δ b_iᵀH⁻¹b_i) that deepest fall

Shares are ours: a batch knows in which direction a cost falls better than by how much (docs/maths.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from cppo.algos.on_policy import Agent, OnPolicy, fit_critics, init_agent, observe, prepare
from cppo.maths import costs, cpo_dual, surrogate, switch, trust_region
from cppo.maths.shares import normal_share, together
from cppo.networks import Networks
from cppo.settings import setting, settings
from cppo.types import Batch, Episodes, Key, Metrics, PyTree


@settings
class CPOSettings(OnPolicy, trust_region.Region):
    """Settings of CPO: those of every second-order method."""


@settings
class CPOHysteresisSettings(CPOSettings):
    """Settings of CPO with hysteresis."""

    recover_until: float = setting(
        0.8, "h: recovery, begun above the limit, ends at this share of it.", above=0.0, at_most=1.0
    )


@settings
class CPOSharesSettings(CPOSettings):
    """Settings of CPO with budgets in shares of its reach."""

    tilt: float = setting(0.95, "Largest share of the reach that cost is asked to fall by.", above=0.0, at_most=1.0)


@dataclass(frozen=True)
class Budgets:
    """``init(constraints) -> memory``; ``asked(settings, memory, episodes, reach) -> (budgets, memory)``."""

    init: Callable[[int], PyTree]
    asked: Callable[[Any, PyTree, Episodes, Float[Array, " constraint"]], tuple[Array, PyTree]]


def _room(settings: CPOSettings, episodes: Episodes) -> Array:
    return costs.budget(jnp.asarray(settings.cost_limit), episodes, settings.cost_discount, settings.cost_unit)


def _hysteresis(settings: CPOHysteresisSettings, over: Array, episodes: Episodes, reach: Array) -> tuple[Array, Array]:
    over = switch.step(over, episodes.cost, jnp.asarray(settings.cost_limit), settings.recover_until)
    return jnp.where(over, -2.0 * reach, _room(settings, episodes)), over  # out of reach: least violation


def _shares(settings: CPOSharesSettings, memory: PyTree, episodes: Episodes, reach: Array) -> tuple[Array, PyTree]:
    share = normal_share(episodes.cost, jnp.asarray(settings.cost_limit), settings.tilt)
    return together(share, settings.tilt) * reach, memory


PRINTED = Budgets(lambda m: (), lambda settings, memory, episodes, reach: (_room(settings, episodes), memory))
HYSTERESIS = Budgets(lambda m: jnp.zeros(m, bool), _hysteresis)
SHARES = Budgets(lambda m: (), _shares)


def init(networks: Networks, settings: CPOSettings, key: Key, budgets: Budgets = PRINTED) -> Agent:
    return init_agent(networks, settings, key, budgets.init(networks.spec.num_costs))


def update(
    networks: Networks, settings: CPOSettings, agent: Agent, batch: Batch, key: Key, budgets: Budgets = PRINTED
) -> tuple[Agent, Metrics]:
    """One constrained natural step with line search, then the critics."""
    data = prepare(networks, settings, agent, batch)
    terms = surrogate.around(networks.policy, agent.policy, data.obs, data.action)
    signals = jnp.concatenate([data.adv[None], data.cost_adv])

    # The model: gradients g, b_1 … b_m, their natural directions, and all inner products.
    near = trust_region.model(terms, agent.policy, signals, settings)
    gram = near.gradients @ near.solved.x.T
    gram = (gram + gram.T) / 2.0
    reach = jnp.sqrt(2.0 * settings.kl * jnp.maximum(jnp.diagonal(gram)[1:], 0.0))
    budget, memory = budgets.asked(settings, agent.extra, batch.episodes, reach)
    found = cpo_dual.solve(gram, budget, jnp.sqrt(2.0 * settings.kl))
    step = jnp.concatenate([found.along_gradient[None], found.along_costs]) @ near.solved.x

    # The truth: backtrack until the surrogates themselves agree.
    recovering = found.status == cpo_dual.Status.INFEASIBLE
    lengths = jnp.sqrt(jnp.maximum(jnp.diagonal(gram)[1:], 1e-20))

    def acceptable(flat: Array) -> Array:
        reward, cost = jnp.split(near.changes(flat), [1])
        reward_met = jnp.any(budget < 0) | (reward[0] >= 0)
        return (near.mean_kl(flat) <= settings.kl) & costs_met(cost, budget, lengths, recovering) & reward_met

    searched = trust_region.backtrack(
        acceptable, near.params, step, shrink=settings.search_shrink, tries=settings.search_tries
    )
    metrics: Metrics = near.told(searched, batch.episodes.length, settings)
    metrics |= {"recovering": recovering, "status": found.status}
    agent = agent._replace(policy=near.as_tree(searched.params), extra=memory)
    agent, critic_metrics = fit_critics(networks, settings, agent, data, key)
    return observe(agent, batch), metrics | critic_metrics


def costs_met(cost: Array, budget: Array, lengths: Array, recovering: Array) -> Array:
    """Whether changes of the costs keep their budgets or, in recovery, make the largest violation no larger.

    Violations count in lengths of the gradients; a cost without a gradient, which no step can mend, counts for none.

    >>> budget, lengths, recovering = jnp.array([-0.1, 0.05]), jnp.array([1e-10, 2.0]), jnp.array(True)
    >>> move = lambda *cost: bool(costs_met(jnp.array(cost), budget, lengths, recovering))
    >>> move(0.0, 0.05), move(0.0, 5.0)
    (True, False)
    """
    violation = lambda change: jnp.max(jnp.where(lengths > 1e-8, (change - budget) / lengths, -jnp.inf))  # noqa: E731
    less_violated = violation(cost) <= jnp.maximum(violation(jnp.zeros_like(cost)), 0.0)
    return jnp.where(recovering, less_violated, jnp.all(cost <= jnp.maximum(budget, 0.0)))
