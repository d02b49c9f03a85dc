"""What on-policy methods share: their settings, their state's common part, and the mathematics before an update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num

from cppo.maths import adam, critics, multipliers, normalise
from cppo.maths.advantages import centred, gae
from cppo.maths.costs import UNITS
from cppo.maths.critics import Critic
from cppo.maths.normalise import policy_view as policy_view
from cppo.maths.q_critics import QCritic
from cppo.networks import ACTIVATIONS, Networks
from cppo.settings import setting, settings
from cppo.types import Batch, Key, Metrics, PyTree


@settings
class Method:
    """Settings of every method; the defaults are the paper's where it gives them."""

    cost_limit: tuple[float, ...] = setting(
        (), "Limit on the mean undiscounted cost of an episode, one for each constraint.", at_least=0.0
    )
    batch_size: int = setting(30_000, "Environment steps of one seed between two updates.", at_least=1)
    hold: int = setting(
        1, "Environment steps that an action is held; discounts stay those of a step.", at_least=1, later=True
    )
    num_envs: int = setting(30, "Worlds of one seed that run side by side.", at_least=1)
    hidden: tuple[int, ...] = setting((64, 64), "Widths of the hidden layers of policy and critics.", at_least=1)
    encoder: str = setting(
        "auto",
        "What sees the observation before the layers: mlp (nothing), cnn, gru or module:Class; auto: cnn for pictures.",
    )
    memory: int = setting(16, "Observations that encoder=gru sees, the newest last.", at_least=2)
    activation: str = setting("tanh", "Activation of the hidden layers.", choices=tuple(ACTIVATIONS))
    initial_std: float = setting(0.6, "Standard deviation of the first policy, bounds being ±1.", above=0.0)
    discount: float = setting(0.99, "Discount γ of the return.", at_least=0.0, below=1.0)
    cost_discount: float = setting(0.99, "Discount γ_c of costs, as critics see them.", at_least=0.0, below=1.0)
    value_rate: float = setting(1e-3, "Learning rate of the critics.", above=0.0)
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


@settings
class OnPolicy(Method):
    """Settings of every on-policy method."""

    gae_decay: float = setting(0.97, "GAE λ of the return.", at_least=0.0, at_most=1.0)
    cost_gae_decay: float = setting(0.95, "GAE λ_c of costs.", at_least=0.0, at_most=1.0)
    target_decay: tuple[float, ...] = setting(
        (),
        "λ and λ_c of what critics learn from (empty: those of the advantages).",
        at_least=0.0,
        at_most=1.0,
        later=True,
    )
    value_epochs: int = setting(40, "Passes over the batch when fitting the critics.", at_least=1)
    value_minibatches: int = setting(8, "Minibatches to a pass when fitting the critics.", at_least=1)
    horizon_is_end: bool = setting(False, "Treat the time limit as the end of the return's future (no bootstrap).")
    cost_horizon_is_end: bool = setting(False, "The same for the cost's future.")
    critic_clock: bool = setting(False, "Critics also see the episode's age (policies never do).")
    diagnose: int = setting(
        0,
        "Iterations from one measurement of what other worlds confirm of an update to the next (0: none).",
        at_least=0,
        later=True,
    )


class Agent(NamedTuple):
    """The part of the training state that every method has; ``extra`` is the method's own."""

    policy: PyTree
    value: Critic | QCritic
    cost_value: Critic | QCritic  # stacked over constraints
    normaliser: normalise.Normaliser
    extra: Any


def init_agent(networks: Networks, settings: OnPolicy, key: Key, extra: Any) -> Agent:
    return new_agent(networks, settings, key, lambda k: critics.init(networks.init_value(k)), extra)


def new_agent(
    networks: Networks, settings: Method, key: Key, critic: Callable[[Key], Critic | QCritic], extra: Any
) -> Agent:
    policy_key, value_key, cost_key = jax.random.split(key, 3)
    cost_keys = jax.random.split(cost_key, networks.spec.num_costs)
    policy = networks.init_policy(policy_key, settings.initial_std)
    normaliser = normalise.empty(networks.spec.obs_shape)
    return Agent(policy, critic(value_key), jax.vmap(critic)(cost_keys), normaliser, extra)


class Priced(NamedTuple):
    """``extra`` of first-order methods with multipliers."""

    memory: adam.Memory  # lives on from batch to batch
    multiplier: multipliers.Prices


def init_priced(networks: Networks, settings: OnPolicy, key: Key, multiplier: multipliers.Multiplier) -> Agent:
    agent = init_agent(networks, settings, key, None)
    prices = multiplier.init(settings, networks.spec.num_costs)
    return agent._replace(extra=Priced(adam.init(agent.policy), prices))


def act(networks: Networks, settings: Method, agent: Agent, obs: Float[Array, "world *obs"], key: Key) -> Array:
    """Sampled actions, in the policy's units."""
    keys = jax.random.split(key, obs.shape[0])
    seen = policy_view(settings, agent, obs)
    return jax.vmap(lambda o, k: networks.policy(agent.policy, o).sample(k))(seen, keys)


def act_mode(networks: Networks, settings: Method, agent: Agent, obs: Float[Array, "world *obs"]) -> Array:
    """The most likely actions, in the policy's units."""
    return jax.vmap(lambda o: networks.policy(agent.policy, o).mode())(policy_view(settings, agent, obs))


