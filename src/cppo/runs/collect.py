"""Three ways to fill a batch, one result: (time, world) arrays and episode means.

``scan_collect`` runs a jittable environment inside the compiled program (one seed; ``vmap`` adds seeds).
``HostCollector`` drives an environment that lives outside JAX, all seeds' worlds in one batch, with the policy jitted.
``DeviceCollector`` does so where physics outside JAX shares its device. Both are called with the policies' arrays
flattened (``needed``) and the environment's state, and return its next state, what to act on next, and the rollout.
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

from cppo.networks import scale_action
from cppo.runs import episodes
from cppo.runs.metrics import MEASURE
from cppo.runs.timing import Clock
from cppo.types import AnyArray, Batch, BatchedEnv, Key, PyTree

Act = Callable[[PyTree, AnyArray, Key], Array]  # (algorithm state, observations of all worlds, key) -> actions


class Worlds(NamedTuple):
    """Everything between two batches that belongs to the worlds of one seed."""

    env: Any  # the environment's own state; for host environments kept outside and None here
    obs: Any  # what to act on next; (world, …)
    running: episodes.Totals
    window: episodes.Totals


class Rollout(NamedTuple):
    """Raw (time, world) arrays of a collection; a host environment's are NumPy's."""

    obs: AnyArray
    action: AnyArray
    next_obs: AnyArray
    reward: AnyArray
    cost: AnyArray
    terminated: AnyArray
    truncated: AnyArray
    dropped: AnyArray | None = None  # as in ``Step``; only from environments that may lose episodes
    measures: AnyArray | None = None  # as in ``Step``; only from environments that have some, outside of JAX


def scan_collect(
    env: BatchedEnv, act: Act, agent: PyTree, worlds: Worlds, key: Key, length: int
) -> tuple[Worlds, Rollout]:
    """``length`` steps of every world under the policy of ``agent``."""

    def one_step(carry: tuple[PyTree, AnyArray], step_key: Key) -> tuple[tuple[PyTree, AnyArray], Rollout]:
        state, obs = carry
        action = act(agent, obs, step_key)
        state, step = env.advance(state, scale_action(env.spec, action))
        seen = Rollout(obs, action, step.final_obs, step.reward, step.cost, step.terminated, step.truncated)
        return (state, step.obs), seen

    (state, obs), rollout = jax.lax.scan(one_step, (worlds.env, worlds.obs), jax.random.split(key, length))
    return worlds._replace(env=state, obs=obs), rollout


class Abandoned(Exception):
    """A batch was given up halfway because the loop is to stop; the state before it is as it was."""


class HostCollector:
    """``length`` steps of S seeds on a host environment of S·W worlds; ``clock`` learns where the time went.

    ``stop`` is asked before every step: a batch here may take minutes, and the state that it began from stays whole.

    ``act(structure, leaves, obs (S, W, …), keys (S, 2), t)`` gives actions in the policies' units (S, W, …) and in the
    environment's (S·W, …). The rollout comes back as (S, time, W, …).
    """

    def __init__(
        self,
        env: BatchedEnv,
        act: Callable[..., tuple[Array, Array]],
        length: int,
        clock: Clock,
        stop: Callable[[], bool] = lambda: False,
    ):
        self.env, self.length, self.clock, self.stop = env, length, clock, stop
        self._act = jax.jit(act, static_argnums=0)
        self._compiled = False

    def __call__(
        self, structure: Any, leaves: list[Any], env_state: PyTree, obs: AnyArray, keys: Key
    ) -> tuple[PyTree, AnyArray, Rollout]:
        began, before, stepping = time.perf_counter(), self._physics_seconds(), 0.0
        seeds, worlds = obs.shape[:2]
        steps = []
        for t in range(self.length):
            if self.stop():
                raise Abandoned
            if t or self._compiled:
                self.clock.tell("collecting", t * worlds, self.length * worlds)
            else:
                self.clock.tell("compiling the policy")
            action, env_action = self._act(structure, leaves, obs, keys, t)
            asked = time.perf_counter()
            env_state, step = self.env.advance(env_state, env_action)
            stepping += time.perf_counter() - asked
            if isinstance(step.reward, np.ndarray):
                action = np.asarray(action)
            by_seed = lambda part: part.reshape(seeds, worlds, *part.shape[1:])  # noqa: E731
            parts = map(by_seed, (step.final_obs, step.reward, step.cost, step.terminated, step.truncated))
            further = {"dropped": step.dropped, "measures": step.measures}
            further = {name: by_seed(part) for name, part in further.items() if part is not None}
            steps.append(Rollout(obs, action, *parts, **further))
            obs = step.obs.reshape(seeds, worlds, *step.obs.shape[1:])
        self._compiled = True
        rollout = jax.tree.map(lambda *parts: _stack(list(parts)), *steps)
        physics = self._physics_seconds() - before
        self.clock.add("acting", time.perf_counter() - began - stepping)
        self.clock.add("environment", stepping - physics)
        if physics:
            self.clock.add("physics", physics)
        return env_state, obs, rollout

    def _physics_seconds(self) -> float:
        """Seconds that the environment's threads have spent in MuJoCo so far, where it counts them."""
        return getattr(getattr(self.env, "threads", None), "seconds", 0.0)


