"""Maximum a posteriori Policy Optimisation (Abdolmaleki et al. 2018) and its constrained form CVPO (Liu et al. 2022).

Off-policy EM. Critics of reward and costs learn from replay. E-step: at states from replay, reweight actions drawn
from the policy, π, to q ∝ π exp((Q − Σ λ_i Q_ci)/η) (``maths/nonparametric.py``); the rule passed in decides whether
costs count: ``unconstrained`` is MPO, ``reweight`` CVPO. M-step: fit the network to q by weighted maximum likelihood
inside a KL ball (both papers' M-step).

Three deviations. CVPO bounds E_q[Q_c] by a threshold on discounted returns; here E_q[Q_c] − E_π[Q_c] ≤ d' with
d' = (d − J_c)/T, the project's cost contract, which needs only differences of Q_c and measures J_c itself. The policy
that collected the batch is the reference π of the whole update, so ``kl`` means what it means elsewhere. The M-step
ends at its KL limit instead of paying for KL with a multiplier of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cppo.algos.off_policy import OffPolicy, Proposed, fit_q, init_agent, propose
from cppo.algos.on_policy import Agent
from cppo.maths import adam, costs, first_order, nonparametric, normalise
from cppo.maths import replay_buffer as replay
from cppo.networks import Networks
from cppo.settings import setting, settings
from cppo.types import Batch, Key, Metrics, PyTree

EStep = Callable[[Array, Array, Array, Array, Array | float], nonparametric.Weights]


@settings
class MPOSettings(OffPolicy, first_order.Descent):
    """Settings of MPO and CVPO."""

    estep_kl: float = setting(0.1, "ε of the E-step: mean KL(q‖π) of the reweighted actions (authors: 0.1).", above=0.0)
    states: int = setting(1024, "States drawn from replay for an E-step.", at_least=1)
    actions: int = setting(32, "Actions drawn at each state (Discrete: all of them, this is unused).", at_least=2)


class Extra(NamedTuple):
    memory: adam.Memory
    replay: replay.Replay


def init(networks: Networks, settings: MPOSettings, key: Key) -> Agent:
    agent = init_agent(networks, settings, key)
    return agent._replace(extra=Extra(adam.init(agent.policy), replay.empty(networks.spec, settings.replay_size)))


def update(
    networks: Networks,
    settings: MPOSettings,
    agent: Agent,
    batch: Batch,
    key: Key,
    estep: EStep = nonparametric.unconstrained,
) -> tuple[Agent, Metrics]:
    """Remember the batch, fit the critics, reweight actions, fit the policy to them."""
    critic_key, state_key, action_key, policy_key = jax.random.split(key, 4)
    past = replay.add(agent.extra.replay, batch)
    agent, critic_metrics = fit_q(networks, settings, agent, past, critic_key)

    # E-step: at replayed states, which of the policy's own actions should be likelier?
    number = dict(states=settings.states, actions=settings.actions)
    data = propose(networks, settings, agent, past, state_key, action_key, **number)
    limit = jnp.asarray(settings.cost_limit)
    budget = costs.budget(limit, batch.episodes, settings.cost_discount, settings.cost_unit)
    found = estep(data.log_prior, data.adv, data.cost_adv, budget, settings.estep_kl)
    weights = jnp.exp(found.log_q)

    # M-step: weighted maximum likelihood until the KL limit.
    kl, log_prob = partial(divergence, networks, data), partial(log_likelihood, networks, data)

    def loss(params: PyTree, index: Array) -> Array:
        return -jnp.mean(jnp.sum(weights[index] * log_prob(params, index), axis=-1))

    done = first_order.descend(
        loss, kl, agent.policy, agent.extra.memory, policy_key, settings, samples=settings.states
    )
    everything = jnp.arange(settings.states)
    ratio = jnp.exp(log_prob(done.params, everything) - log_prob(agent.policy, everything))
    change = batch.episodes.length * (ratio - 1.0) * jnp.exp(data.log_prior) / settings.states  # to episode units
    metrics: Metrics = {
        "recovering": ~found.feasible,
        "kl": jnp.mean(kl(done.params, everything)),
        "kl_limit": jnp.asarray(settings.kl),
        "epochs": done.epochs,
        "estep_kl": found.kl,
        "estep_converged": found.converged,
        "temperature": found.temperature,
        "multiplier": found.price,
        "target_cost_change": batch.episodes.length * found.cost_change,
        "predicted_reward_change": jnp.sum(change * data.adv),
        "predicted_cost_change": jnp.sum(change * data.cost_adv, axis=(1, 2)),
        "replay_filled": past.filled,
    }
    normaliser = normalise.observe(agent.normaliser, batch.obs.reshape(-1, *networks.spec.obs_shape))
    agent = agent._replace(policy=done.params, normaliser=normaliser, extra=Extra(done.memory, past))
    return agent, metrics | critic_metrics


def divergence(networks: Networks, data: Proposed, params: PyTree, index: Int[Array, " i"]) -> Float[Array, " i"]:
    """KL(π‖π_θ) at the replayed states of ``index``."""
    before = jax.tree.map(lambda x: x[index], data.policy)
    return jax.vmap(lambda d, o: d.kl(networks.policy(params, o)))(before, data.obs[index])


def log_likelihood(
    networks: Networks, data: Proposed, params: PyTree, index: Int[Array, " i"]
) -> Float[Array, "i action"]:
    """log π_θ of the actions proposed at these states."""
    new = jax.vmap(lambda o: networks.policy(params, o))(data.obs[index])
    return jax.vmap(lambda d, actions: jax.vmap(d.log_prob)(actions))(new, data.action[index])
