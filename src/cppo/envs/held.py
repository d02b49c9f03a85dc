"""Environments in which an action is held for several steps: decisions are rarer than steps, for every algorithm.

One step here is a *decision*: the inner environment steps ``hold`` times under one action, or until the episode ends.
Rewards and costs of those steps are summed, so that returns and J_c are what they were; observations between are not
seen. A world whose episode ends before the last of them waits for the others: its next episode begins with a decision
of its own. ``episode_length`` and ages are in decisions; all that people read counts steps (``runs``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from cppo.envs.gymnasium.env import GymnasiumEnv
from cppo.types import AnyArray, BatchedEnv, EnvSpec, PyTree, Step

Now = tuple[PyTree, Step]  # the inner environment's state, and what a decision has brought so far


def slowed(spec: EnvSpec, hold: int) -> EnvSpec:
    """What the environment looks like where actions are held."""
    return dataclasses.replace(spec, episode_length=max(1, spec.episode_length // hold))


def holding(env: BatchedEnv, hold: int) -> BatchedEnv:
    """``env`` with its actions held; processes of Gymnasium's do that themselves."""
    if hold == 1:
        return env
    return env.held(hold, slowed(env.spec, hold)) if isinstance(env, GymnasiumEnv) else Held(env, hold)


class Held:
    """An environment whose actions are held for ``hold`` steps; see ``cppo.types.BatchedEnv`` for the contract.

    Its state is the inner environment's. ``inputs``, ``call``, ``finish`` and ``attend`` are for physics on a device
    (``envs/mujoco/warp.py``): all steps of a decision but the first are then part of ``finish``.
    """

    def __init__(self, env: Any, hold: int):
        self.env, self.hold = env, hold
        self.spec = slowed(env.spec, hold)
        self.num_envs, self.backend = env.num_envs, env.backend
        self.jittable, self.resumable = env.jittable, env.resumable

    def init(self, keys: AnyArray, ages: Int[AnyArray, " world"] | None = None) -> tuple[PyTree, AnyArray]:
        return self.env.init(keys, None if ages is None else ages * self.hold)

    def advance(self, state: PyTree, actions: AnyArray) -> Now:
        return self._held(self.env.advance(state, actions), lambda state: self.env.advance(state, actions))

    def _held(self, first: Now, again: Callable[[PyTree], Now], compiled: bool = False) -> Now:
        """The decision that began with ``first``."""
        if compiled or self.jittable:
            return jax.lax.fori_loop(1, self.hold, lambda _, now: _joined(now, again(now[0])), first)
        for _ in range(self.hold - 1):
            first = _joined(first, again(first[0]))
        return first

    @property
    def threads(self) -> Any:
        return getattr(self.env, "threads", None)

    @property
    def unattended(self) -> int:
        return max(1, self.env.unattended // self.hold)

    def inputs(self, state: PyTree, actions: AnyArray) -> tuple[AnyArray, PyTree]:
        return actions, self.env.inputs(state, actions)

    def call(self, inputs: tuple[AnyArray, PyTree]) -> tuple[AnyArray, PyTree]:
        return inputs[0], self.env.call(inputs[1])

    def finish(self, state: PyTree, moved: tuple[AnyArray, PyTree]) -> Now:
        def again(state: PyTree) -> Now:
            return self.env.finish(state, self.env.call(self.env.inputs(state, moved[0])))

        return self._held(self.env.finish(state, moved[1]), again, compiled=True)

    def attend(self, state: PyTree, steps: int = 1) -> PyTree:
        return self.env.attend(state, steps * self.hold)


def _joined(before: Now, after: Now) -> Now:
    """One more step of a decision, in the worlds whose episode goes on."""
    (_, was), (_, step) = before, after
    over, library = was.terminated | was.truncated, np if isinstance(was.terminated, np.ndarray) else jnp

    def keep(old: AnyArray, new: AnyArray) -> AnyArray:
        return library.where(over.reshape(over.shape + (1,) * (new.ndim - 1)), old, new)

    reward, cost = keep(was.reward, was.reward + step.reward), keep(was.cost, was.cost + step.cost)
    if library is jnp or over.any():  # rare enough for a host to look first
        after = jax.tree.map(keep, before, after)
    return after[0], after[1]._replace(reward=reward, cost=cost)
