"""First Order Constrained Optimization in Policy Space (Zhang et al. 2020).

The best policy near π in the space of all policies is π* ∝ π exp((A − Σ ν_i A_ci)/λ) (their optimal non-parametric
policy); the network descends on KL(π_θ‖π*), whose gradient at a sample is

    ∇KL(π_θ‖π) − (1/λ) ∇(π_θ/π) (A − Σ ν_i A_ci),     where KL(π_θ‖π)(s) ≤ δ, else 0.

ν follows the violation by projected gradient ascent (``maths/multipliers.py``). Two deviations. The published ν ≤ 2 is
dropped: where a task needs a higher price, that bound makes the method ignore its limit. The temperature λ is in
units of the penalised advantage's standard deviation (the authors' code standardises A alone, after which ν has a unit
that differs from batch to batch).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from cppo.algos.on_policy import Agent, OnPolicy, Priced, fit_critics, init_priced, observe, prepare
from cppo.maths import first_order, multipliers, surrogate
from cppo.networks import Networks
from cppo.settings import setting, settings
from cppo.types import Batch, Key, Metrics, PyTree


@settings
class FOCOPSSettings(OnPolicy, first_order.Descent, multipliers.Ascent):
    """Settings of FOCOPS."""

    kl: float = setting(0.02, "δ: states whose KL exceeds it drop out; the update ends when the mean does.", above=0.0)
    temperature: float = setting(1.5, "λ, in standard deviations of the penalised advantage (authors: 1.5).", above=0.0)


def init(networks: Networks, settings: FOCOPSSettings, key: Key) -> Agent:
    return init_priced(networks, settings, key, multipliers.ASCENT)


def update(networks: Networks, settings: FOCOPSSettings, agent: Agent, batch: Batch, key: Key) -> tuple[Agent, Metrics]:
    """Move the multipliers, then the policy towards π*, then the critics."""
    policy_key, critic_key = jax.random.split(key)
    data = prepare(networks, settings, agent, batch)
    limit = jnp.asarray(settings.cost_limit)
    prices = multipliers.ASCENT.update(settings, agent.extra.multiplier, batch.episodes.cost, limit)
    adv = multipliers.penalised(data.adv, data.cost_adv, prices.value)
    adv = adv / (settings.temperature * jnp.std(adv) + 1e-8)
    terms = surrogate.around(networks.policy, agent.policy, data.obs, data.action)

    def loss(params: PyTree, index: Array) -> Array:
        distance = terms.reverse_kl(params, index)
        inside = jax.lax.stop_gradient(distance <= settings.kl)
        return jnp.mean(inside * (distance - terms.ratio(params, index) * adv[index]))

    done = first_order.descend(loss, terms.kl, agent.policy, agent.extra.memory, policy_key, settings, samples=adv.size)
    change = terms.ratio(done.params) - 1.0
    metrics: Metrics = {
        "kl": terms.mean_kl(done.params),
        "kl_limit": jnp.asarray(settings.kl),
        "epochs": done.epochs,
        "outside_share": jnp.mean(terms.reverse_kl(done.params) > settings.kl),
        "multiplier": prices.value,
        "predicted_reward_change": batch.episodes.length * jnp.mean(data.adv * change),
        "predicted_cost_change": batch.episodes.length * jnp.mean(data.cost_adv * change, axis=1),
    }
    agent = agent._replace(policy=done.params, extra=Priced(done.memory, prices))
    agent, critic_metrics = fit_critics(networks, settings, agent, data, critic_key)
    return observe(agent, batch), metrics | critic_metrics
