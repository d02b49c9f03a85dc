"""What can be promised of a saved policy: upper confidence bounds from fresh, independent episodes.

**The certificate** is one statement on one policy: with confidence 1 − δ, the expected cost of an episode is within its
limit, for every constraint at once. Costs of an episode lie in [0, B] (B = episode length times the largest cost of a
step). It rests on *betting* (Waudby-Smith & Ramdas 2024): the least m at which the capital Π (1 + λ_i (m − x_i)/B) of a
gambler who bets that the mean is below m has ever been 1/δ. λ_i ∈ [0, 0.9] depends on earlier episodes only, so that
the capital is a martingale under the true mean, and Ville's inequality applies: for every distribution on [0, B].

- *Episodes that nobody has looked at.* Their random stream belongs to the policy: its seed is a digest of the policy's
  parameters. Training and evaluations have others, and nobody chooses among streams.
- *Looks.* Ville's inequality holds for all numbers of episodes at once. A policy that is not certified by 1,000
  episodes may be tried with 10,000, whose first 1,000 are the same. λ_i may therefore not know how many will come: the
  capital is shared among gamblers who reckon with 100, 1,000 and 10,000.
- *Several policies*, of which the best is kept: δ is shared among them (Bonferroni), as it is among constraints.

Beside it stand bounds that are no part of the statement, each valid by itself with confidence 1 − δ: *empirical
Bernstein* (Maurer & Pontil 2009, Theorem 4) and *Hoeffding* on the expected cost, for every distribution on [0, B];
*Student t*, which is exact for normal costs only; and the exact binomial bound of Clopper and Pearson (1934) on the
probability of an episode **over the limit**.

Assumption of all of them: episodes are independent draws from the policy's distribution over episodes (each world has
its own random key here, and each episode starts afresh), and the environment at use is the environment at test.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from cppo import envs
from cppo.policies.evaluate import fresh_worlds, rollout
from cppo.runs.evaluation import student
from cppo.runs.plan import Plan
from cppo.runs.run import Policy, Run
from cppo.types import UsageError

MOST_BET = 0.9  # below 1, so that one episode of the greatest cost cannot ruin the gambler
EXPECTED = (100, 1000, 10_000)  # episodes that gamblers reckon with


def betting(values: Float[np.ndarray, " n"], largest: float, confidence: float) -> float:
    """Upper bound on the mean of values in [0, largest]; those of all beginnings of ``values`` hold at once."""
    x = np.asarray(values, float) / largest
    target = np.log(1.0 / (1.0 - confidence))
    count = np.arange(1, len(x) + 1)
    mean = (0.5 + np.cumsum(x)) / (count + 1)
    spread = (0.25 + np.cumsum((x - mean) ** 2)) / (count + 1)
    before = np.concatenate([[0.25], spread[:-1]])  # what was known when betting on episode i
    bets = np.minimum(np.sqrt(2.0 * target / np.outer(EXPECTED, before)), MOST_BET)

    def missing(m: float) -> float:
        """What the logarithm of the highest capital is above its goal; grows with m from below 0."""
        capitals = np.cumsum(np.log1p(bets * (m - x)), axis=1)
        return float(np.max(np.logaddexp.reduce(capitals, axis=0)) - np.log(len(EXPECTED)) - target)

    if missing(1.0) <= 0.0:
        return largest
    # SciPy declares no types; without ``full_output`` this is a float.
    return largest * float(optimize.brentq(missing, 0.0, 1.0))  # pyright: ignore[reportArgumentType]


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


def clopper_pearson(successes: int, trials: int, confidence: float) -> float:
    """Exact upper bound on a probability.

    >>> round(clopper_pearson(0, 1000, 0.95), 5)  # the "rule of three"
    0.00299
    """
    return float(stats.binomtest(successes, trials, alternative="less").proportion_ci(confidence, "exact").high)


def certify(
    run: Run | str | Path,
    episodes: int = 1000,
    confidence: float = 0.95,
    *,
    trained_seed: int | None = None,
    deterministic: bool = False,
    among: int = 1,
    seed: int | None = None,
    largest_step_cost: float = 1.0,
    num_envs: int = 50,
    trust: bool = False,
) -> dict[str, Any]:
    """Run fresh episodes of one saved policy and bound its expected cost and its chance of exceeding the limit.

    ``trained_seed`` picks the policy (default: the run's best); actions are sampled as in training unless
    ``deterministic``. ``among`` is the number of policies that are certified to keep the best of them.
    ``seed`` replaces the policy's own stream of episodes. ``largest_step_cost`` is the known upper end of a step's cost
    (1 in all environments here). ``trust`` as in ``load``.
    """
    run = run if isinstance(run, Run) else Run(run, trust=trust)
    plan = run.plan
    _check(plan, episodes, confidence, among, largest_step_cost)
    chosen = run.best_seed if trained_seed is None else trained_seed
    policy = run.policy(chosen)
    stream = own_stream(policy) if seed is None else seed
    worlds = fresh_worlds(plan, num_envs)
    try:
        totals = rollout(policy, worlds, episodes, deterministic, stream)
    finally:
        envs.close(worlds.core)
    largest = plan.spec.episode_length * largest_step_cost
    each = 1.0 - (1.0 - confidence) / (among * len(plan.cost_limits))
    constraints = {
        name: _constraint(totals.cost[:, index], limit, largest, confidence, each)
        for index, (name, limit) in enumerate(plan.cost_limits.items())
    }
    return {
        "env": plan.env,
        "algo": plan.algo,
        "stage": run.stage,
        "steps": run.steps,
        "seed": chosen,
        "actions": "deterministic" if deterministic else "sampled",
        "episodes": len(totals.reward),
        "dropped_episodes": totals.dropped,
        "confidence": confidence,
        "among": among,
        "confidence_of_each_constraint": each,
        "stream": stream,
        "certified": all(row["certified"] for row in constraints.values()),
        "return": float(totals.reward.mean()),
        "largest_episode_cost": largest,
        "constraints": constraints,
        "assumptions": _assumptions(largest, among, seed is not None, totals.dropped),
    }


def _check(plan: Plan, episodes: int, confidence: float, among: int, largest_step_cost: float) -> None:
    if episodes < 2:
        raise UsageError(f"episodes is {episodes}; a bound needs at least 2, and says something from some hundred on.")
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence is {confidence}; it must lie between 0 and 1, for example 0.95.")
    if among < 1:
        raise UsageError(f"among is {among}; it counts the policies that are certified, this one with them.")
    if not 0.0 < largest_step_cost < np.inf:
        raise UsageError(f"largest_step_cost is {largest_step_cost}; it must be a number above 0, for example 1.")
    if not plan.spec.time_limit:
        raise UsageError(f"{plan.env} has no time limit, so nothing bounds its cost; train with --episode-length.")


def own_stream(policy: Policy) -> int:
    """The seed of a policy's own episodes, which its parameters determine."""
    found = hashlib.sha256(b"certificate")
    for leaf in jax.tree.leaves((policy.agent.policy, policy.agent.normaliser)):
        found.update(np.ascontiguousarray(leaf).tobytes())
    return int.from_bytes(found.digest()[:4], "big") >> 1


def _assumptions(largest: float, among: int, seed_given: bool, dropped: int) -> list[str]:
    """What must be assumed, also of episodes that nobody saw the end of."""
    given = {
        "it is kept for being the best of no more policies than said": among > 1,
        "nothing has looked at the episodes of the given seed": seed_given,
        f"episodes that were lost with their process ({dropped} here, left out) cost no more than the others": dropped
        > 0,
    }
    return [
        "episodes are independent and the environment stays as it was tested",
        f"the cost of an episode lies in [0, {largest:g}]",
        "the certificate is one statement, on this policy; each other bound holds by itself with that confidence",
        *(text for text, holds in given.items() if holds),
    ]


def _constraint(
    costs: Float[np.ndarray, " n"], limit: float, largest: float, confidence: float, each: float
) -> dict[str, Any]:
    """Bounds of one constraint; that of the certificate holds with confidence ``each``."""
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
        "betting": betting(costs, largest, each),
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
