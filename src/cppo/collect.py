"""Three ways to fill a batch, one result: (time, world) arrays and episode means.

``scan_collect`` runs a jittable environment inside the compiled program (one seed; ``vmap`` adds seeds).
``host_collect`` drives an environment that lives outside JAX, all seeds' worlds in one batch, with the policy jitted.
``DeviceCollector`` does so where physics outside JAX shares its device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from cppo import episodes
from cppo.networks import scale_action
from cppo.timing import Clock
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
    dropped: Array | None = None  # only from environments that may lose episodes


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
    env: BatchedEnv,
    act: Callable[..., Array],
    env_state: PyTree,
    obs: Array,
    keys: Key,
    length: int,
    clock: Clock,
) -> tuple[PyTree, Array, Rollout]:
    """The same for S seeds on a host environment of S·W worlds.

    ``act(obs (S, W, …), keys (S, 2), t)`` is jitted and returns actions in the policy's units (S, W, …) and in the
    environment's (S·W, …); ``obs`` is (S, W, …). The rollout comes back as (S, time, W, …). ``clock`` learns how long
    the environment took.
    """
    seeds, worlds = obs.shape[:2]
    steps = []
    for t in range(length):
        action, env_action = act(obs, keys, t)
        began = time.perf_counter()
        env_state, step = env.advance(env_state, env_action)
        clock.add("environment", time.perf_counter() - began)
        if isinstance(step.reward, np.ndarray):
            action = np.asarray(action)
        parts = (step.final_obs, step.reward, step.cost, step.terminated, step.truncated, step.dropped)
        by_seed = [part.reshape(seeds, worlds, *part.shape[1:]) for part in parts if part is not None]
        steps.append([obs, action, *by_seed])
        obs = step.obs.reshape(seeds, worlds, *step.obs.shape[1:])
    stacked = [_stack([step[i] for step in steps]) for i in range(len(steps[0]))]
    return env_state, obs, Rollout(*stacked)


def needed(act: Callable[..., Any], structure: Any, leaves: list[Array], obs: Array, keys: Key) -> tuple[bool, ...]:
    """Which of ``leaves`` an action depends on.

    A policy is a dozen of the hundred arrays of settings and agent; to hand over the others at every step would take
    longer than to act.
    """
    traced = jax.make_jaxpr(partial(act, structure))(leaves, obs, keys, 0).jaxpr
    read = {id(variable) for equation in traced.eqns for variable in equation.invars}
    read |= {id(variable) for variable in traced.outvars}
    return tuple(id(variable) in read for variable in traced.invars[: len(leaves)])


def only(leaves: list[Array], wanted: tuple[bool, ...]) -> list[Any]:
    """The leaves that are wanted, None in place of the others."""
    return [leaf if want else None for leaf, want in zip(leaves, wanted, strict=True)]


def shares(length: int, most: int) -> list[int]:
    """``length`` in parts of at most ``most``: equal ones, or else, since every size is compiled, two sizes.

    >>> shares(1000, 100)[:2], shares(250, 100), shares(101, 100)
    ([100, 100], [50, 50, 50, 50, 50], [51, 50])
    """
    least = -(-length // most)
    parts = next((parts for parts in range(least, 2 * least + 1) if length % parts == 0), least)
    return [length // parts + (part < length % parts) for part in range(parts)]


def _seeds(x: Array, seeds: int, worlds: int) -> Array:
    return x if x.shape[:2] == (seeds, worlds) else x.reshape(seeds, worlds, *x.shape[1:])


def _stack(parts: list[Array]) -> Array:
    """Along a time axis behind the seeds. What the host made stays there (one copy to the device later; the first
    observation may come from the device), the rest stays on the device."""
    host = isinstance(parts[-1], np.ndarray)
    return np.stack([np.asarray(part) for part in parts], axis=1) if host else jnp.stack(parts, axis=1)


class DeviceCollector:
    """The same for an environment whose physics runs on the device but outside JAX (``inputs``, ``call``, ``finish``).

    Many steps are one compiled program, physics included; nothing passes through the host, which only attends to the
    environment between two programs (``attend``).
    """

    def __init__(self, env: Any, act: Callable[..., tuple[Array, Array]], length: int):
        self.env, self.act, self.length = env, act, length
        self._first = jax.jit(self._choose, static_argnums=0)
        self._many = jax.jit(self._some_steps, static_argnums=(0, 1), donate_argnums=(2, 3))
        self._empty: Callable[[], Rollout] | None = None

    def __call__(
        self, structure: Any, leaves: list[Array], env_state: PyTree, obs: Array, keys: Key
    ) -> tuple[PyTree, Array, Rollout]:
        """``act(structure, leaves, obs, keys, t)`` gives actions as for ``host_collect``."""
        action, inputs = self._first(structure, leaves, env_state, obs, keys, 0)
        now = (obs, action)
        self._empty = self._empty or self._buffers(env_state, now, jax.eval_shape(self.env.call, inputs))
        buffers, t = self._empty(), 0
        for steps in shares(self.length, self.env.unattended):
            done = self._many(structure, steps, buffers, env_state, now, inputs, leaves, keys, t)
            buffers, env_state, now, inputs = done
            env_state = self.env.attend(env_state, steps)
            t += steps
        return env_state, now[0], buffers

    def _choose(
        self, structure: Any, leaves: list[Array], env_state: PyTree, obs: Array, keys: Key, t: Array | int
    ) -> tuple[Array, Array]:
        action, env_action = self.act(structure, leaves, obs, keys, t)
        return action, self.env.inputs(env_state, env_action)

    def _record(self, env_state: PyTree, now: tuple[Array, Array], moved: Any) -> tuple[PyTree, Array, Rollout]:
        obs, action = now
        env_state, step = self.env.finish(env_state, moved)
        parts = Rollout(obs, action, step.final_obs, step.reward, step.cost, step.terminated, step.truncated)
        parts = jax.tree.map(lambda part: _seeds(part, *obs.shape[:2]), parts)
        return env_state, _seeds(step.obs, *obs.shape[:2]), parts

    def _one_step(
        self,
        structure: Any,
        buffers: Rollout,
        env_state: PyTree,
        now: tuple[Array, Array],
        moved: Any,
        leaves: list[Array],
        keys: Key,
        t: Array,
    ) -> tuple[PyTree, Rollout, tuple[Array, Array], Array]:
        env_state, obs, parts = self._record(env_state, now, moved)
        write = lambda whole, part: jax.lax.dynamic_update_index_in_dim(whole, part, t, 1)  # noqa: E731
        buffers = jax.tree.map(write, buffers, parts)
        action, inputs = self._choose(structure, leaves, env_state, obs, keys, t + 1)
        return env_state, buffers, (obs, action), inputs

    def _some_steps(
        self,
        structure: Any,
        steps: int,
        buffers: Rollout,
        env_state: PyTree,
        now: tuple[Array, Array],
        inputs: Array,
        leaves: list[Array],
        keys: Key,
        first: Array,
    ) -> tuple[Rollout, PyTree, tuple[Array, Array], Array]:
        def step(carry: Any, t: Array) -> tuple[Any, None]:
            buffers, env_state, now, inputs = carry
            moved = self.env.call(inputs)
            env_state, buffers, now, inputs = self._one_step(structure, buffers, env_state, now, moved, leaves, keys, t)
            return (buffers, env_state, now, inputs), None

        return jax.lax.scan(step, (buffers, env_state, now, inputs), first + jnp.arange(steps))[0]

    def _buffers(self, env_state: PyTree, now: tuple[Array, Array], moved: Any) -> Callable[[], Rollout]:
        """Makes an empty record of a rollout. Its shapes are found once: that traces a whole step."""
        shapes = jax.eval_shape(self._record, env_state, now, moved)[2]
        empty = lambda x: jnp.zeros((x.shape[0], self.length, *x.shape[1:]), x.dtype)  # noqa: E731
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        return jax.jit(lambda: jax.tree.map(empty, shapes), out_shardings=here)


def to_batch(
    worlds: Worlds, rollout: Rollout, cost_discount: Array | float, min_episodes: int, horizon: int | None = None
) -> tuple[Worlds, Batch]:
    """Close the books of a rollout of one seed; with ``horizon``, the longest episode, J_c is taken by age."""
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
        rollout.dropped,
    )
    if horizon is not None:
        counted = ended if rollout.dropped is None else ended & ~rollout.dropped
        means = episodes.by_age(means, rollout.reward, rollout.cost, age, counted, cost_discount, horizon)
    return worlds._replace(running=running, window=window), Batch(*rollout[:7], age, means)
