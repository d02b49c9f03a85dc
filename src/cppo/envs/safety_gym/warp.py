"""Safety Gym's tasks and AntCircle on MuJoCo Warp: physics, task, policy and data stay on the GPU, in float32.

A step has three parts: ``inputs`` (jittable), the physics (one CUDA graph) and ``finish`` (jittable). A collector joins
many whole steps, policy and records included, in one compiled program (``call``); ``advance`` makes a single one
(``run``). Nothing waits for a value on the host, except in ``attend`` every ``REFILL`` steps:
have contacts overflowed, are layouts used up? A world's next layout is drawn ahead (the rejection sampler is a loop,
too slow to run whenever one of thousands of worlds ends), from the same keys in the same order as on other backends.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from cppo.envs import ant_circle as ant_threads
from cppo.envs.arrays import Array, Key, finite_or_zero
from cppo.envs.checks import checked_keys
from cppo.envs.physics.models import ant_model, navigation_model
from cppo.envs.physics.warp import Moved, WarpPhysics
from cppo.envs.safety_gym import SUBSTEPS, spec_of
from cppo.envs.tasks import ant_circle, navigation
from cppo.envs.tasks.navigation import Task
from cppo.envs.tasks.scenes import Scene
from cppo.types import Step, TrainingError, UsageError

REFILL = 100  # steps between two looks from the host; an episode without a mishap lasts 1,000, so one spare is enough
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
    unattended = REFILL  # steps that may pass without ``attend``

    def __init__(self, scene: Scene, num_envs: int):
        self.scene, self.num_envs, self.spec = scene, num_envs, spec_of(scene)
        self.physics = WarpPhysics(navigation_model(scene), num_envs, SUBSTEPS, True, *room(scene))
        self._watch = Watch(self.spec.name, self.physics)
        self._inputs, self._finish = jax.jit(self.inputs), jax.jit(self.finish)

    def init(self, keys: Key, ages: Int[Array, " world"] | None = None) -> tuple[NavigationState, Array]:
        checked_keys(keys, self.num_envs)
        first = self._draw(jnp.asarray(keys))
        if not bool(jnp.isfinite(first.obs).all()):
            raise TrainingError(f"{self.scene.name}: no layout found in 10,000 tries; use fewer or smaller objects")
        age = jnp.zeros(self.num_envs, jnp.int32) if ages is None else jnp.asarray(ages, jnp.int32)
        unused = jnp.zeros(self.num_envs, bool)
        state = NavigationState(first.bodies, first.task, first.key, age, self._draw(first.key), unused)
        return state, first.obs

    def advance(self, state: NavigationState, actions: Array) -> tuple[NavigationState, Step]:
        moved = self.run(self._inputs(state, checked_shape(actions, self.num_envs, 2)))
        state, step = self._finish(state, moved)
        return self.attend(state), step

    def inputs(self, state: NavigationState, actions: Array) -> Float[Array, "world number"]:
        ctrl = jnp.clip(actions, -1.0, 1.0)
        return self.physics.pack(*state.bodies, ctrl, *navigation.mocap(self.scene, state.task))

    def run(self, inputs: Float[Array, "world number"]) -> Moved:
        return self.physics.run("step", inputs)

    def call(self, inputs: Float[Array, "world number"]) -> Moved:
        return self.physics.call("step", inputs)

    def finish(self, state: NavigationState, moved: Moved) -> tuple[NavigationState, Step]:
        """Everything of a step that follows the physics, resets included."""
        scene, age = self.scene, state.age + 1
        seen = navigation.look(scene, state.task.start, moved.qpos, moved.sensors)
        task, outcome = navigation.advance(scene, state.task, seen, state.key, age, navigation.renew_goals_at_once)
        finite = jnp.all(jnp.isfinite(moved.qpos), -1) & jnp.all(jnp.isfinite(moved.qvel), -1)
        terminated = outcome.lost | ~finite  # a diverged simulation ends the episode
        truncated = (age >= scene.episode_length) & ~terminated
        ended = terminated | truncated
        obs, reward, cost = (finite_or_zero(x) for x in (outcome.obs, outcome.reward, outcome.cost))
        now = Fresh(Bodies(moved.qpos, moved.qvel, moved.warm), task, state.key, obs)
        begun = select(ended, state.spare, now)
        step = Step(begun.obs, obs, reward, cost, terminated, truncated)
        age, used = jnp.where(ended, 0, age), state.used | ended
        return NavigationState(begun.bodies, begun.task, begun.key, age, state.spare, used), step

    def attend(self, state: NavigationState, steps: int = 1) -> NavigationState:
        """Call it after every ``steps`` steps, at most ``REFILL``."""
        if not self._watch.due(steps):
            return state
        self._watch.look(state.bodies.qpos)
        if not bool(jnp.any(state.used)):
            return state
        return state._replace(spare=select(state.used, self._draw(state.key), state.spare), used=state.used & False)

    def _draw(self, keys: Key) -> Fresh:
        """The episode that each world's key leads to, with sensors at rest from the physics."""
        fresh = draw_layouts(self.scene, keys)
        rest = jnp.zeros((self.num_envs, 2))
        state = NavigationState(fresh.bodies, fresh.task, keys, keys[:, 0], fresh, keys[:, 0] > 0)
        return first_look(self.scene, fresh, self.physics.run("look", self._inputs(state, rest)))


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
    spec = ant_threads.SPEC

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        # Four feet on the floor and 8 joints at their limits, 24 rows, is the most seen on the recordings.
        self.physics = WarpPhysics(ant_model(), num_envs, ant_circle.SUBSTEPS, False, 24, 96)
        self._watch = Watch(self.spec.name, self.physics)
        self._inputs, self._finish = jax.jit(self.inputs), jax.jit(self.finish)

    def init(self, keys: Key, ages: Int[Array, " world"] | None = None) -> tuple[AntState, Array]:
        checked_keys(keys, self.num_envs)
        state, obs = begin_ants(jnp.asarray(keys))
        return state if ages is None else state._replace(age=jnp.asarray(ages, jnp.int32)), obs

    def advance(self, state: AntState, actions: Array) -> tuple[AntState, Step]:
        moved = self.run(self._inputs(state, checked_shape(actions, self.num_envs, ant_threads.ACTUATORS)))
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
        torso = moved.bodies[:, 3:5]  # body 1
        outcome = ant_circle.advance(state.torso, torso, moved.qpos, moved.qvel)
        truncated = (age >= self.spec.episode_length) & ~outcome.terminated
        obs, reward = finite_or_zero(outcome.obs), finite_or_zero(outcome.reward)
        now = AntState(Bodies(moved.qpos, moved.qvel, moved.warm), torso, state.key, age)
        after, next_obs = select(outcome.terminated | truncated, begin_ants(state.key), (now, obs))
        return after, Step(next_obs, obs, reward, outcome.cost, outcome.terminated, truncated)

    def attend(self, state: AntState, steps: int = 1) -> AntState:
        if self._watch.due(steps):
            self._watch.look(state.bodies.qpos)
        return state


