"""Goal, Push and Circle of Safety Gym: what is seen, rewarded and charged, as pure functions of W worlds.

Every backend uses these functions. Physics hands over ``Seen`` (poses and sensors after the step); the task owns
``Task`` (where the goal, hazards and pillars are, and the distances that reward is measured against). All arrays
share one float type: float64 on the CPU, float32 on a GPU.

Order inside a step, as in the original: reward, cost, goal check, new goal where it was reached, observation. So the
observation that comes with the bonus already shows the new goal; neither robot nor box moves. Circle has no goal: it
pays for velocity along its rim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from cppo.envs.arrays import Array, Key
from cppo.envs.tasks.layouts import Layout, sample_goals, sample_goals_at_once, sample_layouts
from cppo.envs.tasks.lidar import lidars
from cppo.envs.tasks.scenes import (
    CIRCLE_RADIUS,
    GOAL_HEIGHT,
    GOAL_SIZE,
    PILLAR_HEIGHT,
    START_HEIGHT,
    VASE_HEIGHT,
    WALL,
    Scene,
)

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


class Seen(NamedTuple):
    """What the task reads from the physics."""

    position: Float[Array, "world 3"]  # robot, m
    rotation: Float[Array, "world 3 3"]  # robot body to world
    objects: Float[Array, "world object 3"]  # free objects: vases, then the box, m
    sensors: Float[Array, "world sensor"]  # the model's sensordata (``Scene.sensors``)


class Outcome(NamedTuple):
    """What one step of the task gives."""

    obs: Float[Array, "world obs"]
    reward: Float[Array, " world"]
    cost: Float[Array, "world constraint"]
    goal_met: Bool[Array, " world"]
    lost: Bool[Array, " world"]  # no place for a new goal in 10,000 tries: the episode terminates


class Start(NamedTuple):
    """Initial physics state of W worlds."""

    qpos: Float[Array, "world qpos"]
    qvel: Float[Array, "world qvel"]


def look(scene: Scene, start: Float[Array, "world 4"], qpos: Float[Array, "world qpos"], sensors: Array) -> Seen:
    """Poses from joint positions. Point's slides lie in the frame of its starting pose."""
    worlds = qpos.shape[0]
    objects = qpos[:, scene.robot.positions :].reshape(worlds, scene.free_objects, 7)[..., :3]
    if scene.robot.name == "car":
        return Seen(qpos[:, :3], quaternion_matrix(qpos[:, 3:7]), objects, sensors)
    cos, sin = start_direction(start)
    x, y = qpos[:, 0], qpos[:, 1]
    height = jnp.full_like(x, START_HEIGHT)
    position = jnp.stack([start[:, 0] + cos * x - sin * y, start[:, 1] + sin * x + cos * y, height], -1)
    turn_cos, turn_sin = jnp.cos(qpos[:, 2]), jnp.sin(qpos[:, 2])
    return Seen(
        position, _yaw_matrix(cos * turn_cos - sin * turn_sin, sin * turn_cos + cos * turn_sin), objects, sensors
    )


def start_direction(start: Float[Array, "world 4"]) -> tuple[Array, Array]:
    """Cosine and sine of the starting yaw."""
    return start[:, 2] ** 2 - start[:, 3] ** 2, 2 * start[:, 2] * start[:, 3]


def _yaw_matrix(cos: Float[Array, " world"], sin: Float[Array, " world"]) -> Float[Array, "world 3 3"]:
    zero, one = jnp.zeros_like(cos), jnp.ones_like(cos)
    return jnp.stack([cos, -sin, zero, sin, cos, zero, zero, zero, one], -1).reshape(-1, 3, 3)


def quaternion_matrix(quaternion: Float[Array, "*batch 4"]) -> Float[Array, "*batch 3 3"]:
    """Rotation matrix of a quaternion (w, x, y, z), normalised first."""
    w, x, y, z = jnp.moveaxis(quaternion / jnp.linalg.norm(quaternion, axis=-1, keepdims=True), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2)


