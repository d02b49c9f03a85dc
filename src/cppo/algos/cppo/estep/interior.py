"""A primal-dual interior point method for the E-step's linear problems; each iteration is linear in N.

    maximise    u·x − t             (t only with relaxed rows, where u = 0)
    subject to  G x − t·relaxed ≤ h,   mean(x²) ≤ δ',   mean(x) = 0,   x ≥ −1

with inner products as means over the N elements. Mehrotra's predictor and corrector. The Newton matrix is diagonal
plus a part of rank p + 2 (the span, the constant vector and x itself): only a small dense system is to be solved.
It is the safety net of `span.py`, for inputs on which the active sets cycle or degenerate.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

LIMIT = 80  # iterations; 10 to 30 are usual


class LinearProblem(NamedTuple):
    """The problem above, in the coordinates of the span rows E."""

    rows: Array  # (p, N): E
    objective: Array  # (p,)
    constraints: Array  # (k, p)
    limits: Array  # (k,), finite
    variance: Array  # (): δ'


class State(NamedTuple):
    """Primal and dual variables, in units of the radius: x = √δ' ξ."""

    x: Array  # (N,)
    t: Array
    slack: Array  # (k,)
    room: Array  # of the ball
    low: Array  # (N,) duals of x ≥ −1
    dual: Array  # (k,)
    ball: Array
    level: Array  # dual of mean(x) = 0


class Units(NamedTuple):
    """The problem in units of the radius, and the constants of the method."""

    rows: Array  # (p, N): E
    objective: Array  # (p,)
    constraints: Array  # (k, p): G
    limits: Array  # (k,): h
    relax: Array  # (k,): 1 for relaxed rows, 0 for the others
    elastic: Array  # (): whether a row is relaxed
    radius: Array
    bound: Array  # 1 / radius

    @property
    def curve(self) -> np.floating:
        """Where many points are optimal (ball inactive), −½ curve·mean(x²) in the objective picks the shortest."""
        return jnp.finfo(self.rows.dtype).eps ** 0.75


def in_units(problem: LinearProblem, relaxed: Array) -> Units:
    dtype = problem.rows.dtype
    radius = jnp.maximum(jnp.sqrt(problem.variance), jnp.finfo(dtype).tiny ** 0.25)
    bound, limits, relax = 1 / radius, problem.limits / radius, relaxed.astype(dtype)
    G, c = problem.constraints, problem.objective
    return Units(problem.rows, c, G, limits, relax, jnp.any(relaxed), radius, bound)


def beginning(u: Units) -> State:
    dtype, n = u.rows.dtype, u.rows.shape[1]
    t = jnp.where(u.elastic, 1 + jnp.max(-u.limits * u.relax), 0.0).astype(dtype)
    one = jnp.ones((), dtype)
    slack = jnp.maximum(u.limits + u.relax * t, 0.1)
    low = jnp.broadcast_to(1 / u.bound, (n,))
    return State(jnp.zeros(n, dtype), t, slack, 0.5 * one, low, 1 / slack, 2 * one, 0 * one)


def residuals(u: Units, s: State) -> tuple[Array, Array, Array, Array, Array]:
    """Of stationarity in x, the rows, the ball, the mean, and stationarity in t."""
    return (
        (u.objective - s.dual @ u.constraints) @ u.rows - s.level - (s.ball + u.curve) * s.x + s.low,
        u.limits + u.relax * s.t - u.constraints @ (u.rows @ s.x) / s.x.size - s.slack,
        0.5 * (1 - jnp.mean(s.x**2)) - s.room,
        -jnp.mean(s.x),
        jnp.where(u.elastic, 1 - jnp.sum(u.relax * s.dual), 0.0),
    )


def gap(u: Units, s: State) -> Array:
    return jnp.mean(s.low * (s.x + u.bound)) + s.dual @ s.slack + s.ball * s.room