def needed(act: Callable[..., Any], structure: Any, leaves: list[Any], obs: AnyArray, keys: Key) -> tuple[bool, ...]:
    """Which of ``leaves`` an action depends on.

    A policy is a dozen of the hundred arrays of settings and agent; to hand over the others at every step would take
    longer than to act.
    """
    traced = jax.make_jaxpr(partial(act, structure))(leaves, obs, keys, 0).jaxpr
    read = {id(variable) for equation in traced.eqns for variable in equation.invars}
    read |= {id(variable) for variable in traced.outvars}
    return tuple(id(variable) in read for variable in traced.invars[: len(leaves)])


def only(leaves: list[Any], wanted: tuple[bool, ...]) -> list[Any]:
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


def _stack(parts: list[Any]) -> AnyArray:
    """Along a time axis behind the seeds. What the host made stays there (one copy to the device later; the first
    observation may come from the device), the rest stays on the device."""
    host = isinstance(parts[-1], np.ndarray)
    return np.stack([np.asarray(part) for part in parts], axis=1) if host else jnp.stack(parts, axis=1)


class Now(NamedTuple):
    """Where a rollout on the device stands."""

    obs: Array
    action: Array
    inputs: Array  # of the physics


Kept = tuple[Rollout, PyTree]  # what a rollout has recorded so far, and the environment's state


