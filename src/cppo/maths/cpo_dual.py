"""A linear objective over a ball and half-spaces, and the projection onto half-spaces: the steps of CPO and PCPO.

Both problems live in the span of H⁻¹g, H⁻¹b_1 … H⁻¹b_m, so inner products are all they need:

    q = gᵀH⁻¹g,    r_i = gᵀH⁻¹b_i,    S_ij = b_iᵀH⁻¹b_j.

For few constraints the exact way is to try every set of active ones: the optimum is the best feasible point among the
2^m solutions that meet the constraints of one set with equality. m = 1 is the closed form of Achiam et al. 2017
(their appendix on a linear objective under a linear and a quadratic constraint). Vectors are brought to unit length in
the metric first, so one tolerance serves every scale.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

TOLERANCE = 1e-5  # of unit vectors' inner products, in single precision


class Status(IntEnum):
    """How a step came about; a metric of CPO and PCPO."""

    FREE = 0  # no constraint binds
    BOUND = 1  # at least one constraint binds
    INFEASIBLE = 2  # no point of the ball meets all budgets: least violation


class Step(NamedTuple):
    """x = along_gradient · H⁻¹g + Σ_i along_costs_i · H⁻¹b_i."""

    along_gradient: Float[Array, ""]
    along_costs: Float[Array, " m"]
    status: Int[Array, ""]


def solve(gram: Float[Array, "n n"], budget: Float[Array, " m"], radius: Array | float) -> Step:
    """Maximise gᵀx subject to b_iᵀx ≤ budget_i and xᵀHx ≤ radius² (the problem that CPO approximates its update by).

    ``gram`` holds the inner products of g, b_1 … b_m: q, r and S above.
    Where no x meets all budgets, the recovery step: the x in the ball whose largest violation, each measured in units
    of ‖b_i‖ in the metric, is least. For one constraint that is CPO's own recovery, −radius · H⁻¹b/‖b‖.
    A constraint without gradient (b_i = 0) cannot be acted on and is left out; if its budget is negative the status
    still says infeasible. Where g is a combination of the active b_i the optimum may be a whole face of which the
    point of least norm is returned.
    """
    q, r, S = gram[0, 0], gram[0, 1:], gram[1:, 1:]
    size, sizes, present = jnp.sqrt(q), jnp.sqrt(jnp.diagonal(S)), _present(S)
    has_gradient = q > jnp.finfo(q.dtype).tiny
    unit, units = 1.0 / jnp.where(has_gradient, size, 1.0), 1.0 / jnp.where(present, sizes, 1.0)
    r, S, d = unit * units * r, S * units * units[:, None], budget * units
    masks = jnp.asarray(_subsets(len(sizes)))

    def best_on(mask: Array) -> tuple[Array, Array, Array, Array]:
        inverse = _inverse(S, mask)
        foot, shadow = inverse @ (mask * d), inverse @ (mask * r)
        rest = jnp.maximum(has_gradient - shadow @ (mask * r), 0.0)  # ‖g's part orthogonal to the active b‖²
        room = radius**2 - foot @ (mask * d)
        along = jnp.sqrt(jnp.maximum(room, 0.0) / jnp.where(rest > TOLERANCE, rest, jnp.inf))
        costs = foot - along * shadow
        excess = along * r + S @ costs - d
        inside = room >= -TOLERANCE * radius**2
        feasible = inside & jnp.all(jnp.where(present, excess <= TOLERANCE * (radius + jnp.abs(d)), ~mask))
        value = along + r @ costs
        norm = jnp.sqrt(jnp.maximum(along**2 + 2 * along * (r @ costs) + costs @ S @ costs, 0.0))
        return along, costs, feasible, jnp.where(has_gradient, value, -norm)

    along, costs, feasible, value = jax.vmap(best_on)(masks)
    chosen = jnp.argmax(jnp.where(feasible, value, -jnp.inf))
    possible = jnp.any(feasible)
    relaxed = _least_violation(S, d, present, radius, masks)
    status = jnp.where(jnp.any(masks[chosen]), Status.BOUND, Status.FREE)
    hopeless = jnp.any(~present & (budget < 0))
    return Step(
        jnp.where(possible, along[chosen], 0.0) * unit,
        jnp.where(possible, costs[chosen], relaxed) * units,
        jnp.where(possible & ~hopeless, status, Status.INFEASIBLE),
    )


def _least_violation(S: Array, d: Array, present: Array, radius: Array | float, masks: Array) -> Array:
    """Coefficients of the x in the ball with the least max_i (b_iᵀx − d_i), for unit b_i.

    On the set of the largest violations they all equal some t: Bᵀx = d + t·1. Either the ball ends the descent, which
    gives a quadratic equation for t, or these b_i oppose each other, and t is where the equations become solvable.
    """

    def smallest_on(mask: Array) -> tuple[Array, Array]:
        inverse = _inverse(S, mask)
        k, u = inverse @ (mask * d), inverse @ (mask * 1.0)
        a, b, c = jnp.sum(mask * u), jnp.sum(mask * k), jnp.sum(mask * d * k) - radius**2
        edge = (-b - jnp.sqrt(jnp.maximum(b * b - a * c, 0.0))) / jnp.maximum(a, TOLERANCE)
        opposed = mask * 1.0 - S @ u * mask  # the part of 1 outside the range of S
        gap = jnp.sum(opposed)
        t = jnp.where(gap > jnp.sqrt(TOLERANCE), -(opposed @ d) / jnp.where(gap > 0, gap, 1.0), edge)
        costs = k + t * u
        norm = jnp.sqrt(jnp.maximum(costs @ S @ costs, 0.0))
        costs = costs * jnp.minimum(1.0, radius / jnp.where(norm > 0, norm, 1.0))
        worst = jnp.max(jnp.where(present, S @ costs - d, -jnp.inf))
        return costs, jnp.where(jnp.any(mask & ~present), jnp.inf, worst)

    costs, worst = jax.vmap(smallest_on)(masks)
    return costs[jnp.argmin(worst)]


def project(value: Float[Array, " m"], S: Float[Array, "m m"], budget: Float[Array, " m"]) -> Step:
    """The point nearest to x₀ that meets b_iᵀx ≤ budget_i, from value_i = b_iᵀx₀ (PCPO's second step).

    S holds the b_i's inner products b_iᵀL⁻¹b_j in the *inverse* of the metric L in which "nearest" is meant; the answer
    is x = x₀ + Σ_i along_costs_i · L⁻¹b_i. Where the half-spaces have no common point, the least violated candidate.
    """
    sizes, present = jnp.sqrt(jnp.diagonal(S)), _present(S)
    units = 1.0 / jnp.where(present, sizes, 1.0)
    excess, S = (value - budget) * units, S * units * units[:, None]
    scale = jnp.max(jnp.where(present, jnp.abs(excess), 0.0))
    masks = jnp.asarray(_subsets(len(sizes)))

    def nearest_on(mask: Array) -> tuple[Array, Array, Array]:
        costs = -_inverse(S, mask) @ (mask * excess)
        worst = jnp.max(jnp.where(present, excess + S @ costs, -jnp.inf))
        return costs, jnp.maximum(worst, 0.0), costs @ S @ costs

    costs, worst, distance = jax.vmap(nearest_on)(masks)
    feasible = worst <= 10 * TOLERANCE * scale
    possible = jnp.any(feasible)
    chosen = jnp.where(possible, jnp.argmin(jnp.where(feasible, distance, jnp.inf)), jnp.argmin(worst))
    status = jnp.where(jnp.any(masks[chosen]), Status.BOUND, Status.FREE)
    hopeless = ~possible | jnp.any(~present & (budget < 0))
    return Step(jnp.ones_like(scale), costs[chosen] * units, jnp.where(hopeless, Status.INFEASIBLE, status))


def _present(S: Array) -> Array:
    """Constraints with a gradient; the rest cannot be acted on."""
    return jnp.diagonal(S) > jnp.finfo(S.dtype).tiny


def _subsets(m: int) -> np.ndarray:
    return np.array(list(product([False, True], repeat=m)))


def _inverse(S: Array, mask: Array) -> Array:
    """Pseudo-inverse of the block of S that ``mask`` chooses, zero elsewhere."""
    block = jnp.where(mask[:, None] & mask, S, 0.0)
    return jnp.linalg.pinv(block, rtol=TOLERANCE, hermitian=True)
