"""CPO's step and PCPO's projection against a general convex solver, over every branch."""

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.maths import cpo_dual
from cppo.maths.cpo_dual import Status

RADIUS = np.sqrt(2 * 0.01)
solve, project = jax.jit(cpo_dual.solve), jax.jit(cpo_dual.project)


def problem(seed: int, m: int, kind: str = "general", p: int = 6):
    """g, B (m, p) and a positive definite H, in double precision."""
    rng = np.random.default_rng(seed)
    g, B = rng.standard_normal(p), rng.standard_normal((m, p)) * 10.0 ** rng.uniform(-2, 2, (m, 1))
    root = rng.standard_normal((p, p))
    H = root @ root.T + 0.1 * np.eye(p)
    if kind == "parallel":  # reward = cost, as in ProbeBox
        g = rng.uniform(0.5, 2) * B[0]
    if kind == "opposed":
        g = -B[0]
    if kind == "twins":
        B[-1] = 2 * B[0]
    if kind == "conflict":
        B[-1] = -0.5 * B[0]
    if kind == "costless":
        B[-1] = 0
    if kind == "no reward":
        g = np.zeros(p)
    return g, B, H


def lengths(B, H):
    size = np.sqrt(np.einsum("ip,pq,iq->i", B, np.linalg.inv(H), B))
    return np.where(size > 0, size, 1.0)


def step_of(g, B, H, budget):
    inverse = np.linalg.inv(H)
    both = np.concatenate([g[None], B])
    with jax.enable_x64(False):
        found = solve(*(jnp.asarray(x, jnp.float32) for x in (both @ inverse @ both.T, budget)), RADIUS)
    x = inverse @ (float(found.along_gradient) * g + np.asarray(found.along_costs, np.float64) @ B)
    return x, Status(int(found.status))


