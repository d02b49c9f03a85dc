"""The E-step with one cost constraint, by closed forms on the plane of A and A_c.

Units in this file: the rows e_c and e_r are orthogonal with a mean square of one, and a sum over the batch is a mean
over its N elements, so that every scalar is of order one whatever N is.

The optimum under the elementwise bound has the form v̄ = max(−1, a e_c + b e_r + g). `fixed_point` solves on the plane
with the removed elements held at −1 (closed form), predicts **all** elements from the answer, which also re-admits
removed ones, and repeats. When the pattern repeats, the KKT conditions hold; where it never does, `angle.py` follows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cppo.algos.cppo.estep.sums import means

FAST_LIMIT = 20  # passes of `fixed_point`; it ends in 2 to 8 where it ends at all
REMOVAL_LIMIT = 1000  # passes of a removal loop; each removes at least one element, in practice 1 to 8 are needed


class Plane(NamedTuple):
    """A problem in the coordinates of its plane."""

    rows: tuple[Array, Array]  # e_c and e_r, (N,) each
    reward: Array  # (2,): A/‖A‖ in these coordinates, zero if A = 0
    budget: Array  # (): d' / rms(A_c)
    variance: Array  # (): δ'
    recovery: Array  # (): bool


class Moments(NamedTuple):
    """Means over the batch, on the free elements (those above −1) only."""

    free: Array  # share of free elements
    c: Array
    r: Array
    cc: Array
    cr: Array
    rr: Array


class Point(NamedTuple):
    """v̄ = max(−1, a e_c + b e_r + g), and how it was chosen."""

    a: Array
    b: Array
    g: Array
    case: Array  # 0 normal, 1 to 3 the paper's recovery cases
    proper: Array  # the multipliers exist: no direction degenerated on the free elements


class Found(NamedTuple):
    """A solved problem."""

    ratios: Array  # 1 + v̄; where the input is invalid, the rows and the variance are 0, and so is v̄
    values: Array  # means of v̄ times each row
    bound: Array  # share of the elements at −1
    case: Array
    iterations: Array  # passes over the batch
    repairs: Array  # elements re-admitted
    certified: Array  # proved optimal


def safe_divide(x: Array, y: Array) -> Array:
    """x / y, and 0 where y = 0."""
    return jnp.where(y == 0, 0.0, x / jnp.where(y == 0, 1.0, y))


def all_free(dtype: np.dtype) -> Moments:
    """Moments with nothing removed; the rows are orthogonal, centred and of unit mean square."""
    one, zero = jnp.ones((), dtype), jnp.zeros((), dtype)
    return Moments(one, zero, zero, one, zero, one)


def masked_moments(problem: Plane, p: "Point", last: "Point") -> tuple[Moments, Array]:
    """Moments over the elements the point leaves free, and how many of them the last point did not: one pass."""

    def terms(c, r):
        free = p.a * c + p.b * r + p.g > -1
        back = free & (last.a * c + last.b * r + last.g <= -1)
        c_kept, r_kept = jnp.where(free, c, 0.0), jnp.where(free, r, 0.0)
        return free.astype(c.dtype), c_kept, r_kept, c_kept * c, c_kept * r, r_kept * r, back.astype(c.dtype)

    *moments, back = means(terms, *problem.rows)
    return Moments(*moments), jnp.round(back * problem.rows[0].size).astype(jnp.int32)


def reduced_solution(problem: Plane, s: Moments) -> Point:
    """The optimum when the removed elements stay at −1 and the free ones are unbounded.

    θ = max(θ_A, θ_f), in recovery min(π, max(θ_f, θ_0)) with θ_0 where v̄·A = 0; angles are carried as (cos, sin).
    """
    eps = jnp.finfo(problem.variance.dtype).eps
    u_c, u_r = problem.reward
    inverse = 1 / jnp.maximum(s.free, jnp.finfo(problem.variance.dtype).tiny)
    mean_c, mean_r, shift = s.c * inverse, s.r * inverse, (1 - s.free) * inverse
    square = problem.variance - shift
    radius = jnp.sqrt(jnp.maximum(square, 0.0))

    # Orthonormal axes of the centred free rows: the first along e_c, the second along the rest of e_r.
    cc, cr, rr = s.cc - s.c * mean_c, s.cr - s.c * mean_r, s.rr - s.r * mean_r
    flat_c = cc <= 64 * eps * s.cc
    per_c = jnp.where(flat_c, 0.0, jax.lax.rsqrt(jnp.where(flat_c, 1.0, cc)))  # 1/norm, 0 where there is no such axis
    slope = cr * per_c * per_c
    rest = rr - slope * cr
    flat_r = rest <= 64 * eps * s.rr
    per_r = jnp.where(flat_r, 0.0, jax.lax.rsqrt(jnp.where(flat_r, 1.0, rest)))
    along, across = (u_c + u_r * slope) * cc * per_c, u_r * rest * per_r
    size = jnp.sqrt(along**2 + across**2)
    aimless = size == 0
    per_size = jnp.where(aimless, 0.0, 1 / jnp.where(aimless, 1.0, size))
    cos_a, sin_a = along * per_size, jnp.where(aimless, 1.0, across * per_size)

    per_radius = jnp.where(radius > 0, 1 / jnp.where(radius > 0, radius, 1.0), 0.0)
    # A_c constant on the free elements: no direction changes the cost, the right angle is as good as any.
    cos_f = jnp.clip((problem.budget - mean_c) * per_radius * per_c, -1.0, 1.0)
    cos_w = jnp.clip(-(u_c * mean_c + u_r * mean_r) * per_radius * per_size, -1.0, 1.0)
    sin_w = jnp.sqrt((1 - cos_w) * (1 + cos_w))
    cos_0, sin_0 = cos_a * cos_w - sin_a * sin_w, sin_a * cos_w + cos_a * sin_w
    past = (sin_0 < 0) | aimless  # beyond π: pure cost descent
    cos_t = jnp.where(problem.recovery, jnp.where(past, -1.0, cos_0), cos_a)
    sin_t = jnp.where(problem.recovery, jnp.where(past, 0.0, sin_0), sin_a)
    budget_binds = cos_f < cos_t
    cos_t = jnp.where(budget_binds, cos_f, cos_t)
    sin_t = jnp.where(budget_binds, jnp.sqrt((1 - cos_f) * (1 + cos_f)), sin_t)
    b = radius * sin_t * per_r
    a = radius * cos_t * per_c - b * slope
    case = jnp.where(problem.recovery, jnp.where(budget_binds, 2, jnp.where(past, 3, 1)), 0).astype(jnp.int32)
    proper = (square >= 0) & (~flat_c | (s.cc == 0)) & (~flat_r | (u_r == 0) | (sin_t == 0))
    # Large coefficients cancel on the free elements and amplify the rounding errors of the moments.
    proper &= a * a + b * b <= problem.variance * eps**-0.4
    return Point(a, b, shift - a * mean_c - b * mean_r, case, proper)


def affine(problem: Plane, p: Point) -> Array:
    return p.a * problem.rows[0] + p.b * problem.rows[1] + p.g


def row_values(p: Point, s: Moments) -> Array:
    """Means of v̄ e_c and v̄ e_r from the moments over the point's free elements; the rows themselves have mean 0."""
    return jnp.stack([p.a * s.cc + p.b * s.cr + (p.g + 1) * s.c, p.a * s.cr + p.b * s.rr + (p.g + 1) * s.r])


