"""The bang-bang switch between normal and recovery updates (paper, section 3.2.2), one for each constraint.

Normal until J_c > d; then recovery until J_c ≤ s·d; then normal again. The gap between s·d and d is what keeps the two
from alternating at every iteration. The state is part of the training state and survives a restart.

J_c is a mean over few episodes. ``watch`` averages it over the last iterations first, so that the switch answers to the
policy and less to chance; recovery then begins and ends a little later.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def watch(
    average: Float[Array, " constraint"], cost: Float[Array, " constraint"], memory: Float[Array, ""] | float
) -> Float[Array, " constraint"]:
    """The running average of J_c, of which ``memory`` is kept at each iteration; NaN is an average of nothing yet.

    >>> watch(jnp.array([4.0]), jnp.array([8.0]), 0.5).tolist()
    [6.0]
    """
    return jnp.where(jnp.isnan(average), cost, memory * average + (1.0 - memory) * cost)


def step(
    recovering: Bool[Array, " constraint"],
    cost: Float[Array, " constraint"],
    limit: Float[Array, " constraint"],
    lower_share: Float[Array, ""] | float,
) -> Bool[Array, " constraint"]:
    """Which constraints are in recovery after seeing ``cost`` (or its average)."""
    return jnp.where(recovering, cost > lower_share * limit, cost > limit)
