"""The E-step with several cost constraints: the same iteration as in plane.py, in span{A, A_c1 … A_cm}.

Units as there: the basis rows E (p, N), p = m + 1, are orthogonal with a mean square of one, and sums over the batch
are means. A candidate optimum is v̄ = max(−1, h·[1; E]) with p + 1 numbers h. On the free elements the problem is a
linear objective over a ball and half-spaces in p dimensions, solved exactly by trying every set of active constraints.

Which problem is solved (g_i = A_ci/‖A_ci‖, u = A/‖A‖, b_i the budgets, V the constraints in recovery):

    raise     maximise v̄·u     subject to v̄·g_i ≤ b_i            normal; in recovery where its optimum is < 0 (case 2)
    descend   minimise Σ_V v̄·g_i  subject to v̄·u ≥ 0, v̄·g_i ≤ b_i    recovery otherwise (cases 1 and 3)
    relax     minimise max_i (v̄·g_i − b_i)                       where no v̄ meets all budgets
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cppo.algos.cppo.estep.interior import LinearProblem, interior_point
from cppo.algos.cppo.estep.plane import FAST_LIMIT, REMOVAL_LIMIT, Found, measured, safe_divide
from cppo.algos.cppo.estep.sums import means


class Span(NamedTuple):
    """A problem in the coordinates of its span."""

    rows: tuple[Array, ...]  # E, p of (N,); a row is zero where the vectors are linearly dependent
    reward: Array  # (p,): A/‖A‖ in these coordinates, zero if A = 0
    costs: Array  # (m, p): A_ci/‖A_ci‖ in these coordinates, zero if A_ci = 0
    budgets: Array  # (m,): d'_i / rms(A_ci), infinite if A_ci = 0
    variance: Array  # (): δ'
    recovering: Array  # (m,) bool: the constraints in recovery, none in a normal update


class Point(NamedTuple):
    """v̄ = max(−1, h·[1; E]), and how it was chosen."""

    h: Array  # (p + 1,)
    case: Array
    proper: Array


def orthogonal_rows(units: list[Array]) -> tuple[tuple[Array, ...], Array]:
    """Gram–Schmidt, twice for accuracy: rows of unit mean square (or zero) and the vectors' coordinates in them.

    units: centred vectors of unit mean square, or zero.
    """
    dtype, p = units[0].dtype, len(units)
    rows: list[Array] = []
    coordinates = jnp.zeros((p, p), dtype)
    for j, rest in enumerate(units):
        first = means(lambda v, *rows: tuple(v * e for e in rows), rest, *rows) if rows else ()
        rest = rest - sum(x * e for x, e in zip(first, rows, strict=True))
        mean, square, *left = means(lambda v, *rows: (v, v * v, *(v * e for e in rows)), rest, *rows)
        size = jnp.sqrt(jnp.maximum(square - mean**2 - sum(x**2 for x in left), 0.0))
        size = jnp.where(size > 64 * jnp.finfo(dtype).eps, size, 0.0)
        rest = rest - mean - sum(x * e for x, e in zip(left, rows, strict=True))
        rows.append(rest * safe_divide(jnp.ones_like(size), size))
        along = [x + y for x, y in zip(first, left, strict=True)]
        coordinates = coordinates.at[j, : j + 1].set(jnp.stack([*along, size]))
    return tuple(rows), coordinates


def subsets(k: int) -> np.ndarray:
    """(2^k, k) bool: every set of active constraints."""
    return (np.arange(2**k)[:, None] >> np.arange(k)) % 2 == 1


class Free(NamedTuple):
    """The free elements' geometry: inner product ⟨a, b⟩ = a·spread·b, squared radius, and what counts as zero."""

    spread: Array  # (p, p)
    second: Array  # (p, p): the same before centring, the scale of its rounding errors
    square: Array  # ()

    def nonzero(self, rest: Array, whole: Array) -> tuple[Array, Array]:
        """Norm of `rest`, what is left of `whole`, and whether it is more than rounding error."""
        eps = jnp.finfo(self.spread.dtype).eps
        size = rest @ self.spread @ rest
        floor = jnp.maximum(64 * eps * (rest @ self.second @ rest), (256 * eps) ** 2 * (whole @ self.second @ whole))
        return jnp.sqrt(jnp.maximum(size, 0.0)), size > floor


class Frame(NamedTuple):
    """Orthonormal axes of the active rows, axes = mix · rows, by Gram–Schmidt in the free elements' inner product."""

    on: Array  # (k,): the active rows
    axes: Array  # (k, p): a zero row for what is not active or depends on earlier rows
    mix: Array  # (k, k)


