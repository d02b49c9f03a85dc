"""Diagnostics of an update of any on-policy method: what of its batch other worlds confirm (``maths/response.py``).

It only measures. ``measure`` looks at a batch before the update and ``tell`` says what became of it afterwards, in
programs of their own: training is the same, bit for bit, with and without it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from cppo.algos.on_policy import Agent, prepare
from cppo.maths import response
from cppo.networks import Networks
from cppo.types import Batch, Key, Metrics, PyTree

GROUPS = 5  # of worlds; ten pairs
BLOCKS = 16  # of a group's samples, for the metric


class Measured(NamedTuple):
    """What a batch says of its policy; signals are the reward and the costs, per step."""

    gradients: Float[Array, "group signal p"]
    metric: Float[Array, " p"]
    params: Float[Array, " p"]
    length: Float[Array, ""]  # of an episode


def measure(networks: Networks, settings: Any, agent: Agent, batch: Batch, key: Key) -> Measured:
    data = prepare(networks, settings, agent, batch)
    flat, as_tree = ravel_pytree(agent.policy)
    steps, worlds = batch.reward.shape
    number = min(GROUPS, worlds)
    each = worlds // number  # worlds that are left over are left out

    def grouped(x: Array) -> Array:
        """(time · world, …) as (group, n, …)."""
        x = x.reshape(steps, worlds, *x.shape[1:])[:, : number * each]
        return jnp.moveaxis(x, 1, 0).reshape(number, each * steps, *x.shape[2:])

    def log_prob(params: Array, samples: tuple[Array, Array]) -> Array:
        return jax.vmap(lambda o, a: networks.policy(as_tree(params), o).log_prob(a))(*samples)

    def draw(params: Array, obs: Array, key: Key) -> Array:
        policy = jax.vmap(lambda o: networks.policy(as_tree(params), o))(obs)
        old = jax.lax.stop_gradient(policy)
        action = jax.vmap(lambda d, k: d.sample(k))(old, jax.random.split(key, obs.shape[0]))
        return jax.vmap(lambda d, a: d.log_prob(a))(policy, jax.lax.stop_gradient(action))

    obs, action = grouped(data.obs), grouped(data.action)
    signals = jax.vmap(grouped)(jnp.concatenate([data.adv[None], data.cost_adv])).swapaxes(0, 1)
    size = max(1, obs.shape[1] // BLOCKS)
    blocks = obs[:, : obs.shape[1] // size * size].reshape(-1, size, *obs.shape[2:])
    return Measured(
        response.gradients(log_prob, flat, (obs, action), signals),
        response.fisher_diagonal(draw, flat, blocks, size, key),
        flat,
        batch.episodes.length,
    )


def tell(measured: Measured, policy: PyTree) -> Metrics:
    """In units of an episode, once the update has made ``policy`` of the one before."""
    found, metric, before, length = measured
    step = ravel_pytree(policy)[0] - before
    true, own = (length**2 * matrix(found, metric) for matrix in (response.between, response.promised))
    promise = length * (jnp.mean(found, axis=0) @ step)
    confirmed = length * response.confirmed_change(found, metric, step)
    costs = range(1, true.shape[0])
    shares = jnp.diagonal(true) / jnp.maximum(jnp.diagonal(own), jnp.finfo(own.dtype).tiny)
    return {
        "true_angle": jnp.stack([response.angle(true, 0, i) for i in costs]),
        "batch_angle": jnp.stack([response.angle(own, 0, i) for i in costs]),
        "confirmed_reward": shares[0],
        "confirmed_cost": shares[1:],
        "response_reward": true[0, 0],
        "response_cost": jnp.diagonal(true)[1:],
        "response_both": true[0, 1:],
        "promised_step_reward": promise[0],
        "promised_step_cost": promise[1:],
        "confirmed_step_reward": confirmed[0],
        "confirmed_step_cost": confirmed[1:],
    }


def shapes(costs: int) -> dict[str, tuple[int, ...]]:
    """Of what ``tell`` says where there are so many constraints."""
    nothing = Measured(jnp.zeros((2, 1 + costs, 1)), jnp.ones(1), jnp.zeros(1), jnp.ones(()))
    return {name: value.shape for name, value in jax.eval_shape(tell, nothing, jnp.zeros(1)).items()}
