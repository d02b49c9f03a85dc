"""Statistics for few seeds: interquartile means, intervals, probabilities of improvement, and how training went.

After Agarwal et al. 2021 ("Deep RL at the edge of the statistical precipice") for the interquartile mean and the
probability of improvement; Newcombe 2006 for the latter's interval. What SciPy has is SciPy's. Ours are: the
interquartile mean, since its trimmed mean cuts whole values only; Student's interval by ``t.ppf``, since its t-test
warns where all values agree, as costs of 0 do; the probability of improvement, since ``mannwhitneyu`` also seeks a
p-value, which ties alone have none of; and Newcombe's interval, which it lacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

RESAMPLES = 2000
LEAST = 5  # values: of fewer, percentile intervals cover far less than they say (of two values 51%, of four 88%)


class Interval(NamedTuple):
    """An estimate with the ends of its confidence interval."""

    value: float
    low: float
    high: float


def interquartile_mean(values: Float[np.ndarray, " n"]) -> float:
    """Mean of the middle half: a quarter of the weight is cut off at each end, boundary values counting in part.

    >>> interquartile_mean(np.array([0.0, 1.0, 2.0, 100.0]))
    1.5
    """
    ordered = np.sort(np.asarray(values, float))
    n = len(ordered)
    # Value i covers [i/n, (i+1)/n] of the distribution; what overlaps [1/4, 3/4] counts.
    edges = np.arange(n + 1) / n
    weight = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0.0, None)
    return float(ordered @ weight / weight.sum())


def bootstrap(values: Float[np.ndarray, " n"], statistic: Callable[..., float] = interquartile_mean) -> Interval:
    """``statistic`` with its 95% percentile interval, where there are enough values for one."""
    if len(values) < LEAST:
        return Interval(statistic(values) if len(values) else math.nan, math.nan, math.nan)
    found = stats.bootstrap(
        (values,), statistic, n_resamples=RESAMPLES, method="percentile", vectorized=False, rng=np.random.default_rng(0)
    )
    return Interval(statistic(values), *map(float, found.confidence_interval))


def mean_t(values: Float[np.ndarray, " n"], least: float = -math.inf) -> Interval:
    """Mean with Student's 95% interval (exact for normal values).

    ``least`` is the smallest value possible, below which no interval goes unless a value does.

    >>> mean_t(np.array([1.0, 9.0]), least=0.0).low
    0.0
    """
    values = np.asarray(values, float)
    mean = float(values.mean()) if len(values) else math.nan
    if len(values) < 2:
        return Interval(mean, math.nan, math.nan)
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5)
    return Interval(mean, max(mean - half, min(least, float(values.min()))), mean + half)


def surely_more(ours: Float[np.ndarray, " n"], theirs: Float[np.ndarray, " m"]) -> bool:
    """Whether the mean of ``ours`` lies above that of ``theirs`` by more than noise: Welch's test, two-sided, 5%."""
    if min(len(ours), len(theirs)) < 2:
        return False
    difference = float(np.mean(ours) - np.mean(theirs))
    if np.ptp(ours) == 0 and np.ptp(theirs) == 0:
        return difference > 0
    found = stats.ttest_ind(ours, theirs, equal_var=False)
    return difference > 0 and float(found.pvalue) < 0.05  # pyright: ignore[reportAttributeAccessIssue]


def wilson(successes: int, trials: int) -> Interval:
    """A share with Wilson's 95% score interval, which is near its nominal coverage also for few trials."""
    if trials == 0:
        return Interval(math.nan, 0.0, 1.0)
    found = stats.binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    return Interval(successes / trials, float(found.low), float(found.high))


def probability_of_improvement(ours: Float[np.ndarray, " n"], theirs: Float[np.ndarray, " m"]) -> float:
    """P(X > Y) + P(X = Y)/2 for a random seed of each (the Mann–Whitney U statistic over n·m).

    >>> probability_of_improvement(np.array([2.0, 3.0]), np.array([1.0, 3.0]))
    0.625
    """
    x, y = np.asarray(ours, float)[:, None], np.asarray(theirs, float)[None, :]
    return float(np.mean((x > y) + 0.5 * (x == y)))


