"""The cost contract: one meaning of the limit, one conversion to the units of an update.

A limit d bounds the **mean undiscounted cost of an episode**, J_c. An update works on the mean over the batch's samples
of (ratio − 1)·A_c, so the room d − J_c has to be brought to that unit, the budget d':

- ``episode``:    d' = (d − J_c) / T, T the mean episode length;
- ``discounted``: d' = (1 − γ)/(1 − γ^T) · (d_γ − J_γ), d_γ = d · J_γ/J_c: the same limit, discounted as the data are.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from cppo.types import Episodes

UNITS = ("episode", "discounted")


def budget(
    limit: Float[Array, " constraint"], episodes: Episodes, discount: Float[Array, ""] | float, unit: str
) -> Float[Array, " constraint"]:
    """Room left under each limit in units of E[(v − 1) A_c]; negative when the limit is exceeded."""
    length = jnp.maximum(episodes.length, 1.0)
    if unit == "episode":
        return (limit - episodes.cost) / length
    annuity = (1.0 - discount**length) / (1.0 - discount)
    no_cost_yet = limit * annuity / length
    ratio = episodes.discounted_cost / jnp.where(episodes.cost > 0, episodes.cost, 1.0)
    discounted_limit = jnp.where(episodes.cost > 0, limit * ratio, no_cost_yet)
    return (discounted_limit - episodes.discounted_cost) / annuity