def newton(u: Units, s: State) -> Callable[[Array, Array, Array, Array | float], State]:
    """Factors shared by predictor and corrector; returns a function from complementarity targets to a step."""
    E, G, dtype, n, k = u.rows, u.constraints, u.rows.dtype, s.x.size, u.limits.size
    above = s.x + u.bound
    diagonal = s.ball + u.curve + s.low / above
    lifted = jnp.concatenate([E, jnp.ones_like(s.x)[None], s.x[None]])
    weighted = lifted / diagonal
    wide = jax.scipy.linalg.block_diag(G, jnp.ones((1, 1), dtype), jnp.ones((1, 1), dtype))
    curvature = wide @ (weighted @ lifted.T / n) @ wide.T
    small = curvature + jnp.diag(jnp.concatenate([s.slack / s.dual, jnp.zeros(1, dtype), (s.room / s.ball)[None]]))
    edge = jnp.concatenate([u.relax, jnp.zeros(2, dtype)])
    corner = jnp.where(u.elastic, 0.0, 1.0)
    matrix = jnp.block([[small, edge[:, None]], [edge[None], corner[None, None]]])
    # Repeated constraints make it singular in the limit: solve beside it, then refine.
    nudge = 8 * jnp.finfo(dtype).eps * jnp.max(jnp.diag(curvature))
    factors = jax.scipy.linalg.lu_factor(matrix + nudge * jnp.diag(jnp.append(jnp.ones(k + 2, dtype), -1.0)))
    r_x, r_s, r_q, r_1, r_t = residuals(u, s)

    def step(goal_low: Array, goal_dual: Array, goal_ball: Array, bend: Array | float) -> State:
        right_x = r_x + goal_low / above
        v = wide @ (weighted @ right_x) / n
        rows = v[:k] + goal_dual / s.dual - r_s
        tail = jnp.stack([v[k] - r_1, v[k + 1] + goal_ball / s.ball - r_q + bend, r_t])
        right = jnp.concatenate([rows, tail])
        d = jax.scipy.linalg.lu_solve(factors, right)
        d = d + jax.scipy.linalg.lu_solve(factors, right - matrix @ d)
        d_dual, d_level, d_ball, d_t = d[:k], d[k], d[k + 1], d[k + 2]
        d_x = (right_x - (d_dual @ G) @ E - d_level - s.x * d_ball) / diagonal
        d_low = (goal_low - s.low * d_x) / above
        d_slack = (goal_dual - s.slack * d_dual) / s.dual
        d_room = (goal_ball - s.room * d_ball) / s.ball
        return State(d_x, d_t, d_slack, d_room, d_low, d_dual, d_ball, d_level)

    return step


def longest(u: Units, s: State, d: State) -> Array:
    """The longest step that keeps slacks and duals positive."""

    def ratio(value: Array, change: Array) -> Array:
        return jnp.min(jnp.where(change < 0, -value / jnp.where(change < 0, change, -1.0), jnp.inf))

    pairs = [(s.x + u.bound, d.x), (s.slack, d.slack), (s.low, d.low), (s.dual, d.dual), (s.ball, d.ball)]
    # The ball is curved: its room is followed exactly, or its error would end the descent early.
    q1, q2 = jnp.mean(s.x * d.x), jnp.mean(d.x**2)
    reach = q1 + jnp.sqrt(q1**2 + 2 * q2 * s.room)
    curved = jnp.where(reach > 0, 2 * s.room / jnp.where(reach > 0, reach, 1.0), 1.0)
    return jnp.minimum(jnp.minimum(1.0, curved), jnp.min(jnp.stack([ratio(v, dv) for v, dv in pairs])))


def moved(s: State, d: State, length: Array) -> State:
    new = jax.tree.map(lambda v, dv: v + length * dv, s, d)
    return new._replace(room=jnp.maximum(0.5 * (1 - jnp.mean(new.x**2)), 0.0))


def advanced(u: Units, s: State) -> tuple[State, Array]:
    """The state after one predictor and corrector, and the length of the step."""
    step = newton(u, s)
    above = s.x + u.bound
    d = step(-s.low * above, -s.dual * s.slack, -s.ball * s.room, 0.0)
    now = gap(u, s)
    after = gap(u, moved(s, d, longest(u, s, d)))
    centre = jnp.clip(after / now, 0.0, 1.0) ** 3 * now / (u.limits.size + 2)
    d = step(
        centre - s.low * above - d.low * d.x,
        centre - s.dual * s.slack - d.dual * d.slack,
        centre - s.ball * s.room - d.ball * d.room,
        0.5 * jnp.mean(d.x**2),
    )
    length = jnp.minimum(1.0, 0.995 * longest(u, s, d))
    return moved(s, d, length), length


def interior_point(problem: LinearProblem, relaxed: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Returns x, which elements are free of the bound, t, the iterations and whether gap and residuals are small."""
    u, eps = in_units(problem, relaxed), jnp.finfo(problem.rows.dtype).eps
    target = eps**0.75  # 2e-12 in double precision, 6e-6 in single
    accept = eps**0.6  # 4e-10 and 7e-5

    def body(carry):
        s, i, before, _ = carry
        new, length = advanced(u, s)
        fine = jnp.all(jnp.stack([jnp.all(jnp.isfinite(v)) for v in new])) & (new.room > 0)
        drift, *errors = residuals(u, new)
        error = jnp.max(jnp.stack([jnp.max(jnp.abs(r)) for r in errors]))
        drift = jnp.sqrt(jnp.mean(drift**2))
        left = jnp.maximum(gap(u, new), jnp.maximum(error, drift))
        # Past its best accuracy the method diverges: keep the best point.
        worse = ~fine | ((left > before) & (before < accept))
        new = jax.tree.map(lambda x, y: jnp.where(worse, x, y), s, new)
        return new, i + 1, jnp.where(worse, before, left), ~worse & (length > 1e-8)

    carry = (beginning(u), jnp.int32(0), jnp.ones((), u.rows.dtype) / 0.01, jnp.bool_(True))
    s, i, left, _ = jax.lax.while_loop(lambda c: (c[2] > target) & c[3] & (c[1] < LIMIT), body, carry)
    return jnp.maximum(u.radius * s.x, -1.0), s.x + u.bound > s.low, u.radius * s.t, i, left < accept
