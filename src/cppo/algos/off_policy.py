"""What off-policy methods share: their settings, their state, and the mathematics of their action values."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from cppo.algos.on_policy import Agent, Method, new_agent
from cppo.maths import normalise, q_critics
from cppo.maths import replay_buffer as replay
from cppo.maths.distributions import Categorical, Distribution
from cppo.maths.normalise import policy_view
from cppo.maths.q_critics import QCritic
from cppo.networks import Networks
from cppo.settings import setting, settings
from cppo.types import Key, Metrics


@settings
class OffPolicy(Method):
    """Settings of every off-policy method."""

    critic_clock = False  # no setting: replay keeps no ages

    batch_size: int = setting(
        2000,
        "Environment steps of one seed between two updates; replay allows shorter ones than on-policy.",
        at_least=1,
    )
    num_envs: int = setting(10, "Worlds of one seed that run side by side.", at_least=1)
    replay_size: int = setting(100_000, "Decisions that the replay holds (steps, but for ``hold``).", at_least=1)
    value_steps: int = setting(400, "Gradient steps of the critics in an update.", at_least=1)
    value_batch: int = setting(256, "Replayed steps to a gradient step.", at_least=1)
    value_actions: int = setting(4, "Actions averaged over in the value of a next state.", at_least=1)
    target_rate: float = setting(
        0.01, "Share of a critic that its slow copy takes over at a step.", above=0.0, at_most=1.0
    )


def init_agent(networks: Networks, settings: OffPolicy, key: Key) -> Agent:
    """An agent whose critics are of actions; ``extra`` is left to the method."""
    critics = networks.of_actions()
    return new_agent(networks, settings, key, lambda k: q_critics.init(critics.init_value(k)), None)


class Proposed(NamedTuple):
    """States from replay with actions of the present policy, as an E-step wants them."""

    obs: Float[Array, "state *obs"]  # as the policy sees them
    policy: Distribution  # at each state
    action: Num[Array, "state action ..."]
    log_prior: Float[Array, "state action"]  # of drawn actions equal weights; Discrete: every action's probability
    adv: Float[Array, "state action"]  # Q less its prior mean at the state
    cost_adv: Float[Array, "constraint state action"]


def propose(
    networks: Networks,
    settings: OffPolicy,
    agent: Agent,
    past: replay.Replay,
    state_key: Key,
    action_key: Key,
    *,
    states: int,
    actions: int,
) -> Proposed:
    """``actions`` draws from the policy at each of ``states`` replayed states (Discrete: all actions), with values."""
    obs = replay.sample(past, state_key, states).obs
    seen = policy_view(settings, agent, obs)
    policy = jax.vmap(lambda o: networks.policy(agent.policy, o))(seen)
    if isinstance(policy, Categorical):
        action = jnp.tile(jnp.arange(policy.logits.shape[-1]), (states, 1))
        log_prior = jax.nn.log_softmax(policy.logits)
    else:
        keys = jax.random.split(action_key, (states, actions))
        action = jax.vmap(lambda d, ks: jax.vmap(d.sample)(ks))(policy, keys)
        log_prior = jnp.full((states, actions), -jnp.log(float(actions)))
    q = networks.of_actions().value
    scaled = normalise.apply(agent.normaliser, obs, settings.critic_floor)
    pair = lambda o, each: jax.vmap(lambda a: q_critics.pair(networks.spec, o, a))(each)  # noqa: E731
    pairs = jax.vmap(pair)(scaled, action)
    every = jax.vmap(jax.vmap(q, in_axes=(None, 0)), in_axes=(None, 0))
    centre = lambda x: x - jnp.sum(jnp.exp(log_prior) * x, axis=-1, keepdims=True)  # noqa: E731
    adv = centre(every(agent.value.params, pairs))
    cost_adv = centre(jax.vmap(every, in_axes=(0, None))(agent.cost_value.params, pairs))
    return Proposed(seen, policy, action, log_prior, adv, cost_adv)


def fit_q(
    networks: Networks, settings: OffPolicy, agent: Agent, past: replay.Replay, key: Key
) -> tuple[Agent, Metrics]:
    """``value_steps`` temporal-difference steps of all critics under the present policy."""
    q = networks.of_actions().value
    pair = lambda o, a: q_critics.pair(networks.spec, o, a)  # noqa: E731
    slow = dict(rate=settings.value_rate, target_rate=settings.target_rate)

    def one_step(carry: tuple[QCritic, QCritic], step_key: Key) -> tuple[tuple[QCritic, QCritic], tuple[Array, Array]]:
        value, cost_value = carry
        draw_key, action_key = jax.random.split(step_key)
        steps = replay.sample(past, draw_key, settings.value_batch)
        scaled = lambda x: normalise.apply(agent.normaliser, x, settings.critic_floor)  # noqa: E731
        obs, next_obs = scaled(steps.obs), scaled(steps.next_obs)
        now = jax.vmap(pair)(obs, steps.action)
        seen = policy_view(settings, agent, steps.next_obs)
        keys = jax.random.split(action_key, (settings.value_batch, settings.value_actions))
        policy = jax.vmap(lambda o: networks.policy(agent.policy, o))(seen)
        following = jax.vmap(lambda d, ks: jax.vmap(d.sample)(ks))(policy, keys)
        then = jax.vmap(lambda o, actions: jax.vmap(lambda a: pair(o, a))(actions))(next_obs, following)
        value, loss = q_critics.td_step(
            q, value, now, then, steps.reward, steps.terminated, discount=settings.discount, **slow
        )
        cost_value, cost_loss = jax.vmap(
            lambda c, x: q_critics.td_step(
                q, c, now, then, x, steps.terminated, discount=settings.cost_discount, **slow
            ),
            in_axes=(0, 1),
        )(cost_value, steps.cost)
        return (value, cost_value), (loss, jnp.mean(cost_loss))

    keys = jax.random.split(key, settings.value_steps)
    assert isinstance(agent.value, QCritic) and isinstance(agent.cost_value, QCritic)
    (value, cost_value), (loss, cost_loss) = jax.lax.scan(one_step, (agent.value, agent.cost_value), keys)
    metrics: Metrics = {"value_loss": jnp.mean(loss), "cost_value_loss": jnp.mean(cost_loss)}
    return agent._replace(value=value, cost_value=cost_value), metrics
