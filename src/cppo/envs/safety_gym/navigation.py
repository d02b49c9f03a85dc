"""Goal, Push, Circle and Button of Safety Gym: what is seen, rewarded and charged, as pure functions of W worlds.

Every backend uses these functions. Physics hands over ``Seen`` (poses and sensors after the step); the task owns
``Task`` (where the goal, hazards and pillars are, and the distances that reward is measured against). All arrays
share one float type: float64 on the CPU, float32 on a GPU.

Order inside a step, as in the original: reward, cost, goal check, new goal where it was reached, observation. So the
observation that comes with the bonus already shows the new goal; neither robot nor box moves. Circle has no goal: it
pays for velocity along its rim.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from cppo.envs.mujoco.arrays import Array, Key
from cppo.envs.safety_gym import button
from cppo.envs.safety_gym.layouts import LAYOUTS, Asked, Layout, sample_goals, sample_goals_at_once, sample_layouts
from cppo.envs.safety_gym.lidar import lidars
from cppo.envs.safety_gym.scenes import (
    CIRCLE_RADIUS,
    GOAL_HEIGHT,
    GOAL_SIZE,
    GREMLIN_HALF,
    PILLAR_HEIGHT,
    VASE_HEIGHT,
    WALL,
    Scene,
)
from cppo.envs.safety_gym.seen import Seen, look, observed_sensors, velocity

REWARD_LIMIT = 10.0  # rewards are clipped to [-10, 10]; normal play never gets there
VASE_SPEED = 1e-4  # m / s, from here on a vase counts as moved
CIRCLE_SCALE = 0.1  # reward for a speed of 1 m / s along the rim


# (scene, task, seen, met, keys, ages) -> goals, found
Renew = Callable[..., tuple[Float[Array, "world 2"], Bool[Array, " world"]]]


class Task(NamedTuple):
    """What the task knows of W worlds besides their physics."""

    goal: Float[Array, "world 2"]
    hazards: Float[Array, "world hazard 2"]
    pillars: Float[Array, "world pillar 2"]
    last: Float[Array, "world 2"]  # Goal: robot-goal, 0. Push: robot-box, box-goal. Distances in m after the last step
    start: Float[Array, "world 4"]  # starting pose: x, y (m), cosine and sine of half the yaw
    pressing: Any = ()  # Button's own (``button.Pressing``), else nothing


class Verdict(NamedTuple):
    """What one step of the task gives."""

    obs: Float[Array, "world obs"]
    reward: Float[Array, " world"]
    cost: Float[Array, "world constraint"]
    goal_met: Bool[Array, " world"]
    lost: Bool[Array, " world"]  # no place for a new goal in 10,000 tries: the episode terminates
    fallen: Bool[Array, " world"]  # the robot fell: so it does here


class Start(NamedTuple):
    """Initial physics state of W worlds."""

    qpos: Float[Array, "world qpos"]
    qvel: Float[Array, "world qvel"]


def observe(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world obs"]:
    """Sensors, then one lidar a group, in safety-gymnasium's order."""
    buttons = task.pressing.buttons if scene.buttons else task.hazards[:, :0]
    groups = {
        "buttons": buttons,
        "goal": task.goal[:, None],
        "hazards": task.hazards,
        "pillars": task.pillars,
        "vases": seen.objects[:, : scene.vases, :2],
        "box": seen.objects[:, scene.vases :, :2],
        "gremlins": seen.objects[:, scene.vases :, :2],
        "circle": jnp.zeros_like(task.goal[:, None]),
    }
    beams = lidars(seen.position, seen.rotation, [groups[name] for name in scene.lidars], scene.lidar_range)
    if scene.buttons:  # which come first
        beams[0] = jnp.where(task.pressing.timer[:, None] == 0, beams[0], 0.0)
    return jnp.concatenate([observed_sensors(scene.robot, seen.sensors), *beams], axis=-1)


def distances(scene: Scene, goal: Float[Array, "world 2"], seen: Seen) -> Float[Array, "world 2"]:
    """The two distances that reward is measured in. Push's are 3-D, although the original's comments say XY."""
    if scene.task == "circle":
        return jnp.zeros_like(goal)
    if scene.task in ("goal", "button"):
        reach = _norm(seen.position[:, :2] - goal)
        return jnp.stack([reach, jnp.zeros_like(reach)], -1)
    box = seen.objects[:, -1]
    goal = jnp.concatenate([goal, jnp.full_like(goal[:, :1], GOAL_HEIGHT)], -1)
    return jnp.stack([_norm(box - seen.position), _norm(box - goal)], -1)


