"""Safety Gym's Goal, Push, Circle and Button as batched environments on CPU threads.

A step is: MuJoCo for the worlds that need it, then one jitted call for everything else (the Point robot's closed form,
observation, reward, cost, new goals). Physics and task run in float64; what the learner sees is float32. The state
holds the whole integration state, solver warm starts included, so a saved run goes on bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from cppo.envs.mujoco.arrays import Array, Key
from cppo.envs.mujoco.checks import checked_actions, checked_double, checked_keys
from cppo.envs.mujoco.precision import double_on_cpu
from cppo.envs.mujoco.threads import Sighted, Threads
from cppo.envs.safety_gym import button, navigation, point
from cppo.envs.safety_gym.models import navigation_model
from cppo.envs.safety_gym.navigation import Seen, Task
from cppo.envs.safety_gym.scenes import SUBSTEPS, Scene
from cppo.envs.safety_gym.settling import settling_table
from cppo.types import Step, TrainingError, as_numpy

RESET_CHUNK = 4  # worlds that one compiled reset serves; more are reset in several calls, so that nothing recompiles


class Physics(NamedTuple):
    """Full integration state of W worlds, with the acceleration that starts the constraint solver."""

    qpos: Float[Array, "world qpos"]
    qvel: Float[Array, "world qvel"]
    warm: Float[Array, "world qvel"]
    mocap: Float[Array, "world mocap"]  # positions, then quaternions


class SafetyGymState(NamedTuple):
    """State of W worlds between two steps: float64, on the host."""

    physics: Physics
    task: Task
    key: Key
    age: Int[Array, " world"]
    settling: Int[Array, " world"]  # steps since the reset while objects sink into the floor untouched; else -1
    simulate: Bool[Array, " world"]  # the next step needs MuJoCo
    tally: Float[Array, " world"]  # goals reached in this episode; NaN: not all of it was seen


class SafetyGymEnv:
    """W worlds of a ``Scene``; see ``cppo.types.BatchedEnv`` for the contract."""

    backend = "threads"
    jittable = False
    resumable = True

    def __init__(self, scene: Scene, num_envs: int, threads: int | None = None):
        self.scene = scene
        self.num_envs = num_envs
        self.spec = scene.spec
        self.threads = Threads(navigation_model(scene), threads)

    def init(self, keys: Key, ages: Int[Array, " world"] | None = None) -> tuple[SafetyGymState, Array]:
        state, obs = self._start(checked_keys(keys, self.num_envs))
        if ages is None:
            return state, obs
        age = np.asarray(ages, np.int32)
        return state._replace(age=age, tally=np.where(age > 0, np.nan, 0.0)), obs

    def advance(self, state: SafetyGymState, actions: Array) -> tuple[SafetyGymState, Step]:
        robot = self.scene.robot
        ctrl = np.clip(checked_actions(actions, self.num_envs, robot.actuated), robot.low, robot.high)
        checked_double(state.physics.qpos)
        simulated = self.simulate(state, ctrl)
        with double_on_cpu():
            state, step, ended = as_numpy(finish_step(self.scene, state, ctrl, simulated))
        return self._restart(state, step, np.flatnonzero(ended)) if ended.any() else (state, step)

    def simulate(self, state: SafetyGymState, ctrl: Float[np.ndarray, "world action"]) -> Sighted:
        """Ten physics steps and a look at the sensors, in worlds that need MuJoCo; others hold nothing."""
        rows = np.flatnonzero(state.simulate)
        physics = Physics(*(np.asarray(leaf) for leaf in state.physics))
        if len(rows) == self.num_envs:
            return self._see(physics, self.control(state, ctrl))
        sensors = np.zeros((self.num_envs, self.scene.sensors))
        full = Sighted(physics.qpos, physics.qvel, physics.warm, sensors)
        if not len(rows):
            return full
        some = self._see(Physics(*(leaf[rows] for leaf in physics)), self.control(state, ctrl)[rows])
        return Sighted(*(_scatter(whole, rows, part) for whole, part in zip(full, some, strict=True)))

    def control(self, state: SafetyGymState, ctrl: Float[np.ndarray, "world action"]) -> np.ndarray:
        """What drives the model: for all steps the same, except where gremlins run."""
        control = np.concatenate([ctrl, state.physics.mocap], 1)
        return button.controls(self.scene, state.task.pressing, control) if self.scene.gremlins else control

    def _see(self, physics: Physics, control: np.ndarray, steps: int = SUBSTEPS) -> Sighted:
        return self.threads.seen(physics[:3], control, steps)

    def _start(self, keys: np.ndarray) -> tuple[SafetyGymState, np.ndarray]:
        """New episodes for any number of keys."""
        with double_on_cpu():
            state, obs = as_numpy(begin_episodes(self.scene, keys))
            if not self.scene.robot.planar:
                physics, sensors = self._first_sensors(state.physics)
                state = state._replace(physics=physics)
                obs = np.asarray(first_observation(self.scene, state, sensors))
        if not np.isfinite(obs).all():
            raise TrainingError(f"{self.scene.name}: no layout found in 10,000 tries; use fewer or smaller objects")
        return state, obs

    def _first_sensors(self, physics: Physics) -> tuple[Physics, np.ndarray]:
        control = np.concatenate([np.zeros((len(physics.qpos), self.scene.robot.actuated)), physics.mocap], 1)
        seen = self._see(physics, control, steps=0)
        return physics._replace(warm=seen.warm), seen.sensors

    def _restart(
        self, state: SafetyGymState, step: Step, rows: Int[np.ndarray, " ended"]
    ) -> tuple[SafetyGymState, Step]:
        """Put new episodes into the worlds that ended."""
        state, obs = jax.tree.map(np.array, state), np.array(step.obs)
        chunk = self.num_envs if len(rows) == self.num_envs else min(RESET_CHUNK, self.num_envs)
        for first in range(0, len(rows), chunk):
            part = rows[first : first + chunk]
            keys = state.key[np.resize(part, chunk)]  # repeats worlds to fill the chunk; the repeats are dropped
            fresh, fresh_obs = self._start(keys)
            jax.tree.map(lambda whole, new, part=part: whole.__setitem__(part, new[: len(part)]), state, fresh)
            obs[part] = fresh_obs[: len(part)]
        return state, step._replace(obs=obs)


def bare(env: SafetyGymEnv) -> Callable[[SafetyGymState, np.ndarray], Sighted]:
    """The model alone from an environment's states: the steps of one, and the look at the sensors."""

    def roll(state: SafetyGymState, action: np.ndarray) -> Sighted:
        physics, robot = state.physics, env.scene.robot
        control = env.control(state, np.clip(action, robot.low, robot.high))
        return env.threads.seen(physics[:3], control, SUBSTEPS)

    return roll


