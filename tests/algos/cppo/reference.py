"""The E-step problems handed to a general convex solver (Clarabel through cvxpy), as `estep.solve` states them."""

from dataclasses import dataclass

import cvxpy as cp
import numpy as np


@dataclass(frozen=True)
class Reference:
    """A solution, its branch ("normal", "descend", "least_damage", "infeasible") and Clarabel's own solve time in s."""

    deviation: np.ndarray  # v̄
    branch: str
    reward: float  # mean of v̄ A
    cost: np.ndarray  # (m,) mean of v̄ A_c
    objective: float
    seconds: float


class Problem:
    """One E-step problem in cvxpy; vectors are scaled to a mean square of one: the solver's tolerances are relative."""

    def __init__(self, adv, cost_adv, budget, variance, tolerance=1e-10):
        self.A = np.asarray(adv, np.float64) - np.mean(adv)
        costs = np.atleast_2d(np.asarray(cost_adv, np.float64))
        self.A_c = costs - costs.mean(axis=1, keepdims=True)
        self.n = self.A.size
        self.scale = np.sqrt(np.mean(self.A**2)) or 1.0
        self.scales = np.sqrt(np.mean(self.A_c**2, axis=1))
        self.scales[self.scales == 0] = 1.0
        self.budget = np.broadcast_to(np.asarray(budget, np.float64), self.scales.shape) / self.scales
        self.radius = np.sqrt(variance)
        self.tolerance = tolerance
        self.seconds = 0.0
        # The unknown is v̄/√N, so that the ball is the plain 2-norm ball of radius √δ'.
        self.x = cp.Variable(self.n)
        root = np.sqrt(self.n)
        self.reward = (self.A / self.scale / root) @ self.x
        self.cost = (self.A_c / self.scales[:, None] / root) @ self.x
        self.bounds = [cp.norm(self.x, 2) <= self.radius, cp.sum(self.x) == 0, self.x >= -1 / root]
        self.root = root

    def run(self, objective, constraints):
        """Maximise; None when Clarabel says infeasible."""
        problem = cp.Problem(cp.Maximize(objective), self.bounds + constraints)
        t = self.tolerance
        problem.solve(cp.CLARABEL, tol_gap_abs=t, tol_gap_rel=t, tol_feas=t, max_iter=400)
        self.seconds += problem.solver_stats.solve_time
        if problem.status in ("infeasible", "infeasible_inaccurate"):
            return None
        if self.x.value is None:
            raise RuntimeError(f"Clarabel: {problem.status}")
        return float(problem.value)

    def answer(self, branch, objective) -> Reference:
        x = np.asarray(self.x.value) * self.root
        return Reference(
            deviation=x,
            branch=branch,
            reward=float(np.mean(x * self.A)),
            cost=np.mean(x * self.A_c, axis=1),
            objective=objective,
            seconds=self.seconds,
        )


def least_violation(adv, cost_adv, budget, variance, **options) -> Reference:
    """Minimise max_i (v̄·A_ci − N d'_i)/‖A_ci‖ under all bounds."""
    p = Problem(adv, cost_adv, budget, variance, **options)
    t = cp.Variable()
    return p.answer("infeasible", p.run(-t, [p.cost - p.budget <= t]))


def solve(adv, cost_adv, budget, variance, recovery=False, **options) -> Reference:
    """The exact E-step by a convex solver; objectives in units of √N‖A‖/N etc. (mean of v̄ times unit-rms vectors).

    recovery: False, True, or an (m,) bool array of the constraints that recover.
    """
    p = Problem(adv, cost_adv, budget, variance, **options)
    best = p.run(p.reward, [p.cost <= p.budget])
    if best is None:
        return least_violation(adv, cost_adv, budget, variance, **options)
    recovery = np.asarray(recovery)
    if not recovery.any():
        return p.answer("normal", best)
    if best < 0:
        return p.answer("least_damage", best)
    if recovery.ndim == 0:
        recovery = p.budget < 0 if (p.budget < 0).any() else np.ones(p.budget.size, bool)
    descend = p.run(-cp.sum(p.cost[np.flatnonzero(recovery)]), [p.cost <= p.budget, p.reward >= 0])
    return p.answer("descend", descend)
