"""What a task reads from the physics: where robot and objects are, what the robot's sensors say, what is observed."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from cppo.envs.mujoco.arrays import Array
from cppo.envs.safety_gym.robots.robot import SENSES_SIZE, Robot
from cppo.envs.safety_gym.scenes import Scene

VELOCIMETER, GYRO = slice(3, 6), slice(6, 9)  # in sensordata


class Seen(NamedTuple):
    """What the task reads from the physics."""

    position: Float[Array, "world 3"]  # robot, m
    rotation: Float[Array, "world 3 3"]  # robot body to world
    objects: Float[Array, "world object 3"]  # free objects: vases, then the box, m
    sensors: Float[Array, "world sensor"]  # the model's sensordata (``Scene.sensors``)


def look(scene: Scene, start: Float[Array, "world 4"], qpos: Float[Array, "world qpos"], sensors: Array) -> Seen:
    """Poses from joint positions. Point's slides lie in the frame of its starting pose."""
    worlds = qpos.shape[0]
    objects = qpos[:, scene.robot.positions :].reshape(worlds, scene.free_objects, 7)[..., :3]
    if not scene.robot.planar:
        return Seen(qpos[:, :3], quaternion_matrix(qpos[:, 3:7]), objects, sensors)
    cos, sin = start_direction(start)
    x, y = qpos[:, 0], qpos[:, 1]
    height = jnp.full_like(x, scene.robot.start)
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


def velocity(robot: Robot, seen: Seen) -> Float[Array, "world 3"]:
    """Of the robot's root in the world, m / s; the velocimeter measures that of its site."""
    speed = seen.sensors[:, VELOCIMETER]
    if any(robot.site):
        speed = speed - jnp.cross(seen.sensors[:, GYRO], jnp.asarray(robot.site, speed.dtype))
    return jnp.sum(seen.rotation * speed[:, None], -1)


def observed_sensors(robot: Robot, sensors: Float[Array, "world sensor"]) -> Float[Array, "world observed"]:
    """The robot's sensors as it observes them: angles as sine and cosine, quaternions as rotation matrices by rows."""
    parts, first = [sensors[:, :SENSES_SIZE]], SENSES_SIZE
    for kind, size in robot.senses:
        part, first = sensors[:, first : first + size], first + size
        if kind == "angles":
            part = jnp.stack([jnp.sin(part), jnp.cos(part)], -1).reshape(len(part), -1)
        elif kind == "quaternions":
            part = quaternion_matrix(part.reshape(len(part), -1, 4)).reshape(len(part), -1)
        if kind != "unseen":
            parts.append(part)
    return jnp.concatenate(parts, -1)
