"""What J_c is averaged over."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.runs import episodes


def account(running, window, cost, ended, min_episodes=1):
    cost = jnp.asarray(cost, jnp.float32)
    return episodes.account(running, window, steps(cost, ended), 0.5, min_episodes)


def steps(cost, ended):
    return episodes.Steps(2 * cost, cost[..., None], jnp.asarray(ended, bool))


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
    by_end, by_age = [], []

    @jax.jit
    def books(running, window, cost, ends):
        lived = episodes.lived(running, ends)
        running, window, means = account(running, window, cost, ends, min_episodes=1)
        return running, window, means, episodes.by_age(means, steps(cost, ends), lived, 1.0, horizon)

    for batch in range(45):
        before = running.length
        ends = (np.asarray(before)[None] + np.arange(1, length + 1)[:, None]) % horizon == 0
        cost = jnp.full((length, worlds), 0.5 if batch >= 30 else 0.1)
        running, window, means, rate = books(running, window, cost, jnp.asarray(ends))
        by_end.append(float(means.cost[0]))
        by_age.append(float(rate.cost[0]))
        if int(rate.count):
            assert float(rate.discounted_cost[0]) == pytest.approx(by_age[-1], rel=1e-4)  # undiscounted here
            assert float(rate.reward) == pytest.approx(2 * by_age[-1], rel=1e-4)
        assert (int(rate.count) > 0) == (batch >= 9)  # all ages were seen by worlds that began an episode
    np.testing.assert_allclose(by_age[9:], [10.0] * 21 + [50.0] * 15, rtol=1e-4)
    assert by_end[30] < 15 and by_end[38] < 50 and by_end[44] == pytest.approx(50.0)


def test_early_ends_count_by_the_age_at_which_they_come():
    """Episodes that end after 4 of at most 10 steps, a cost of 1 in each first step."""
    running = episodes.start(5, 1, jnp.asarray([0, 1, 2, 3, 0]))[0]
    running = running._replace(whole=running.whole | True)
    before = running.length
    ends = (np.asarray(before)[None] + np.arange(1, 9)[:, None]) % 4 == 0
    lived = episodes.lived(running, jnp.asarray(ends))
    cost = jnp.where(lived.age == 0, 1.0, 0.0)
    nothing = account(*episodes.start(5, 1), cost, 0 * ends)[2]
    found = episodes.by_age(nothing, steps(cost, jnp.asarray(ends)), lived, 1.0, 10)
    assert float(found.length) == pytest.approx(4.0)
    assert float(found.cost[0]) == pytest.approx(1.0)
    assert int(found.count) == 10


class Fallible:
    """Worlds whose episodes end early with a chance of ``hazard`` a step, and cost 1 at ages below ``costly``."""

    def __init__(self, worlds, length, horizon, costly, seed=0):
        self.length, self.horizon, self.costly = length, horizon, costly
        self.rng = np.random.default_rng(seed)
        self.totals = episodes.start(worlds, 1, jnp.arange(worlds) * horizon // worlds)

    def batch(self, hazard):
        before = np.asarray(self.totals[0].length)
        now, ends = before.copy(), []
        for _ in range(self.length):
            end = (now + 1 >= self.horizon) | (self.rng.random(len(now)) < hazard)
            ends.append(end)
            now = np.where(end, 0, now + 1)
        *self.totals, found = self.books(*self.totals, jnp.asarray(np.array(ends)))
        return float(found.cost[0]) if int(found.count) else np.nan

    @partial(jax.jit, static_argnums=0)
    def books(self, running, window, ended):
        lived = episodes.lived(running, ended)
        cost = (lived.age < self.costly).astype(float)
        running, window, means = account(running, window, cost, ended)
        return running, window, episodes.by_age(means, steps(cost, ended), lived, 1.0, self.horizon)


def test_ages_that_have_drifted_together_do_not_bias_the_cost():
    """A policy that falls, and stops to in the course of 30 batches: every episode then costs 100."""
    worlds = Fallible(300, 100, 500, costly=100)
    for batch in range(60):
        worlds.batch(0.05 * 1e-3 ** min(1.0, batch / 30))
    late = [worlds.batch(0.0) for _ in range(10)]
    np.testing.assert_allclose(late, 100.0, rtol=0.01)


def test_the_first_batches_do_not_take_short_episodes_for_all():
    """A hazard of 1/200 makes episodes of 199 steps in the mean, which cost 1 a step; the first to end are short."""
    hazard, found = 1 / 200, []
    for seed in range(8):
        worlds = Fallible(100, 100, 1000, costly=1000, seed=seed)
        found.append([worlds.batch(hazard) for _ in range(14)])
    true = (1 - (1 - hazard) ** 1000) / hazard
    assert np.isnan(np.array(found)[:, 0]).all()
    known = np.array(found)[:, 9:]
    assert not np.isnan(known).any()
    assert np.nanmean(found) == pytest.approx(true, rel=0.1)
    assert np.all(known.mean(axis=0) > 0.7 * true)


def test_ages_that_were_not_seen_leave_the_ended_episodes_to_count():
    """All worlds at the same age: a batch sees a tenth of an episode."""
    totals = episodes.start(10, 1)
    for batch in range(12):
        ended = jnp.asarray((np.asarray(totals[0].length)[None] + np.arange(1, 11)[:, None]) % 100 == 0)
        lived = episodes.lived(totals[0], ended)
        cost = jnp.ones((10, 10))
        *totals, means = account(*totals, cost, ended, min_episodes=1)
        found = episodes.by_age(means, steps(cost, ended), lived, 1.0, 100)
        assert int(found.count) == int(means.count) == (10 if batch == 9 else 1 if batch > 9 else 0)
    assert float(found.cost[0]) == 100.0


def test_ages_start_where_the_worlds_are_and_restart_at_ends():
    ended = jnp.asarray([[0, 1], [0, 0], [1, 0], [0, 0]], bool)
    running = episodes.start(2, 1, jnp.asarray([0, 7]))[0]
    got = episodes.lived(running, ended)
    assert got.age.T.tolist() == [[0, 1, 2, 0], [7, 0, 1, 2]]
    assert got.whole.T.tolist() == [[True] * 4, [False, True, True, True]]


def test_a_time_limit_is_no_early_end():
    """Rollouts of 40 in episodes of 100, ages in bins of 4: every episode lasts to its limit and costs 1 a step."""
    worlds, length, horizon = 50, 40, 100
    before = jnp.arange(worlds) * horizon // worlds
    ended = (before[None] + jnp.arange(1, length + 1)[:, None]) % horizon == 0
    cost = jnp.ones((length, worlds))
    nothing = account(*episodes.start(worlds, 1), cost, 0 * ended)[2]
    running = episodes.start(worlds, 1, before)[0]
    lived = episodes.lived(running._replace(whole=running.whole | True), ended)
    found = episodes.by_age(nothing, steps(cost, ended), lived, 1.0, horizon)
    assert (float(found.length), float(found.cost[0])) == (pytest.approx(100.0), pytest.approx(100.0))


def test_a_dropped_episode_does_not_count():
    cost = jnp.asarray([[1.0, 50.0], [2.0, 3.0]])
    ended, dropped = jnp.ones((2, 2), bool), jnp.asarray([[False, True], [False, False]])
    found = episodes.account(*episodes.start(2, 1), episodes.Steps(cost, cost[..., None], ended, dropped), 1.0, 1)[2]
    assert (int(found.count), float(found.cost[0]), float(found.reward)) == (3, 2.0, 2.0)


@pytest.mark.parametrize(("worlds", "length"), [(40, 50), (40, 10), (400, 5), (6, 10)])
def test_the_first_cost_that_is_known_is_that_of_the_policy(worlds, length):
    """A frozen policy whose steps cost more with the age of an episode, on each shape of collection: whole episodes,
    staggered worlds, many of them, few of them. Worlds started under made-up ages are young, and cheap."""
    horizon, seeds, found = 50, 40, []
    stagger = jnp.arange(worlds) * horizon // worlds if length < horizon else jnp.zeros(worlds, int)
    by_age = episodes.covered(worlds, length, horizon, 2)

    @jax.jit
    def books(running, window, cost, ended):
        lived = episodes.lived(running, ended)
        running, window, means = account(running, window, cost, ended, min_episodes=2)
        means = episodes.by_age(means, steps(cost, ended), lived, 1.0, horizon) if by_age else means
        return running, window, means

    for seed in range(seeds):
        rng, totals = np.random.default_rng(seed), episodes.start(worlds, 1, stagger)
        clock, true = np.asarray(stagger), np.zeros(worlds, int)  # steps on the clock, and steps truly made
        for _ in range(2 * horizon // length):
            cost, ended = np.zeros((length, worlds)), np.zeros((length, worlds), bool)
            for t in range(length):
                cost[t] = rng.random(worlds) < true / horizon
                clock, true = clock + 1, true + 1
                ended[t] = clock == horizon
                clock, true = np.where(ended[t], 0, clock), np.where(ended[t], 0, true)
            *totals, means = books(*totals, jnp.asarray(cost), jnp.asarray(ended))
            if int(means.count):
                found.append(float(means.cost[0]))
                break
    assert len(found) == seeds
    expected = sum(age / horizon for age in range(horizon))
    assert abs(np.mean(found) - expected) < 3 * np.std(found) / np.sqrt(seeds)
