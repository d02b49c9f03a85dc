"""Constrained Proximal Policy Optimization (Xuan et al. 2023): an E-step by geometry, an M-step by tracking.

Each iteration asks which policy, inside a ball of probability ratios, would earn most within the cost limit (E-step,
``estep``), and moves the network towards it (M-step, ``tracking``). Once a limit is exceeded, recovery updates take
over until the cost has fallen below a lower mark (``switch``). How far cost must fall, or may rise, is a rule passed
in (``budgets``). An update may draw on the batches just before the newest, too (``reuse``).

Where we differ from the paper, and why: docs/maths.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from cppo.algos.cppo import budgets, estep, reuse, tracking
from cppo.algos.on_policy import Agent, OnPolicy, Prepared, fit_critics, init_agent, observe, policy_view, prepare
from cppo.maths import adam, switch
from cppo.maths.advantages import centred
from cppo.maths.shares import SLOPE
from cppo.networks import Networks
from cppo.settings import setting, settings
from cppo.types import Batch, Episodes, Key, Metrics, PyTree

KL_TO_VARIANCE = 2 * math.log(2.0) - 1  # appendix E: Var(v) = δ/(2 ln 2 − 1) keeps E[v log v] ≥ δ while v < 2

RATE_GROWTH = 1.5  # of a reduced learning rate from one iteration to the next


@settings
class CPPOSettings(OnPolicy):
    """Settings of CPPO."""

    kl: float = setting(0.02, "Trust region δ: largest mean forward KL(π‖π_θ) of an update.", above=0.0)
    policy_rate: float = setting(3e-4, "Learning rate of the M-step (the paper: 1e-4).", above=0.0)
    epochs: int = setting(40, "Most passes over the batch in an M-step.", at_least=1)
    minibatches: int = setting(8, "Minibatches to a pass in the M-step.", at_least=1)
    tracking: str = setting(
        "l2", "How the M-step follows v: least E[(v − r)²], or kl, least KL(q‖π_θ).", choices=tuple(tracking.LOSSES)
    )
    lower_clip: float = setting(0.6, "Ratios below this are pushed down no further.", at_least=0.0, below=1.0)
    gain: float = setting(4.0, "Targets are 1 + gain (v − 1); above 1 the M-step uses its trust region.", above=0.0)
    reuse: int = setting(1, "Batches that an update draws on: the newest and those just before it.", at_least=1)
    recovery: bool = setting(True, "Recovery updates once a limit is exceeded (false: the paper's ablation).")
    beta: float = setting(
        1.0, "Share of the tracking error kept beside its cost part in recovery.", at_least=0.0, at_most=1.0
    )
    switch: float = setting(
        0.9, "Recovery ends when the cost is at most this share of its limit.", above=0.0, at_most=1.0
    )
    switch_memory: float = setting(
        0.5,
        "Share of its past in the average of J_c that the switch looks at (0: the newest alone).",
        at_least=0.0,
        below=1.0,
    )
    budgets: str = setting(
        "shares",
        "What updates ask of costs: shares of their reach, or printed, the paper's d − J_c (algos/cppo/budgets.py).",
        choices=tuple(budgets.RULES),
    )
    tilt: float = setting(
        0.95, "With shares: most of the reach that is asked for. Lower earns and costs more.", above=0.0, at_most=1.0
    )
    slope: float = setting(
        SLOPE,
        "With shares: of the reach, by the relative distance from the limit. Lower stays below.",
        above=0.0,
    )
    waypoints: int = setting(1, "Targets of growing radius along the way of a recovery update.", at_least=1)
    exact: bool = setting(True, "Finish the E-step to the exact optimum (false: the paper's plain heuristic).")


class Extra(NamedTuple):
    """CPPO's own state: the switch, and what the last update promised, to be held against what came."""

    recovering: Bool[Array, " constraint"]
    watched: Float[Array, " constraint"]  # the J_c that the switch looks at, before the next batch is seen
    last_cost: Float[Array, " constraint"]
    last_predicted: Float[Array, " constraint"]
    memory: adam.Memory
    rate_scale: Float[Array, ""]  # of the M-step's learning rate, found by backing off
    past: reuse.Past