def frame(space: Free, rows: Array, on: Array) -> Frame:
    k, p = rows.shape
    wide = jnp.concatenate([rows, jnp.eye(k, dtype=rows.dtype)], axis=1)

    def add(j, axes):
        rest = wide[j]
        for _ in range(2):
            rest = rest - (axes[:, :p] @ (space.spread @ rest[:p])) @ axes
        size, solid = space.nonzero(rest[:p], rows[j])
        return axes.at[j].set(jnp.where(on[j] & solid, safe_divide(rest, size), 0.0))

    axes = jax.lax.fori_loop(0, k, add, jnp.zeros_like(wide))
    return Frame(on, axes[:, :p], axes[:, p:])


def nonnegative(w: Array) -> Array:
    return jnp.all(w >= -jnp.sqrt(jnp.finfo(w.dtype).eps) * jnp.max(jnp.abs(w)))


def ball_and_halfspaces(
    space: Free, frames: Frame, c: Array, rows: Array, limits: Array
) -> tuple[Array, Array, Array, Array]:
    """Maximise ⟨c, y⟩ subject to ⟨row_j, y⟩ ≤ limits_j, ‖y‖² ≤ square, over all sets of active rows.

    Returns y, the multipliers, whether some y is feasible, and whether the multipliers prove y optimal.
    """
    eps = jnp.finfo(rows.dtype).eps
    slack = 512 * eps * jnp.sqrt(jnp.maximum(space.square, 0.0))
    finite = jnp.where(jnp.isfinite(limits), limits, 0.0)
    empty = jnp.all(c == 0)

    def candidate(fr):
        beta = fr.mix @ finite
        left = space.square - beta @ beta
        rest = c
        for _ in range(2):
            rest = rest - (fr.axes @ (space.spread @ rest)) @ fr.axes
        size, solid = space.nonzero(rest, c)
        t = jnp.where(solid, safe_divide(jnp.sqrt(jnp.maximum(left, 0.0)), size), 0.0)
        y = beta @ fr.axes + t * rest
        # c within the span of the active rows: the multipliers are those of a linear program (t = ∞).
        flat = ~solid & (jnp.max(jnp.abs(rest)) <= 256 * eps)
        along = fr.axes @ (space.spread @ c)
        w = jnp.where(solid, t * along - beta, along) @ fr.mix
        met = jnp.all(rows @ space.spread @ y <= limits + slack) & (left >= -512 * eps * space.square)
        met &= jnp.all(jnp.isfinite(limits) | ~fr.on)
        # Among equals, the least norm and the fewest constraints.
        value = c @ space.spread @ y - slack * (safe_divide(y @ space.spread @ y, space.square) + jnp.mean(fr.on))
        return jnp.where(met & jnp.isfinite(value), value, -jnp.inf), y, w, (solid | flat | empty) & nonnegative(w)

    value, y, w, proper = jax.vmap(candidate)(frames)
    best = jnp.argmax(value)
    return y[best], w[best], value[best] > -jnp.inf, proper[best] & (space.square >= 0)


def least_violation(space: Free, frames: Frame, rows: Array, limits: Array) -> tuple[Array, Array]:
    """Minimise max_j (⟨row_j, y⟩ − limits_j) over ‖y‖² ≤ square. Returns y and whether it is proved optimal."""
    eps = jnp.finfo(rows.dtype).eps
    radius = jnp.sqrt(jnp.maximum(space.square, 0.0))
    finite = jnp.where(jnp.isfinite(limits), limits, 0.0)

    def candidate(fr):
        beta, slope = fr.mix @ finite, jnp.sum(fr.mix, axis=1)
        # ‖beta + t slope‖² = square; at the smaller root the multipliers have a positive sum.
        q2, q1, q0 = slope @ slope, slope @ beta, beta @ beta - space.square
        root = q1**2 - q2 * q0
        t = safe_divide(-q1 - jnp.sqrt(jnp.maximum(root, 0.0)), q2)
        beta = beta + t * slope
        y = beta @ fr.axes
        met = jnp.all(rows @ space.spread @ y - limits <= t + 512 * eps * radius) & (root >= 0) & (q2 > 0)
        met &= jnp.all(jnp.isfinite(limits) | ~fr.on)
        return jnp.where(met & jnp.isfinite(t), t, jnp.inf), y, nonnegative(-beta @ fr.mix)

    value, y, proper = jax.vmap(candidate)(frames)
    best = jnp.argmin(value)
    found = jnp.isfinite(value[best])
    return jnp.where(found, y[best], 0.0), found & proper[best] & (space.square >= 0)


