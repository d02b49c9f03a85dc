"""Adam (Kingma & Ba 2015) whose two memories may live for different times.

The first moment points where recent gradients pointed; carried from one batch's problem into the next, it can throw the
first step out of the trust region. The second moment only knows how large and noisy each parameter's gradient is;
carried on, it keeps parameters that see nothing but noise from moving as fast as the others. So an M-step starts with
an empty first moment and may keep the second.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cppo.types import PyTree

FIRST, SECOND, SMALL = 0.9, 0.999, 1e-8


class Memory(NamedTuple):
    mean: PyTree
    mean_steps: Float[Array, ""]
    square: PyTree
    square_steps: Float[Array, ""]


def init(params: PyTree) -> Memory:
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Memory(zeros, jnp.zeros(()), zeros, jnp.zeros(()))


def forget_direction(memory: Memory) -> Memory:
    """Keep the scale of each parameter's gradient, forget where it pointed."""
    return memory._replace(mean=jax.tree.map(jnp.zeros_like, memory.mean), mean_steps=jnp.zeros(()))


def step(memory: Memory, params: PyTree, gradient: PyTree, rate: Array | float) -> tuple[PyTree, Memory]:
    """One bias-corrected step downhill."""
    mean = jax.tree.map(lambda m, g: FIRST * m + (1 - FIRST) * g, memory.mean, gradient)
    square = jax.tree.map(lambda s, g: SECOND * s + (1 - SECOND) * g**2, memory.square, gradient)
    memory = Memory(mean, memory.mean_steps + 1, square, memory.square_steps + 1)
    mean_share, square_share = 1 - FIRST**memory.mean_steps, 1 - SECOND**memory.square_steps
    moved = jax.tree.map(
        lambda p, m, s: p - rate * (m / mean_share) / (jnp.sqrt(s / square_share) + SMALL), params, mean, square
    )
    return moved, memory