def _scatter(whole: np.ndarray, rows: np.ndarray, part: np.ndarray) -> np.ndarray:
    filled = np.empty_like(whole)
    filled[rows] = part
    return filled


@partial(jax.jit, static_argnums=0)
def finish_step(
    scene: Scene, state: SafetyGymState, ctrl: Array, simulated: Sighted
) -> tuple[SafetyGymState, Step, Bool[Array, " world"]]:
    """Everything of a step that follows MuJoCo, except resets."""
    age = state.age + 1
    physics, sensors = merge(scene, state, ctrl, simulated)
    settling = point.next_settling(state.settling, state.simulate)
    seen = navigation.look(scene, state.task.start, physics.qpos, sensors)
    task, outcome = navigation.advance(scene, state.task, seen, state.key, age)
    simulate = must_simulate(scene, task, seen, physics, settling)
    terminated = jnp.logical_or(outcome.lost, outcome.fallen)
    truncated = (age >= scene.episode_length) & ~terminated
    obs = outcome.obs.astype(jnp.float32)
    reward, cost = outcome.reward.astype(jnp.float32), outcome.cost.astype(jnp.float32)
    tally = state.tally + outcome.goal_met
    step = Step(obs, obs, reward, cost, terminated, truncated, measures=navigation.measures(scene, tally, outcome))
    return SafetyGymState(physics, task, state.key, age, settling, simulate, tally), step, truncated | terminated


