"""Statistics for few seeds: interquartile means, bootstrap intervals, shares, improvement, and a ranking that puts
feasible before infeasible.

After Agarwal et al. 2021 ("Deep RL at the edge of the statistical precipice") for the interquartile mean, its
stratified bootstrap and the probability of improvement; Newcombe 2006 for the latter's interval; Wilson 1927 and
Clopper & Pearson 1934 for shares. A *stratum* is an environment: seeds are resampled within it, never across. All
functions take and return plain NumPy numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from cppo.ranking import place

RESAMPLES = 2000


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


def bootstrap(
    strata: Sequence[Float[np.ndarray, " n"]],
    statistic: Callable[[Float[np.ndarray, " n"]], float] = interquartile_mean,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """``statistic`` of all values together with its percentile interval; each stratum is resampled by itself."""
    strata = [np.asarray(stratum, float) for stratum in strata if len(stratum)]
    if not strata:
        return Interval(float("nan"), float("nan"), float("nan"))
    value = float(statistic(np.concatenate(strata)))
    if max(map(len, strata)) < 2:
        return Interval(value, float("nan"), float("nan"))
    rng = np.random.default_rng(seed)
    drawn = [
        statistic(np.concatenate([rng.choice(stratum, len(stratum)) for stratum in strata])) for _ in range(resamples)
    ]
    tail = 50.0 * (1.0 - confidence)
    return Interval(value, *(float(end) for end in np.percentile(drawn, [tail, 100.0 - tail])))


def mean_t(values: Float[np.ndarray, " n"], confidence: float = 0.95) -> Interval:
    """Mean with Student's t interval (exact for normal values)."""
    values = np.asarray(values, float)
    mean = float(values.mean()) if len(values) else float("nan")
    if len(values) < 2:
        return Interval(mean, float("nan"), float("nan"))
    half = float(stats.t.ppf(0.5 + confidence / 2, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5)
    return Interval(mean, mean - half, mean + half)


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """A share with Wilson's score interval, which is near its nominal coverage also for few trials."""
    if trials == 0:
        return Interval(float("nan"), 0.0, 1.0)
    z = float(stats.norm.ppf(0.5 + confidence / 2))
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * (share * (1 - share) / trials + z * z / (4 * trials**2)) ** 0.5
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """A share with the exact binomial interval, which covers at least as often as it says."""
    tail = (1.0 - confidence) / 2
    low = 0.0 if successes == 0 else float(stats.beta.ppf(tail, successes, trials - successes + 1))
    high = 1.0 if successes == trials else float(stats.beta.ppf(1 - tail, successes + 1, trials - successes))
    return Interval(successes / trials if trials else float("nan"), low, high)


def probability_of_improvement(ours: Float[np.ndarray, " n"], theirs: Float[np.ndarray, " m"]) -> float:
    """P(X > Y) + P(X = Y)/2 for a random seed of each (the Mann–Whitney U statistic over n·m).

    >>> probability_of_improvement(np.array([2.0, 3.0]), np.array([1.0, 3.0]))
    0.625
    """
    x, y = np.asarray(ours, float)[:, None], np.asarray(theirs, float)[None, :]
    return float(np.mean((x > y) + 0.5 * (x == y)))


def improvement_interval(
    ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], confidence: float = 0.95
) -> Interval:
    """The probability of improvement averaged over strata, with a score interval (Newcombe 2006, method 5).

    Few seeds often part cleanly; a bootstrap then sees no spread at all and calls 1 against 1 certain. The score
    interval holds all θ whose own deviation puts the observed share within z of them, with Hanley and McNeil's variance

        V(θ) = θ(1 − θ) (1 + n* ((1 − θ)/(2 − θ) + θ/(1 + θ)))/(n m),    n* = (n + m)/2 − 1.

    >>> [round(end, 2) for end in improvement_interval([np.array([2.0])], [np.array([1.0])])]
    [1.0, 0.21, 1.0]
    """
    pairs = [(np.asarray(x, float), np.asarray(y, float)) for x, y in zip(ours, theirs, strict=True)]
    pairs = [(x, y) for x, y in pairs if len(x) and len(y)]
    if not pairs:
        return Interval(float("nan"), float("nan"), float("nan"))
    value = float(np.mean([probability_of_improvement(x, y) for x, y in pairs]))
    z = float(stats.norm.ppf(0.5 + confidence / 2))

    def distance(theta: float) -> float:
        """How far θ is from the share that was seen, beyond z deviations of its own."""
        shape = (1 - theta) / (2 - theta) + theta / (1 + theta)
        sizes = [(len(x), len(y)) for x, y in pairs]
        spread = sum((1 + ((n + m) / 2 - 1) * shape) / (n * m) for n, m in sizes) / len(sizes) ** 2
        return (value - theta) ** 2 - z * z * theta * (1 - theta) * spread

    inside = min(max(value, 1e-9), 1.0 - 1e-9)  # at 0 and 1 themselves the deviation is 0
    low = 0.0 if value == 0.0 else float(optimize.brentq(distance, 0.0, inside))
    high = 1.0 if value == 1.0 else float(optimize.brentq(distance, inside, 1.0))
    return Interval(value, low, high)


class Training(NamedTuple):
    """How one seed's training went."""

    violation_rate: float  # share of iterations whose mean episode cost was over a limit
    excess_cost: float  # Σ over finished episodes of their batch's mean cost above the limit
    first_feasible: float  # steps until the limit is first held for a tenth of training on end; NaN: never
    to_90: float  # steps until the return's running mean reaches 90% of its final value; NaN: final value not positive


def training(
    steps: Float[np.ndarray, " n"],
    returns: Float[np.ndarray, " n"],
    costs: Float[np.ndarray, "constraint n"],
    episodes: Float[np.ndarray, " n"],
    limits: Sequence[float],
) -> Training:
    """From the logged iterations of one seed; those without a finished episode are left out."""
    known = np.isfinite(returns)
    steps, returns, episodes = steps[known], returns[known], episodes[known]
    over = np.asarray(costs, float)[:, known] - np.asarray(limits, float)[:, None]
    if not len(steps):
        return Training(*(float("nan"),) * 4)
    excess = np.clip(over, 0.0, None).sum(0)
    window = -(-len(steps) // 10)
    bad = np.convolve(np.any(over > 0, axis=0), np.ones(window), "valid") if len(over) else np.zeros(len(steps))
    held = np.flatnonzero(bad == 0)
    smooth = np.convolve(returns, np.ones(window) / window, "valid")
    final = returns[-window:].mean()
    reached = np.flatnonzero(smooth >= 0.9 * final) if final > 0 else []
    return Training(
        float(np.mean(np.any(over > 0, axis=0))) if len(over) else 0.0,
        float(excess @ episodes),
        float(steps[held[0]]) if len(held) else float("nan"),
        float(steps[window - 1 :][reached[0]]) if len(reached) else float("nan"),
    )


class Standing(NamedTuple):
    """What a ranking needs of an algorithm on one environment."""

    name: str
    mean_return: float
    relative_cost: float  # mean cost over limit; the largest where there are several


def rank(standings: Sequence[Standing]) -> list[str]:
    """Feasible ones (mean cost within its limit) by return, then the others by how far they are over it.

    >>> rank([Standing("bold", 9.0, 1.5), Standing("safe", 2.0, 0.9), Standing("better", 3.0, 1.0)])
    ['better', 'safe', 'bold']
    """
    key = lambda one: place(one.relative_cost <= 1.0, one.mean_return, one.relative_cost)  # noqa: E731
    return [one.name for one in sorted(standings, key=key)]