GONE = ("keep_scale", "aim", "feedback", "steering", "calibrate")


def upgraded(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as an earlier version saved them, less those of rules that are gone; feedback goes on as shares."""
    kept = {name: value for name, value in saved.items() if name not in GONE}
    before = saved.get("budgets", "feedback" if saved.get("feedback", 0.0) > 0 else "printed")
    return kept | {"budgets": "shares" if before == "feedback" else before}


def init(networks: Networks, settings: CPPOSettings, key: Key) -> Agent:
    zeros = jnp.zeros(networks.spec.num_costs)
    agent = init_agent(networks, settings, key, None)
    extra = Extra(
        recovering=zeros.astype(bool),
        watched=zeros * jnp.nan,
        last_cost=zeros * jnp.nan,
        last_predicted=zeros * jnp.nan,
        memory=adam.init(agent.policy),
        rate_scale=jnp.ones(()),
        past=reuse.nothing(networks, settings),
    )
    return agent._replace(extra=extra)


def update(networks: Networks, settings: CPPOSettings, agent: Agent, batch: Batch, key: Key) -> tuple[Agent, Metrics]:
    """One EM iteration."""
    track_key, critic_key = jax.random.split(key)
    data, past = samples(networks, settings, agent, batch)
    before = jax.vmap(lambda o: networks.policy(agent.policy, o))(data.obs)

    def log_prob(params: PyTree, index: Array | slice = slice(None)) -> Array:
        return jax.vmap(lambda o, a: networks.policy(params, o).log_prob(a))(data.obs[index], data.action[index])

    def mean_kl(params: PyTree) -> Array:
        return jnp.mean(jax.vmap(lambda old, o: old.kl(networks.policy(params, o)))(before, data.obs))

    now, asked = ask(settings, agent.extra, batch.episodes, data.cost_adv)
    solved = targets(settings, asked, data, now.recovering)  # E-step: the best ratios, at growing radii
    target = jax.tree.map(lambda x: x[-1], solved)

    tracked = tracking.track(  # M-step: the network follows the ratios up to the trust region
        log_prob,
        mean_kl,
        agent.policy,
        adam.forget_direction(agent.extra.memory),
        solved.ratios,
        data.cost_adv,
        now.recovering,
        key=track_key,
        kl_limit=settings.kl,
        rate=settings.policy_rate,
        beta=settings.beta,
        gain=settings.gain,
        lower_clip=settings.lower_clip,
        scale=agent.extra.rate_scale,
        epochs=settings.epochs,
        minibatches=settings.minibatches,
        loss=tracking.LOSSES[settings.tracking],
    )

    change = (tracked.ratios - 1.0) * batch.episodes.length / data.adv.size  # to episode units
    predicted = data.cost_adv @ change
    extra = now._replace(
        last_predicted=predicted,
        memory=tracked.memory,
        rate_scale=jnp.minimum(1.0, RATE_GROWTH * tracked.scale),
        past=past,
    )
    metrics = _geometry(target, batch.episodes.length) | _movement(settings, target, tracked)
    metrics |= _costs(agent.extra, now, asked, target) | {
        "predicted_reward_change": data.adv @ change,
        "predicted_cost_change": predicted,
    }
    agent = agent._replace(policy=tracked.params, extra=extra)
    agent, critic_metrics = fit_critics(networks, settings, agent, data, critic_key)
    return observe(agent, batch), metrics | critic_metrics


def ask(
    settings: CPPOSettings, extra: Extra, episodes: Episodes, cost_adv: Float[Array, "constraint n"]
) -> tuple[Extra, budgets.Asked]:
    """What the batch's J_c means: whether to recover, and what to ask of the E-step."""
    limit = jnp.asarray(settings.cost_limit)
    watched = switch.watch(extra.watched, episodes.cost, settings.switch_memory)
    recovering = switch.step(extra.recovering, watched, limit, settings.switch) & settings.recovery
    variance = settings.kl / KL_TO_VARIANCE
    situation = budgets.Situation(episodes, limit, watched, recovering, cost_adv, variance)
    knobs = budgets.Knobs(settings.tilt, settings.slope, settings.cost_discount, settings.cost_unit, settings.exact)
    asked = budgets.RULES[settings.budgets](situation, knobs)
    return extra._replace(recovering=recovering, watched=watched, last_cost=episodes.cost), asked


def targets(
    settings: CPPOSettings, asked: budgets.Asked, data: Prepared, recovering: Bool[Array, " constraint"]
) -> estep.EStep:
    """The E-step at ``waypoints`` radii, so that the way of a recovery update stays within its budget, too."""
    parts = jnp.arange(1, settings.waypoints + 1) / settings.waypoints
    parts = jnp.where(jnp.any(recovering), parts, 1.0)

    def solve(variance: Array) -> estep.EStep:
        return estep.solve(data.adv, data.cost_adv, asked.budget, variance, asked.recovery, settings.exact)

    return jax.vmap(solve)(parts**2 * settings.kl / KL_TO_VARIANCE)


def samples(networks: Networks, settings: CPPOSettings, agent: Agent, batch: Batch) -> tuple[Prepared, reuse.Past]:
    """Advantages of the newest batch and, with ``reuse`` above 1, of those just before it, weighted by π/π_then."""

    def log_prob(some: Batch) -> Array:
        policy = lambda o, a: networks.policy(agent.policy, o).log_prob(a)  # noqa: E731
        return jax.vmap(jax.vmap(policy))(policy_view(settings, agent, some.obs), some.action)

    joined, then, past = reuse.join(agent.extra.past, batch, log_prob(batch))
    data = prepare(networks, settings, agent, joined)
    if settings.reuse > 1:
        weight = reuse.weights(log_prob(joined), then).reshape(-1)
        data = data._replace(adv=centred(weight * data.adv), cost_adv=jax.vmap(centred)(weight * data.cost_adv))
    return data, past


def _geometry(target: estep.EStep, length: Array) -> Metrics:
    """What the E-step found, changes in episode units."""
    v = target.ratios
    return {
        "status": target.status,
        "case": target.case,
        "theta": target.theta,
        "theta_reward": target.theta_reward,
        "theta_feasible": target.theta_feasible,
        "bound_share": target.bound_share,
        "above_two_share": jnp.mean(v >= 2.0),
        "target_kl": jnp.mean(jax.scipy.special.xlogy(v, v)),  # KL(q‖π)
        "estep_iterations": target.iterations,
        "estep_repairs": target.repairs,
        "target_reward_change": length * target.reward_change,
        "target_cost_change": length * target.cost_change,
    }


def _movement(settings: CPPOSettings, target: estep.EStep, tracked: tracking.Tracked) -> Metrics:
    """How far the M-step went, and how near to the target."""
    return {
        "kl": tracked.kl,
        "kl_limit": jnp.asarray(settings.kl),
        "epochs": tracked.epochs,
        "rate_scale": tracked.scale,
        "tracking_error": _distance(tracked.ratios, target.ratios) / _distance(target.ratios, 1.0),
    }


def _costs(before: Extra, now: Extra, asked: budgets.Asked, target: estep.EStep) -> Metrics:
    """What was known of costs, and asked of them."""
    tilt: Metrics = {} if asked.reach is None else {"tilt": -target.cost_change / (asked.reach + 1e-20)}
    return tilt | {
        "recovering": now.recovering,
        "watched_cost": now.watched,
        "previous_predicted_cost_change": before.last_predicted,
        "realised_cost_change": now.last_cost - before.last_cost,
    }


def _distance(a: Array, b: Array | float) -> Array:
    return jnp.sqrt(jnp.sum((a - b) ** 2) + 1e-20)
