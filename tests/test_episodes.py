"""What J_c is averaged over."""

import jax.numpy as jnp
import numpy as np
import pytest

from cppo import episodes


def account(running, window, cost, ended, min_episodes=1):
    cost = jnp.asarray(cost, jnp.float32)
    return episodes.account(running, window, 2 * cost, cost[..., None], jnp.asarray(ended, bool), 0.5, min_episodes)


def test_sums_cross_batches():
    running, window = episodes.start(1, 1)
    running, window, means = account(running, window, [[1.0], [1.0]], [[0], [0]])
    assert int(means.count) == 0
    running, window, means = account(running, window, [[1.0], [4.0]], [[1], [0]])
    assert (float(means.cost[0]), float(means.reward), float(means.length)) == (3.0, 6.0, 3.0)
    assert float(means.discounted_cost[0]) == pytest.approx(1 + 0.5 + 0.25)
    assert float(running.cost[0, 0]) == 4.0


def test_too_few_episodes_are_filled_up_from_the_window():
    running, window = episodes.start(1, 1)
    for cost in (1.0, 2.0, 3.0):
        running, window, means = account(running, window, [[cost]], [[1]], min_episodes=2)
    assert int(means.count) == 2
    assert int(means.ended) == 1
    assert float(means.cost[0]) == pytest.approx(2.5)


def test_all_that_ended_in_the_batch_count():
    running, window = episodes.start(2, 1)
    _, _, means = account(running, window, [[1.0, 2.0], [3.0, 6.0]], [[1, 1], [1, 1]], min_episodes=1)
    assert int(means.count) == 4
    assert float(means.cost[0]) == pytest.approx(3.0)


def test_an_episode_joined_midway_does_not_count():
    running, window = episodes.start(2, 1, jnp.asarray([0, 7]))
    running, window, means = account(running, window, [[1.0, 100.0]], [[1, 1]])
    assert int(means.count) == 1
    assert float(means.cost[0]) == 1.0
    _, _, means = account(running, window, [[5.0, 5.0]], [[1, 1]])
    assert int(means.ended) == 2


def test_the_window_forgets_the_oldest():
    running, window = episodes.start(1, 1)
    for start in (0, 80):
        costs = np.arange(start, start + 80, dtype=np.float32)[:, None]
        running, window, means = account(running, window, costs, np.ones((80, 1)), min_episodes=1000)
    assert bool(window.whole.all())
    running, window, means = account(running, window, [[0.0]], [[0]], min_episodes=1000)
    assert int(means.count) == episodes.WINDOW
    assert float(means.cost[0]) == pytest.approx(np.arange(60, 160).mean())


def test_short_rollouts_see_a_change_at_once():
    """30 staggered worlds, rollouts of 10 in episodes of 100: the cost of a step goes from 0.1 to 0.5 in batch 30."""
    worlds, length, horizon = 30, 10, 100
    first = jnp.arange(worlds) * horizon // worlds
    running, window = episodes.start(worlds, 1, first)
    by_end, by_rate = [], []
    for batch in range(45):
        before = running.length
        ends = (np.asarray(before)[None] + np.arange(1, length + 1)[:, None]) % horizon == 0
        cost = jnp.full((length, worlds), 0.5 if batch >= 30 else 0.1)
        running, window, means = account(running, window, cost, ends, min_episodes=1)
        age = episodes.ages(before, jnp.asarray(ends))
        rate = episodes.by_rate(means, 2 * cost, cost[..., None], age, 1.0, horizon)
        by_end.append(float(means.cost[0]))
        by_rate.append(float(rate.cost[0]))
        assert float(rate.discounted_cost[0]) == pytest.approx(by_rate[-1], rel=1e-4)  # undiscounted here
        assert float(rate.reward) == pytest.approx(2 * by_rate[-1], rel=1e-4)
    np.testing.assert_allclose(by_rate, [10.0] * 30 + [50.0] * 15, rtol=1e-4)
    assert by_end[30] < 15 and by_end[38] < 50 and by_end[44] == pytest.approx(50.0)


def test_the_rate_counts_episodes_as_long_as_they_were():
    """Episodes that end after 4 of at most 10 steps, a cost of 1 in each first step."""
    running, window = episodes.start(5, 1, jnp.asarray([0, 1, 2, 3, 0]))
    before = running.length
    ends = (np.asarray(before)[None] + np.arange(1, 9)[:, None]) % 4 == 0
    age = episodes.ages(before, jnp.asarray(ends))
    cost = jnp.where(age == 0, 1.0, 0.0)
    nobody = episodes.by_rate(account(*episodes.start(5, 1), cost, 0 * ends)[2], cost, cost[..., None], age, 1.0, 10)
    running, window, means = account(running, window, cost, ends)
    rate = episodes.by_rate(means, cost, cost[..., None], age, 1.0, 10)
    assert float(rate.length) == 4.0
    assert float(rate.cost[0]) == pytest.approx(1.0)
    assert int(rate.count) == 10
    assert float(nobody.length) == 10.0 and int(nobody.count) == 4


def test_ages_start_where_the_worlds_are_and_restart_at_ends():
    ended = jnp.asarray([[0, 1], [0, 0], [1, 0], [0, 0]], bool)
    got = episodes.ages(jnp.asarray([0.0, 7.0]), ended)
    assert got.T.tolist() == [[0, 1, 2, 0], [7, 0, 1, 2]]
