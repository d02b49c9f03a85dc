"""Statistics against closed forms and against simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from cppo.reports import stats


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
    found = stats.bootstrap(values, np.mean)
    half = 1.96 * values.std() / 20
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.1 * half)


@pytest.mark.parametrize("number", [1, 2, 4])
def test_few_values_have_no_percentile_interval(number):
    found = stats.bootstrap(np.arange(number, dtype=float))
    assert found.value == (number - 1) / 2 and np.isnan(found.low) and np.isnan(found.high)


def test_intervals_cover_as_the_tables_say():
    """Of normal values: Student's 95%; percentile intervals of the interquartile mean 88 to 95% from five values on,
    and of four less than that of five."""
    samples = np.random.default_rng(5).normal(0.0, 1.0, (600, 6))
    student = [stats.mean_t(sample) for sample in samples]
    percentile = [stats.bootstrap(sample) for sample in samples[:250]]
    covered = lambda found: np.mean([one.low <= 0.0 <= one.high for one in found])  # noqa: E731
    assert covered(student) == pytest.approx(0.95, abs=0.03)
    assert 0.85 < covered(percentile) < 0.96


def test_a_lead_within_noise_is_none():
    near, far = np.array([10.0, 12.0, 11.0, 13.0]), np.array([20.0, 22.0, 21.0, 23.0])
    assert stats.surely_more(far, near) and not stats.surely_more(near, far)
    assert not stats.surely_more(near + 0.5, near)
    assert not stats.surely_more(np.array([99.0]), near)  # one seed says nothing of noise
    assert stats.surely_more(np.full(2, 2.0), np.full(2, 1.0)) and not stats.surely_more(np.ones(2), np.ones(2))


def test_no_value_has_no_interval_and_equal_ones_no_width():
    assert np.isnan(stats.bootstrap(np.array([])).value)
    assert stats.bootstrap(np.full(5, 3.0)) == (3.0, 3.0, 3.0)


def test_wilson_against_its_quadratic():
    # The ends solve (p − share)² = z² p(1 − p)/n.
    found = stats.wilson(7, 10)
    z = scipy_stats.norm.ppf(0.975)
    for end in (found.low, found.high):
        assert (end - 0.7) ** 2 == pytest.approx(z**2 * end * (1 - end) / 10)
    assert stats.wilson(0, 4).low == 0.0 and stats.wilson(4, 4).high == 1.0


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
    found = stats.training(steps, returns, costs, [5.0])
    assert found.violation_rate == pytest.approx(4 / 19)
    assert found.first_feasible == 600.0  # the sixth iteration begins the first window within the limit
    assert found.to_90 == 1900.0  # mean of the 18th and 19th: 9.25 ≥ 0.9 · 9.75; of the 17th and 18th: 8.75 is less
    never = stats.training(steps, returns, costs + 5, [5.0])
    assert np.isnan(never.first_feasible)


def test_excess_cost_is_of_twentieths_and_not_of_noise():
    costs = np.where(np.arange(60) < 15, 8.0, 4.0)[None]  # five of twenty parts are 3 over a limit of 5
    assert stats.excess_cost(costs, [5.0], 6000, 50) == pytest.approx(5 * 3.0 * 300 / 50)
    swings = 8 + np.tile([[3.0, -4.0, 1.0]], 20)
    assert stats.excess_cost(swings, [8.0], 6000, 50) == 0.0
    costs[0, :3] = np.nan  # no episode had ended in the first twentieth
    assert stats.excess_cost(costs, [5.0], 6000, 50) == pytest.approx(4 * 3.0 * 300 / 50)
    assert stats.excess_cost(np.concatenate([costs, costs]), [5.0, 7.0], 6000, 50) == pytest.approx(4 * 4.0 * 6)


def test_a_return_counts_from_where_its_cost_is_within_the_limit():
    steps, returns = np.arange(1, 41) * 10.0, np.arange(40.0)
    costs = np.where(np.arange(40) < 30, 9.0, 1.0)[None]
    assert stats.steps_until(steps, returns, np.ones((1, 40)), 20.0, [5.0]) == 220.0  # mean of 20 and 21; 19.5 is less
    assert stats.steps_until(steps, returns, costs, 20.0, [5.0]) == 310.0  # mean cost of the 30th and 31st: 5
    assert np.isnan(stats.steps_until(steps, returns, costs + 9, 20.0, [5.0]))
    assert np.isnan(stats.steps_until(steps, returns, costs, 99.0, [5.0]))
