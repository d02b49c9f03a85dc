"""Constrained Update Projection (Yang et al. 2022): a reward step by PPO, then a projection that charges for cost.

    π_half   maximises  E[min(r A, clip(r) A)]                                        (improvement)
    π_new    minimises  E[KL(π_θ‖π_half)] + Σ_i λ_i c E[r A_ci],   c = (1 − γ_c λ_c)/(1 − γ_c)    (projection)

Both go by Adam, each until its own KL limit: from π to π_half, and from π_half to π_new. λ counts in nats for a unit of
cost and follows the violation by projected gradient ascent (``maths/multipliers.py``); c is the paper's constant for
λ-advantages, whose own λ_c shortens what an advantage sees. The published λ ≤ 2 is dropped: where a task needs a higher
price, such a bound makes a method ignore its limit.
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
class CUPSettings(OnPolicy, first_order.Descent, surrogate.Bonus, multipliers.Ascent):
    """Settings of CUP."""

    clip: float = setting(0.2, "Ratios beyond 1 ± clip earn nothing more.", above=0.0)
    kl: float = setting(0.01, "Each of the two steps ends once its own mean forward KL exceeds this.", above=0.0)


def init(networks: Networks, settings: CUPSettings, key: Key) -> Agent:
    return init_priced(networks, settings, key, multipliers.ASCENT)


def update(networks: Networks, settings: CUPSettings, agent: Agent, batch: Batch, key: Key) -> tuple[Agent, Metrics]:
    """Move the multipliers, then the policy up the reward and back towards the limits, then the critics."""
    improve_key, project_key, critic_key = jax.random.split(key, 3)
    data = prepare(networks, settings, agent, batch)
    limit, samples = jnp.asarray(settings.cost_limit), data.adv.size
    prices = multipliers.ASCENT.update(settings, agent.extra.multiplier, batch.episodes.cost, limit)
    seen = (1.0 - settings.cost_discount * settings.cost_gae_decay) / (1.0 - settings.cost_discount)
    charge = seen * prices.value @ data.cost_adv
    old = surrogate.around(networks.policy, agent.policy, data.obs, data.action)

    def improvement(params: PyTree, index: Array) -> Array:
        ratio, adv = old.ratio(params, index), data.adv[index]
        clipped = jnp.clip(ratio, 1.0 - settings.clip, 1.0 + settings.clip)
        bonus = settings.entropy * old.entropy(params, index)
        return -jnp.mean(jnp.minimum(ratio * adv, clipped * adv) + bonus)

    memory = agent.extra.memory
    better = first_order.descend(improvement, old.kl, agent.policy, memory, improve_key, settings, samples=samples)
    half = surrogate.around(networks.policy, better.params, data.obs, data.action)

    def projection(params: PyTree, index: Array) -> Array:
        return jnp.mean(half.reverse_kl(params, index) + old.ratio(params, index) * charge[index])

    done = first_order.descend(
        projection, half.kl, better.params, better.memory, project_key, settings, samples=samples
    )
    change = batch.episodes.length * (old.ratio(done.params) - 1.0)
    metrics: Metrics = {
        "kl": old.mean_kl(done.params),
        "kl_limit": jnp.asarray(settings.kl),
        "epochs": better.epochs,
        "projection_epochs": done.epochs,
        "projection_kl": half.mean_kl(done.params),
        "multiplier": prices.value,
        "predicted_reward_change": jnp.mean(data.adv * change),
        "predicted_cost_change": jnp.mean(data.cost_adv * change, axis=1),
    }
    agent = agent._replace(policy=done.params, extra=Priced(done.memory, prices))
    agent, critic_metrics = fit_critics(networks, settings, agent, data, critic_key)
    return observe(agent, batch), metrics | critic_metrics