def merge(scene: Scene, state: SafetyGymState, ctrl: Array, simulated: Sighted) -> tuple[Physics, Array]:
    """MuJoCo's result where it ran, the Point robot's closed form elsewhere."""
    before, rows = state.physics, state.simulate[:, None]
    if not scene.robot.planar:
        return Physics(simulated.qpos, simulated.qvel, simulated.warm, before.mocap), simulated.sensors
    joints, speeds = point.advance_point(before.qpos[:, :3], before.qvel[:, :3], ctrl)
    robot = joints, speeds, point.point_accelerations(joints, speeds, ctrl)
    objects = point.settle(before.qpos, before.qvel, before.warm, state.settling, settling_table(scene))
    free = (jnp.concatenate(pair, 1) for pair in zip(robot, objects, strict=True))
    qpos, qvel, warm = free
    sensors = point.point_sensors(joints, speeds, ctrl, state.task.start)
    untouched = qpos, qvel, warm, jnp.concatenate([sensors, point.object_sensors(scene, qvel)], 1)
    qpos, qvel, warm, sensors = (jnp.where(rows, a, b) for a, b in zip(simulated, untouched, strict=True))
    return Physics(qpos, qvel, warm, before.mocap), sensors


def must_simulate(scene: Scene, task: Task, seen: Seen, physics: Physics, settling: Array) -> Bool[Array, " world"]:
    """Worlds whose next step needs MuJoCo: all, unless the robot has a closed form, and buttons are not watched."""
    if not scene.robot.planar or scene.buttons:
        return jnp.ones(len(physics.qpos), bool)
    return point.must_simulate(scene, task, seen, physics.qpos, physics.qvel, physics.warm, settling)


def state_of(scene: Scene, physics: Physics, task: Task, key: Key, age: Int[Array, " world"]) -> SafetyGymState:
    """A state from its parts, on the host, with objects whose past is unknown."""
    with double_on_cpu():
        seen = navigation.look(scene, task.start, physics.qpos, np.zeros((len(age), scene.sensors)))
        unknown = np.full(len(age), -1, np.int32)
        simulate = np.asarray(must_simulate(scene, task, seen, physics, unknown))
    return SafetyGymState(physics, task, key, age, unknown, simulate, np.zeros(len(age)))


@partial(jax.jit, static_argnums=0)
def begin_episodes(scene: Scene, keys: Key) -> tuple[SafetyGymState, Float[Array, "world obs"]]:
    """Layouts, and the first observation of a robot at rest; other robots' sensors there are left to MuJoCo."""
    worlds = len(keys)
    next_keys, start, task = navigation.reset(scene, keys, jnp.dtype(jnp.float64))
    mocap = jnp.concatenate([part.reshape(worlds, -1) for part in navigation.mocap(scene, task)], 1)
    physics = Physics(start.qpos, start.qvel, jnp.zeros_like(start.qvel), mocap)
    zero, blank = jnp.zeros(worlds, jnp.int32), jnp.zeros((worlds, scene.sensors))
    seen = navigation.look(scene, task.start, start.qpos, blank)
    simulate = must_simulate(scene, task, seen, physics, zero)
    state = SafetyGymState(physics, task, next_keys, zero, zero, simulate, jnp.zeros(worlds))
    if not scene.robot.planar:
        return state, jnp.zeros((worlds, scene.obs_size), jnp.float32)
    rest = jnp.zeros((worlds, 2))
    sensors = point.point_sensors(start.qpos[:, :3], start.qvel[:, :3], rest, task.start)
    return state, first_observation(scene, state, sensors)


@partial(jax.jit, static_argnums=0)
def first_observation(scene: Scene, state: SafetyGymState, sensors: Array) -> Float[Array, "world obs"]:
    """What a robot sees after a reset."""
    seen = navigation.look(scene, state.task.start, state.physics.qpos, sensors)
    return navigation.observe(scene, state.task, seen).astype(jnp.float32)
