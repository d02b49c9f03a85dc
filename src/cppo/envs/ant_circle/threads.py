"""AntCircle as a batched environment on CPU threads: float64 inside, float32 for the learner."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from cppo.envs.ant_circle import task as ant_circle
from cppo.envs.ant_circle.physics import ant_stepper
from cppo.envs.ant_circle.task import ACTUATORS, SPEC, SUBSTEPS
from cppo.envs.batched import select
from cppo.envs.mujoco.arrays import Array, Key, finite_or_zero
from cppo.envs.mujoco.checks import checked_actions, checked_double, checked_keys
from cppo.envs.mujoco.precision import double_on_cpu
from cppo.envs.mujoco.stepping import Stepped
from cppo.envs.mujoco.threads import Threads, Trajectory
from cppo.types import Step, as_numpy


class AntCircleState(NamedTuple):
    """State of W worlds between two steps: float64, on the host."""

    key: Key
    qpos: Float[Array, "world 15"]
    qvel: Float[Array, "world 14"]
    warm: Float[Array, "world 14"]
    torso: Float[Array, "world 2"]  # where the last step saw the torso, m
    age: Int[Array, " world"]


class AntCircleEnv:
    """W worlds of AntCircle; see ``cppo.types.BatchedEnv`` for the contract."""

    spec = SPEC
    backend = "threads"
    jittable = False
    resumable = True

    def __init__(self, num_envs: int, threads: int | None = None):
        self.num_envs = num_envs
        self.threads = ant_stepper(threads)
        self._finish = jax.jit(self._finish_step)
        self._begin = jax.jit(self._begin_episodes)

    def init(self, keys: Key, ages: Int[Array, " world"] | None = None) -> tuple[AntCircleState, Array]:
        with double_on_cpu():
            state, obs = as_numpy(self._begin(checked_keys(keys, self.num_envs)))
        return state if ages is None else state._replace(age=np.asarray(ages, np.int32)), obs

    def advance(self, state: AntCircleState, actions: Array) -> tuple[AntCircleState, Step]:
        ctrl = checked_actions(actions, self.num_envs, ACTUATORS)
        checked_double(state.qpos)
        moved = self.threads.advance(state.qpos, state.qvel, state.warm, ctrl)
        with double_on_cpu():
            after, step, ended = as_numpy(self._finish(state, moved))
            if not ended.any():
                return after, step
            fresh, fresh_obs = as_numpy(self._begin(after.key))
        after, obs = select(ended, (fresh, fresh_obs), (after, step.obs))
        return after, step._replace(obs=obs)

    def _finish_step(self, state: AntCircleState, moved: Stepped) -> tuple[AntCircleState, Step, Bool[Array, " world"]]:
        age = state.age + 1
        outcome = ant_circle.advance(state.torso, moved.seen, moved.qpos, moved.qvel)
        truncated = (age >= SPEC.episode_length) & ~outcome.terminated
        obs, reward = (finite_or_zero(x.astype(jnp.float32)) for x in (outcome.obs, outcome.reward))
        fallen = outcome.terminated[:, None].astype(jnp.float32)
        step = Step(obs, obs, reward, outcome.cost.astype(jnp.float32), outcome.terminated, truncated, None, fallen)
        after = AntCircleState(state.key, moved.qpos, moved.qvel, moved.warm, moved.seen, age)
        return after, step, outcome.terminated | truncated

    def _begin_episodes(self, keys: Key) -> tuple[AntCircleState, Array]:
        next_keys, reset_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
        qpos, qvel = ant_circle.reset(reset_keys, jnp.dtype(jnp.float64))
        age = jnp.zeros(len(keys), jnp.int32)
        state = AntCircleState(next_keys, qpos, qvel, jnp.zeros_like(qvel), qpos[:, :2], age)
        return state, ant_circle.observe(qpos, qvel).astype(jnp.float32)


def bare(env: AntCircleEnv) -> Callable[[AntCircleState, np.ndarray], Trajectory]:
    """The model alone, rolled from an environment's states."""
    threads = Threads(env.threads.model)
    return lambda s, a: threads.roll((s.qpos, s.qvel, s.warm), a.astype(np.float64), SUBSTEPS)
