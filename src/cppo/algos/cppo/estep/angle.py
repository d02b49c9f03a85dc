"""The E-step with one cost constraint, where `plane.fixed_point` does not end: a search for one angle.

Let x(φ) be the point of the bounded ball furthest in the direction cos φ e_c + sin φ e_r. Cost and reward of x(φ) both
fall as φ goes from θ_A to π, so the paper's rules θ = max(θ_A, θ_f) and θ = min(π, max(θ_f, θ_A + π/2)) hold word for
word with "the φ where the cost meets the budget" for θ_f and "the φ where the reward change is zero" for θ_A + π/2: one
monotone equation in one unknown. Units are those of `plane.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cppo.algos.cppo.estep.plane import REMOVAL_LIMIT, Found, Plane, affine, fixed_point, row_values, safe_divide
from cppo.algos.cppo.estep.sums import means

ANGLE_LIMIT = 90  # steps of `narrowed`; it bisects on every third step, and 25 bisections suffice


class Furthest(NamedTuple):
    """x(φ) = max(−1, stretch (z − middle) + shift) with z = cos φ e_c + sin φ e_r, and what it achieves."""

    angle: Array
    stretch: Array
    middle: Array
    shift: Array
    over: Array  # cost above its budget
    gain: Array  # reward change; counts as something to give up in recovery only
    passes: Array

    def excess(self) -> Array:
        """What the search drives to zero from above."""
        return jnp.maximum(self.over, self.gain)


def direction(angle: Array, c: Array, r: Array) -> Array:
    """cos φ e_c + sin φ e_r; the angle is carried as π − φ, to resolve angles close to π."""
    return jnp.sin(angle) * r - jnp.cos(angle) * c


def deviation_at(p: Furthest, c: Array, r: Array) -> Array:
    return jnp.maximum(p.stretch * (direction(p.angle, c, r) - p.middle) + p.shift, -1.0)


def furthest(problem: Plane, angle: Array, active: Array) -> Furthest:
    """Maximise v̄·z under ball, sum and bound. Here removal alone is exact.

    Clipping raises the sum and shrinks the norm; repairing both pushes what was clipped further down, never back up.
    """
    dtype = problem.variance.dtype
    steepest = jnp.finfo(dtype).eps ** -0.45  # keeps the form finite where z is constant on the free elements

    def on_free(form):
        stretch, middle, shift, _ = form

        def terms(c, r):
            off = direction(angle, c, r) - middle
            free = stretch * off + shift > -1
            kept = jnp.where(free, off, 0.0)
            return free.astype(dtype), kept, kept * kept

        f, first, second = means(terms, *problem.rows)
        f = jnp.maximum(f, 1 / problem.rows[0].size)
        off = first / f
        spread = jnp.maximum(second - first * off, 0.0)
        shift = (1 - f) / f
        radius = jnp.sqrt(jnp.maximum(problem.variance - shift, 0.0))
        flat = steepest * jnp.sqrt(spread) <= radius
        return jnp.where(flat, steepest, radius / jnp.sqrt(jnp.where(flat, 1.0, spread))), middle + off, shift, f

    def body(carry):
        form, k, _ = carry
        new = on_free(form)
        return new, k + 1, new[3] < form[3]

    zero = jnp.zeros((), dtype)
    start = (on_free((zero, zero, zero, zero)), jnp.int32(1), active)
    (stretch, middle, shift, _), k, _ = jax.lax.while_loop(lambda c: c[2] & (c[1] < REMOVAL_LIMIT), body, start)
    found = Furthest(angle, stretch, middle, shift, zero, zero, k)

    def terms(c, r):
        x = deviation_at(found, c, r)
        return x * c, x * r

    cost, other = means(terms, *problem.rows)
    gain = jnp.where(problem.recovery, problem.reward[0] * cost + problem.reward[1] * other, -jnp.inf)
    return found._replace(over=cost - problem.budget, gain=gain)


def crossing(low: Array, high: Array) -> Array:
    """The largest share of the low end at which a share-weighted mean of the two values is not above zero."""
    return jnp.where(low > 0, safe_divide(jnp.minimum(high, 0.0), jnp.minimum(high, 0.0) - low), 1.0)


class Mixture(NamedTuple):
    """What `angle_search` finds: v̄ between the two ends of its bracket, raised or lowered by `level` where free."""

    low: Furthest
    high: Furthest
    weight: Array  # of the low end
    level: Array

    def deviation(self, c: Array, r: Array) -> Array:
        x = self.weight * deviation_at(self.low, c, r) + (1 - self.weight) * deviation_at(self.high, c, r)
        return jnp.where(x > -1, jnp.maximum(x + self.level, -1.0), -1.0)


def angle_search(problem: Plane, active: Array) -> tuple[Mixture, Array, Array, Array, Array]:
    """Find the least φ in [θ_A, π] at which nothing is left to do; φ is bracketed, the answer lies between the ends.

    A convex combination of the two ends meets every constraint exactly, and its loss is of second order in the
    bracket's width (of first order at a kink). `active` false: skip the work. Returns v̄, the means of v̄ times each
    row, the share at −1, the case and the passes.
    """
    dtype = problem.variance.dtype
    first, last, opened = widest(problem, active)
    inside = active & (first.excess() > 0) & (last.excess() <= 0)
    low, high, passes = narrowed(problem, first, last, inside)
    weight = jnp.minimum(crossing(low.over, high.over), crossing(low.gain, high.gain))
    weight = jnp.where(first.excess() <= 0, 1.0, jnp.where(last.excess() > 0, 0.0, weight))
    mixture = levelled(problem, Mixture(low, high, weight, jnp.zeros((), dtype)))

    def report(c, r):
        x = mixture.deviation(c, r)
        return x * c, x * r, (x <= -1).astype(dtype)

    cost, other, bound = means(report, *problem.rows)
    u_c, u_r = problem.reward
    gain = cost * u_c + other * u_r
    lost = (last.over > 0) | (gain < -jnp.sqrt(jnp.finfo(dtype).eps) * jnp.sqrt(problem.variance))
    case = jnp.where(problem.recovery, jnp.where(lost, 2, jnp.where(last.excess() > 0, 3, 1)), 0).astype(jnp.int32)
    return mixture, jnp.stack([cost, other]), bound, case, opened + passes


def widest(problem: Plane, active: Array) -> tuple[Furthest, Furthest, Array]:
    """Both ends of the bracket, θ_A and π, and the passes that they took."""
    dtype = problem.variance.dtype
    eps = jnp.finfo(dtype).eps
    near = jnp.sqrt(eps) * 10  # as close to π as a direction is told from pure cost descent
    u_c, u_r = problem.reward
    none = (u_c == 0) & (u_r == 0)
    start = jnp.where(none, jnp.where(problem.recovery, 0.0, jnp.pi / 2), jnp.pi - jnp.arctan2(u_r, u_c)).astype(dtype)
    # Where several points share the least cost (sparse costs), the limit φ → π is the one among them with most reward.
    ends = jnp.stack([start, jnp.zeros((), dtype), jnp.minimum(jnp.asarray(near, dtype), start)])
    # One after another: three directions at once would need three times the memory.
    three = jax.lax.map(lambda angle: furthest(problem, angle, active), ends)
    first, descent, limit = (jax.tree.map(lambda x, i=i: x[i], three) for i in range(3))
    tied = limit.over <= descent.over + 8 * eps * jnp.sqrt(problem.variance)
    last = jax.tree.map(lambda x, y: jnp.where(tied, x, y), limit, descent)
    return first, last, jnp.sum(three.passes, dtype=jnp.int32)


def narrowed(problem: Plane, first: Furthest, last: Furthest, active: Array) -> tuple[Furthest, Furthest, Array]:
    """The bracket closed in on the zero of the excess, above zero at its low end and not at its high end; passes."""
    dtype = problem.variance.dtype
    eps = jnp.finfo(dtype).eps
    narrow = eps**0.65  # 7e-11 in double precision, 3e-5 in single
    radius = jnp.sqrt(problem.variance)

    def search(carry):
        low, high, k, passes, side, _ = carry
        width = low.angle - high.angle
        # The secant step, kept inside the bracket; every third step bisects, so the bracket surely shrinks.
        above, below = low.excess() * side[0], high.excess() * side[1]
        share = safe_divide(above, above - below)
        share = jnp.where(k % 3 == 2, 0.5, jnp.clip(share, 0.01, 0.99))
        mid = furthest(problem, low.angle - share * width, jnp.bool_(True))
        above = mid.excess() > 0
        low = jax.tree.map(lambda x, y: jnp.where(above, x, y), mid, low)
        high = jax.tree.map(lambda x, y: jnp.where(above, y, x), mid, high)
        # Illinois: an end that stays twice counts half.
        side = jnp.where(above, jnp.stack([1.0, side[1] * 0.5]), jnp.stack([side[0] * 0.5, 1.0])).astype(dtype)
        # A budget met exactly may still be met by a range of angles (ties); only a zero of the reward change is final.
        met = jnp.where(problem.recovery, high.gain, high.over) >= -4 * eps * radius
        go_on = (low.angle - high.angle > narrow) & ~met
        return low, high, k + 1, passes + mid.passes, side, go_on

    carry = (first, last, jnp.int32(0), jnp.int32(0), jnp.ones(2, dtype), active)
    low, high, _, passes, _, _ = jax.lax.while_loop(lambda c: c[5] & (c[2] < ANGLE_LIMIT), search, carry)
    return low, high, passes


def levelled(problem: Plane, mixture: Mixture) -> Mixture:
    """A steep form magnifies rounding errors: the sum settled once more."""

    def level(c, r):
        x = mixture.deviation(c, r)
        return x, (x > -1).astype(problem.variance.dtype)

    return mixture._replace(level=-safe_divide(*means(level, *problem.rows)))


def exact_solution(problem: Plane) -> Found:
    """`fixed_point`, and `angle_search` where that was not certified."""
    p, s, k, repairs, certified = fixed_point(problem)

    def simple():
        return jnp.maximum(1 + affine(problem, p), 0.0), row_values(p, s), 1 - s.free, p.case, jnp.int32(0)

    def search():
        mixture, *rest = angle_search(problem, ~certified)
        return 1 + mixture.deviation(*problem.rows), *rest

    ratios, values, bound, case, passes = jax.lax.cond(certified, simple, search)
    return Found(ratios, values, bound, case, k + passes, repairs + passes, jnp.bool_(True))
