"""The E-step of CPPO: target ratios v = q/π that improve the reward within a trust region and a cost budget.

From "Constrained Proximal Policy Optimization", sections 3.1 and 3.3 and Algorithm 1. Deliberate deviations:
the radius is R² = N δ' (the paper prints ‖v̄‖ ≤ 2Nδ', with which its own KL bounds do not hold); the removal loop
charges the budget with the count of the elements that remain (the paper prints the count of the removed); elements
removed in error are re-admitted, so that the result is the optimum and not the heuristic's (`exact=False` gives that).

One constraint is solved in `plane.py` and `angle.py`, several in `span.py`; this file states the problem and reports.
"""

from enum import IntEnum
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from cppo.algos.cppo.estep import angle, plane, span
from cppo.algos.cppo.estep.plane import Found, Plane, safe_divide
from cppo.algos.cppo.estep.span import Span
from cppo.algos.cppo.estep.sums import means, sums

MOST_CONSTRAINTS = 8  # 2^(m+1) sets of active constraints are tried


class Status(IntEnum):
    """How an E-step ended."""

    OPTIMAL = 0
    """Normal update: the optimum, every constraint met."""
    RECOVERY = 1
    """Recovery update: the optimum of its case, every budget met."""
    INFEASIBLE = 2
    """No ratios meet the budgets: these exceed them least. Normal and recovery updates alike."""
    NOT_CONVERGED = 3
    """Within trust region and bounds, but the method stopped short of a certified optimum. Please report the input."""
    INVALID_INPUT = 4
    """NaN, infinity or a negative variance arrived inside jit: the ratios are all 1. (Outside jit: ValueError.)"""


class EStep(NamedTuple):
    """Target ratios and what is known about them. Arrays of shape () unless said otherwise."""

    ratios: Array
    """(N,): v = q/π, mean 1, at least 0."""
    status: Array
    """int32, a `Status`."""
    case: Array
    """int32: 0 normal; in recovery the paper's case: 1 reward preserved exactly, 2 reward given up to meet (or come
    closest to) the budget, 3 pure cost descent."""
    iterations: Array
    """int32: passes over the batch."""
    repairs: Array
    """int32: elements re-admitted after their removal, plus the passes of the slower, certain method where that was
    needed. 0: plain removal found the optimum."""
    theta: Array
    """Angle of v̄ from A_c in the plane of A_c and A, in radians. Several constraints: of the tightest, by θ_f."""
    theta_reward: Array
    """θ_A, the angle of A from A_c."""
    theta_feasible: Array
    """θ_f, the smallest angle that meets the budget when no ratio is at its bound."""
    reward_change: Array
    """Predicted E[v̄ A]."""
    cost_change: Array
    """(m,): predicted E[v̄ A_c]."""
    bound_share: Array
    """Share of the ratios at 0."""


def solve(
    adv: ArrayLike,
    cost_adv: ArrayLike,
    cost_budget: ArrayLike,
    variance: ArrayLike,
    recovery: ArrayLike = False,
    exact: bool = True,
) -> EStep:
    """Solve for the ratios v = 1 + v̄. With A and A_c centred on the batch,

        normal       maximise v̄·A    subject to v̄·A_ci ≤ N d'_i
        recovery     minimise Σ_i v̄·A_ci/‖A_ci‖ over the recovering i, subject to v̄·A ≥ 0 and v̄·A_ci ≤ N d'_i
                     where nothing meets both: the normal problem
        infeasible   minimise max_i (v̄·A_ci − N d'_i)/‖A_ci‖

    all under ‖v̄‖² ≤ N δ', Σ v̄ = 0 and v̄ ≥ −1 elementwise. The last problem replaces the others where no v̄ meets the
    budgets; the status then says so. Where several v̄ are optimal, one of them; A = 0 gives a v̄ of least norm, and
    A_c = 0, on which no v̄ has any effect, is left out of the problem.

    Args:
        adv: A, (N,). Centred here, so a constant added to it does not matter. Its dtype is the result's.
        cost_adv: A_c, (N,) or (m, N) with m ≤ 8 constraints. Centred, but never rescaled: its scale is the budget's.
        cost_budget: d', scalar or (m,), the allowed mean E[v̄ A_c]; negative when cost must fall.
        variance: δ', the largest variance of the ratios.
        recovery: bool, or (m,) bools: the constraints in recovery. True with several constraints: those with a
            negative budget, or all of them if none is negative.
        exact: static. False stops at the paper's heuristic, which may fall short of the optimum.

    Pure; works under `jit` and `vmap` (over problems, variances, recovery flags). Cost is linear in N.

    Raises:
        ValueError: wrong shapes; or, outside `jit`, NaN, infinity or a negative variance.

    >>> import jax.numpy as jnp
    >>> adv, cost_adv = jnp.array([1.0, 0.0, 0.0, -1.0]), jnp.array([1.0, -1.0, 1.0, -1.0])
    >>> step = solve(adv, cost_adv, cost_budget=0.0, variance=0.25)
    >>> print(Status(int(step.status)).name, step.ratios)
    OPTIMAL [1.5 1.5 0.5 0.5]
    """
    _check_shapes(adv, cost_adv, cost_budget, variance, recovery)
    _check_values(adv=adv, cost_adv=cost_adv, cost_budget=cost_budget, variance=variance)
    dtype = jnp.promote_types(jnp.asarray(adv).dtype, jnp.float32)
    costs = jnp.atleast_2d(jnp.asarray(cost_adv, dtype))
    budgets = jnp.broadcast_to(jnp.asarray(cost_budget, dtype), costs.shape[:1])
    return _solve(
        jnp.asarray(adv, dtype), costs, budgets, jnp.asarray(variance, dtype), _recovering(recovery, budgets), exact
    )