def _norm(vector: Float[Array, "*batch axis"]) -> Float[Array, "*batch"]:
    return jnp.sqrt(jnp.sum(vector * vector, -1))


def reward_and_success(
    scene: Scene, last: Float[Array, "world 2"], now: Float[Array, "world 2"]
) -> tuple[Float[Array, " world"], Bool[Array, " world"]]:
    """Progress in metres, plus 1 where the goal is reached: r = sum(last - now) + [distance <= 0.3]."""
    gain = last - now
    if scene.task == "goal":
        progress, met = gain[:, 0], now[:, 0] <= GOAL_SIZE
    else:
        progress, met = jnp.where(last[:, 0] > 0, gain[:, 0], 0.0) + gain[:, 1], now[:, 1] <= GOAL_SIZE
    return jnp.clip(progress + met, -REWARD_LIMIT, REWARD_LIMIT), met


def circle_reward(scene: Scene, seen: Seen) -> Float[Array, " world"]:
    """0.1 (x vy - y vx) / r / (1 + |r - 1.5|), r the distance from the origin; velocity in m / s."""
    vx, vy, _ = jnp.moveaxis(velocity(scene.robot, seen), -1, 0)
    x, y, _ = jnp.moveaxis(seen.position, -1, 0)
    radius = jnp.sqrt(x * x + y * y)
    reward = CIRCLE_SCALE * (x * vy - y * vx) / radius / (1.0 + jnp.abs(radius - CIRCLE_RADIUS))
    return jnp.clip(reward, -REWARD_LIMIT, REWARD_LIMIT)


