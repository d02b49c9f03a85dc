"""Several sums over the batch in one pass, fast on a CPU and accurate in single precision."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

FOLD = 8  # few enough for the compiler to unroll the sum over a fold, and then to use vector instructions along it
SHORT = 512  # a running sum is this long at most, so its rounding error does not grow with the batch

Terms = Callable[..., tuple[Array, ...]]


def means(terms: Terms, *vectors: Array) -> tuple[Array, ...]:
    """Means over the elements of the arrays that `terms`, an elementwise function, makes of the vectors."""
    return tuple(total / vectors[0].size for total in sums(terms, *vectors))


def sums(terms: Terms, *vectors: Array) -> tuple[Array, ...]:
    """The vectors are folded in eight and the folds added, again and again: all terms at once, none of them stored."""
    n = vectors[0].size
    if n <= SHORT:
        return add_up(terms(*vectors))
    width = n // FOLD
    whole = width * FOLD
    total = sums(lambda *parts: parts, *add_up(terms(*(v[:whole].reshape(FOLD, width) for v in vectors))))
    if whole < n:
        total = tuple(a + b for a, b in zip(total, add_up(terms(*(v[whole:] for v in vectors))), strict=True))
    return total


def add_up(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Sums along the first axis: one reduction for all arrays, which reads what they are made of once."""
    zeros = tuple(jnp.zeros((), a.dtype) for a in arrays)
    return tuple(jax.lax.reduce(arrays, zeros, lambda x, y: tuple(a + b for a, b in zip(x, y, strict=True)), (0,)))
