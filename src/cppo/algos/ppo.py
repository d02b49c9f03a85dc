"""Proximal Policy Optimization (Schulman et al. 2017), alone or with a multiplier for each constraint.

The loss is the clipped surrogate (their L^CLIP) of the penalised advantage (``maths/multipliers.py``); with the rule
``NONE`` it is PPO, with ``LAGRANGIAN`` PPO-Lagrangian (Ray et al. 2019), with ``PID`` PPO with PID control (Stooke et
al. 2020). The multiplier moves first, so that the policy already answers the batch's own violation.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from cppo.algos.on_policy import Agent, OnPolicy, Priced, fit_critics, init_priced, observe, prepare
from cppo.maths import first_order, multipliers, surrogate
from cppo.maths.multipliers import Multiplier
from cppo.networks import Networks
from cppo.settings import setting, settings
from cppo.types import Batch, Key, Metrics, PyTree


@settings
class PPOSettings(OnPolicy, first_order.Descent, surrogate.Bonus):
    """Settings of PPO."""

    clip: float = setting(0.2, "Ratios beyond 1 ± clip earn nothing more.", above=0.0)


@settings
class PPOLagSettings(PPOSettings, multipliers.Lagrangian):
    """Settings of PPO-Lagrangian."""


@settings
class PPOPIDSettings(PPOSettings, multipliers.Control):
    """Settings of PPO with a PID multiplier."""


def init(networks: Networks, settings: PPOSettings, key: Key, multiplier: Multiplier = multipliers.NONE) -> Agent:
    return init_priced(networks, settings, key, multiplier)


def update(
    networks: Networks,
    settings: PPOSettings,
    agent: Agent,
    batch: Batch,
    key: Key,
    multiplier: Multiplier = multipliers.NONE,
) -> tuple[Agent, Metrics]:
    """Move the multipliers, then the policy by clipped descent, then the critics."""
    policy_key, critic_key = jax.random.split(key)
    data = prepare(networks, settings, agent, batch)
    limit = jnp.asarray(settings.cost_limit)
    prices = multiplier.update(settings, agent.extra.multiplier, batch.episodes.cost, limit)
    adv = multiplier.penalised(data.adv, data.cost_adv, prices.value)
    terms = surrogate.around(networks.policy, agent.policy, data.obs, data.action)

    def loss(params: PyTree, index: Array) -> Array:
        ratio = terms.ratio(params, index)
        clipped = jnp.clip(ratio, 1.0 - settings.clip, 1.0 + settings.clip)
        gain = jnp.minimum(ratio * adv[index], clipped * adv[index])
        return -jnp.mean(gain + settings.entropy * terms.entropy(params, index))

    done = first_order.descend(loss, terms.kl, agent.policy, agent.extra.memory, policy_key, settings, samples=adv.size)
    ratio = terms.ratio(done.params)
    metrics: Metrics = {
        "kl": terms.mean_kl(done.params),
        "kl_limit": jnp.asarray(settings.kl),
        "epochs": done.epochs,
        "clip_share": jnp.mean(jnp.abs(ratio - 1.0) > settings.clip),
        "predicted_reward_change": batch.episodes.length * jnp.mean(data.adv * (ratio - 1.0)),
        "predicted_cost_change": batch.episodes.length * jnp.mean(data.cost_adv * (ratio - 1.0), axis=1),
    } | multiplier.metrics(prices)
    agent = agent._replace(policy=done.params, extra=Priced(done.memory, prices))
    agent, critic_metrics = fit_critics(networks, settings, agent, data, critic_key)
    return observe(agent, batch), metrics | critic_metrics