@jax.jit
def begin_ants(keys: Key) -> tuple[AntState, Array]:
    next_keys, reset_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    qpos, qvel = ant_circle.reset(reset_keys, jnp.dtype(jnp.float32))
    age = jnp.zeros(len(keys), jnp.int32)
    state = AntState(Bodies(qpos, qvel, jnp.zeros_like(qvel)), qpos[:, :2], next_keys, age)
    return state, ant_circle.observe(qpos, qvel)


class Watch:
    """Asks every ``REFILL`` steps whether contacts overflowed, and says so whenever twice as many worlds have."""

    def __init__(self, name: str, physics: WarpPhysics):
        self.name, self.physics = name, physics
        self.steps = self.reported = 0

    def due(self, steps: int) -> bool:
        before, self.steps = self.steps, self.steps + steps
        return before // REFILL != self.steps // REFILL

    def look(self, qpos: Array) -> None:
        jax.block_until_ready(qpos)  # the step that read Warp's arrays is over
        overflown = int((self.physics.data.overflow.numpy() != 0).sum())
        if overflown > 2 * self.reported:
            self.reported = overflown
            print(
                f"warning: {self.name}: {overflown} worlds had more contacts than fit ({self.physics.room}); "
                "their physics dropped some. Please report the scene and the policy."
            )


def checked_shape(actions: Array, num_envs: int, size: int) -> Array:
    if actions.shape != (num_envs, size):
        raise UsageError(
            f"actions have shape {actions.shape}, expected {(num_envs, size)}: one row of {size} numbers "
            f"for each of the {num_envs} worlds"
        )
    return actions


def select(mask: Bool[Array, " world"], new: Array, old: Array) -> Array:
    """``new`` where the mask holds, leaf by leaf, always as new arrays."""
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(mask.shape + (1,) * (b.ndim - 1)), a, b), new, old)
