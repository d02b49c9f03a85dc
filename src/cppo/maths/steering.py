"""The limit that an update steers at: moved against the average miss of recent iterations.

The switch reacts to a J_c of few episodes. Overshoots, recoveries and noise leave an average cost that lies above the
limit for one seed and far below it for another. That bias is visible: with C the running average of J_c,

    d_steer = d + k (d − C),    kept between LEAST d and MOST d,

is integral control. A seed that spends too little gets room, one that spends too much loses it. k = 0 steers at d.

A policy that can do nothing yet holds a tight limit by standing still, and learns slowly from there: ``easing`` lets
the limit come down while it learns. And an excess need not vanish in one update, which would give up return for a fall
in cost that the next update undoes: ``destination`` lies a share of the way.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

MEMORY = 0.95  # share of the past that one iteration keeps: an average over about 20
LEAST, MOST = 0.7, 1.2


def start(limit: Float[Array, " constraint"]) -> Float[Array, " constraint"]:
    """The average before anything was seen: no bias."""
    return limit


def observe(average: Float[Array, " constraint"], cost: Float[Array, " constraint"]) -> Float[Array, " constraint"]:
    """Take one iteration's J_c into the running average."""
    return MEMORY * average + (1 - MEMORY) * cost


def limit(
    wanted: Float[Array, " constraint"], average: Float[Array, " constraint"], strength: Float[Array, ""] | float
) -> Float[Array, " constraint"]:
    """d_steer from the wanted limit d.

    >>> limit(jnp.array([5.0]), jnp.array([4.5]), 1.0).tolist()
    [5.5]
    >>> limit(jnp.array([5.0]), jnp.array([9.0]), 1.0).tolist()
    [3.5]
    """
    return jnp.clip(wanted + strength * (wanted - average), LEAST * wanted, MOST * wanted)


def easing(updates: Float[Array, ""], over: Array | int, first: Array | float) -> Float[Array, ""]:
    """Factor on the limit after ``updates``: from ``first`` down to 1 over ``over`` updates.

    >>> [float(easing(jnp.asarray(t), 10, 4.0)) for t in (0.0, 5.0, 10.0, 20.0)]
    [4.0, 2.5, 1.0, 1.0]
    """
    return 1.0 + (first - 1.0) * jnp.maximum(1.0 - updates / jnp.maximum(over, 1), 0.0) * (jnp.asarray(over) > 0)


def destination(
    limit: Float[Array, " constraint"], cost: Float[Array, " constraint"], haste: Array | float
) -> Float[Array, " constraint"]:
    """Cost that an update is to end at: the limit, from above it a share ``haste`` of the way there.

    >>> destination(jnp.array([5.0]), jnp.array([[3.0], [9.0]]), 0.5).ravel().tolist()
    [5.0, 7.0]
    """
    return limit + (1.0 - haste) * jnp.maximum(cost - limit, 0.0)
