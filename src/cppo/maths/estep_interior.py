"""A primal-dual interior point method for the E-step's linear problems; each iteration is linear in N.

    maximise    u·x − t             (t only with relaxed rows, where u = 0)
    subject to  G x − t·relaxed ≤ h,   mean(x²) ≤ δ',   mean(x) = 0,   x ≥ −1

with inner products as means over the N elements. Mehrotra's predictor and corrector. The Newton matrix is diagonal
plus a part of rank p + 2 (the span, the constant vector and x itself): only a small dense system is to be solved.
It is the safety net of `estep_span`, for inputs on which the active sets cycle or degenerate.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
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


def interior_point(problem: LinearProblem, relaxed: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Returns x, which elements are free of the bound, t, the iterations and whether gap and residuals are small."""
    E, n, k = problem.rows, problem.rows.shape[1], problem.limits.size
    dtype = E.dtype
    radius = jnp.maximum(jnp.sqrt(problem.variance), jnp.finfo(dtype).tiny ** 0.25)
    bound = 1 / radius
    h, G, c = problem.limits / radius, problem.constraints, problem.objective
    relax = relaxed.astype(dtype)
    elastic = jnp.any(relaxed)
    target = jnp.finfo(dtype).eps ** 0.75  # 2e-12 in double precision, 6e-6 in single
    # Where many points are optimal (ball inactive), −½ curve·mean(x²) in the objective picks the shortest of them.
    curve = jnp.finfo(dtype).eps ** 0.75
    accept = jnp.finfo(dtype).eps ** 0.6  # 4e-10 and 7e-5

    def residuals(s: State):
        return (
            (c - s.dual @ G) @ E - s.level - (s.ball + curve) * s.x + s.low,
            h + relax * s.t - G @ (E @ s.x) / n - s.slack,
            0.5 * (1 - jnp.mean(s.x**2)) - s.room,
            -jnp.mean(s.x),
            jnp.where(elastic, 1 - jnp.sum(relax * s.dual), 0.0),
        )

    def gap(s: State):
        return jnp.mean(s.low * (s.x + bound)) + s.dual @ s.slack + s.ball * s.room

    def newton(s: State):
        """Factors shared by predictor and corrector; returns a function from complementarity targets to a step."""
        above = s.x + bound
        diagonal = s.ball + curve + s.low / above
        lifted = jnp.concatenate([E, jnp.ones_like(s.x)[None], s.x[None]])
        weighted = lifted / diagonal
        wide = jax.scipy.linalg.block_diag(G, jnp.ones((1, 1), dtype), jnp.ones((1, 1), dtype))
        curvature = wide @ (weighted @ lifted.T / n) @ wide.T
        small = curvature + jnp.diag(jnp.concatenate([s.slack / s.dual, jnp.zeros(1, dtype), (s.room / s.ball)[None]]))
        edge = jnp.concatenate([relax, jnp.zeros(2, dtype)])
        corner = jnp.where(elastic, 0.0, 1.0)
        matrix = jnp.block([[small, edge[:, None]], [edge[None], corner[None, None]]])
        # Repeated constraints make it singular in the limit: solve beside it, then refine.
        nudge = 8 * jnp.finfo(dtype).eps * jnp.max(jnp.diag(curvature))
        factors = jax.scipy.linalg.lu_factor(matrix + nudge * jnp.diag(jnp.append(jnp.ones(k + 2, dtype), -1.0)))
        r_x, r_s, r_q, r_1, r_t = residuals(s)

        def step(goal_low, goal_dual, goal_ball, bend):
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

    def length(s: State, d: State):
        """The longest step that keeps slacks and duals positive."""

        def ratio(value, change):
            return jnp.min(jnp.where(change < 0, -value / jnp.where(change < 0, change, -1.0), jnp.inf))

        pairs = [(s.x + bound, d.x), (s.slack, d.slack), (s.low, d.low), (s.dual, d.dual), (s.ball, d.ball)]
        # The ball is curved: its room is followed exactly, or its error would end the descent early.
        q1, q2 = jnp.mean(s.x * d.x), jnp.mean(d.x**2)
        reach = q1 + jnp.sqrt(q1**2 + 2 * q2 * s.room)
        curved = jnp.where(reach > 0, 2 * s.room / jnp.where(reach > 0, reach, 1.0), 1.0)
        return jnp.minimum(jnp.minimum(1.0, curved), jnp.min(jnp.stack([ratio(v, dv) for v, dv in pairs])))

    def move(s: State, d: State, a):
        new = jax.tree.map(lambda v, dv: v + a * dv, s, d)
        return new._replace(room=jnp.maximum(0.5 * (1 - jnp.mean(new.x**2)), 0.0))

    def body(carry):
        s, i, before, _ = carry
        step = newton(s)
        above = s.x + bound
        d = step(-s.low * above, -s.dual * s.slack, -s.ball * s.room, 0.0)
        now = gap(s)
        after = gap(move(s, d, length(s, d)))
        centre = jnp.clip(after / now, 0.0, 1.0) ** 3 * now / (k + 2)
        d = step(
            centre - s.low * above - d.low * d.x,
            centre - s.dual * s.slack - d.dual * d.slack,
            centre - s.ball * s.room - d.ball * d.room,
            0.5 * jnp.mean(d.x**2),
        )
        a = jnp.minimum(1.0, 0.995 * length(s, d))
        new = move(s, d, a)
        fine = jnp.all(jnp.stack([jnp.all(jnp.isfinite(v)) for v in new])) & (new.room > 0)
        drift, *errors = residuals(new)
        error = jnp.max(jnp.stack([jnp.max(jnp.abs(r)) for r in errors]))
        drift = jnp.sqrt(jnp.mean(drift**2))
        left = jnp.maximum(gap(new), jnp.maximum(error, drift))
        # Past its best accuracy the method diverges: keep the best point.
        worse = ~fine | ((left > before) & (before < accept))
        new = jax.tree.map(lambda x, y: jnp.where(worse, x, y), s, new)
        return new, i + 1, jnp.where(worse, before, left), ~worse & (a > 1e-8)

    t = jnp.where(elastic, 1 + jnp.max(-h * relax), 0.0).astype(dtype)
    one = jnp.ones((), dtype)
    slack = jnp.maximum(h + relax * t, 0.1)
    start = State(
        jnp.zeros(n, dtype), t, slack, 0.5 * one, jnp.broadcast_to(1 / bound, (n,)), 1 / slack, 2 * one, 0 * one
    )
    carry = (start, jnp.int32(0), one / 0.01, jnp.bool_(True))
    s, i, left, _ = jax.lax.while_loop(lambda c: (c[2] > target) & c[3] & (c[1] < LIMIT), body, carry)
    return jnp.maximum(radius * s.x, -1.0), s.x + bound > s.low, radius * s.t, i, left < accept
