"""Two ways to fill a batch, one result: (time, world) arrays and episode means.

``scan_collect`` runs a jittable environment inside the compiled program (one seed; ``vmap`` adds seeds).
``host_collect`` drives an environment that lives outside JAX, all seeds' worlds in one batch, with the policy jitted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from cppo import episodes
from cppo.networks import scale_action
from cppo.types import Batch, BatchedEnv, Key, PyTree

Act = Callable[[PyTree, Array, Key], Array]  # (algorithm state, observations of all worlds, key) -> actions


class Worlds(NamedTuple):
    """Everything between two batches that belongs to the worlds of one seed."""

    env: Any  # the environment's own state; for host environments kept outside and None here
    obs: Any  # what to act on next; (world, …)
    running: episodes.Totals
    window: episodes.Totals


class Rollout(NamedTuple):
    """Raw (time, world) arrays of a collection."""

    obs: Array
    action: Array
    next_obs: Array
    reward: Array
    cost: Array
    terminated: Array
    truncated: Array


def scan_collect(
    env: BatchedEnv, act: Act, agent: PyTree, worlds: Worlds, key: Key, length: int
) -> tuple[Worlds, Rollout]:
    """``length`` steps of every world under the policy of ``agent``."""

    def one_step(carry: tuple[PyTree, Array], step_key: Key) -> tuple[tuple[PyTree, Array], Rollout]:
        state, obs = carry
        action = act(agent, obs, step_key)
        state, step = env.advance(state, scale_action(env.spec, action))
        seen = Rollout(obs, action, step.final_obs, step.reward, step.cost, step.terminated, step.truncated)
        return (state, step.obs), seen

    (state, obs), rollout = jax.lax.scan(one_step, (worlds.env, worlds.obs), jax.random.split(key, length))
    return worlds._replace(env=state, obs=obs), rollout


def host_collect(
    env: BatchedEnv, act: Callable[..., Array], agents: PyTree, env_state: PyTree, obs: Array, keys: Key, length: int
) -> tuple[PyTree, Array, Rollout]:
    """The same for S seeds on a host environment of S·W worlds.

    ``act(agents, obs (S, W, …), keys (S, 2), t)`` is jitted and returns actions in the policy's and the environment's
    units; ``obs`` is (S, W, …). The rollout comes back as (S, time, W, …).
    """
    seeds, worlds = obs.shape[:2]
    record = None
    for t in range(length):
        action, env_action = act(agents, obs, keys, t)
        env_state, step = env.advance(env_state, env_action.reshape(seeds * worlds, *env_action.shape[2:]))
        parts = Rollout(obs, action, step.final_obs, step.reward, step.cost, step.terminated, step.truncated)
        if record is None:
            record = _OnHost(length) if isinstance(step.obs, np.ndarray) else _OnDevice(length)
        record.add(t, jax.tree.map(lambda part: _seeds(part, seeds, worlds), parts))
        obs = _seeds(step.obs, seeds, worlds)
    assert record is not None, "a rollout has at least one step"
    return env_state, obs, record.rollout()


def _seeds(x: Array, seeds: int, worlds: int) -> Array:
    return x if x.shape[:2] == (seeds, worlds) else x.reshape(seeds, worlds, *x.shape[1:])


class _OnHost:
    """Steps of an environment that gives NumPy arrays; one copy to the device at the end."""

    def __init__(self, length: int):
        del length
        self.steps: list[Rollout] = []

    def add(self, t: int, step: Rollout) -> None:
        del t
        self.steps.append(step)

    def rollout(self) -> Rollout:
        return Rollout(
            *(np.stack([np.asarray(part) for part in parts], axis=1) for parts in zip(*self.steps, strict=True))
        )


class _OnDevice:
    """Steps of an environment that gives JAX arrays, written into buffers on the device as they come."""

    def __init__(self, length: int):
        self.length = length
        self.buffers: Rollout | None = None

    def add(self, t: int, step: Rollout) -> None:
        if self.buffers is None:
            shape = lambda part: (part.shape[0], self.length, *part.shape[1:])  # noqa: E731
            self.buffers = jax.tree.map(lambda part: jnp.zeros(shape(part), part.dtype), step)
        self.buffers = _write(self.buffers, step, t)

    def rollout(self) -> Rollout:
        assert self.buffers is not None
        return self.buffers


@partial(jax.jit, donate_argnums=0)
def _write(buffers: Rollout, step: Rollout, t: Array) -> Rollout:
    return jax.tree.map(lambda whole, part: jax.lax.dynamic_update_index_in_dim(whole, part, t, 1), buffers, step)


def to_batch(worlds: Worlds, rollout: Rollout, cost_discount: Array | float, min_episodes: int) -> tuple[Worlds, Batch]:
    """Close the books of a rollout of one seed."""
    ended = rollout.terminated | rollout.truncated
    age = episodes.ages(worlds.running.length, ended)
    running, window, means = episodes.account(
        worlds.running,
        worlds.window,
        rollout.reward,
        rollout.cost,
        ended,
        cost_discount,
        min_episodes,
    )
    return worlds._replace(running=running, window=window), Batch(*rollout, age, means)
