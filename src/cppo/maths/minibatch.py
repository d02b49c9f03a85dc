"""Shuffled minibatches of equal size, for every first-order fit in the project."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from cppo.types import Key


def shuffled(key: Key, samples: int, minibatches: int) -> Int[Array, "minibatch size"]:
    """Indices of ``minibatches`` disjoint minibatches; the remainder of an uneven division is left out this time."""
    size = samples // minibatches
    order = jnp.argsort(jax.random.bits(key, (samples,)))  # one sort; ties are as rare as 2⁻³² and harmless
    return order[: size * minibatches].reshape(minibatches, size)
