"""AntCircle on MuJoCo Warp: physics, task, policy and data stay on the GPU, in float32."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from cppo.envs.ant_circle import task
from cppo.envs.ant_circle.physics import TORSO, ant_model
from cppo.envs.batched import select
from cppo.envs.mujoco.arrays import Array, Key, finite_or_zero
from cppo.envs.mujoco.checks import checked_keys, checked_shape
from cppo.envs.mujoco.warp import REFILL, Bodies, Moved, WarpPhysics, Watch
from cppo.types import Step


class AntState(NamedTuple):
    """State of W Ants between two steps, on the device."""

    bodies: Bodies
    torso: Float[Array, "world 2"]  # where the last step saw the torso, m
    key: Key
    age: Int[Array, " world"]


class WarpAntCircle:
    """W worlds of AntCircle on a GPU; see ``cppo.types.BatchedEnv`` for the contract."""

    backend = "warp"
    jittable = False
    resumable = False
    unattended = REFILL
    spec = task.SPEC

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        # Four feet on the floor and 8 joints at their limits, 24 rows, is the most seen on the recordings.
        self.physics = WarpPhysics(ant_model(), num_envs, task.SUBSTEPS, False, 24, 96)
        self._watch = Watch(self.spec.name, self.physics)
        self._inputs, self._finish = jax.jit(self.inputs), jax.jit(self.finish)

    def init(self, keys: Key, ages: Int[Array, " world"] | None = None) -> tuple[AntState, Array]:
        checked_keys(keys, self.num_envs)
        state, obs = begin_ants(jnp.asarray(keys))
        return state if ages is None else state._replace(age=jnp.asarray(ages, jnp.int32)), obs

    def advance(self, state: AntState, actions: Array) -> tuple[AntState, Step]:
        moved = self.run(self._inputs(state, checked_shape(actions, self.num_envs, task.ACTUATORS)))
        state, step = self._finish(state, moved)
        return self.attend(state), step

    def inputs(self, state: AntState, actions: Array) -> Float[Array, "world number"]:
        return self.physics.pack(*state.bodies, jnp.clip(actions, -1.0, 1.0))

    def run(self, inputs: Float[Array, "world number"]) -> Moved:
        return self.physics.run("step", inputs)

    def call(self, inputs: Float[Array, "world number"]) -> Moved:
        return self.physics.call("step", inputs)

    def finish(self, state: AntState, moved: Moved) -> tuple[AntState, Step]:
        age = state.age + 1
        torso = torso_of(moved)
        outcome = task.advance(state.torso, torso, moved.qpos, moved.qvel)
        truncated = (age >= self.spec.episode_length) & ~outcome.terminated
        obs, reward = finite_or_zero(outcome.obs), finite_or_zero(outcome.reward)
        now = AntState(Bodies(moved.qpos, moved.qvel, moved.warm), torso, state.key, age)
        after, next_obs = select(outcome.terminated | truncated, begin_ants(state.key), (now, obs))
        fallen = outcome.terminated[:, None].astype(jnp.float32)
        return after, Step(next_obs, obs, reward, outcome.cost, outcome.terminated, truncated, None, fallen)

    def attend(self, state: AntState, steps: int = 1) -> AntState:
        if self._watch.due(steps):
            self._watch.look(state.bodies.qpos)
        return state


def torso_of(moved: Moved) -> Float[Array, "world 2"]:
    """xy of the torso, m."""
    return moved.bodies[:, 3 * TORSO : 3 * TORSO + 2]


@jax.jit
def begin_ants(keys: Key) -> tuple[AntState, Array]:
    next_keys, reset_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    qpos, qvel = task.reset(reset_keys, jnp.dtype(jnp.float32))
    age = jnp.zeros(len(keys), jnp.int32)
    state = AntState(Bodies(qpos, qvel, jnp.zeros_like(qvel)), qpos[:, :2], next_keys, age)
    return state, task.observe(qpos, qvel)
