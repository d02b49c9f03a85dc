"""Least-squares fit of value networks to λ-returns, first order, in minibatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from cppo.maths import minibatch
from cppo.types import Key, PyTree


class Critic(NamedTuple):
    """Parameters with their optimiser; for several constraints stacked along a leading axis."""

    params: PyTree
    optimiser: PyTree


def init(params: PyTree) -> Critic:
    return Critic(params, optax.scale_by_adam().init(params))


def fit(
    value: Callable[[PyTree, Array], Array],
    critic: Critic,
    obs: Float[Array, "n *obs"],
    target: Float[Array, " n"],
    key: Key,
    *,
    rate: Float[Array, ""] | float,
    epochs: int,
    minibatches: int,
) -> tuple[Critic, Float[Array, ""]]:
    """``epochs`` passes of Adam on E[(V(s) − target)²]; returns the critic and its last mean loss."""
    adam = optax.scale_by_adam()

    def loss(params: PyTree, index: Array) -> Array:
        predicted = jax.vmap(value, in_axes=(None, 0))(params, obs[index])
        return jnp.mean((predicted - target[index]) ** 2)

    def one_minibatch(carry: Critic, index: Array) -> tuple[Critic, Array]:
        size, gradient = jax.value_and_grad(loss)(carry.params, index)
        step, optimiser = adam.update(gradient, carry.optimiser)
        params = jax.tree.map(lambda p, s: p - rate * s, carry.params, step)
        return Critic(params, optimiser), size

    def one_epoch(carry: Critic, epoch_key: Key) -> tuple[Critic, Array]:
        return jax.lax.scan(one_minibatch, carry, minibatch.shuffled(epoch_key, obs.shape[0], minibatches))

    critic, losses = jax.lax.scan(one_epoch, critic, jax.random.split(key, epochs))
    return critic, jnp.mean(losses[-1])
