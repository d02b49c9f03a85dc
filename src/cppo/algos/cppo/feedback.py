"""Budgets found by feedback: integral control of the share of an update's reach that goes into cost.

The paper's budget d − J_c trusts the batch: a promise of −5 is taken to bring −5. On
Safety Gym's tasks 30,000 samples promise a fall of 34 where other batches of the same policy see half a unit
(scripts/confirmed.py), and J_c is known to ± 6. What holds the cost at its limit there is no promise that could be
computed, but one that can be found. With *reach* the largest fall in cost that an update can promise, and

    miss = (J_c − d)/d,    cut at 0.5,    J_c averaged (``switch_memory``), d steered at (``aim``),

``pressure`` adds up misses to the share of the reach that updates ask for, as a multiplier adds up its price, but
without a unit and bounded on both sides; a second part in proportion to the miss, bounded to a small one, damps the
swing around the limit. A price grows without bound while a limit is out of reach; pressure stays within ``tilt``, so
that every update goes on earning. (A policy that only flees cost learns to stand still, and stays there.)

What is added up must not bend within the noise of J_c: integral control brings the mean of the miss to 0, not that of
J_c − d. Relative to the larger of J_c and d, a miss of σ upwards counts for less than one downwards, and the cost
settles σ²/2 above d (1.4 of 24 on CarPush1, where the average of J_c has a relative deviation σ of 0.35; the cut at 0.5
leaves 0.3 of that). The cut is what lets one rate serve twice: quick to let go near the limit, slow while a first
policy, several limits above it, learns to move.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

FAR = 0.5  # largest miss that is added up
DAMPING = 1.5  # share of the reach for each unit of relative miss
NEAR = 0.2  # largest miss that counts for it: J_c of 30 episodes misses by as much by chance


def miss(cost: Float[Array, " constraint"], wanted: Float[Array, " constraint"]) -> Float[Array, " constraint"]:
    """Relative distance from the limit, positive above it.

    >>> miss(jnp.array([20.0, 7.5, 5.0, 2.5, 0.0]), jnp.array([5.0, 5.0, 5.0, 5.0, 0.0])).tolist()
    [0.5, 0.5, 0.0, -0.5, 0.0]
    """
    return jnp.minimum((cost - wanted) / jnp.maximum(wanted, 1e-6), FAR)


def pressure(
    past: Float[Array, " constraint"], missed: Float[Array, " constraint"], rate: Array | float, tilt: Array | float
) -> Float[Array, " constraint"]:
    """Share of the reach that updates ask for, after one more miss.

    >>> pressure(jnp.array([0.25, 0.5, 0.0]), jnp.array([0.5, 1.0, -0.5]), 0.25, 0.625).tolist()
    [0.375, 0.625, 0.0]
    """
    return jnp.clip(past + rate * missed, 0.0, tilt)


def asked(
    lasting: Float[Array, " constraint"], missed: Float[Array, " constraint"], tilt: Array | float
) -> Float[Array, " constraint"]:
    """The share that this update asks for: the lasting ``pressure`` and the part that damps.

    Several shares together keep to ``tilt`` as a vector: costs at right angles need that much of the trust region.

    >>> asked(jnp.array([0.5]), jnp.array([-0.125]), 0.9375).tolist()
    [0.3125]
    >>> asked(jnp.array([0.75, 1.0]), jnp.array([0.0, 0.0]), 0.625).tolist()
    [0.375, 0.5]
    """
    share = lasting + DAMPING * jnp.clip(missed, -NEAR, NEAR)
    together = jnp.linalg.norm(jnp.maximum(share, 0.0), axis=-1, keepdims=True)
    return share * jnp.minimum(1.0, tilt / jnp.maximum(together, 1e-6))
