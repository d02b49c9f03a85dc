"""The bang-bang switch between normal and recovery updates (paper, section 3.2.2), one for each constraint.

Normal until J_c > d; then recovery until J_c ≤ s·d; then normal again. The gap between s·d and d is what keeps the two
from alternating at every iteration. The state is part of the training state and survives a restart.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def step(
    recovering: Bool[Array, " constraint"],
    cost: Float[Array, " constraint"],
    limit: Float[Array, " constraint"],
    lower_share: Float[Array, ""] | float,
) -> Bool[Array, " constraint"]:
    """Which constraints are in recovery after seeing ``cost``."""
    return jnp.where(recovering, cost > lower_share * limit, cost > limit)