def reduced_solution(problem: Span, s: Array) -> Point:
    """The optimum when the removed elements stay at −1 and the free ones are unbounded. s: moments of [1; E]."""
    dtype, m = problem.variance.dtype, problem.budgets.size
    eps = jnp.finfo(dtype).eps
    f = jnp.maximum(s[0, 0], jnp.finfo(dtype).tiny)
    mean, shift = s[0, 1:] / f, (1 - s[0, 0]) / f
    space = Free(s[1:, 1:] - jnp.outer(s[0, 1:], mean), s[1:, 1:], problem.variance - shift)
    G, u = problem.costs, problem.reward
    rows = jnp.concatenate([G, -u[None]])
    limits = problem.budgets - G @ mean
    unlimited = jnp.append(limits, jnp.inf)
    frames = jax.vmap(lambda on: frame(space, rows, on))(jnp.asarray(subsets(m + 1)))

    h_up, _, feasible, proper_up = ball_and_halfspaces(space, frames, u, rows, unlimited)
    loses = u @ (space.spread @ h_up + mean) < -64 * eps * jnp.sqrt(problem.variance)
    total = -jnp.where(problem.recovering, 1.0, 0.0).astype(dtype) @ G
    h_down, w, possible, proper_down = ball_and_halfspaces(space, frames, total, rows, jnp.append(limits, u @ mean))
    preserves = w[-1] > jnp.sqrt(eps) * jnp.max(jnp.abs(w))
    h_relax, proper_relax = least_violation(space, frames, rows, unlimited)

    recover = jnp.any(problem.recovering)
    descend = recover & feasible & ~loses & possible
    h = jnp.where(descend, h_down, jnp.where(feasible, h_up, h_relax))
    proper = jnp.where(descend, proper_down, jnp.where(feasible, proper_up, proper_relax))
    # Large coefficients cancel on the free elements and amplify the rounding errors of the moments.
    proper &= h @ h <= problem.variance * eps**-0.4
    case = jnp.where(recover, jnp.where(descend, jnp.where(preserves, 1, 3), 2), 0).astype(jnp.int32)
    return Point(jnp.append(shift - h @ mean, h), case, proper)


def affine(h: Array, *rows: Array) -> Array:
    """h·[1; E]"""
    return sum((x * e for x, e in zip(h[1:], rows, strict=True)), h[0])


def moments(
    problem: Span, free: Callable[..., Array], *more: Array, also: Callable[..., Array] | None = None
) -> tuple[Array, Array]:
    """Mean products of [1; E] over the elements where free(*E, *more), (p + 1, p + 1), and the share where `also`."""
    rows, p = (*problem.rows, *more), len(problem.rows)

    # Row by row: not more sums at once than a CPU has registers for.
    def products(i, *v):
        kept = jnp.where(free(*v), v[i], 0.0)
        return kept, *(kept * e for e in v[: i + 1])

    def first(*v):
        return *(f(*v).astype(v[0].dtype) for f in (also or free, free)), *products(0, *v)

    counted, share, *top = means(first, *rows)
    table = [[share], top, *(means(partial(products, i), *rows) for i in range(1, p))]
    square = jnp.stack([jnp.stack([table[max(i, j)][min(i, j)] for j in range(p + 1)]) for i in range(p + 1)])
    return square, counted


def clipped_means(p: Point, s: Array) -> Array:
    """Mean, row values and mean square of max(−1, h·[1; E]), from moments over its free elements."""
    inner = s @ p.h
    return jnp.append(inner + s[0] - jnp.eye(s.shape[0], 1, dtype=s.dtype)[:, 0], p.h @ inner + 1 - s[0, 0])


def all_free(problem: Span) -> Array:
    """Moments with nothing removed: those of orthogonal rows, of unit mean square or zero."""
    live = jnp.diagonal(jnp.concatenate([problem.costs, problem.reward[None]])) != 0  # the sizes of the rows
    return jnp.diag(jnp.append(True, live).astype(problem.variance.dtype))


def removal_loop(problem: Span) -> Found:
    """The paper's Algorithm 1, corrected, in the span."""

    def body(carry):
        kept, s, _, k, _ = carry
        p = reduced_solution(problem, s)
        new = kept & (affine(p.h, *problem.rows) >= -1)
        return new, moments(problem, lambda *v: v[-1], new)[0], p, k + 1, jnp.any(new != kept)

    kept = jnp.ones(problem.rows[0].shape, bool)
    carry = (kept, all_free(problem), nowhere(problem), jnp.int32(0), jnp.bool_(True))
    kept, _, p, k, changed = jax.lax.while_loop(lambda c: c[4] & (c[3] < REMOVAL_LIMIT), body, carry)
    x = jnp.maximum(jnp.where(kept, affine(p.h, *problem.rows), -1.0), -1.0)
    return Found(1 + x, *measured(x, problem.rows), p.case, k, jnp.int32(0), ~changed)