def improvement_interval(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> Interval:
    """The probability of improvement averaged over environments, with a 95% score interval (Newcombe 2006, method 5).

    Few seeds often part cleanly; a bootstrap then sees no spread at all and calls 1 against 1 certain. The score
    interval holds all θ whose own deviation puts the observed share within z of them, with Hanley and McNeil's variance

        V(θ) = θ(1 − θ) (1 + n* ((1 − θ)/(2 − θ) + θ/(1 + θ)))/(n m),    n* = (n + m)/2 − 1.

    >>> [round(end, 2) for end in improvement_interval([np.array([2.0])], [np.array([1.0])])]
    [1.0, 0.21, 1.0]
    """
    pairs = [(np.asarray(x, float), np.asarray(y, float)) for x, y in zip(ours, theirs, strict=True)]
    pairs = [(x, y) for x, y in pairs if len(x) and len(y)]
    if not pairs:
        return Interval(math.nan, math.nan, math.nan)
    value = float(np.mean([probability_of_improvement(x, y) for x, y in pairs]))
    z = float(stats.norm.ppf(0.975))

    def distance(theta: float) -> float:
        """How far θ is from the share that was seen, beyond z deviations of its own."""
        shape = (1 - theta) / (2 - theta) + theta / (1 + theta)
        sizes = [(len(x), len(y)) for x, y in pairs]
        spread = sum((1 + ((n + m) / 2 - 1) * shape) / (n * m) for n, m in sizes) / len(sizes) ** 2
        return (value - theta) ** 2 - z * z * theta * (1 - theta) * spread

    def zero(start: float, end: float) -> float:
        # SciPy declares no types; without ``full_output`` this is a float.
        return float(optimize.brentq(distance, start, end))  # pyright: ignore[reportArgumentType]

    inside = min(max(value, 1e-9), 1.0 - 1e-9)  # at 0 and 1 themselves the deviation is 0
    low = 0.0 if value == 0.0 else zero(0.0, inside)
    high = 1.0 if value == 1.0 else zero(inside, 1.0)
    return Interval(value, low, high)


TWENTIETHS = 20  # parts of training in which costs are averaged before a limit is taken off: single batches are noise


def excess_cost(
    costs: Float[np.ndarray, "constraint n"], limits: Sequence[float], steps: int, episode_length: int
) -> float:
    """Σ over twentieths of training: mean cost above the limit × (steps of a twentieth / longest episode).

    ``costs`` are means over equal stretches of training; those where nothing is known (NaN) are left out.

    >>> excess_cost(np.array([[8.0] * 10 + [2.0] * 10]), [5.0], 2000, 50)  # 3 too much in each of 20 episodes
    60.0
    """
    found = 0.0
    for cost, limit in zip(np.asarray(costs, float), limits, strict=True):
        parts = [part[np.isfinite(part)] for part in np.array_split(cost, TWENTIETHS)]
        found += sum(max(float(part.mean()) - limit, 0.0) for part in parts if len(part))
    return found * steps / TWENTIETHS / episode_length


def steps_until(
    steps: Float[np.ndarray, " n"],
    returns: Float[np.ndarray, " n"],
    costs: Float[np.ndarray, "constraint n"],
    wanted: float,
    limits: Sequence[float],
) -> float:
    """Steps until a twentieth of training has a mean return of ``wanted`` and every mean cost within its limit; NaN:
    never."""
    window = max(1, len(steps) // TWENTIETHS)
    rows = np.vstack([returns, costs])
    for end in range(window, len(steps) + 1):
        reward, *cost = rows[:, end - window : end].mean(axis=1)  # NaN where something is not known
        if reward >= wanted and all(one <= limit for one, limit in zip(cost, limits, strict=True)):
            return float(steps[end - 1])
    return math.nan


class Training(NamedTuple):
    """How one seed's training went."""

    violation_rate: float  # share of iterations whose mean episode cost was over a limit
    first_feasible: float  # steps until the limit is first held for a tenth of training on end; NaN: never
    to_90: float  # steps until the return's running mean reaches 90% of its final value; NaN: final value not positive


def training(
    steps: Float[np.ndarray, " n"],
    returns: Float[np.ndarray, " n"],
    costs: Float[np.ndarray, "constraint n"],
    limits: Sequence[float],
) -> Training:
    """From the logged iterations of one seed; those without a finished episode are left out."""
    known = np.isfinite(returns)
    steps, returns = steps[known], returns[known]
    over = np.asarray(costs, float)[:, known] - np.asarray(limits, float)[:, None]
    if not len(steps):
        return Training(*(math.nan,) * 3)
    window = -(-len(steps) // 10)
    bad = np.convolve(np.any(over > 0, axis=0), np.ones(window), "valid") if len(over) else np.zeros(len(steps))
    held = np.flatnonzero(bad == 0)
    smooth = np.convolve(returns, np.ones(window) / window, "valid")
    final = returns[-window:].mean()
    reached = np.flatnonzero(smooth >= 0.9 * final) if final > 0 else []
    return Training(
        float(np.mean(np.any(over > 0, axis=0))) if len(over) else 0.0,
        float(steps[held[0]]) if len(held) else math.nan,
        float(steps[window - 1 :][reached[0]]) if len(reached) else math.nan,
    )