def _recovering(recovery: ArrayLike, budgets: Array) -> Array:
    """(m,) bool: the constraints in recovery."""
    if jnp.ndim(recovery) == 1:
        return jnp.asarray(recovery, bool)
    return jnp.asarray(recovery, bool) & ((budgets < 0) | jnp.all(budgets >= 0))


def _check_shapes(
    adv: ArrayLike, cost_adv: ArrayLike, cost_budget: ArrayLike, variance: ArrayLike, recovery: ArrayLike
) -> None:
    shape, costs = jnp.shape(adv), jnp.shape(cost_adv)
    if len(shape) != 1 or shape[0] == 0:
        raise ValueError(f"adv must have shape (N,) with N ≥ 1, not {shape}; flatten the batch, use vmap for several")
    if len(costs) not in (1, 2) or costs[-1] != shape[0]:
        raise ValueError(f"cost_adv must have shape ({shape[0]},) or (m, {shape[0]}) to match adv, not {costs}")
    m = costs[0] if len(costs) == 2 else 1
    if not 1 <= m <= MOST_CONSTRAINTS:
        raise ValueError(f"cost_adv holds {m} constraints; 1 to {MOST_CONSTRAINTS} are possible")
    for name, value in (("cost_budget", cost_budget), ("recovery", recovery)):
        if jnp.shape(value) not in ((), (m,)):
            raise ValueError(f"{name} must be a scalar or have shape ({m},), not {jnp.shape(value)}")
    if jnp.shape(variance) != ():
        raise ValueError(f"variance must be a scalar, not of shape {jnp.shape(variance)}; use vmap for several")


def _check_values(**arguments: ArrayLike) -> None:
    """Refuse what cannot be solved, as far as it is known yet; under jit the status reports it."""
    for name, value in arguments.items():
        if not isinstance(value, Tracer) and not np.all(np.isfinite(np.asarray(value))):
            raise ValueError(f"{name} holds NaN or infinity")
    variance = arguments["variance"]
    if not isinstance(variance, Tracer) and float(np.asarray(variance)) < 0:
        raise ValueError(f"variance must not be negative, but is {float(np.asarray(variance))}")


@partial(jax.jit, static_argnames="exact")
def _solve(adv: Array, costs: Array, budgets: Array, variance: Array, recovery: Array, exact: bool) -> EStep:
    vectors = (*costs, adv)
    # Divided before they are added: no sum of finite numbers overflows. NaN and infinity carry through.
    share = 1 / adv.size
    levels = [sums(lambda v: (share * v, share * jnp.abs(v)), v) for v in vectors]
    valid = jnp.isfinite(sum(size for _, size in levels) + jnp.sum(jnp.abs(budgets)) + variance) & (variance >= 0)
    variance, budgets = jnp.where(valid, variance, 0.0), jnp.where(valid, budgets, 0.0)
    sizes = jnp.stack([jnp.where(valid, size, 0.0) for _, size in levels])
    scaled = [_scaled(v, mean, size, valid) for v, (mean, size) in zip(vectors, levels, strict=True)]
    if len(costs) == 1:
        problem, units, angles = _on_plane(scaled[0], scaled[1], sizes[0], budgets[0], variance, recovery[0])
        found = (angle.exact_solution if exact else plane.removal_loop)(problem)
    else:
        problem, units, angles = _in_span(scaled, sizes[:-1], budgets, variance, recovery)
        found = (span.exact_solution if exact else span.removal_loop)(problem)
    return _report(problem, found, units * sizes, angles, budgets, recovery, valid)


class _Angles(NamedTuple):
    """θ_A and θ_f, and the coordinates of e_c and e_r in the problem's rows, for θ."""

    reward: Array
    feasible: Array
    e_c: Array
    e_r: Array


def _scaled(vector: Array, mean: Array, size: Array, valid: Array) -> Array:
    """The vector less its mean, in units of its mean magnitude; zero if it is zero or invalid."""
    usable = valid & (size > jnp.finfo(vector.dtype).tiny)
    inverse = jnp.where(usable, 1 / jnp.where(usable, size, 1.0), 0.0)
    return jnp.where(usable, vector, 0.0) * inverse - jnp.where(usable, mean, 0.0) * inverse


def _root(square: Array) -> Array:
    """Root mean square of a scaled vector; zero if that is constant up to rounding."""
    size = jnp.sqrt(jnp.maximum(square, 0.0))
    return jnp.where(size > 8 * jnp.finfo(size.dtype).eps, size, 0.0)