def nowhere(problem: Span) -> Point:
    return Point(jnp.zeros(problem.budgets.size + 2, problem.variance.dtype), jnp.int32(0), jnp.bool_(False))


def fixed_point(problem: Span, start: Array, active: Array) -> tuple[Point, Array, Array, Array, Array]:
    """Iterate 'solve on the free elements, predict all elements' from the moments `start`; see plane.py.

    `active` false: skip the work.
    """
    tolerance = 512 * jnp.finfo(start.dtype).eps

    def body(carry):
        s, last, k, repairs, _ = carry
        p = reduced_solution(problem, s)

        def free(*rows):
            return affine(p.h, *rows) > -1

        new, back = moments(problem, free, also=lambda *rows: free(*rows) & (affine(last.h, *rows) <= -1))
        error = jnp.abs(clipped_means(p, new) - clipped_means(p, s))
        done = jnp.all(error <= tolerance * jnp.maximum(problem.variance, tolerance)) & p.proper
        return new, p, k + 1, repairs + jnp.round(back * problem.rows[0].size).astype(jnp.int32), done

    carry = (start, nowhere(problem), jnp.int32(0), jnp.int32(0), ~active)
    s, p, k, repairs, done = jax.lax.while_loop(lambda c: ~c[4] & (c[2] < FAST_LIMIT), body, carry)
    return p, s, k, repairs, done


def staged_interior_point(problem: Span, active: Array) -> tuple[Array, Array, Array, Array, Array]:
    """relax, then raise, then descend, each only where the one before asks for it; one compiled solver for all three.

    Returns v̄, moments over a guess of the free elements, the case, iterations and success.
    """
    dtype, E = problem.variance.dtype, jnp.stack(problem.rows)
    radius = jnp.sqrt(problem.variance)
    G, u, m = problem.costs, problem.reward, problem.budgets.size
    recover = jnp.any(problem.recovering)
    total = -jnp.where(problem.recovering, 1.0, 0.0).astype(dtype) @ G
    rows = jnp.concatenate([G, -u[None]])
    # No |v̄·g| exceeds the radius: a limit of four radii is no limit.
    budgets = jnp.minimum(problem.budgets, 4 * radius)
    objectives = jnp.stack([jnp.zeros_like(u), u, total])
    ends = jnp.stack([4 * radius, 4 * radius, jnp.zeros((), dtype)])
    edge = jnp.finfo(dtype).eps ** 0.6 * radius

    def stage(carry):
        k, _, _, _, iterations, _, _ = carry
        task = LinearProblem(E, objectives[k], rows, jnp.append(budgets, ends[k]), problem.variance)
        relaxed = jnp.append(jnp.ones(m, bool), False) & (k == 0)
        x, free, worst, steps, fine = interior_point(task, relaxed)
        gain = u @ (E @ x) / x.size
        kind = jnp.where(recover, jnp.where(k < 2, 2, jnp.where(gain > edge, 3, 1)), 0).astype(jnp.int32)
        # On to the next stage: budgets can be met; then, in recovery, without loss of reward.
        go_on = jnp.where(k == 0, worst <= edge, (k == 1) & recover & (gain >= -edge))
        return k + 1, x, moments(problem, lambda *v: v[-1], free)[0], kind, iterations + steps, fine, go_on

    start = (jnp.zeros_like(problem.rows[0]), all_free(problem), jnp.int32(0), jnp.int32(0), jnp.bool_(False))
    carry = (jnp.int32(0), *start, active)
    _, x, s, case, iterations, good, _ = jax.lax.while_loop(lambda c: c[6] & (c[0] < 3), stage, carry)
    return x, s, case, iterations, good


def exact_solution(problem: Span) -> Found:
    """`fixed_point`; where not certified, an interior point method, and `fixed_point` again from its pattern."""
    start = all_free(problem)
    p, s, k, repairs, certified = fixed_point(problem, start, jnp.bool_(True))

    def simple(p, s):
        return jnp.maximum(1 + affine(p.h, *problem.rows), 0.0), clipped_means(p, s)[1:-1], 1 - s[0, 0], p.case

    def rescue():
        x, pattern, case, steps, good = staged_interior_point(problem, ~certified)
        p, s, passes, _, certain = fixed_point(problem, pattern, ~certified)
        interior = (1 + x, *measured(x, problem.rows), case)
        answer = jax.tree.map(lambda a, b: jnp.where(certain, a, b), simple(p, s), interior)
        return *answer, steps + passes, certain | good

    ratios, values, bound, case, extra, certified = jax.lax.cond(
        certified, lambda: (*simple(p, s), jnp.int32(0), jnp.bool_(True)), rescue
    )
    return Found(ratios, values, bound, case, k + extra, repairs + extra, certified)
