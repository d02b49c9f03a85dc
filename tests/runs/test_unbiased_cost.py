"""J_c of a policy held still is its true cost from the first update on, on every kind of collector, also after a
resume: means over many seeds, within three standard errors, and 2% where episodes end early: so much bias is left to
estimates by age (``runs/episodes.py``). Short episodes alone would be a fifth too cheap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo import algos
from cppo.envs.batched import JaxEnv, Transition
from cppo.runs.collect import HostCollector
from cppo.runs.learner import Learner, split3
from cppo.runs.timing import Clock
from cppo.settings import replace
from cppo.types import Box, EnvSpec

HORIZON = 40
SPEC = EnvSpec("Aging", (1,), Box((-1.0,), (1.0,)), ("cost",), (5.0,), HORIZON)
STAGGERED = ("staggered", "staggered, many")
SHAPES = {"whole episodes": (80, 40), "staggered": (160, 20), "staggered, many": (320, 5)}  # worlds, steps of a rollout
BATCHES = 2 * HORIZON // 5 + 1


class Aging:
    """A step's cost is 1 with a chance that grows with the true age; an episode ends early with chance ``hazard``."""

    spec = SPEC

    def __init__(self, hazard):
        self.hazard = hazard

    def reset(self, key):
        del key
        return jnp.zeros(()), jnp.zeros(1)

    def step(self, state, action, key):
        del action
        cost, end = jax.random.uniform(key, (2,)) < jnp.stack([state / HORIZON, self.hazard])
        return state + 1.0, Transition(jnp.zeros(1), jnp.zeros(()), cost[None].astype(float), end)


def true_cost(hazard):
    return sum((1 - hazard) ** age * age / HORIZON for age in range(HORIZON))


class OutsideJax(JaxEnv):
    """The same worlds as an environment of the host: NumPy in, NumPy out."""

    backend, jittable, resumable = "threads", False, False

    def init(self, keys, ages=None):
        return jax.device_get(super().init(keys, ages))

    def advance(self, state, actions):
        return jax.device_get(jax.jit(super().advance)(state, actions))


def costs(shape, hazard, seeds, host=None, resumed=False):
    """(batch, seed): J_c, NaN where the policy would have waited. ``host(n)`` makes n worlds outside of JAX."""
    worlds, length = SHAPES[shape]
    row = algos.get("ppo")
    sizes = {"num_envs": worlds, "batch_size": worlds * length, "min_episodes": 5, "hidden": (2,), "cost_limit": (5.0,)}
    settings = [replace(row.settings(), sizes)] * seeds
    inside = None if host else JaxEnv(Aging(hazard), worlds)
    learner = Learner(row, SPEC, settings, range(seeds), inside)
    state, keys, ages = learner.start()
    if host:
        env = host(worlds * seeds)
        collector = HostCollector(env, learner.act_lanes, length, Clock())
        outside, obs = env.init(keys, ages)
        state = learner.place(state, obs)
    found = []
    gather = jax.jit(jax.vmap(learner._collect_lane)) if not host else None
    close = jax.jit(jax.vmap(learner._batch))
    for number in range(BATCHES if length < HORIZON else 4):
        if resumed and number == 2:
            # What ``start.restore`` makes of a run whose episodes cannot be saved: worlds afresh, the window kept.
            fresh, keys, ages = learner.start(restart=number)
            outside, obs = env.init(keys, ages)
            window = state.worlds.window
            state = learner.place(fresh, obs)
            state, found = state._replace(worlds=state.worlds._replace(window=window)), []
        key, act_key, _ = split3(state.key)
        if host:
            leaves, structure = jax.tree.flatten((learner.settings, state.agent))
            outside, obs, rollout = collector(structure, leaves, outside, state.worlds.obs, act_key)
            worlds_now = state.worlds._replace(obs=obs)
        else:
            worlds_now, rollout = gather(learner.settings, state, act_key)
        after, batch = close(learner.settings, worlds_now, rollout)
        state = state._replace(worlds=after, key=key)
        found.append(np.where(batch.episodes.count > 0, batch.episodes.cost[:, 0], np.nan))
    return np.array(found)


def check(found, true, bias=0.02):
    """The first J_c of each seed, its second, and the mean of all it has."""
    known = np.isfinite(found)
    begun = np.argmax(known, axis=0)
    seeds = np.arange(found.shape[1])
    assert all(known[first:, seed].all() and first + 1 < len(found) for seed, first in enumerate(begun))
    first, second = found[begun, seeds], found[begun + 1, seeds]
    for values in (first, second, np.nanmean(found, axis=0)):
        error = values.std(ddof=1) / np.sqrt(len(values))
        assert abs(values.mean() - true) < 3 * error + bias * true, (values.mean(), true, error)
    assert first.std(ddof=1) / np.sqrt(len(first)) < 0.07 * true  # precise enough to tell a bias of a fifth


@pytest.mark.parametrize("hazard", [pytest.param(0.0, marks=pytest.mark.slow), 0.04])
@pytest.mark.parametrize("shape", ["whole episodes", *(pytest.param(one, marks=pytest.mark.slow) for one in STAGGERED)])
def test_inside_the_compiled_program(shape, hazard):
    check(costs(shape, hazard, seeds=60), true_cost(hazard), bias=0.02 if hazard else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("resumed", [False, True], ids=["begun", "resumed"])
@pytest.mark.parametrize("shape", ["whole episodes", "staggered"])
def test_on_the_host(shape, resumed):
    """Threads and processes: one collector. A run that is resumed without its worlds' states begins new ones."""
    make = lambda number: OutsideJax(Aging(0.04), number)  # noqa: E731
    check(costs(shape, 0.04, 60, make, resumed), true_cost(0.04))


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["whole episodes", "staggered"])
def test_on_a_pool_of_processes(shape):
    source = envs.gym_env.Source("sample_envs:Aging", episode_length=HORIZON, workers=1)
    made = []

    def make(number):
        made.append(envs.gym_env.GymnasiumEnv(source, number))
        return made[-1]

    try:
        check(costs(shape, 0.04, 12, make), true_cost(0.04))
    finally:
        envs.close(made[0])