def reference(g, B, H, budget):
    """(x, feasible) by Clarabel; where infeasible, the least largest violation in units of ‖b_i‖."""
    root = np.linalg.cholesky(H).T
    size, reward = lengths(B, H), np.sqrt(g @ np.linalg.inv(H) @ g) or 1.0
    y = cp.Variable(len(g))  # y = root x / radius: the unit ball
    back = RADIUS * np.linalg.inv(root)
    costs, d = (B / size[:, None]) @ back / RADIUS, budget / size / RADIUS
    ball = [cp.norm(y, 2) <= 1]
    tight = dict(tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    best = cp.Problem(cp.Maximize((g / reward) @ back @ y / RADIUS), [*ball, costs @ y <= d])
    best.solve(cp.CLARABEL, **tight)
    if best.status in ("optimal", "optimal_inaccurate"):
        return back @ y.value, True
    t = cp.Variable()
    cp.Problem(cp.Minimize(t), [*ball, costs @ y - d <= t]).solve(cp.CLARABEL, **tight)
    return back @ y.value, False


# Budgets in units of ‖b_i‖·radius: far inside, binding either way, hardly reachable, out of reach.
BUDGETS = (3.0, 0.5, 0.1, 0.0, -0.3, -0.9, -1.5)


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("kind", ["general", "parallel", "opposed", "twins", "conflict", "costless"])
def test_step_is_the_solvers(kind, m):
    rng = np.random.default_rng(m)
    seen = set()
    for seed in range(10):
        g, B, H = problem(seed, m, kind)
        share = rng.choice(BUDGETS, m) if m > 1 else np.array([BUDGETS[seed % len(BUDGETS)]])
        if kind == "costless":
            share[-1] = abs(share[-1])
        size = lengths(B, H)
        budget = share * size * RADIUS
        x, status = step_of(g, B, H, budget)
        expected, feasible = reference(g, B, H, budget)
        seen.add(status)
        assert np.sqrt(x @ H @ x) <= RADIUS * (1 + 1e-3)
        assert (status != Status.INFEASIBLE) == feasible
        scale = np.sqrt(g @ np.linalg.inv(H) @ g) * RADIUS
        if feasible:
            assert np.all((B @ x - budget) / size <= 1e-3 * RADIUS)
            assert g @ x >= g @ expected - 2e-3 * scale
        else:
            worst, least = (np.max((B @ y - budget) / size) for y in (x, expected))
            assert worst <= least + 2e-3 * RADIUS
    if kind == "general":
        assert seen == set(Status)


def closed_form(q, r, s, c, delta):
    """Achiam et al. 2017, theorem 2 with g a gradient of reward: λ*, ν* for c + bᵀx ≤ 0 and xᵀHx ≤ δ."""

    def inside(lam):
        return lam * c + r > 0  # the constraint's multiplier is ν(λ) = (λc + r)/s

    lam_a = np.sqrt((q - r**2 / s) / (delta - c**2 / s))
    lam_b = np.sqrt(q / delta)
    lam_a = lam_a if inside(lam_a) else max(-r / c, 1e-12)
    lam_b = lam_b if not inside(lam_b) else max(-r / c, 1e-12)
    f_a = ((r**2 / s - q) / lam_a + lam_a * (c**2 / s - delta)) / 2 + r * c / s
    f_b = -(q / lam_b + lam_b * delta) / 2
    lam = lam_a if f_a >= f_b else lam_b
    return lam, max(0.0, (lam * c + r) / s)


@pytest.mark.parametrize("share", [0.9, 0.3, -0.3, -0.9])
def test_one_constraint_is_the_papers_closed_form(share):
    for seed in range(8):
        g, B, H = problem(seed, 1)
        inverse = np.linalg.inv(H)
        budget = share * lengths(B, H) * RADIUS
        x, _ = step_of(g, B, H, budget)
        b = B[0]
        lam, nu = closed_form(g @ inverse @ g, g @ inverse @ b, b @ inverse @ b, -budget[0], RADIUS**2)
        np.testing.assert_allclose(x, inverse @ (g - nu * b) / lam, atol=1e-3 * np.abs(x).max())


def test_infeasible_is_pure_cost_descent():
    g, B, H = problem(0, 1)
    budget = -2.0 * lengths(B, H) * RADIUS
    x, status = step_of(g, B, H, budget)
    descent = -RADIUS * np.linalg.inv(H) @ B[0] / lengths(B, H)[0]
    assert status == Status.INFEASIBLE
    np.testing.assert_allclose(x, descent, rtol=1e-4)


def test_degenerate_inputs_have_an_answer():
    g, B, H = problem(1, 2, "no reward")
    size = lengths(B, H) * RADIUS
    x, status = step_of(g, B, H, 0.5 * size)
    assert status == Status.FREE and np.all(x == 0)
    x, status = step_of(g, B, H, np.array([0.5, -0.5]) * size)  # least norm: just to the second budget
    np.testing.assert_allclose(np.sqrt(x @ H @ x), 0.5 * RADIUS, rtol=1e-3)
    g, B, H = problem(1, 1, "costless")
    x, status = step_of(g, B, H, np.array([-1.0]))  # nothing to be done about the cost: improve the reward, but say so
    assert status == Status.INFEASIBLE and g @ x > 0
    x, status = step_of(g * 0, B, H, np.array([1.0]))
    assert status == Status.FREE and np.all(x == 0)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_projection_is_the_solvers(m):
    rng = np.random.default_rng(10 + m)
    seen = set()
    for seed in range(10):
        _, B, L = problem(seed, m)
        x0 = rng.standard_normal(B.shape[1])
        budget = B @ x0 - rng.uniform(-1, 1, m) * lengths(B, L)
        inverse = np.linalg.inv(L)
        with jax.enable_x64(False):
            found = project(*(jnp.asarray(v, jnp.float32) for v in (B @ x0, B @ inverse @ B.T, budget)))
        x = x0 + np.asarray(found.along_costs, np.float64) @ B @ inverse
        y = cp.Variable(len(x0))
        root, size = np.linalg.cholesky(L).T, lengths(B, L)
        nearest = cp.Problem(cp.Minimize(cp.sum_squares(root @ (y - x0))), [B / size[:, None] @ y <= budget / size])
        nearest.solve(cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
        seen.add(Status(int(found.status)))
        np.testing.assert_allclose(root @ x, root @ y.value, atol=2e-3)
    assert seen == {Status.FREE, Status.BOUND}


def test_projection_says_that_half_spaces_do_not_meet():
    S = jnp.array([[1.0, -1.0], [-1.0, 1.0]])  # x ≤ −1 and −x ≤ −1
    found = cpo_dual.project(jnp.zeros(2), S, jnp.array([-1.0, -1.0]))
    assert int(found.status) == Status.INFEASIBLE
