"""Several sums over the batch in one pass, accurate in single precision."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

BLOCK = 512  # a running sum is this long at most, so its rounding error does not grow with the batch


def means(terms: Callable[..., tuple[Array, ...]], *vectors: Array) -> tuple[Array, ...]:
    """Means over the elements of the arrays that `terms`, an elementwise function, makes of the vectors.

    All of them in one reduction: on a CPU that reads each vector once and stores no intermediate result.
    """
    n = vectors[0].size
    blocks = n // BLOCK if n > 8 * BLOCK else 0
    split = blocks * BLOCK
    total: list[Array] = []
    if split:
        head = reduce_sum(terms(*(v[:split].reshape(blocks, BLOCK) for v in vectors)), 1)
        total = [jnp.sum(part) for part in head]
    if split < n:
        tail = reduce_sum(terms(*(v[split:] for v in vectors)), 0)
        total = [a + b for a, b in zip(total, tail, strict=True)] if total else list(tail)
    return tuple(t / n for t in total)


def reduce_sum(arrays: tuple[Array, ...], axis: int) -> tuple[Array, ...]:
    zeros = tuple(jnp.zeros((), a.dtype) for a in arrays)
    return tuple(jax.lax.reduce(arrays, zeros, lambda x, y: tuple(a + b for a, b in zip(x, y, strict=True)), (axis,)))