def _inverse(size: Array) -> Array:
    return safe_divide(jnp.ones_like(size), size)


def _feasible_angle(budget: Array, variance: Array) -> Array:
    """θ_f for a budget in units of rms(A_c); at radius 0 the limit of ever smaller balls."""
    reach = jnp.sqrt(variance)
    limit = jnp.where(budget < 0, jnp.pi, 0.0)
    return jnp.where(reach > 0, jnp.arccos(jnp.clip(safe_divide(budget, reach), -1.0, 1.0)), limit).astype(budget.dtype)


def _on_plane(
    c: Array, a: Array, level: Array, budget: Array, variance: Array, recovery: Array
) -> tuple[Plane, Array, _Angles]:
    eps = jnp.finfo(a.dtype).eps
    mean_c, mean_a, cc, ca, aa = means(lambda c, a: (c, a, c * c, c * a, a * a), c, a)
    size_c, size_a = _root(cc - mean_c**2), _root(aa - mean_a**2)
    e_c, e_a = (c - mean_c) * _inverse(size_c), (a - mean_a) * _inverse(size_a)
    cos_a = (ca - mean_c * mean_a) * _inverse(size_c) * _inverse(size_a)
    rest = e_a - cos_a * e_c
    # Where A and A_c are nearly parallel, rounding leaves much of e_c and of the mean in the rest: take both out again.
    square, left, mean = means(lambda r, c: (r * r, r * c, r), rest, e_c)
    sin_a = jnp.sqrt(jnp.maximum(square - left**2 - mean**2, 0.0))
    sin_a = jnp.where(sin_a > 64 * eps, sin_a, 0.0)
    e_r = (rest - left * e_c - mean) * _inverse(sin_a)
    scaled = jnp.where(size_c > 0, safe_divide(budget, size_c * level), 4 * (1 + jnp.sqrt(variance)))
    one, zero = jnp.ones_like(cos_a), jnp.zeros_like(cos_a)
    angles = _Angles(
        jnp.arctan2(sin_a, cos_a), _feasible_angle(scaled, variance), jnp.stack([one, zero]), jnp.stack([zero, one])
    )
    problem = Plane((e_c, e_r), jnp.stack([cos_a, sin_a]), scaled, variance, recovery & (size_c > 0))
    return problem, jnp.stack([size_c, size_a]), angles


def _in_span(
    scaled: list[Array], levels: Array, budgets: Array, variance: Array, recovery: Array
) -> tuple[Span, Array, _Angles]:
    units, sizes = [], []
    for v in scaled:
        mean, square = means(lambda v: (v, v * v), v)
        sizes.append(_root(square - mean**2))
        units.append((v - mean) * _inverse(sizes[-1]))
    rows, coordinates = span.orthogonal_rows(units)
    scales = jnp.stack(sizes)
    limits = jnp.where(scales[:-1] > 0, safe_divide(budgets, scales[:-1] * levels), jnp.inf)
    problem = Span(rows, coordinates[-1], coordinates[:-1], limits, variance, recovery & (scales[:-1] > 0))
    feasible = jax.vmap(_feasible_angle, in_axes=(0, None))(limits, variance)
    tightest = jnp.argmax(feasible)
    u, e_c = problem.reward, problem.costs[tightest]
    rest = u - (u @ e_c) * e_c
    across = jnp.sqrt(rest @ rest)
    angles = _Angles(jnp.arctan2(across, u @ e_c), feasible[tightest], e_c, safe_divide(rest, across))
    return problem, scales, angles


def _report(
    problem: Plane | Span, found: Found, scales: Array, angles: _Angles, budgets: Array, recovery: Array, valid: Array
) -> EStep:
    """scales: root mean squares of the centred A_c and A, to turn the scaled problem's values into means."""
    value = found.values
    eps = jnp.finfo(value.dtype).eps
    costs = problem.costs @ value if isinstance(problem, Span) else value[:1]
    cost_change = costs * scales[:-1]
    over = cost_change > budgets + eps**0.6 * jnp.sqrt(problem.variance) * scales[:-1]
    status = jnp.where(jnp.any(recovery), Status.RECOVERY, Status.OPTIMAL)
    status = jnp.where(jnp.any(over), Status.INFEASIBLE, status)
    status = jnp.where(found.certified, status, Status.NOT_CONVERGED)
    theta = jnp.arctan2(angles.e_r @ value, angles.e_c @ value)
    return EStep(
        ratios=found.ratios,
        status=jnp.where(valid, status, Status.INVALID_INPUT).astype(jnp.int32),
        case=jnp.where(valid, found.case, 0).astype(jnp.int32),
        iterations=found.iterations,
        repairs=found.repairs,
        # Rounding may put an angle of π just below −π.
        theta=jnp.where(theta < -jnp.pi / 2, theta + 2 * jnp.pi, theta),
        theta_reward=angles.reward,
        theta_feasible=angles.feasible,
        reward_change=problem.reward @ value * scales[-1],
        cost_change=cost_change,
        bound_share=found.bound,
    )
