"""The limit that an update steers at: moved against the average miss of recent iterations.

The switch reacts to a J_c of few episodes. Overshoots, recoveries and noise leave an average cost that lies above the
limit for one seed and far below it for another. That bias is visible: with C the running average of J_c,

    d_steer = d + k (d − C),    kept between LEAST d and MOST d,

is integral control. A seed that spends too little gets room, one that spends too much loses it. k = 0 steers at d.
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
