"""One natural step, up the reward while limits are kept, down a cost while they are not: CRPO (Xu, Liang & Lan 2021)
and C-TRPO (Milosevic, Müller & Scherf 2025), which puts the limits into the trust region, too.

Both switch, one flag for each constraint (``maths/switch.py``). A flag goes up where J_c > d + η, η being CRPO's
tolerance, and down where J_c ≤ h (d + η), h being C-TRPO's hysteresis (1: none). Where any is up, the step descends on
the cost whose J_c is the largest multiple of its limit. Where none is, it ascends on the reward in the region D ≤ δ,

    D = KL(π‖π_θ) + β Σ_i φ_i,    φ_i = (x_i + (d'_i − x_i) log(1 − x_i/d'_i))/(1 − γ_c),    x_i = E[(r − 1) A_ci],

d' being the room in the unit of one sample (docs/cost-contract.md). φ is the Bregman divergence of y log y, y the room
that is left, and infinite where an update would use it up. Its Hessian β Σ b_i b_iᵀ/d'_i/(1 − γ_c), b_i the gradient of
x_i, joins Fisher's, so that steps turn away from a limit the nearer it is. Descending steps keep to KL, as CRPO does.

CRPO's theory takes natural steps of one length; as in its experiments, ours go to the edge of a trust region. C-TRPO's
code divides a discounted x by an undiscounted d − J_c; here both count alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from cppo.algos.on_policy import Agent, OnPolicy, fit_critics, init_agent, observe, prepare
from cppo.maths import costs, surrogate, switch, trust_region
from cppo.networks import Networks
from cppo.settings import setting, settings
from cppo.types import Batch, Key, Metrics

LEAST_ROOM = 1e-3  # of the limit: keeps the region's curvature finite where J_c is the limit to the last digit

Divergence = Callable[[Any, Array, Array], Array]


@settings
class CRPOSettings(OnPolicy, trust_region.Region):
    """Settings of CRPO."""

    tolerance: float = setting(0.0, "η: cost descent begins at a J_c above the limit by more than this.", at_least=0.0)
    recover_until: float = setting(
        1.0, "h: it ends where J_c is at most this share of where it begins.", above=0.0, at_most=1.0
    )


@settings
class CTRPOSettings(CRPOSettings):
    """Settings of C-TRPO."""

    recover_until: float = setting(
        0.8,
        "h: cost descent ends where J_c is at most this share of the limit (authors: 1 and 0.8).",
        above=0.0,
        at_most=1.0,
    )
    barrier: float = setting(1.0, "β: weight of the limits in the trust region (authors: 1).", at_least=0.0)


def kl_alone(settings: CRPOSettings, change: Float[Array, " constraint"], room: Float[Array, " constraint"]) -> Array:
    """CRPO's rule: nothing beside KL."""
    return jnp.zeros(())


def barrier(settings: CTRPOSettings, change: Float[Array, " constraint"], room: Float[Array, " constraint"]) -> Array:
    """C-TRPO's rule: β Σ φ_i."""
    left = room - change
    spent = change + left * jnp.log(jnp.where(left > 0, left, room) / room)
    return settings.barrier / (1.0 - settings.cost_discount) * jnp.sum(jnp.where(left > 0, spent, jnp.inf))


def init(networks: Networks, settings: CRPOSettings, key: Key) -> Agent:
    return init_agent(networks, settings, key, jnp.zeros(networks.spec.num_costs, bool))


def update(
    networks: Networks, settings: CRPOSettings, agent: Agent, batch: Batch, key: Key, beside_kl: Divergence = kl_alone
) -> tuple[Agent, Metrics]:
    """Look at the limits, take one natural step, then the critics."""
    data = prepare(networks, settings, agent, batch)
    limit, cost, length = jnp.asarray(settings.cost_limit), batch.episodes.cost, batch.episodes.length
    over = switch.step(agent.extra, cost, limit + settings.tolerance, settings.recover_until)
    room = costs.budget(limit, batch.episodes, settings.cost_discount, settings.cost_unit)
    room = jnp.maximum(room, LEAST_ROOM * jnp.maximum(limit, LEAST_ROOM) / length)
    worst = jnp.argmax(jnp.where(over, cost / jnp.maximum(limit, LEAST_ROOM), -jnp.inf))
    recovering = jnp.any(over)

    terms = surrogate.around(networks.policy, agent.policy, data.obs, data.action)
    adv = jnp.where(recovering, -data.cost_adv[worst], data.adv)
    params, as_tree = ravel_pytree(agent.policy)

    def gain(flat: Array) -> Array:
        return jnp.mean((terms.ratio(as_tree(flat)) - 1.0) * adv)

    def divergence(flat: Array) -> Array:
        change = data.cost_adv @ (terms.ratio(as_tree(flat)) - 1.0) / adv.size
        return terms.mean_kl(as_tree(flat)) + jnp.where(recovering, 0.0, beside_kl(settings, change, room))

    product = trust_region.fisher_product(divergence, params, settings.damping)
    solved = trust_region.conjugate_gradient(product, jax.grad(gain)(params), settings.solver_iterations)
    size = solved.x @ product(solved.x)
    step = jnp.sqrt(2.0 * settings.kl / jnp.maximum(size, 1e-12)) * solved.x
    found = trust_region.backtrack(
        lambda flat: (divergence(flat) <= settings.kl) & (gain(flat) > 0.0),
        params,
        step,
        shrink=settings.search_shrink,
        tries=settings.search_tries,
    )

    policy = as_tree(found.params)
    change = length * (terms.ratio(policy) - 1.0)
    metrics: Metrics = {
        "kl": terms.mean_kl(policy),
        "kl_limit": jnp.asarray(settings.kl),
        "divergence": divergence(found.params),
        "search_accepted": found.accepted,
        "search_tries": found.tries,
        "solver_residual": solved.residual,
        "recovering": recovering,
        "predicted_reward_change": jnp.mean(data.adv * change),
        "predicted_cost_change": jnp.mean(data.cost_adv * change, axis=1),
    }
    agent = agent._replace(policy=policy, extra=over)
    agent, critic_metrics = fit_critics(networks, settings, agent, data, key)
    return observe(agent, batch), metrics | critic_metrics
