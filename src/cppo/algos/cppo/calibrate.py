"""How far predicted cost changes come true, learned while training and used to keep the next update honest.

The first-order model J_c + T E[(r − 1) A_c] ignores that a new policy visits other states. Where every step compounds
(a trajectory that leaves a corridor stays outside), the realised change is a multiple of the predicted one. A running
regression through the origin of realised on predicted change gives that multiple; budgets are divided by it, never
multiplied: a factor below 1 says that the update fits noise, not that there is more room.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

MEMORY = 0.95  # share of the past that one iteration keeps
LARGEST = 3.0


class Calibration(NamedTuple):
    squares: Float[Array, " constraint"]  # Σ predicted²
    products: Float[Array, " constraint"]  # Σ predicted · realised


def start(constraints: int) -> Calibration:
    return Calibration(*jnp.zeros((2, constraints)))


def observe(
    past: Calibration, predicted: Float[Array, " constraint"], realised: Float[Array, " constraint"]
) -> Calibration:
    """Take one iteration's prediction and outcome into account; NaN (nothing predicted yet) changes nothing."""
    known = jnp.isfinite(predicted) & jnp.isfinite(realised)
    predicted, realised = jnp.where(known, predicted, 0.0), jnp.where(known, realised, 0.0)
    return Calibration(MEMORY * past.squares + predicted**2, MEMORY * past.products + predicted * realised)


def factor(seen: Calibration) -> Float[Array, " constraint"]:
    """Realised change for each unit predicted, between 1 and ``LARGEST``."""
    slope = seen.products / jnp.where(seen.squares > 0, seen.squares, 1.0)
    return jnp.clip(slope, 1.0, LARGEST)
