"""The limit that an update steers at: moved against the average miss of recent iterations.

The switch reacts to a J_c of few episodes. Overshoots, recoveries and noise leave an average cost that lies above the
limit for one seed and far below it for another. That bias is visible: with C the running average of J_c,

    d_steer = d + k (d − C),    kept between LEAST d and MOST d,

is integral control. A seed that spends too little gets room, one that spends too much loses it. k = 0 steers at d.

Where J_c is known to ± 6 and an update can honestly move it by 1, three more rules keep budgets sane:

- ``destination`` lies a share of the way from the cost to the limit, from either side: proportional control. A budget
  that is all of the room (or all of the excess) would swing from batch to batch between no constraint and an
  impossible one.
- ``trim`` adds up misses and moves every later budget by their sum. What holds the cost at its limit is not a budget of
  0: an update that promises no change follows the reward's gradient into more cost than its samples show. The sum
  finds the promise that keeps the cost still, as a multiplier finds its price; like a price it never turns against the
  constraint, and it never exceeds what an update can reach (no wind-up).
- ``least_budget``: of an update's reach in cost at most a share is asked for, so that every update goes on earning. A
  policy that only flees cost learns to stand still, and stays there.
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


def destination(
    limit: Float[Array, " constraint"], cost: Float[Array, " constraint"], haste: Array | float
) -> Float[Array, " constraint"]:
    """Cost that an update may end at: a share ``haste`` of the way to the limit.

    >>> destination(jnp.array([5.0]), jnp.array([[3.0], [9.0]]), 0.5).ravel().tolist()
    [4.0, 7.0]
    """
    return limit + (1.0 - haste) * (cost - limit)


def trim(
    past: Float[Array, " constraint"],
    wanted: Float[Array, " constraint"],
    cost: Float[Array, " constraint"],
    gain: Array | float,
    reach: Float[Array, " constraint"],
) -> Float[Array, " constraint"]:
    """What budgets are moved by, in units of an episode's cost, after one more miss.

    >>> trim(jnp.array([-1.0]), jnp.array([5.0]), jnp.array([9.0]), 0.5, jnp.array([8.0])).tolist()
    [-3.0]
    >>> trim(jnp.array([-1.0]), jnp.array([5.0]), jnp.array([1.0]), 0.5, jnp.array([8.0])).tolist()
    [0.0]
    """
    return jnp.clip(past + gain * (wanted - cost), -reach, 0.0)


def least_budget(
    budget: Float[Array, " constraint"], reach: Float[Array, " constraint"], tilt: Array | float
) -> Float[Array, " constraint"]:
    """``budget``, but asking for at most the share ``tilt`` of ``reach``; at 1 there is no bound.

    >>> least_budget(jnp.array([-3.0, 1.0]), jnp.array([2.0, 2.0]), 0.5).tolist()
    [-1.0, 1.0]
    """
    return jnp.where(tilt < 1.0, jnp.maximum(budget, -tilt * reach), budget)
