"""The Velocity tasks as batched environments on CPU threads: float64 inside, float32 for the learner."""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jaxtyping import Bool, Float, Int

from cppo.envs.batched import select
from cppo.envs.mujoco.arrays import Array, Key, finite_or_zero
from cppo.envs.mujoco.checks import checked_actions, checked_double, checked_keys
from cppo.envs.mujoco.precision import double_on_cpu
from cppo.envs.mujoco.stepping import Roller, Stepped, Stepper
from cppo.envs.mujoco.threads import Threads, Trajectory
from cppo.envs.velocity import task
from cppo.envs.velocity.models import velocity_model
from cppo.envs.velocity.robots import HUMANOID_BODIES, Robot
from cppo.envs.velocity.task import Moved
from cppo.types import Step, as_numpy

TORSO = 1  # body number
CENTRES = 3 * HUMANOID_BODIES  # entries of what the Humanoid's stepper sees that are its bodies' centres of mass


class VelocityState(NamedTuple):
    """State of W worlds between two steps: float64, on the host."""

    qpos: Float[Array, "world qpos"]
    qvel: Float[Array, "world qvel"]
    warm: Float[Array, "world qvel"]
    place: Float[Array, "world 2"]  # where the last step saw the robot, m
    key: Key
    age: Int[Array, " world"]


def stepper(robot: Robot, threads: int | None = None) -> Stepper | Roller:
    """What steps a robot and sees what the robot's task asks for besides positions and velocities."""
    if robot.measured == "joints":
        return Roller(velocity_model(robot), robot.substeps, threads)
    if robot.measured == "torso":
        return Stepper(velocity_model(robot), robot.substeps, lambda data: [data.xpos[TORSO, :2]], threads)
    return Stepper(velocity_model(robot), robot.substeps, _bodies, threads, after=mujoco.mj_rnePostConstraint)


def _bodies(data: mujoco.MjData) -> list[np.ndarray]:
    """Centres of mass, then what the Humanoid observes: inertias, velocities, motor torques, contact forces."""
    return [x.reshape(-1) for x in (data.xipos, data.cinert, data.cvel, data.qfrc_actuator, data.cfrc_ext)]


def moved_of(robot: Robot, stepped: Stepped) -> Moved:
    """What the task reads; jittable."""
    if robot.measured == "joints":
        return Moved(stepped.qpos, stepped.qvel, stepped.qpos[:, :2], stepped.seen)
    if robot.measured == "torso":
        return Moved(stepped.qpos, stepped.qvel, stepped.seen, stepped.seen[:, :0])
    mass = velocity_model(robot).body_mass
    centres = stepped.seen[:, :CENTRES].reshape(-1, HUMANOID_BODIES, 3)[..., :2]
    place = jnp.sum(mass[:, None] * centres, 1) / mass.sum()
    return Moved(stepped.qpos, stepped.qvel, place, stepped.seen[:, CENTRES:])


class VelocityEnv:
    """W worlds of a robot; see ``cppo.types.BatchedEnv`` for the contract."""

    backend = "threads"
    jittable = False
    resumable = True

    def __init__(self, robot: Robot, num_envs: int, threads: int | None = None):
        self.robot, self.num_envs, self.spec = robot, num_envs, robot.spec
        self.threads = stepper(robot, threads)

    def init(self, keys: Key, ages: Int[Array, " world"] | None = None) -> tuple[VelocityState, Array]:
        state, obs = self._start(checked_keys(keys, self.num_envs), np.arange(self.num_envs))
        return state if ages is None else state._replace(age=np.asarray(ages, np.int32)), obs

    def advance(self, state: VelocityState, actions: Array) -> tuple[VelocityState, Step]:
        ctrl = checked_actions(actions, self.num_envs, self.robot.actuators)
        checked_double(state.qpos)
        stepped = self.threads.advance(state.qpos, state.qvel, state.warm, ctrl)
        with double_on_cpu():
            after, step, ended = as_numpy(finish_step(self.robot, state, ctrl, stepped))
        if not ended.any():
            return after, step
        fresh, fresh_obs = self._start(after.key, np.flatnonzero(ended))
        after, obs = select(ended, (fresh, fresh_obs), (after, step.obs))
        return after, step._replace(obs=obs)

    def _start(self, keys: np.ndarray, rows: Int[np.ndarray, " ended"]) -> tuple[VelocityState, np.ndarray]:
        """New episodes, drawn for all worlds, since nothing is compiled twice then; MuJoCo looks at ``rows`` alone."""
        with double_on_cpu():
            next_keys, qpos, qvel = as_numpy(draw(self.robot, keys))
            looked = self.threads.look(qpos[rows], qvel[rows])
            seen = np.zeros((len(qpos), looked.seen.shape[1]))
            warm = np.zeros_like(qvel)
            seen[rows], warm[rows] = looked.seen, looked.warm
            return as_numpy(first_look(self.robot, Stepped(qpos, qvel, warm, seen), next_keys))


@partial(jax.jit, static_argnums=0)
def finish_step(
    robot: Robot, state: VelocityState, ctrl: Array, stepped: Stepped
) -> tuple[VelocityState, Step, Bool[Array, " world"]]:
    """Everything of a step that follows MuJoCo, except resets."""
    age = state.age + 1
    moved = moved_of(robot, stepped)
    outcome = task.advance(robot, state.place, moved, ctrl)
    truncated = (age >= robot.spec.episode_length) & ~outcome.terminated
    obs, reward = (finite_or_zero(x.astype(jnp.float32)) for x in (outcome.obs, outcome.reward))
    step = Step(obs, obs, reward, outcome.cost.astype(jnp.float32), outcome.terminated, truncated)
    after = VelocityState(moved.qpos, moved.qvel, stepped.warm, moved.place, state.key, age)
    return after, step, outcome.terminated | truncated


@partial(jax.jit, static_argnums=0)
def draw(robot: Robot, keys: Key) -> tuple[Key, Array, Array]:
    """Poses and speeds of new episodes, and the keys of those after them."""
    next_keys, reset_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    return next_keys, *task.reset(robot, reset_keys, jnp.dtype(jnp.float64))


@partial(jax.jit, static_argnums=0)
def first_look(robot: Robot, stepped: Stepped, keys: Key) -> tuple[VelocityState, Float[Array, "world obs"]]:
    """States at the beginning of episodes and what is seen there."""
    moved = moved_of(robot, stepped)
    age = jnp.zeros(len(keys), jnp.int32)
    state = VelocityState(moved.qpos, moved.qvel, stepped.warm, moved.place, keys, age)
    return state, task.observe(robot, moved).astype(jnp.float32)


def bare(env: VelocityEnv) -> Callable[[VelocityState, np.ndarray], Trajectory]:
    """The model alone, rolled from an environment's states."""
    threads = Threads(env.threads.model)
    return lambda s, a: threads.roll((s.qpos, s.qvel, s.warm), a.astype(np.float64), env.robot.substeps)
