"""Action values of reward and costs, learned from replay by one-step temporal differences with a slow target copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from cppo.maths import adam
from cppo.types import ActionSpace, Box, Discrete, EnvSpec, PyTree


class QCritic(NamedTuple):
    """Parameters, their slow copy, and the optimiser; for several constraints stacked along a leading axis."""

    params: PyTree
    target: PyTree
    memory: adam.Memory


def pair(spec: EnvSpec, obs: Float[Array, " *obs"], action: Array) -> Float[Array, " both"]:
    """A critic's input. Actions are clipped to their bounds, as the environment does before executing them."""
    if isinstance(spec.action, Box):
        return jnp.concatenate([jnp.ravel(obs), jnp.clip(action, -1.0, 1.0)])
    return jnp.concatenate([jnp.ravel(obs), jax.nn.one_hot(action, options(spec.action))])


def options(action: ActionSpace) -> int:
    """How many actions there are; the table of algorithms lets no other kind through."""
    assert isinstance(action, Discrete)
    return action.n


def init(params: PyTree) -> QCritic:
    return QCritic(params, params, adam.init(params))


def td_step(
    q: Callable[[PyTree, Array], Array],
    critic: QCritic,
    inputs: Float[Array, "n both"],
    next_inputs: Float[Array, "n k both"],
    signal: Float[Array, " n"],
    terminated: Bool[Array, " n"],
    *,
    discount: Array | float,
    rate: Array | float,
    target_rate: Array | float,
) -> tuple[QCritic, Float[Array, ""]]:
    """One Adam step on E[(Q(s,a) − y)²], y = signal + γ [not terminated] mean_k Q_target(s', a'_k); a'_k ∼ π."""
    values = jax.vmap(q, in_axes=(None, 0))
    future = jnp.mean(jax.vmap(values, in_axes=(None, 1), out_axes=1)(critic.target, next_inputs), axis=1)
    y = signal + discount * ~terminated * future
    loss, gradient = jax.value_and_grad(lambda params: jnp.mean((values(params, inputs) - y) ** 2))(critic.params)
    params, memory = adam.step(critic.memory, critic.params, gradient, rate)
    target = jax.tree.map(lambda slow, fast: slow + target_rate * (fast - slow), critic.target, params)
    return QCritic(params, target, memory), loss
