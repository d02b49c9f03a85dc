"""Safety Gym's tasks and AntCircle on MuJoCo Warp: physics, task, policy and data stay on the GPU, in float32.

A step is one CUDA graph for the physics and one jitted call for everything else. Nothing here waits for a value on the
host, except every ``REFILL`` steps, when it is asked whether contacts overflowed and whether layouts are used up:
a world's next layout is drawn ahead (the rejection sampler is a loop, too slow to run whenever one of thousands of
worlds ends), from the same keys in the same order as on other backends.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from cppo.envs import ant_circle as ant_threads
from cppo.envs.arrays import Array, Key
from cppo.envs.checks import checked_keys
from cppo.envs.physics.models import ant_model, navigation_model
from cppo.envs.physics.warp import Moved, WarpPhysics
from cppo.envs.safety_gym import SUBSTEPS, spec_of
from cppo.envs.tasks import ant_circle, navigation
from cppo.envs.tasks.navigation import Task
from cppo.envs.tasks.scenes import Scene
from cppo.types import Step, TrainingError, UsageError

REFILL = 32  # steps between two looks from the host
ROWS = 10  # constraint rows of one contact: pyramidal friction cone of condim 6


class Bodies(NamedTuple):
    """Physics state of W worlds."""

    qpos: Float[Array, "world qpos"]
    qvel: Float[Array, "world qvel"]
    warm: Float[Array, "world qvel"]


class Fresh(NamedTuple):
    """The beginning of an episode."""

    bodies: Bodies
    task: Task
    key: Key
    obs: Float[Array, "world obs"]


class NavigationState(NamedTuple):
    """State of W worlds between two steps, on the device."""

    bodies: Bodies
    task: Task
    key: Key
    age: Int[Array, " world"]
    spare: Fresh  # each world's next episode
    used: Bool[Array, " world"]  # its spare was taken, a new one is due
    clock: Int[np.ndarray, ""]  # steps of the whole batch, on the host


def room(scene: Scene) -> tuple[int, int]:
    """Contacts and constraint rows to reserve for a world.

    Most seen on the recordings of the originals: 5 contacts (PointGoal1), 21 (PointPush1), 27 (CarPush1); a vase rests
    on 4, the box with its columns on 16. Twice that for objects that touch each other, and overflow is detected.
    """
    contacts = 8 * scene.vases + 24 * (scene.task == "push") + (16 if scene.robot.name == "car" else 8)
    return contacts, ROWS * contacts


class WarpNavigation:
    """W worlds of a ``Scene`` on a GPU; see ``cppo.types.BatchedEnv`` for the contract."""

    backend = "warp"
    jittable = False
    resumable = False  # atomic sums on a GPU are not repeatable, so neither is a physics step

    def __init__(self, scene: Scene, num_envs: int):
        self.scene, self.num_envs, self.spec = scene, num_envs, spec_of(scene)
        self.physics = WarpPhysics(navigation_model(scene), num_envs, SUBSTEPS, True, *room(scene))
        self._watch = Watch(self.spec.name, self.physics)

    def init(self, keys: Key, ages: Int[Array, " world"] | None = None) -> tuple[NavigationState, Array]:
        checked_keys(keys, self.num_envs)
        first = self._draw(jnp.asarray(keys))
        if not bool(jnp.isfinite(first.obs).all()):
            raise TrainingError(f"{self.scene.name}: no layout found in 10,000 tries; use fewer or smaller objects")
        age = jnp.zeros(self.num_envs, jnp.int32) if ages is None else jnp.asarray(ages, jnp.int32)
        unused = jnp.zeros(self.num_envs, bool)
        spare = self._draw(first.key)
        state = NavigationState(first.bodies, first.task, first.key, age, spare, unused, np.zeros((), np.int64))
        return state, first.obs

    def advance(self, state: NavigationState, actions: Array) -> tuple[NavigationState, Step]:
        ctrl = device_actions(actions, self.num_envs, 2)
        bodies = state.bodies
        moved = self.physics.step(bodies.qpos, bodies.qvel, bodies.warm, mocap(self.scene, state.task), ctrl)
        clock = state.clock + 1
        on_device, step = finish_navigation(self.scene, state._replace(clock=None), moved)
        state = on_device._replace(clock=clock)
        if clock % REFILL == 0:
            self._watch(moved, ctrl)
            if bool(jnp.any(state.used)):
                state = self._refill(state)
        return state, step

    def _refill(self, state: NavigationState) -> NavigationState:
        spare = select(state.used, self._draw(state.key), state.spare)
        return state._replace(spare=spare, used=jnp.zeros_like(state.used))

    def _draw(self, keys: Key) -> Fresh:
        """The episode that each world's key leads to, with sensors at rest from the physics."""
        fresh = draw_layouts(self.scene, keys)
        rest = jnp.zeros((self.num_envs, 2))
        moved = self.physics.forward(fresh.bodies.qpos, fresh.bodies.qvel, mocap(self.scene, fresh.task), rest)
        return first_look(self.scene, fresh, moved)