def observe(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world obs"]:
    """Sensors, then one lidar a group, in safety-gymnasium's order."""
    groups = {
        "goal": task.goal[:, None],
        "hazards": task.hazards,
        "pillars": task.pillars,
        "vases": seen.objects[:, : scene.vases, :2],
        "box": seen.objects[:, scene.vases :, :2],
        "circle": jnp.zeros_like(task.goal[:, None]),
    }
    beams = lidars(seen.position, seen.rotation, [groups[name] for name in scene.lidars], scene.lidar_range)
    return jnp.concatenate([observed_sensors(scene, seen.sensors), *beams], axis=-1)


def observed_sensors(scene: Scene, sensors: Float[Array, "world sensor"]) -> Float[Array, "world observed"]:
    """Raw sensors; the Car's rear ball quaternion is seen as a rotation matrix, row by row."""
    if scene.robot.name == "point":
        return sensors[:, : scene.robot.sensors]
    ball = quaternion_matrix(sensors[:, 15:19]).reshape(-1, 9)
    return jnp.concatenate([sensors[:, :15], ball], -1)


def distances(scene: Scene, goal: Float[Array, "world 2"], seen: Seen) -> Float[Array, "world 2"]:
    """The two distances that reward is measured in. Push's are 3-D, although the original's comments say XY."""
    if scene.task == "circle":
        return jnp.zeros_like(goal)
    if scene.task == "goal":
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


def circle_reward(seen: Seen) -> Float[Array, " world"]:
    """0.1 (x vy - y vx) / r / (1 + |r - 1.5|), r the distance from the origin; velocity in m / s."""
    vx, vy, _ = jnp.moveaxis(jnp.sum(seen.rotation * seen.sensors[:, None, 3:6], -1), -1, 0)
    x, y, _ = jnp.moveaxis(seen.position, -1, 0)
    radius = jnp.sqrt(x * x + y * y)
    reward = CIRCLE_SCALE * (x * vy - y * vx) / radius / (1.0 + jnp.abs(radius - CIRCLE_RADIUS))
    return jnp.clip(reward, -REWARD_LIMIT, REWARD_LIMIT)


def costs(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world constraint"]:
    """0 or 1 for each constraint of the scene; level 0 charges nothing."""
    rules = {"hazards": hazard_cost, "vases": vase_cost, "pillars": pillar_cost, "walls": wall_cost}
    if not scene.charged:
        return jnp.zeros_like(seen.position[:, :1])
    return jnp.concatenate([rules[name](scene, task, seen) for name in scene.charged], axis=1)


def hazard_cost(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world 1"]:
    """1 where the robot's origin lies inside any hazard, however many overlap.

    The original sums size - distance and asks whether the sum is positive, so the rim itself is free.
    """
    inside = _norm(task.hazards - seen.position[:, None, :2]) < scene.hazard_size
    return _any(inside, seen)


def vase_cost(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world 1"]:
    """1 where the robot touches a vase or any vase moves at 1e-4 m / s or more, whatever set it going."""
    touches = seen.sensors[:, scene.robot.sensors :][:, : scene.vases]
    velocities = seen.sensors[:, scene.robot.sensors + scene.touch_sensors :].reshape(-1, scene.vases, 3)
    return _any((touches > 0) | (_norm(velocities) >= VASE_SPEED), seen)


def pillar_cost(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world 1"]:
    """1 where the robot touches a pillar."""
    first = scene.robot.sensors + scene.vases * ("vases" in scene.charged)
    return _any(seen.sensors[:, first:][:, : scene.pillars] > 0, seen)


def wall_cost(scene: Scene, task: Task, seen: Seen) -> Float[Array, "world 1"]:
    """1 where the robot's origin is beyond a wall: |x| > 1.125, with four walls |y| > 1.125 too."""
    return _any(jnp.abs(seen.position[:, : scene.walls // 2]) > WALL, seen)


def _any(charged: Bool[Array, "world object"], seen: Seen) -> Float[Array, "world 1"]:
    return jnp.any(charged, axis=1, keepdims=True).astype(seen.position.dtype)


def renew_goals(
    scene: Scene, task: Task, seen: Seen, met: Bool[Array, " world"], keys: Key, ages: Int[Array, " world"]
) -> tuple[Float[Array, "world 2"], Bool[Array, " world"]]:
    """Draw a new goal where one was met; when none was, the sampler does not run.

    The draw depends on the world's key and age alone. Returns goals and whether a place was found.
    """

    def draw(_):
        goals, found = sample_goals(scene, keys, ages, _others(task, seen), met)
        return jnp.where((met & found)[:, None], goals, task.goal), found

    return jax.lax.cond(jnp.any(met), draw, lambda _: (task.goal, jnp.ones_like(met)), None)


def renew_goals_at_once(
    scene: Scene, task: Task, seen: Seen, met: Bool[Array, " world"], keys: Key, ages: Int[Array, " world"]
) -> tuple[Float[Array, "world 2"], Bool[Array, " world"]]:
    """``renew_goals`` for a GPU: always draws, so that the host need not wait to learn whether a goal was met."""
    goals, found = sample_goals_at_once(scene, keys, ages, _others(task, seen), met)
    return jnp.where((met & found)[:, None], goals, task.goal), found


def _others(task: Task, seen: Seen) -> Float[Array, "world other 2"]:
    return jnp.concatenate([seen.position[:, None, :2], task.hazards, task.pillars, seen.objects[..., :2]], axis=1)


def advance(
    scene: Scene, task: Task, seen: Seen, keys: Key, ages: Int[Array, " world"], renew: Renew = renew_goals
) -> tuple[Task, Outcome]:
    """One step of the task after the physics has moved. ``ages`` are those after the step, from 1 up."""
    cost = costs(scene, task, seen)
    if scene.task == "circle":
        never = jnp.zeros(len(cost), bool)
        return task, Outcome(observe(scene, task, seen), circle_reward(seen), cost, never, never)
    reward, met = reward_and_success(scene, task.last, distances(scene, task.goal, seen))
    goal, found = renew(scene, task, seen, met, keys, ages)
    task = task._replace(goal=goal, last=distances(scene, goal, seen))
    return task, Outcome(observe(scene, task, seen), reward, cost, met, ~found)


def reset(scene: Scene, keys: Key, dtype: jnp.dtype) -> tuple[Key, Start, Task]:
    """A new layout for each key, at rest, and the key of the new episode (its goals, and the reset that follows)."""
    next_keys, layout_keys, goal_keys = jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, 3))(keys), 1, 0)
    layout = sample_layouts(scene, layout_keys, dtype)
    start, pose = _start(scene, layout)
    nowhere = jnp.zeros_like(layout.robot)
    task = Task(nowhere, layout.hazards, layout.pillars, nowhere, pose)
    if scene.task == "circle":
        return next_keys, start, task
    seen = look(scene, pose, start.qpos, jnp.zeros((len(keys), scene.sensors), dtype))
    always = jnp.ones(len(keys), bool)
    goal, _ = sample_goals(scene, goal_keys, jnp.zeros(len(keys), jnp.int32), _others(task, seen), always)
    return next_keys, start, task._replace(goal=goal, last=distances(scene, goal, seen))


def _start(scene: Scene, layout: Layout) -> tuple[Start, Float[Array, "world 4"]]:
    worlds, dtype = len(layout.robot), layout.robot.dtype
    pose = jnp.concatenate(
        [layout.robot, jnp.cos(layout.robot_yaw / 2)[:, None], jnp.sin(layout.robot_yaw / 2)[:, None]], -1
    )
    if scene.robot.name == "point":
        robot = jnp.zeros((worlds, 3), dtype)
    else:
        upright = _free_pose(layout.robot, layout.robot_yaw, jnp.asarray(START_HEIGHT, dtype))
        robot = jnp.concatenate([upright, jnp.zeros((worlds, 2), dtype), _unit_quaternion(worlds, dtype)], -1)
    heights = jnp.asarray([VASE_HEIGHT] * scene.vases + [scene.robot.box_half] * (scene.task == "push"), dtype)
    objects = _free_pose(layout.objects, layout.object_yaw, heights).reshape(worlds, -1)
    return Start(jnp.concatenate([robot, objects], -1), jnp.zeros((worlds, scene.qvel_size), dtype)), pose


def _free_pose(xy: Float[Array, "*batch 2"], yaw: Float[Array, "*batch"], height: Array) -> Float[Array, "*batch 7"]:
    zero = jnp.zeros_like(yaw)
    rest = [jnp.broadcast_to(height, yaw.shape), jnp.cos(yaw / 2), zero, zero, jnp.sin(yaw / 2)]
    return jnp.concatenate([xy, jnp.stack(rest, -1)], -1)


def _unit_quaternion(worlds: int, dtype: jnp.dtype) -> Float[Array, "world 4"]:
    return jnp.tile(jnp.asarray([1.0, 0.0, 0.0, 0.0], dtype), (worlds, 1))


def mocap(scene: Scene, task: Task) -> tuple[Float[Array, "world body 3"], Float[Array, "world body 4"]]:
    """Positions and quaternions of the model's mocap bodies: Point's starting pose, then the pillars."""
    worlds, dtype = len(task.goal), task.goal.dtype
    height = jnp.full((worlds, scene.pillars, 1), PILLAR_HEIGHT, dtype)
    positions = [jnp.concatenate([task.pillars, height], -1)]
    quaternions = [jnp.tile(_unit_quaternion(worlds, dtype)[:, None], (1, scene.pillars, 1))]
    if scene.robot.name == "point":
        zero = jnp.zeros((worlds, 1), dtype)
        robot = jnp.concatenate([task.start[:, :2], zero + START_HEIGHT], -1)
        turn = jnp.concatenate([task.start[:, 2:3], zero, zero, task.start[:, 3:4]], -1)
        positions, quaternions = [robot[:, None], *positions], [turn[:, None], *quaternions]
    return jnp.concatenate(positions, 1), jnp.concatenate(quaternions, 1)
