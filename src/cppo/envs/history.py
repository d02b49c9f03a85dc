"""Environments whose observation is the window of the last K ones: what a recurrent encoder needs, for every algorithm.

The recurrent state is computed anew from the window wherever a policy or critic is evaluated. So it is never out of
date with the parameters, gradients run through all K steps, samples stay exchangeable (shuffled minibatches, replay,
several passes), and no algorithm knows of it. The price: K times the work of one step, and nothing older than K is
remembered. Before its K-th step an episode's window is filled up with its first observation; no window spans two
episodes.
"""

from __future__ import annotations

import dataclasses
from math import prod
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from cppo.types import AnyArray, BatchedEnv, EnvSpec, PyTree, Step

Window = Float[AnyArray, "world time obs"]


class HistoryState(NamedTuple):
    env: Any
    window: Window


def windowed(spec: EnvSpec, length: int) -> EnvSpec:
    """What the environment looks like through a window."""
    return dataclasses.replace(spec, obs_shape=(length, prod(spec.obs_shape)))


def start(obs: Float[AnyArray, "world *obs"], length: int) -> Window:
    """The window of episodes that begin with ``obs``."""
    return _library(obs).repeat(obs.reshape(obs.shape[0], 1, -1), length, axis=1)


def push(window: Window, obs: Float[AnyArray, "world *obs"]) -> Window:
    """Forget the oldest observation, take in ``obs``."""
    return _library(obs).concatenate([window[:, 1:], obs.reshape(obs.shape[0], 1, -1)], axis=1)


class History:
    """An environment seen through windows of ``length``; see ``cppo.types.BatchedEnv`` for the contract."""

    def __init__(self, env: BatchedEnv, length: int):
        self.env, self.length = env, length
        self.spec = windowed(env.spec, length)
        self.num_envs, self.backend = env.num_envs, env.backend
        self.jittable, self.resumable = env.jittable, env.resumable

    def init(self, keys: AnyArray, ages: Int[AnyArray, " world"] | None = None) -> tuple[HistoryState, Window]:
        state, obs = self.env.init(keys, ages)
        window = start(obs, self.length)
        return HistoryState(state, window), window

    def advance(self, state: HistoryState, actions: AnyArray) -> tuple[HistoryState, Step]:
        inner, step = self.env.advance(state.env, actions)
        final = push(state.window, step.final_obs)
        ended = (step.terminated | step.truncated)[:, None, None]
        window = _library(final).where(ended, start(step.obs, self.length), final)
        return HistoryState(inner, window), step._replace(obs=window, final_obs=final)


def _library(x: PyTree) -> Any:
    """NumPy's arrays stay NumPy's, so that host environments stay off the device."""
    return np if isinstance(x, np.ndarray) else jnp
