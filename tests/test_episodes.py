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


def test_ages_start_where_the_worlds_are_and_restart_at_ends():
    ended = jnp.asarray([[0, 1], [0, 0], [1, 0], [0, 0]], bool)
    got = episodes.ages(jnp.asarray([0.0, 7.0]), ended)
    assert got.T.tolist() == [[0, 1, 2, 0], [7, 0, 1, 2]]
