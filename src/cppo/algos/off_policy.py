"""What off-policy methods share: their settings, their state, and the mathematics of their action values."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cppo.algos.common import Agent
from cppo.maths import normalise, q_critics, replay
from cppo.maths.costs import UNITS
from cppo.maths.normalise import policy_view
from cppo.networks import ACTIVATIONS, Networks
from cppo.settings import setting, settings
from cppo.types import Discrete, Key, Metrics


@settings
class OffPolicy:
    """Settings of every off-policy method; names mean what they mean for on-policy ones."""

    critic_clock = False  # no setting: replay keeps no ages

    cost_limit: tuple[float, ...] = setting(
        (), "Limit on the mean undiscounted cost of an episode, one for each constraint.", at_least=0.0
    )
    batch_size: int = setting(
        2000,
        "Environment steps of one seed between two updates; replay allows shorter ones than on-policy.",
        at_least=1,
    )
    num_envs: int = setting(10, "Worlds of one seed that run side by side.", at_least=1)
    replay_size: int = setting(100_000, "Steps that the replay holds.", at_least=1)
    hidden: tuple[int, ...] = setting((64, 64), "Widths of the hidden layers of policy and critics.", at_least=1)
    encoder: str = setting(
        "auto",
        "What sees the observation before the layers: mlp (nothing), cnn, gru or module:Class; auto: cnn for pictures.",
    )
    memory: int = setting(16, "Observations that encoder=gru sees, the newest last.", at_least=2)
    activation: str = setting("tanh", "Activation of the hidden layers.", choices=tuple(ACTIVATIONS))
    initial_std: float = setting(0.6, "Standard deviation of the first policy, bounds being ±1.", above=0.0)
    discount: float = setting(0.99, "Discount γ of the return.", at_least=0.0, below=1.0)
    cost_discount: float = setting(0.99, "Discount γ_c of costs in action values.", at_least=0.0, below=1.0)
    value_rate: float = setting(1e-3, "Learning rate of the critics.", above=0.0)
    value_steps: int = setting(400, "Gradient steps of the critics in an update.", at_least=1)
    value_batch: int = setting(256, "Replayed steps to a gradient step.", at_least=1)
    value_actions: int = setting(4, "Actions averaged over in the value of a next state.", at_least=1)
    target_rate: float = setting(
        0.01, "Share of a critic that its slow copy takes over at a step.", above=0.0, at_most=1.0
    )
    ignore: tuple[int, ...] = setting(
        (), "Entries of the observation, by index, that the policy does not see: known noise.", at_least=0
    )
    normalise_obs: bool = setting(True, "Scale the policy's observations by their running mean and deviation.")
    obs_floor: float = setting(1.0, "Smallest deviation that the policy's observations are divided by.", above=0.0)
    critic_floor: float = setting(1e-3, "The same for the critics, which always see scaled observations.", above=0.0)
    cost_unit: str = setting(
        "episode", "How a limit becomes an update's budget (docs/cost-contract.md).", choices=UNITS
    )
    min_episodes: int = setting(
        10, "Average J_c over at least so many recent episodes, where rollouts hold whole ones.", at_least=1
    )


def init_agent(networks: Networks, settings: OffPolicy, key: Key) -> Agent:
    """An agent whose critics are of actions; ``extra`` is left to the method."""
    policy_key, value_key, cost_key = jax.random.split(key, 3)
    critics = q_critics.structure(networks)
    cost_keys = jax.random.split(cost_key, networks.spec.num_costs)
    return Agent(
        networks.init_policy(policy_key, settings.initial_std),
        q_critics.init(critics.init_value(value_key)),  # type: ignore[arg-type]
        jax.vmap(lambda k: q_critics.init(critics.init_value(k)))(cost_keys),
        normalise.empty(networks.spec.obs_shape),
        None,
    )


class Proposed(NamedTuple):
    """States from replay with actions of the present policy, as an E-step wants them."""

    obs: Float[Array, "state obs"]  # as the policy sees them
    policy: Any  # its distribution at each state
    action: Float[Array, "state action ..."]
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
    policy: Any = jax.vmap(lambda o: networks.policy(agent.policy, o))(seen)
    kind = networks.spec.action
    if isinstance(kind, Discrete):
        action, log_prior = jnp.tile(jnp.arange(kind.n), (states, 1)), jax.nn.log_softmax(policy.logits)
    else:
        keys = jax.random.split(action_key, (states, actions))
        action = jax.vmap(lambda d, ks: jax.vmap(d.sample)(ks))(policy, keys)
        log_prior = jnp.full((states, actions), -jnp.log(float(actions)))
    q = q_critics.structure(networks).value
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
    q = q_critics.structure(networks).value
    pair = lambda o, a: q_critics.pair(networks.spec, o, a)  # noqa: E731
    slow = dict(rate=settings.value_rate, target_rate=settings.target_rate)

    def one_step(carry: tuple[Any, Any], step_key: Key) -> tuple[tuple[Any, Any], tuple[Array, Array]]:
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
    (value, cost_value), (loss, cost_loss) = jax.lax.scan(one_step, (agent.value, agent.cost_value), keys)
    metrics = {"value_loss": jnp.mean(loss), "cost_value_loss": jnp.mean(cost_loss)}
    return agent._replace(value=value, cost_value=cost_value), metrics