@partial(jax.jit, static_argnums=0)
def mocap(scene: Scene, task: Task) -> tuple[Array, Array]:
    return navigation.mocap(scene, task)


@partial(jax.jit, static_argnums=0)
def draw_layouts(scene: Scene, keys: Key) -> Fresh:
    next_keys, start, task = navigation.reset(scene, keys, jnp.dtype(jnp.float32))
    bodies = Bodies(start.qpos, start.qvel, jnp.zeros_like(start.qvel))
    return Fresh(bodies, task, next_keys, jnp.zeros((len(keys), scene.obs_size)))


@partial(jax.jit, static_argnums=0)
def first_look(scene: Scene, fresh: Fresh, moved: Moved) -> Fresh:
    seen = navigation.look(scene, fresh.task.start, fresh.bodies.qpos, moved.sensors)
    bodies = fresh.bodies._replace(warm=moved.warm + 0.0)  # a sum is a new array; the view will change
    return fresh._replace(bodies=bodies, obs=navigation.observe(scene, fresh.task, seen))


@partial(jax.jit, static_argnums=0)
def finish_navigation(scene: Scene, state: NavigationState, moved: Moved) -> tuple[NavigationState, Step]:
    """Everything of a step that follows the physics, resets included."""
    age = state.age + 1
    seen = navigation.look(scene, state.task.start, moved.qpos, moved.sensors)
    task, outcome = navigation.advance(scene, state.task, seen, state.key, age)
    finite = jnp.all(jnp.isfinite(moved.qpos), -1) & jnp.all(jnp.isfinite(moved.qvel), -1)
    terminated = outcome.lost | ~finite  # a diverged simulation ends the episode
    truncated = (age >= scene.episode_length) & ~terminated
    ended = terminated | truncated
    obs, reward, cost = (jnp.nan_to_num(x) for x in (outcome.obs, outcome.reward, outcome.cost))
    now = (Bodies(moved.qpos, moved.qvel, moved.warm), task, state.key, obs)
    bodies, task, key, next_obs = select(ended, tuple(state.spare), now)
    step = Step(next_obs, obs, reward, cost, terminated, truncated)
    after = NavigationState(bodies, task, key, jnp.where(ended, 0, age), state.spare, state.used | ended, state.clock)
    return after, step


class AntState(NamedTuple):
    """State of W Ants between two steps, on the device."""

    bodies: Bodies
    torso: Float[Array, "world 2"]  # where the last step saw the torso, m
    key: Key
    age: Int[Array, " world"]
    clock: Int[np.ndarray, ""]