class DeviceCollector:
    """The same for an environment whose physics runs on the device but outside JAX (``inputs``, ``call``, ``finish``).

    Many steps are one compiled program, physics included; nothing passes through the host, which only attends to the
    environment between two programs (``attend``).
    """

    def __init__(self, env: Any, act: Callable[..., tuple[Array, Array]], length: int, clock: Clock | None = None):
        self.env, self.act, self.length, self.clock = env, act, length, clock or Clock()
        self._first = jax.jit(self._choose, static_argnums=0)
        self._many = jax.jit(self._some_steps, static_argnums=(0, 1), donate_argnums=2)
        self._empty: Callable[[], Rollout] | None = None

    def __call__(
        self, structure: Any, leaves: list[Any], env_state: PyTree, obs: Array, keys: Key
    ) -> tuple[PyTree, Array, Rollout]:
        """``act`` gives actions as for ``HostCollector``."""
        with self.clock("environment"):  # acting is part of the compiled calls
            if self._empty is None:
                self.clock.tell("compiling")
            action, inputs = self._first(structure, leaves, env_state, obs, keys, 0)
            now = Now(obs, action, inputs)
            self._empty = self._empty or self._buffers(env_state, now, jax.eval_shape(self.env.call, inputs))
            kept, t, worlds = (self._empty(), env_state), 0, obs.shape[1]
            for steps in shares(self.length, self.env.unattended):
                self.clock.tell("collecting", t * worlds, self.length * worlds)
                (buffers, env_state), now = self._many(structure, steps, kept, now, (leaves, keys), t)
                kept = buffers, self.env.attend(env_state, steps)
                t += steps
            return jax.block_until_ready((kept[1], now.obs, kept[0]))

    def _choose(
        self, structure: Any, leaves: list[Any], env_state: PyTree, obs: Array, keys: Key, t: Array | int
    ) -> tuple[Array, Any]:
        action, env_action = self.act(structure, leaves, obs, keys, t)
        return action, self.env.inputs(env_state, env_action)

    def _record(self, env_state: PyTree, now: Now, moved: Any) -> tuple[PyTree, Array, Rollout]:
        obs = now.obs
        env_state, step = self.env.finish(env_state, moved)
        parts = Rollout(obs, now.action, step.final_obs, step.reward, step.cost, step.terminated, step.truncated)
        parts = parts._replace(measures=step.measures)
        parts = jax.tree.map(lambda part: _seeds(part, *obs.shape[:2]), parts)
        return env_state, _seeds(step.obs, *obs.shape[:2]), parts

    def _one_step(
        self, structure: Any, kept: Kept, now: Now, moved: Any, policies: tuple[list[Any], Key], t: Array
    ) -> tuple[Kept, Now]:
        buffers, env_state = kept
        env_state, obs, parts = self._record(env_state, now, moved)
        write = lambda whole, part: jax.lax.dynamic_update_index_in_dim(whole, part, t, 1)  # noqa: E731
        buffers = jax.tree.map(write, buffers, parts)
        action, inputs = self._choose(structure, policies[0], env_state, obs, policies[1], t + 1)
        return (buffers, env_state), Now(obs, action, inputs)

    def _some_steps(
        self, structure: Any, steps: int, kept: Kept, now: Now, policies: tuple[list[Any], Key], first: Array
    ) -> tuple[Kept, Now]:
        def step(carry: tuple[Kept, Now], t: Array) -> tuple[tuple[Kept, Now], None]:
            kept, now = carry
            return self._one_step(structure, kept, now, self.env.call(now.inputs), policies, t), None

        return jax.lax.scan(step, (kept, now), first + jnp.arange(steps))[0]

    def _buffers(self, env_state: PyTree, now: Now, moved: Any) -> Callable[[], Rollout]:
        """Makes an empty record of a rollout. Its shapes are found once: that traces a whole step."""
        shapes = jax.eval_shape(self._record, env_state, now, moved)[2]
        empty = lambda x: jnp.zeros((x.shape[0], self.length, *x.shape[1:]), x.dtype)  # noqa: E731
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        return jax.jit(lambda: jax.tree.map(empty, shapes), out_shardings=here)


def measured(names: tuple[str, ...], rollout: Rollout) -> dict[str, np.ndarray]:
    """Means of what the task says of the episodes that ended in a batch, by lane; NaN where nothing is known."""
    if rollout.measures is None:
        return {}
    ended = np.asarray(rollout.terminated) | np.asarray(rollout.truncated)
    counted = ended if rollout.dropped is None else ended & (np.asarray(rollout.dropped) == 0)
    values = np.asarray(rollout.measures, float)
    known = counted[..., None] & np.isfinite(values)
    sums, counts = (x.sum(axis=(1, 2)) for x in (np.where(known, values, 0.0), known))
    means = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return {f"{MEASURE}{name}": means[:, i] for i, name in enumerate(names)}


def to_batch(
    worlds: Worlds, rollout: Rollout, cost_discount: Array | float, min_episodes: int, horizon: int | None = None
) -> tuple[Worlds, Batch]:
    """Close the books of a rollout of one seed; with ``horizon``, the longest episode, J_c is taken by age."""
    obs, action, next_obs, reward, cost, terminated, truncated = map(jnp.asarray, rollout[:7])
    lost = None if rollout.dropped is None else rollout.dropped > 0
    steps = episodes.Steps(reward, cost, terminated | truncated, lost)
    lived = episodes.lived(worlds.running, steps.ended)
    running, window, means = episodes.account(worlds.running, worlds.window, steps, cost_discount, min_episodes)
    if horizon is not None:
        means = episodes.by_age(means, steps, lived, cost_discount, horizon)
    batch = Batch(obs, action, next_obs, reward, cost, terminated, truncated, lived.age, means)
    return worlds._replace(running=running, window=window), batch