def costs(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world constraint"]:
    """0 or 1 for each constraint of the scene; level 0 charges nothing."""
    if not scene.charged:
        return jnp.zeros_like(seen.position[:, :1])
    charges = jnp.concatenate([RULES[name](scene, task, seen) for name in scene.charged], axis=1)
    return jnp.max(charges, 1, keepdims=True) if scene.joined else charges


def hazard_cost(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world 1"]:
    """1 where the robot's origin lies inside any hazard, however many overlap.

    The original sums size - distance and asks whether the sum is positive, so the rim itself is free.
    """
    inside = _norm(task.hazards - seen.position[:, None, :2]) < scene.hazard_size
    return _any(inside, seen)


def vase_cost(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world 1"]:
    """1 where the robot touches a vase or any vase moves at 1e-4 m / s or more, whatever set it going."""
    touches = seen.sensors[:, scene.robot.sensed :][:, : scene.vases]
    velocities = seen.sensors[:, scene.robot.sensed + scene.touch_sensors :].reshape(-1, scene.vases, 3)
    return _any((touches > 0) | (_norm(velocities) >= VASE_SPEED), seen)


def pillar_cost(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world 1"]:
    """1 where the robot touches a pillar."""
    first = scene.robot.sensed + scene.vases * ("vases" in scene.charged)
    return _any(seen.sensors[:, first:][:, : scene.pillars] > 0, seen)


def wall_cost(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world 1"]:
    """1 where the robot's origin is beyond a wall: |x| > 1.125, with four walls |y| > 1.125 too."""
    return _any(jnp.abs(seen.position[:, : scene.walls // 2]) > WALL, seen)


def button_cost(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world 1"]:
    """1 where the robot touches a button that is not wanted, and the timer is over."""
    return _any(button.wrong(scene, task.pressing, seen.sensors), seen)


def gremlin_cost(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world 1"]:
    """1 where the robot touches a gremlin."""
    return _any(button.touched(scene, seen.sensors)[1], seen)


def _any(charged: Bool[Array, "world object"], seen: Seen) -> Float[Array, "world 1"]:
    return jnp.any(charged, axis=1, keepdims=True).astype(seen.position.dtype)


RULES = {
    "hazards": hazard_cost, "vases": vase_cost, "pillars": pillar_cost, "walls": wall_cost,
    "buttons": button_cost, "gremlins": gremlin_cost,
}  # fmt: skip


def renew_goals(
    scene: Scene, task: Task, seen: Seen, met: Bool[Array, " world"], keys: Key, ages: Int[Array, " world"]
) -> tuple[Float[Array, "world 2"], Bool[Array, " world"]]:
    """Draw a new goal where one was met; when none was, the sampler does not run.

    The draw depends on the world's key and age alone. Returns goals and whether a place was found.
    """

    def draw(_):
        goals, found = sample_goals(scene, Asked(keys, ages, _others(task, seen), met))
        return jnp.where((met & found)[:, None], goals, task.goal), found

    return jax.lax.cond(jnp.any(met), draw, lambda _: (task.goal, jnp.ones_like(met)), None)


def renew_goals_at_once(
    scene: Scene, task: Task, seen: Seen, met: Bool[Array, " world"], keys: Key, ages: Int[Array, " world"]
) -> tuple[Float[Array, "world 2"], Bool[Array, " world"]]:
    """``renew_goals`` for a GPU: always draws, so that the host need not wait to learn whether a goal was met."""
    goals, found = sample_goals_at_once(scene, Asked(keys, ages, _others(task, seen), met))
    return jnp.where((met & found)[:, None], goals, task.goal), found


def _others(task: Task, seen: Seen) -> Float[Array, "world other 2"]:
    return jnp.concatenate([seen.position[:, None, :2], task.hazards, task.pillars, seen.objects[..., :2]], axis=1)


def advance(
    scene: Scene, task: Task, seen: Seen, keys: Key, ages: Int[Array, " world"], renew: Renew = renew_goals
) -> tuple[Task, Verdict]:
    """One step of the task after the physics has moved. ``ages`` are those after the step, from 1 up."""
    cost = costs(scene, task, seen)
    never, down = jnp.zeros(len(cost), bool), fallen(scene, seen)
    if scene.task == "circle":
        return task, Verdict(observe(scene, task, seen), circle_reward(scene, seen), cost, never, never, down)
    now = distances(scene, task.goal, seen)
    if scene.task == "button":
        met = button.pressed(scene, task.pressing, seen.sensors)
        reward = jnp.clip((task.last - now)[:, 0] + met, -REWARD_LIMIT, REWARD_LIMIT)
        pressing = button.renewed(scene, task.pressing, met, keys, ages)
        goal = button.wanted_place(pressing)
        task = task._replace(pressing=pressing, goal=goal, last=distances(scene, goal, seen))
        return task, Verdict(observe(scene, task, seen), reward, cost, met, never, down)
    reward, met = reward_and_success(scene, task.last, now)
    goal, found = renew(scene, task, seen, met, keys, ages)
    task = task._replace(goal=goal, last=distances(scene, goal, seen))
    return task, Verdict(observe(scene, task, seen), reward, cost, met, ~found, down)


def fallen(scene: Scene, seen: Seen) -> Bool[Array, " world"]:
    """Whether the robot has fallen, which ends the episode of those that can."""
    if scene.robot.fallen is None:
        return jnp.zeros(len(seen.position), bool)
    return seen.position[:, 2] <= scene.robot.fallen


def measures(scene: Scene, tally: Float[Array, " world"], outcome: Verdict) -> Float[Array, "world measure"] | None:
    """What ``Scene.measures`` names, at a step."""
    values = {"goals": tally, "fallen": outcome.fallen}
    columns = [values[name].astype(jnp.float32) for name in scene.measures]
    return jnp.stack(columns, -1) if columns else None


def reset(scene: Scene, keys: Key, dtype: jnp.dtype) -> tuple[Key, Start, Task]:
    """A new layout for each key, at rest, and the key of the new episode (its goals, and the reset that follows)."""
    next_keys, layout_keys, goal_keys = jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, 3))(keys), 1, 0)
    layout = sample_layouts(scene, layout_keys, dtype)
    start, pose = _start(scene, layout, layout_keys)
    nowhere = jnp.zeros_like(layout.robot)
    task = Task(nowhere, layout.hazards, layout.pillars, nowhere, pose)
    if scene.task == "circle":
        return next_keys, start, task
    seen = look(scene, pose, start.qpos, jnp.zeros((len(keys), scene.sensors), dtype))
    if scene.task == "button":
        pressing = button.begin(layout.buttons, layout.objects, layout.object_yaw, goal_keys)
        goal = button.wanted_place(pressing)
        return next_keys, start, task._replace(pressing=pressing, goal=goal, last=distances(scene, goal, seen))
    first, always = jnp.zeros(len(keys), jnp.int32), jnp.ones(len(keys), bool)
    goal, _ = sample_goals(scene, Asked(goal_keys, first, _others(task, seen), always))
    return next_keys, start, task._replace(goal=goal, last=distances(scene, goal, seen))


def _start(scene: Scene, layout: Layout, keys: Key) -> tuple[Start, Float[Array, "world 4"]]:
    worlds, dtype = len(layout.robot), layout.robot.dtype
    pose = jnp.concatenate(
        [layout.robot, jnp.cos(layout.robot_yaw / 2)[:, None], jnp.sin(layout.robot_yaw / 2)[:, None]], -1
    )
    if scene.robot.planar:
        robot = jnp.zeros((worlds, 3), dtype)
    else:
        upright = _free_pose(layout.robot, layout.robot_yaw, jnp.asarray(scene.robot.start, dtype))
        robot = jnp.concatenate([upright, _joints(scene, keys, dtype)], -1)
    moving = [scene.robot.box_half] * (scene.task == "push") + [GREMLIN_HALF] * scene.gremlins
    heights = jnp.asarray([VASE_HEIGHT] * scene.vases + moving, dtype)
    objects = _free_pose(layout.objects, layout.object_yaw, heights).reshape(worlds, -1)
    return Start(jnp.concatenate([robot, objects], -1), jnp.zeros((worlds, scene.qvel_size), dtype)), pose


def _joints(scene: Scene, keys: Key, dtype: jnp.dtype) -> Float[Array, "world joint"]:
    """The robot's joints at a reset; layouts draw from the same keys under smaller numbers."""
    rest, jitter = jnp.asarray(scene.robot.rest, dtype), scene.robot.jitter
    if not jitter:
        return jnp.tile(rest, (len(keys), 1))
    streams = jax.vmap(partial(jax.random.fold_in, data=LAYOUTS))(keys)
    draw = partial(jax.random.uniform, shape=rest.shape, dtype=dtype, minval=-jitter, maxval=jitter)
    return rest + jnp.where(rest < 0, -1, 1) * jax.vmap(draw)(streams)


def _free_pose(xy: Float[Array, "*batch 2"], yaw: Float[Array, "*batch"], height: Array) -> Float[Array, "*batch 7"]:
    zero = jnp.zeros_like(yaw)
    rest = [jnp.broadcast_to(height, yaw.shape), jnp.cos(yaw / 2), zero, zero, jnp.sin(yaw / 2)]
    return jnp.concatenate([xy, jnp.stack(rest, -1)], -1)


def _unit_quaternion(worlds: int, dtype: jnp.dtype) -> Float[Array, "world 4"]:
    return jnp.tile(jnp.asarray([1.0, 0.0, 0.0, 0.0], dtype), (worlds, 1))


def mocap(scene: Scene, task: Task) -> tuple[Float[Array, "world body 3"], Float[Array, "world body 4"]]:
    """Poses of the model's mocap bodies: Point's starting pose, pillars, buttons, and what holds the gremlins."""
    worlds, dtype = len(task.goal), task.goal.dtype
    height = jnp.full((worlds, scene.pillars, 1), PILLAR_HEIGHT, dtype)
    positions = [jnp.concatenate([task.pillars, height], -1)]
    quaternions = [jnp.tile(_unit_quaternion(worlds, dtype)[:, None], (1, scene.pillars, 1))]
    if scene.robot.planar:
        zero = jnp.zeros((worlds, 1), dtype)
        robot = jnp.concatenate([task.start[:, :2], zero + scene.robot.start], -1)
        turn = jnp.concatenate([task.start[:, 2:3], zero, zero, task.start[:, 3:4]], -1)
        positions, quaternions = [robot[:, None], *positions], [turn[:, None], *quaternions]
    if scene.task == "button":
        places, turns = button.handles(scene, task.pressing)
        positions, quaternions = [*positions, places], [*quaternions, turns]
    return jnp.concatenate(positions, 1), jnp.concatenate(quaternions, 1)
