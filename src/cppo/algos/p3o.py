"""PPO with a penalty on the cost that its own surrogate promises: P3O (Zhang et al. 2022), C3PO (Milosevic, Müller &
Scherf 2025) and IPO (Liu et al. 2020). There is no price to learn:

    maximise  E[min(r A, clip(r) A)] − σ Σ_i φ(x_i),      x_i = E[max((r − 1) A_ci, (clip(r) − 1) A_ci)],

x_i the promised change of a cost by a pessimist, in the unit of one sample like the room d' = (d − J_c)/T
(docs/cost-contract.md). σ is the deviation of A in the batch, so that a penalty counts in deviations of A, as in the
authors' codes, which standardise A alone. The rules of φ are values:

    exact     κ (x − d')₊                         P3O: from some κ on its maximum is the constrained one
    central   κ_k (x − min(w d', d'))₊            C3PO: an update may spend the share w of the room; κ_k rises with k
    barrier   −log(d' − x)/(t T), slope ≤ κ       IPO: T times it is the barrier −log(d − J_c − T x)/t of an episode

Three deviations. P3O's paper adds (1 − γ)(J_c − d) to a mean over samples, ours the same excess in the samples' unit.
C3PO's authors raise κ over the whole of a run; an update knows no run, so it rises over a number of updates. IPO's
barrier is infinite where the limit is exceeded, and its paper starts within; ours goes on as a straight line once its
slope is κ, so that it leads back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cppo.algos.on_policy import Agent, OnPolicy, fit_critics, init_agent, observe, prepare
from cppo.maths import adam, costs, first_order, surrogate
from cppo.networks import Networks
from cppo.settings import setting, settings
from cppo.types import Batch, Key, Metrics, PyTree


@settings
class P3OSettings(OnPolicy, first_order.Descent, surrogate.Bonus):
    """Settings of P3O."""

    clip: float = setting(0.2, "Ratios beyond 1 ± clip earn nothing more.", above=0.0)
    penalty: float = setting(
        20.0, "κ: deviations of A that a unit of cost beyond the room is charged with.", at_least=0.0
    )


@settings
class C3POSettings(P3OSettings):
    """Settings of C3PO."""

    penalty: float = setting(50.0, "Last κ, deviations of A for a unit of cost beyond the share.", at_least=0.0)
    penalty_start: float = setting(5.0, "κ of the first update.", at_least=0.0)
    penalty_rise: int = setting(300, "Updates over which κ rises in a straight line.", at_least=1)
    room_share: float = setting(0.05, "w: share of the room under the limit that one update may spend.", at_least=0.0)


@settings
class IPOSettings(P3OSettings):
    """Settings of IPO."""

    penalty: float = setting(20.0, "κ: largest slope of the barrier, deviations of A for a unit of cost.", above=0.0)
    barrier: float = setting(20.0, "t: a room of one unit of cost is priced at 1/t deviations of A.", above=0.0)


class Situation(NamedTuple):
    """What a penalty is told beside the promised change."""

    room: Float[Array, " constraint"]  # d'
    length: Float[Array, ""]  # T
    updates: Int[Array, ""]  # before this one


Penalty = Callable[[Any, Float[Array, " constraint"], Situation], Float[Array, " constraint"]]


def exact(settings: P3OSettings, change: Array, now: Situation) -> Array:
    """κ (x − d')₊."""
    return settings.penalty * jnp.maximum(change - now.room, 0.0)


def central(settings: C3POSettings, change: Array, now: Situation) -> Array:
    """κ_k (x − min(w d', d'))₊: of an excess (d' < 0) all is to be made up for."""
    risen = jnp.minimum(now.updates / settings.penalty_rise, 1.0)
    price = settings.penalty_start + (settings.penalty - settings.penalty_start) * risen
    return price * jnp.maximum(change - jnp.minimum(settings.room_share * now.room, now.room), 0.0)


def barrier(settings: IPOSettings, change: Array, now: Situation) -> Array:
    """−log(d' − x)/(t T), from where its slope is κ a straight line."""
    left, scale = now.room - change, 1.0 / (settings.barrier * now.length)
    least = scale / settings.penalty
    return -scale * jnp.log(jnp.maximum(left, least)) + settings.penalty * jnp.maximum(least - left, 0.0)


class Extra(NamedTuple):
    memory: adam.Memory
    updates: Int[Array, ""]


def init(networks: Networks, settings: P3OSettings, key: Key) -> Agent:
    agent = init_agent(networks, settings, key, None)
    return agent._replace(extra=Extra(adam.init(agent.policy), jnp.zeros((), jnp.int32)))


def update(
    networks: Networks, settings: P3OSettings, agent: Agent, batch: Batch, key: Key, penalty: Penalty = exact
) -> tuple[Agent, Metrics]:
    """Clipped descent on the penalised surrogate, then the critics."""
    policy_key, critic_key = jax.random.split(key)
    data = prepare(networks, settings, agent, batch)
    limit = jnp.asarray(settings.cost_limit)
    room = costs.budget(limit, batch.episodes, settings.cost_discount, settings.cost_unit)
    now = Situation(room, batch.episodes.length, agent.extra.updates)
    terms = surrogate.around(networks.policy, agent.policy, data.obs, data.action)
    deviation = jnp.std(data.adv)

    def promised(ratio: Array, clipped: Array, cost_adv: Array) -> Array:
        return jnp.mean(jnp.maximum((ratio - 1.0) * cost_adv, (clipped - 1.0) * cost_adv), axis=1)

    def loss(params: PyTree, index: Array) -> Array:
        ratio = terms.ratio(params, index)
        clipped = jnp.clip(ratio, 1.0 - settings.clip, 1.0 + settings.clip)
        adv, change = data.adv[index], promised(ratio, clipped, data.cost_adv[:, index])
        gain = jnp.mean(jnp.minimum(ratio * adv, clipped * adv) + settings.entropy * terms.entropy(params, index))
        return deviation * jnp.sum(penalty(settings, change, now)) - gain

    samples = data.adv.size
    done = first_order.descend(loss, terms.kl, agent.policy, agent.extra.memory, policy_key, settings, samples=samples)
    change = terms.ratio(done.params) - 1.0
    metrics: Metrics = {
        "kl": terms.mean_kl(done.params),
        "kl_limit": jnp.asarray(settings.kl),
        "epochs": done.epochs,
        "clip_share": jnp.mean(jnp.abs(change) > settings.clip),
        "multiplier": jax.vmap(jax.grad(lambda x, d: jnp.sum(penalty(settings, x, now._replace(room=d)))))(
            0 * room, room
        ),
        "predicted_reward_change": batch.episodes.length * jnp.mean(data.adv * change),
        "predicted_cost_change": batch.episodes.length * jnp.mean(data.cost_adv * change, axis=1),
    }
    agent = agent._replace(policy=done.params, extra=Extra(done.memory, agent.extra.updates + 1))
    agent, critic_metrics = fit_critics(networks, settings, agent, data, critic_key)
    return observe(agent, batch), metrics | critic_metrics