def measured(x: Array, rows: Sequence[Array]) -> tuple[Array, Array]:
    """The same by a pass over any v̄, and the share of its elements at −1."""
    edge = jnp.sqrt(jnp.finfo(x.dtype).eps) - 1  # the interior point method approaches −1 from above
    *values, bound = means(lambda x, *rows: (*(x * r for r in rows), (x <= edge).astype(x.dtype)), x, *rows)
    return jnp.stack(values), bound


def largest_difference(p: Point, s: Moments, t: Moments) -> Array:
    """How far mean, mean square, cost and e_r-component of the clipped point differ with one free set and another.

    The point meets its constraints with the free elements it was computed from; does it with those it has?
    """
    d = jax.tree.map(jnp.subtract, s, t)
    mean = p.a * d.c + p.b * d.r + p.g * d.free
    in_c, in_r = p.a * d.cc + p.b * d.cr + p.g * d.c, p.a * d.cr + p.b * d.rr + p.g * d.r
    square = p.a * in_c + p.b * in_r + p.g * mean - d.free
    largest = jnp.maximum(jnp.abs(mean + d.free), jnp.abs(square))
    return jnp.maximum(largest, jnp.maximum(jnp.abs(in_c + d.c), jnp.abs(in_r + d.r)))


def removal_loop(problem: Plane) -> Found:
    """The paper's Algorithm 1, corrected: remove what falls below −1, re-solve, until nothing new falls."""

    def moments(kept):
        def terms(kept, c, r):
            c_kept, r_kept = kept * c, kept * r
            return kept, c_kept, r_kept, c_kept * c, c_kept * r, r_kept * r

        return Moments(*means(terms, kept.astype(problem.variance.dtype), *problem.rows))

    def body(carry):
        kept, p, k, _ = carry
        new = kept & (affine(problem, p) >= -1)
        return new, reduced_solution(problem, moments(new)), k + 1, jnp.any(new != kept)

    kept = jnp.ones(problem.rows[0].shape, bool)
    carry = (kept, reduced_solution(problem, all_free(problem.variance.dtype)), jnp.int32(0), jnp.bool_(True))
    kept, p, k, changed = jax.lax.while_loop(lambda c: c[3] & (c[2] < REMOVAL_LIMIT), body, carry)
    x = jnp.maximum(jnp.where(kept, affine(problem, p), -1.0), -1.0)
    return Found(1 + x, *measured(x, problem.rows), p.case, k, jnp.int32(0), ~changed)


def fixed_point(problem: Plane) -> tuple[Point, Moments, Array, Array, Array]:
    """Iterate 'solve on the free elements, predict all elements' until the prediction repeats itself.

    Only scalars are carried: a pattern of free elements is remembered by the three numbers that produced it.
    Returns the point, its moments, the passes made, the elements re-admitted on the way, and whether KKT holds.
    """
    tolerance = 256 * jnp.finfo(problem.variance.dtype).eps
    small = tolerance * jnp.maximum(problem.variance, tolerance)

    def body(carry):
        s, last, old, k, repairs, _, _ = carry
        p = reduced_solution(problem, s)
        new, back = masked_moments(problem, p, old)
        done = (largest_difference(p, s, new) <= small) & p.proper
        # A pattern seen two passes ago comes back for ever.
        cycle = (new.free == last.free) & (new.cc == last.cc) & (new.rr == last.rr) & (k > 0)
        return new, s, p, k + 1, repairs + back, done, done | cycle

    full, no = all_free(problem.variance.dtype), jnp.bool_(False)
    nothing = Point(full.c, full.c, full.c, jnp.int32(0), no)
    carry = (full, full, nothing, jnp.int32(0), jnp.int32(0), no, no)
    s, _, p, k, repairs, done, _ = jax.lax.while_loop(lambda c: ~c[6] & (c[3] < FAST_LIMIT), body, carry)
    return p, s, k, repairs, done