class WarpAntCircle:
    """W worlds of AntCircle on a GPU; see ``cppo.types.BatchedEnv`` for the contract."""

    backend = "warp"
    jittable = False
    resumable = False
    spec = ant_threads.SPEC

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        # Four feet on the floor and 8 joints at their limits, 24 rows, is the most seen on the recordings.
        self.physics = WarpPhysics(ant_model(), num_envs, ant_circle.SUBSTEPS, False, 24, 96)
        self._watch = Watch(self.spec.name, self.physics)

    def init(self, keys: Key, ages: Int[Array, " world"] | None = None) -> tuple[AntState, Array]:
        checked_keys(keys, self.num_envs)
        state, obs = begin_ants(jnp.asarray(keys))
        age = state.age if ages is None else jnp.asarray(ages, jnp.int32)
        return state._replace(age=age, clock=np.zeros((), np.int64)), obs

    def advance(self, state: AntState, actions: Array) -> tuple[AntState, Step]:
        ctrl = device_actions(actions, self.num_envs, ant_threads.ACTUATORS)
        moved = self.physics.step(*state.bodies, None, ctrl)
        clock = state.clock + 1
        after, step = finish_ants(state._replace(clock=None), moved)
        if clock % REFILL == 0:
            self._watch(moved, ctrl)
        return after._replace(clock=clock), step


@jax.jit
def begin_ants(keys: Key) -> tuple[AntState, Array]:
    next_keys, reset_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    qpos, qvel = ant_circle.reset(reset_keys, jnp.dtype(jnp.float32))
    bodies = Bodies(qpos, qvel, jnp.zeros_like(qvel))
    age = jnp.zeros(len(keys), jnp.int32)
    return AntState(bodies, qpos[:, :2], next_keys, age, None), ant_circle.observe(qpos, qvel)


@jax.jit
def finish_ants(state: AntState, moved: Moved) -> tuple[AntState, Step]:
    age = state.age + 1
    torso = moved.bodies[:, 1, :2]
    outcome = ant_circle.advance(state.torso, torso, moved.qpos, moved.qvel)
    truncated = (age >= ant_threads.SPEC.episode_length) & ~outcome.terminated
    ended = outcome.terminated | truncated
    obs, reward = jnp.nan_to_num(outcome.obs), jnp.nan_to_num(outcome.reward)
    fresh, fresh_obs = begin_ants(state.key)
    now = AntState(Bodies(moved.qpos, moved.qvel, moved.warm), torso, state.key, age, None)
    after, next_obs = select(ended, (fresh, fresh_obs), (now, obs))
    return after, Step(next_obs, obs, reward, outcome.cost, outcome.terminated, truncated)


class Watch:
    """Tells about overflown buffers and diverged policies, once each, without stopping the GPU at every step."""

    def __init__(self, name: str, physics: WarpPhysics):
        self.name, self.physics, self.reported = name, physics, 0

    def __call__(self, moved: Moved, ctrl: Array) -> None:
        overflown, finite = _health(moved.overflow, ctrl)
        if not bool(finite):
            raise UsageError(
                f"{self.name}: actions contain NaN or infinity; a policy that gives NaN has diverged: "
                "lower its learning rate or check its observations"
            )
        if int(overflown) > self.reported:
            self.reported = int(overflown)
            print(
                f"warning: {self.name}: {self.reported} worlds had more contacts than fit ({self.physics.room}); "
                "their physics dropped some. Please report the scene and the policy."
            )


@jax.jit
def _health(overflow: Array, ctrl: Array) -> tuple[Array, Array]:
    return jnp.sum(overflow != 0), jnp.all(jnp.isfinite(ctrl))


def device_actions(actions: Array, num_envs: int, size: int) -> Array:
    if actions.shape != (num_envs, size):
        raise UsageError(
            f"actions have shape {actions.shape}, expected {(num_envs, size)}: one row of {size} numbers "
            f"for each of the {num_envs} worlds"
        )
    return _clipped(actions)


@jax.jit
def _clipped(actions: Array) -> Array:
    return jnp.clip(jnp.asarray(actions, jnp.float32), -1.0, 1.0)


def select(mask: Bool[Array, " world"], new: Array, old: Array) -> Array:
    """``new`` where the mask holds, leaf by leaf, always as new arrays."""
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(mask.shape + (1,) * (b.ndim - 1)), a, b), new, old)
