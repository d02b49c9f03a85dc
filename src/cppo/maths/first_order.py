"""Minibatch descent that ends at a divergence: the inner loop of every first-order method with a KL limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from cppo.maths import adam, minibatch
from cppo.settings import setting, settings
from cppo.types import Key, PyTree


@settings
class Descent:
    """Settings of every first-order method with a KL limit."""

    kl: float = setting(0.01, "The update ends once the mean forward KL(π‖π_θ) exceeds this.", above=0.0)
    policy_rate: float = setting(3e-4, "Learning rate of the policy.", above=0.0)
    epochs: int = setting(
        40, "Most passes over the samples in an update; the KL limit usually ends it before.", at_least=1
    )
    minibatches: int = setting(8, "Minibatches to a pass.", at_least=1)


class Descended(NamedTuple):
    params: PyTree
    memory: adam.Memory
    epochs: Int[Array, ""]  # passes begun
    stopped: Array  # whether the KL limit ended the descent before the last epoch


class _Loop(NamedTuple):
    params: PyTree
    memory: adam.Memory
    epoch: Array
    stopped: Array


def descend(
    loss: Callable[[PyTree, Array], Array],
    kl: Callable[[PyTree, Array], Array],
    params: PyTree,
    memory: adam.Memory,
    key: Key,
    settings: Descent,
    *,
    samples: int,
) -> Descended:
    """Adam on ``loss(params, index)`` until the mean of ``kl(params, index)`` over a minibatch exceeds ``settings.kl``.

    The divergence is looked at before each step, so at most one step goes beyond the limit; nothing is undone.
    """

    def one_minibatch(loop: _Loop, index: Array) -> tuple[_Loop, None]:
        stopped = loop.stopped | ~(jnp.mean(kl(loop.params, index)) <= settings.kl)  # NaN stops, too
        moved, memory = adam.step(loop.memory, loop.params, jax.grad(loss)(loop.params, index), settings.policy_rate)
        keep = lambda new, old: jnp.where(stopped, old, new)  # noqa: E731
        params, memory = jax.tree.map(keep, (moved, memory), (loop.params, loop.memory))
        return _Loop(params, memory, loop.epoch, stopped), None

    def one_epoch(loop: _Loop) -> _Loop:
        order = minibatch.shuffled(jax.random.fold_in(key, loop.epoch), samples, settings.minibatches)
        loop, _ = jax.lax.scan(one_minibatch, loop, order)
        return loop._replace(epoch=loop.epoch + 1)

    first = _Loop(params, memory, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    last = jax.lax.while_loop(lambda loop: (loop.epoch < settings.epochs) & ~loop.stopped, one_epoch, first)
    return Descended(last.params, last.memory, last.epoch, last.stopped)
