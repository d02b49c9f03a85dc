"""A small agent and a batch of its own steps, for tests of what one update does; and λ-advantages by a plain loop."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cppo import algos
from cppo.networks import networks_for
from cppo.settings import describe, replace
from cppo.types import Batch, Box, EnvSpec, Episodes

TIME, WORLDS, HORIZON = 16, 6, 20
QUICK = {"hidden": (4,), "value_epochs": 1, "value_minibatches": 1, "minibatches": 1, "batch_size": TIME * WORLDS}
QUICK |= {"num_envs": WORLDS, "value_steps": 2, "states": 32, "actions": 4, "replay_size": 1000}


class Case(NamedTuple):
    networks: Any
    settings: Any
    agent: Any
    update: Any  # compiled: (agent, batch, key) -> (agent, metrics)


def spec(costs: int) -> EnvSpec:
    names = tuple(f"cost{i}" for i in range(costs))
    return EnvSpec("Drawn", (3,), Box((-1.0, -1.0), (1.0, 1.0)), names, (5.0,) * costs, HORIZON)


def start(name: str, costs: int = 1, dtype: Any = jnp.float32, **changes: Any) -> Case:
    """A fresh agent of the algorithm ``name``, whose policy and critics say something from the first step on."""
    algorithm = algos.get(name)
    known = {field for field, _, _ in describe(algorithm.settings)}
    quick = {key: value for key, value in QUICK.items() if key in known}
    settings = replace(algorithm.settings(), quick | {"cost_limit": (5.0,) * costs} | changes)
    networks = networks_for(spec(costs), settings)
    agent = algorithm.init(networks, settings, jax.random.PRNGKey(3))
    stir = lambda x: x + 0.3 * jnp.sin(7.0 * jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape)  # noqa: E731
    policy, value, cost_value = jax.tree.map(stir, (agent.policy, agent.value.params, agent.cost_value.params))
    agent = agent._replace(
        policy=policy, value=agent.value._replace(params=value), cost_value=agent.cost_value._replace(params=cost_value)
    )
    agent = jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, agent)
    return Case(networks, settings, agent, jax.jit(partial(algorithm.update, networks, settings)))


def episodes(cost: Any, length: float = HORIZON) -> Episodes:
    cost = jnp.atleast_1d(jnp.asarray(cost, float))
    return Episodes(jnp.zeros(()), cost, cost, jnp.asarray(length), jnp.asarray(9), jnp.asarray(9))


def draw(case: Case, cost: Any, seed: int = 0, dtype: Any = jnp.float32, ends: float | None = None) -> Batch:
    """Steps of the agent's own, J_c being ``cost``; costs resemble the reward. ``ends``: the share of each kind of end,
    None for a batch of episodes of one step."""
    rng = np.random.default_rng(seed)
    numbers = lambda *shape: jnp.asarray(rng.normal(size=(TIME, WORLDS, *shape)), dtype)  # noqa: E731
    obs = numbers(3)
    out = distributions(case, case.agent.policy, obs)
    action = out.mean + jnp.exp(out.log_std) * numbers(2)
    reward = action[..., 0] + 0.3 * numbers()
    costs = reward[..., None] + numbers(case.networks.spec.num_costs)
    ended, cut = rng.random((2, TIME, WORLDS)) < (2.0 if ends is None else ends)
    age = jnp.asarray(np.tile(np.arange(TIME)[:, None] % HORIZON, WORLDS), dtype)
    flags = jnp.asarray(ended), jnp.asarray(cut & ~ended)
    return Batch(obs, action, numbers(3), reward, costs, *flags, age, episodes(cost))


def distributions(case: Case, policy: Any, obs: Any) -> Any:
    """The policy's Gaussian at every observation."""
    return jax.vmap(jax.vmap(partial(case.networks.policy, policy)))(obs)


def log_density(out: Any, action: Any) -> Any:
    """Up to a constant, which ratios do not see."""
    return jnp.sum(-0.5 * ((action - out.mean) / jnp.exp(out.log_std)) ** 2 - out.log_std, axis=-1)


def ratio(case: Case, new: Any, old: Any, batch: Batch) -> Any:
    one, other = (log_density(distributions(case, p, batch.obs), batch.action) for p in (new, old))
    return jnp.exp(one - other)


def gaussian_kl(p: Any, q: Any) -> Any:
    """KL(p‖q), summed over action dimensions."""
    squares = (jnp.exp(2 * p.log_std) + (p.mean - q.mean) ** 2) / jnp.exp(2 * q.log_std)
    return jnp.sum(0.5 * squares - 0.5 + q.log_std - p.log_std, axis=-1)


def advantages(case: Case, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Centred λ-advantages of reward (time, world) and costs (constraint, time, world), one step at a time."""
    settings, values = case.settings, jax.vmap(jax.vmap(case.networks.value, (None, 0)), (None, 0))

    def centred(params: Any, signal: Any, discount: float, decay: float) -> np.ndarray:
        now, then = (np.asarray(values(params, x), np.float64) for x in (batch.obs, batch.next_obs))
        signal, ended = np.asarray(signal, np.float64), np.asarray(batch.terminated)
        out, after = np.zeros(now.shape), np.zeros(now.shape[1])
        for t in reversed(range(len(now))):
            surprise = signal[t] + discount * np.where(ended[t], 0.0, then[t]) - now[t]
            after = surprise + discount * decay * np.where(ended[t] | np.asarray(batch.truncated[t]), 0.0, after)
            out[t] = after
        return out - out.mean()

    reward = centred(case.agent.value.params, batch.reward, settings.discount, settings.gae_decay)
    costs = [
        centred(
            jax.tree.map(lambda x, i=i: x[i], case.agent.cost_value.params),
            batch.cost[..., i],
            settings.cost_discount,
            settings.cost_gae_decay,
        )
        for i in range(case.networks.spec.num_costs)
    ]
    return reward, np.stack(costs)
