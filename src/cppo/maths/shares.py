"""Budgets in shares of the reach: of the deepest fall of cost that one update can promise on its batch.

A batch knows in which direction cost falls, not by how much. So a share of the reach is asked for, by the distance from
the limit: none at the limit, all of a rise from a fifth below it, more and more of a fall above it.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

SLOPE = 5.0  # of the share, in the relative distance from the limit

Costs = Float[Array, " constraint"]


def normal_share(cost: Costs, limit: Costs, tilt: Array | float, slope: Array | float = SLOPE) -> Costs:
    """Of the reach, by how much the cost may rise (positive) or must fall (negative) in a normal update.

    >>> normal_share(jnp.array([10.0, 20.0, 25.0, 27.5, 50.0]), jnp.full(5, 25.0), 0.75).tolist()
    [1.0, 1.0, 0.0, -0.5, -0.75]
    """
    return jnp.clip(slope * (limit - cost) / jnp.maximum(limit, 1e-6), -tilt, 1.0)


def together(share: Costs, tilt: Array | float) -> Costs:
    """The shares, the falling ones scaled so that as a vector they are at most ``tilt``: costs at right angles need
    that much of the trust region.

    >>> together(jnp.array([-0.75, 0.5, -1.0]), 0.625).tolist()
    [-0.375, 0.5, -0.5]
    """
    length = jnp.linalg.norm(jnp.minimum(share, 0.0))
    return jnp.where(share < 0, share * jnp.minimum(1.0, tilt / jnp.maximum(length, 1e-6)), share)
