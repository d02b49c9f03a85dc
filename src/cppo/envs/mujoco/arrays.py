"""The type of arrays that host environments and task logic share, and what a diverged simulation leaves of them.

The same functions take NumPy arrays on the host, JAX arrays on a device and tracers inside jit, which static checkers
keep apart.
"""

from typing import Any

import jax.numpy as jnp

Array = Any
Key = Any


def finite_or_zero(x: Array) -> Array:
    """0 where ``x`` is NaN or infinite: a diverged simulation ends its episode, and must not reach the critics."""
    return jnp.where(jnp.isfinite(x), x, 0)
