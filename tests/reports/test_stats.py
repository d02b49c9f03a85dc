"""Statistics against closed forms and against simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from cppo.study import stats


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=10).map(lambda values: values * 4))
def test_interquartile_mean_is_the_trimmed_mean_where_quarters_are_whole(values):
    assert stats.interquartile_mean(np.array(values)) == pytest.approx(scipy_stats.trim_mean(values, 0.25), abs=1e-9)


@pytest.mark.parametrize(
    ("values", "mean"),
    # Of three values, a third of the weight each, the outer ones keep 1/3 − 1/4 = 1/12.
    [([5.0], 5.0), ([1.0, 3.0], 2.0), ([0.0, 1.0, 10.0], (0.0 / 12 + 1.0 / 3 + 10.0 / 12) / 0.5)],
)
def test_interquartile_mean_of_few(values, mean):
    assert stats.interquartile_mean(np.array(values)) == pytest.approx(mean)


def test_bootstrap_of_the_mean_agrees_with_the_normal_interval():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    found = stats.bootstrap([values], np.mean)
    half = 1.96 * values.std() / 20
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_strata_are_resampled_within_themselves():
    # Two strata without spread: their mixture never varies, though the values differ.
    found = stats.bootstrap([np.full(5, 1.0), np.full(5, 9.0)], np.mean)
    assert found == (5.0, 5.0, 5.0)


def test_wilson_against_its_quadratic():
    # The ends solve (p − share)² = z² p(1 − p)/n.
    found = stats.wilson(7, 10)
    z = scipy_stats.norm.ppf(0.975)
    for end in (found.low, found.high):
        assert (end - 0.7) ** 2 == pytest.approx(z**2 * end * (1 - end) / 10)
    assert stats.wilson(0, 4).low == 0.0 and stats.wilson(4, 4).high == 1.0


def test_clopper_pearson_leaves_exactly_its_tails():
    found = stats.clopper_pearson(3, 20)
    assert scipy_stats.binom.sf(2, 20, found.low) == pytest.approx(0.025)
    assert scipy_stats.binom.cdf(3, 20, found.high) == pytest.approx(0.025)
    assert stats.clopper_pearson(0, 10).high == pytest.approx(1 - 0.025 ** (1 / 10))


def test_probability_of_improvement_is_mann_whitney():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, 9).astype(float), rng.integers(0, 6, 7).astype(float)
    statistic = scipy_stats.mannwhitneyu(x, y).statistic
    assert stats.probability_of_improvement(x, y) == pytest.approx(statistic / 63)
    assert stats.probability_of_improvement(y, x) == pytest.approx(1 - statistic / 63)
    found = stats.improvement_interval([x], [y])
    assert found.low < found.value < found.high


def test_training_by_hand():
    steps = np.arange(1, 21) * 100.0
    costs = np.where(np.arange(20) < 5, 8.0, 4.0)[None]
    returns = np.linspace(0.5, 10.0, 20)
    returns[3] = np.nan  # no episode ended there
    found = stats.training(steps, returns, costs, np.full(20, 2.0), [5.0])
    assert found.violation_rate == pytest.approx(4 / 19)
    assert found.excess_cost == pytest.approx(4 * 2 * 3.0)
    assert found.first_feasible == 600.0  # the sixth iteration begins the first window within the limit
    assert found.to_90 == 1900.0  # mean of the 18th and 19th: 9.25 ≥ 0.9 · 9.75; of the 17th and 18th: 8.75 is less
    never = stats.training(steps, returns, costs + 5, np.full(20, 2.0), [5.0])
    assert np.isnan(never.first_feasible)