class Prepared(NamedTuple):
    """A batch flattened to N samples, as an update wants it."""

    obs: Float[Array, "n *obs"]  # as the acting policy saw them
    critic_obs: Float[Array, "n *seen"]
    action: Num[Array, "n *action"]
    adv: Float[Array, " n"]  # centred
    cost_adv: Float[Array, "constraint n"]  # centred
    value_target: Float[Array, " n"]
    cost_value_target: Float[Array, "constraint n"]
    value_explained: Float[Array, ""]  # share of the λ-return's variance that the critic had predicted
    cost_value_explained: Float[Array, " constraint"]


def prepare(networks: Networks, settings: OnPolicy, agent: Agent, batch: Batch) -> Prepared:
    """Advantages of reward and costs, their regression targets, and flat samples."""
    obs, next_obs = (normalise.apply(agent.normaliser, x, settings.critic_floor) for x in (batch.obs, batch.next_obs))
    if settings.critic_clock:
        share = 2.0 * batch.age / networks.spec.episode_length - 1.0
        tick = 2.0 / networks.spec.episode_length
        obs, next_obs = (x.reshape(*share.shape, -1) for x in (obs, next_obs))
        obs = jnp.concatenate([obs, share[..., None]], axis=-1)
        next_obs = jnp.concatenate([next_obs, share[..., None] + tick], axis=-1)
    evaluate = jax.vmap(jax.vmap(networks.value, in_axes=(None, 0)), in_axes=(None, 0))
    ends = batch.terminated | batch.truncated

    def estimate(
        params: PyTree,
        signal: Float[Array, "time world"],
        terminated: Bool[Array, "time world"],
        discount: Array | float,
        *decays: Array | float,
    ) -> _Estimate:
        value, next_value = evaluate(params, obs), evaluate(params, next_obs)
        found = [gae(signal, value, next_value, terminated, batch.truncated, discount, decay) for decay in decays]
        return _Estimate(found[0], found[-1] + value, found[-1])

    targets = settings.target_decay  # of their own, one for both or one each, or none
    decay, cost_decay = (settings.gae_decay, *targets[:1]), (settings.cost_gae_decay, *targets[-1:])
    reward_ends = ends if settings.horizon_is_end else batch.terminated
    reward = estimate(agent.value.params, batch.reward, reward_ends, settings.discount, *decay)
    cost_ends = ends if settings.cost_horizon_is_end else batch.terminated
    costs = jax.vmap(lambda params, cost: estimate(params, cost, cost_ends, settings.cost_discount, *cost_decay))(
        agent.cost_value.params, jnp.moveaxis(batch.cost, -1, 0)
    )
    flat = lambda x: x.reshape(-1, *x.shape[2:])  # noqa: E731
    rows = lambda x: x.reshape(x.shape[0], -1)  # noqa: E731
    return Prepared(
        flat(policy_view(settings, agent, batch.obs)),
        flat(obs),
        flat(batch.action),
        centred(flat(reward.advantage)),
        jax.vmap(centred)(rows(costs.advantage)),
        flat(reward.target),
        rows(costs.target),
        _explained(flat(reward.target), flat(reward.error)),
        jax.vmap(_explained)(rows(costs.target), rows(costs.error)),
    )


class _Estimate(NamedTuple):
    """Of one signal: what updates go by, what its critic is to learn, and by how much that missed it."""

    advantage: Float[Array, "time world"]
    target: Float[Array, "time world"]
    error: Float[Array, "time world"]


def _explained(target: Array, error: Array) -> Array:
    return 1.0 - jnp.var(error) / jnp.maximum(jnp.var(target), 1e-12)


def fit_critics(
    networks: Networks, settings: OnPolicy, agent: Agent, data: Prepared, key: Key
) -> tuple[Agent, Metrics]:
    """Both kinds of critic on the batch's λ-returns."""
    value_key, cost_key = jax.random.split(key)
    passes = dict(epochs=settings.value_epochs, minibatches=settings.value_minibatches)

    def fit(critic: Critic | QCritic, target: Array, key: Key) -> tuple[Critic, Array]:
        assert isinstance(critic, Critic)
        return critics.fit(networks.value, critic, data.critic_obs, target, key, rate=settings.value_rate, **passes)

    value, loss = fit(agent.value, data.value_target, value_key)
    cost_keys = jax.random.split(cost_key, networks.spec.num_costs)
    cost_value, cost_loss = jax.vmap(fit)(agent.cost_value, data.cost_value_target, cost_keys)
    metrics: Metrics = {
        "value_loss": loss,
        "cost_value_loss": jnp.mean(cost_loss),
        "value_explained": data.value_explained,
        "cost_value_explained": jnp.mean(data.cost_value_explained),
    }
    return agent._replace(value=value, cost_value=cost_value), metrics


def observe(agent: Agent, batch: Batch) -> Agent:
    """Take the batch's observations into the normaliser, after the update that used the old one."""
    flat = batch.obs.reshape(-1, *batch.obs.shape[2:])
    return agent._replace(normaliser=normalise.observe(agent.normaliser, flat))
