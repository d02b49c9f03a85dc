"""Safety Gym's scenes on MuJoCo Warp: physics, task, policy and data stay on the GPU, in float32.

A world's next layout is drawn ahead (the rejection sampler is a loop, too slow to run whenever one of thousands of
worlds ends), from the same keys in the same order as on other backends.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from cppo.envs.batched import select
from cppo.envs.mujoco.arrays import Array, Key, finite_or_zero
from cppo.envs.mujoco.checks import checked_keys, checked_shape
from cppo.envs.mujoco.warp import REFILL, Bodies, Moved, WarpPhysics, Watch
from cppo.envs.safety_gym import navigation
from cppo.envs.safety_gym.models import navigation_model
from cppo.envs.safety_gym.navigation import Task
from cppo.envs.safety_gym.scenes import SUBSTEPS, Scene
from cppo.types import Step, TrainingError

ROWS = 10  # constraint rows of one contact: pyramidal friction cone of condim 6


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
    tally: Float[Array, " world"]  # goals reached in this episode; NaN: not all of it was seen


def room(scene: Scene) -> tuple[int, int]:
    """Contacts and constraint rows to reserve for a world.

    Most seen on the recordings of the originals: 5 contacts (PointGoal1), 21 (PointPush1), 27 (CarPush1); a vase rests
    on 4, the box with its columns on 16. Twice that for objects that touch each other, and overflow is detected.
    """
    contacts = 8 * scene.vases + 24 * (scene.task == "push") + scene.robot.contacts
    return contacts, ROWS * contacts


class WarpNavigation:
    """W worlds of a ``Scene`` on a GPU; see ``cppo.types.BatchedEnv`` for the contract."""

    backend = "warp"
    jittable = False
    resumable = False  # atomic sums on a GPU are not repeatable, so neither is a physics step
    unattended = REFILL  # steps that may pass without ``attend``

    def __init__(self, scene: Scene, num_envs: int):
        self.scene, self.num_envs, self.spec = scene, num_envs, scene.spec
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
        tally = jnp.where(age > 0, jnp.nan, 0.0)
        state = NavigationState(first.bodies, first.task, first.key, age, self._draw(first.key), unused, tally)
        return state, first.obs

    def advance(self, state: NavigationState, actions: Array) -> tuple[NavigationState, Step]:
        moved = self.run(self._inputs(state, checked_shape(actions, self.num_envs, self.scene.robot.actuated)))
        state, step = self._finish(state, moved)
        return self.attend(state), step

    def inputs(self, state: NavigationState, actions: Array) -> Float[Array, "world number"]:
        robot = self.scene.robot
        ctrl = jnp.clip(actions, jnp.asarray(robot.low), jnp.asarray(robot.high))
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
        terminated = outcome.lost | outcome.fallen | ~finite  # a diverged simulation ends the episode
        truncated = (age >= scene.episode_length) & ~terminated
        ended = terminated | truncated
        obs, reward, cost = (finite_or_zero(x) for x in (outcome.obs, outcome.reward, outcome.cost))
        now = Fresh(Bodies(moved.qpos, moved.qvel, moved.warm), task, state.key, obs)
        begun = select(ended, state.spare, now)
        tally = state.tally + outcome.goal_met
        measures = navigation.measures(scene, tally, outcome)
        step = Step(begun.obs, obs, reward, cost, terminated, truncated, measures=measures)
        age, used, tally = jnp.where(ended, 0, age), state.used | ended, jnp.where(ended, 0.0, tally)
        return NavigationState(begun.bodies, begun.task, begun.key, age, state.spare, used, tally), step

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
        rest = jnp.zeros((self.num_envs, self.scene.robot.actuated))
        none = jnp.zeros(self.num_envs)
        state = NavigationState(fresh.bodies, fresh.task, keys, keys[:, 0], fresh, keys[:, 0] > 0, none)
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
