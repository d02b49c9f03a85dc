"""What can be promised of a saved policy: upper confidence bounds from fresh, independent episodes.

Two questions, each with its own bound:

- How large is the **expected cost** of an episode at most? With n episodes whose costs lie in [0, B] (B = episode
  length times the largest cost of a step), four one-sided bounds, each valid by itself with confidence 1 − δ:

  - *betting* (Waudby-Smith & Ramdas 2024), the one that certifies: the least m at which the capital
    Π (1 + λ_i (m − x_i)/B) of a gambler who bets that the mean is below m has grown to 1/δ. λ_i ∈ [0, 0.9] depends on
    earlier episodes only, so that the capital is a martingale under the true mean, and Markov's inequality applies.
    Holds for every distribution on [0, B].
  - *empirical Bernstein* (Maurer & Pontil 2009, Theorem 4): x̄ + √(2 V ln(2/δ)/n) + 7 B ln(2/δ)/(3(n − 1)), V the
    sample variance. Holds for every distribution on [0, B]; simpler and looser.
  - *Hoeffding*: x̄ + B √(ln(1/δ)/(2n)). Holds for every distribution on [0, B]; ignores the variance.
  - *Student t*: x̄ + t √(V/n). Exact for normal costs, otherwise approximate: it is right in the limit of many episodes.

- How probable is an episode **over the limit** at most? The exact binomial bound of Clopper and Pearson (1934),
  one-sided.

Assumption of all of them: episodes are independent draws from the policy's distribution over episodes (each world has
its own random key here, and each episode starts afresh), and the environment at use is the environment at test.
Choosing the best of several certified policies afterwards voids the confidence of the one chosen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from cppo import envs
from cppo.evaluate import fresh_worlds, rollout
from cppo.run import Run
from cppo.types import UsageError

MOST_BET = 0.9  # below 1, so that one episode of the greatest cost cannot ruin the gambler


def betting(values: Float[np.ndarray, " n"], largest: float, confidence: float) -> float:
    """Upper bound on the mean of values in [0, largest]."""
    x = np.asarray(values, float) / largest
    n, target = len(x), np.log(1.0 / (1.0 - confidence))
    count = np.arange(1, n + 1)
    mean = (0.5 + np.cumsum(x)) / (count + 1)
    spread = (0.25 + np.cumsum((x - mean) ** 2)) / (count + 1)
    before = np.concatenate([[0.25], spread[:-1]])  # what was known when betting on episode i
    bets = np.minimum(np.sqrt(2.0 * target / (n * before)), MOST_BET)
    missing = lambda m: float(np.sum(np.log1p(bets * (m - x)))) - target  # noqa: E731 (grows with m from below 0)
    return largest if missing(1.0) <= 0.0 else largest * float(optimize.brentq(missing, 0.0, 1.0))


def empirical_bernstein(values: Float[np.ndarray, " n"], largest: float, confidence: float) -> float:
    """Upper bound on the mean of values in [0, largest]."""
    n = len(values)
    if n < 2:
        return largest
    log = np.log(2.0 / (1.0 - confidence))
    bound = values.mean() + np.sqrt(2.0 * values.var(ddof=1) * log / n) + 7.0 * largest * log / (3.0 * (n - 1))
    return float(min(bound, largest))


def hoeffding(values: Float[np.ndarray, " n"], largest: float, confidence: float) -> float:
    """Upper bound on the mean of values in [0, largest]."""
    return float(
        min(values.mean() + largest * np.sqrt(np.log(1.0 / (1.0 - confidence)) / (2.0 * len(values))), largest)
    )


def student(values: Float[np.ndarray, " n"], confidence: float) -> float:
    """Approximate upper bound on the mean; exact for normal values."""
    if len(values) < 2:
        return float("inf")
    return float(values.mean() + stats.t.ppf(confidence, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5)


def clopper_pearson(successes: int, trials: int, confidence: float) -> float:
    """Exact upper bound on a probability.

    >>> round(clopper_pearson(0, 1000, 0.95), 5)  # the "rule of three"
    0.00299
    """
    return 1.0 if successes >= trials else float(stats.beta.ppf(confidence, successes + 1, trials - successes))


def certify(
    run: Run | str | Path,
    episodes: int = 1000,
    confidence: float = 0.95,
    trained_seed: int | None = None,
    deterministic: bool = False,
    seed: int = 2_000_000,
    largest_step_cost: float = 1.0,
    num_envs: int = 50,
) -> dict[str, Any]:
    """Run fresh episodes of one saved policy and bound its expected cost and its chance of exceeding the limit.

    ``trained_seed`` picks the policy (default: the run's best); actions are sampled as in training unless
    ``deterministic``. ``largest_step_cost`` is the known upper end of a step's cost (1 in all environments here).
    """
    run = run if isinstance(run, Run) else Run(run)
    if episodes < 2:
        raise UsageError(f"episodes is {episodes}; a bound needs at least 2, and says something from some hundred on.")
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence is {confidence}; it must lie between 0 and 1, for example 0.95.")
    if not 0.0 < largest_step_cost < np.inf:
        raise UsageError(f"largest_step_cost is {largest_step_cost}; it must be a number above 0, for example 1.")
    plan = run.plan
    if not plan.spec.time_limit:
        raise UsageError(f"{plan.env} has no time limit, so nothing bounds its cost; train with --episode-length.")
    chosen = run.best_seed if trained_seed is None else trained_seed
    policy = run.policy(chosen)
    worlds = fresh_worlds(plan, min(num_envs, episodes))
    try:
        totals = rollout(policy, worlds, episodes, deterministic, seed)
    finally:
        envs.close(worlds.core)
    largest = plan.spec.episode_length * largest_step_cost
    constraints = {
        name: _constraint(totals.cost[:, index], limit, largest, confidence)
        for index, (name, limit) in enumerate(plan.cost_limits.items())
    }
    return {
        "env": plan.env,
        "algo": plan.algo,
        "seed": chosen,
        "actions": "deterministic" if deterministic else "sampled",
        "episodes": len(totals.reward),
        "dropped_episodes": totals.dropped,
        "confidence": confidence,
        "return": float(totals.reward.mean()),
        "largest_episode_cost": largest,
        "constraints": constraints,
        "assumptions": [
            "episodes are independent and the environment stays as it was tested",
            f"the cost of an episode lies in [0, {largest:g}]",
            "each bound holds by itself with the stated confidence, not all of them at once",
            *_of_dropped(totals.dropped),
        ],
    }


def _of_dropped(number: int) -> list[str]:
    """What must be assumed of episodes that nobody saw the end of."""
    if not number:
        return []
    return [f"episodes that were lost with their process ({number} here, left out) cost no more than the others"]


def _constraint(costs: Float[np.ndarray, " n"], limit: float, largest: float, confidence: float) -> dict[str, Any]:
    if costs.min() < 0.0:
        raise UsageError(
            f"an episode cost {costs.min():g}; the bounds hold for costs of at least 0 only: "
            "certify a run whose cost function gives no step less than 0."
        )
    if costs.max() > largest:
        raise UsageError(
            f"an episode cost {costs.max():g}, more than {largest:g}, the episode's length times the largest cost of a "
            "step: give the largest that a step can cost (--largest-step-cost), or the bounds do not hold."
        )
    over = int(np.sum(costs > limit))
    bounds = {
        "betting": betting(costs, largest, confidence),
        "empirical Bernstein": empirical_bernstein(costs, largest, confidence),
        "Hoeffding": hoeffding(costs, largest, confidence),
        "Student t (approximate)": student(costs, confidence),
    }
    return {
        "limit": limit,
        "mean": float(costs.mean()),
        "worst": float(costs.max()),
        "expected_cost_at_most": bounds,
        "episodes_over": over,
        "exceedance_at_most": {"Clopper-Pearson (exact)": clopper_pearson(over, len(costs), confidence)},
        "certified": bounds["betting"] <= limit,
    }
