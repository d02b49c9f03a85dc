"""The Point robot without contact, in closed form.

Two slides and a hinge, with mass m, first moment m c along the heading and inertia I about the hinge. With theta the
hinge angle, w its speed and b = m c (-sin theta, cos theta), MuJoCo's Euler step solves, in the slide frame,

    (m + h D) a + b alpha = F (cos theta, sin theta) - D v + m c w^2 (cos theta, sin theta)
    b . a + (I + h D_z) alpha = tau - D_z w

then v += h a, w += h alpha, and positions with the new velocities. The sphere meets the floor at distance exactly 0,
which makes a contact but no force, so nothing else acts unless an object is touched. The yaw servo is unstable at
this time step and chatters; that is the robot, and it shows in its sensors.

``must_simulate`` says which worlds may not use this: the robot could reach something within one environment step, or
a free object is still moving. One motion is known beforehand: after a reset the objects sink some micrometres into
the floor, always in the same way, which ``settle`` reads from a table.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from cppo.envs.mujoco.arrays import Array
from cppo.envs.safety_gym.navigation import Task
from cppo.envs.safety_gym.robots import POINT
from cppo.envs.safety_gym.scenes import PILLAR_RADIUS, SUBSTEPS, VASE_HALF, Scene
from cppo.envs.safety_gym.seen import Seen, quaternion_matrix, start_direction

GRAVITY = 9.81  # m / s^2
MAGNETIC = 0.5  # field strength along -y
SPHERE_MASS = 4 / 3 * math.pi * 0.1**3  # kg, density 1
ARROW_MASS = 0.1**3  # kg, a cube of edge 0.1 m at 0.1 m in front of the hinge
MASS = SPHERE_MASS + ARROW_MASS
MOMENT = 0.1 * ARROW_MASS  # kg m, m c
INERTIA = 0.4 * SPHERE_MASS * 0.1**2 + ARROW_MASS * (0.1**2 / 6 + 0.1**2)  # kg m^2, about the hinge
SLIDE_DAMPING, HINGE_DAMPING = 0.01, 0.005  # N s / m, N m s
GEAR, FORCE_LIMIT = 0.3, 0.05

REACH = (0.15**2 + 0.05**2 + 0.05**2) ** 0.5  # m, the arrow's far corners: everything of the robot is nearer
TRAVEL_MARGIN = 0.005  # m: what thrust and turning can add to speed * duration in one environment step
# Below these limits one environment step changes an object's position and speed by less than 1e-9. The solver's
# tolerance can leave an object that was touched at up to 6e-8 m/s while the robot stands still: MuJoCo steps it then.
STILL_SPEED = 1e-9  # m / s and rad / s
STILL_ACCELERATION = 1e-6  # m / s^2 and rad / s^2


def _accelerations(
    joints: tuple[Array, ...], speeds: tuple[Array, ...], action: Array, step: float
) -> tuple[Array, Array, Array, Array, Array]:
    """Slide and hinge accelerations with damping implicit over ``step`` seconds, and cosine and sine of theta."""
    (_, _, theta), (vx, vy, w) = joints, speeds
    cos, sin = jnp.cos(theta), jnp.sin(theta)
    thrust = GEAR * jnp.clip(action[:, 0], -FORCE_LIMIT, FORCE_LIMIT)
    torque = GEAR * jnp.clip(action[:, 1] - GEAR * w, -FORCE_LIMIT, FORCE_LIMIT)
    along = thrust + MOMENT * w * w
    fx, fy = along * cos - SLIDE_DAMPING * vx, along * sin - SLIDE_DAMPING * vy
    mass, inertia = MASS + step * SLIDE_DAMPING, INERTIA + step * HINGE_DAMPING
    across = MOMENT * (cos * fy - sin * fx) / mass
    alpha = (torque - HINGE_DAMPING * w - across) / (inertia - MOMENT**2 / mass)
    return (fx + MOMENT * sin * alpha) / mass, (fy - MOMENT * cos * alpha) / mass, alpha, cos, sin


def advance_point(
    joints: Float[Array, "world 3"], speeds: Float[Array, "world 3"], action: Float[Array, "world 2"]
) -> tuple[Float[Array, "world 3"], Float[Array, "world 3"]]:
    """Ten physics steps under one action, already clipped to [-1, 1]."""
    step = POINT.timestep

    def substep(_, state):
        joints, speeds = state
        accelerations = _accelerations(joints, speeds, action, step)[:3]
        speeds = tuple(v + step * a for v, a in zip(speeds, accelerations, strict=True))
        return tuple(q + step * v for q, v in zip(joints, speeds, strict=True)), speeds

    columns = tuple(joints.T), tuple(speeds.T)
    joints_out, speeds_out = jax.lax.fori_loop(0, SUBSTEPS, substep, columns)
    return jnp.stack(joints_out, -1), jnp.stack(speeds_out, -1)


def point_accelerations(
    joints: Float[Array, "world 3"], speeds: Float[Array, "world 3"], action: Float[Array, "world 2"]
) -> Float[Array, "world 3"]:
    """Joint accelerations as a forward evaluation gives them: no implicit damping."""
    return jnp.stack(_accelerations(tuple(joints.T), tuple(speeds.T), action, 0.0)[:3], -1)


def point_sensors(
    joints: Float[Array, "world 3"],
    speeds: Float[Array, "world 3"],
    action: Float[Array, "world 2"],
    start: Float[Array, "world 4"],
) -> Float[Array, "world 12"]:
    """Accelerometer, velocimeter, gyro and magnetometer after a step, the action held."""
    ax, ay, _, cos, sin = _accelerations(tuple(joints.T), tuple(speeds.T), action, 0.0)
    vx, vy, w = speeds.T
    start_cos, start_sin = start_direction(start)
    yaw_cos, yaw_sin = start_cos * cos - start_sin * sin, start_sin * cos + start_cos * sin
    zero = jnp.zeros_like(ax)
    accelerometer = [cos * ax + sin * ay, cos * ay - sin * ax, zero + GRAVITY]
    velocimeter = [cos * vx + sin * vy, cos * vy - sin * vx, zero]
    magnetometer = [-MAGNETIC * yaw_sin, -MAGNETIC * yaw_cos, zero]
    return jnp.stack([*accelerometer, *velocimeter, zero, zero, w, *magnetometer], -1)


def object_sensors(scene: Scene, qvel: Float[Array, "world qvel"]) -> Float[Array, "world sensor"]:
    """What the model reports of charged objects while nothing touches them: no contact, and the vases' velocities."""
    touches = jnp.zeros((len(qvel), scene.touch_sensors), qvel.dtype)
    if "vases" not in scene.charged:
        return touches
    vases = qvel[:, scene.robot.velocities :].reshape(len(qvel), scene.free_objects, 6)[:, : scene.vases, :3]
    return jnp.concatenate([touches, vases.reshape(len(qvel), -1)], 1)


def must_simulate(
    scene: Scene, task: Task, seen: Seen, qpos: Array, qvel: Array, acceleration: Array, settling: Array
) -> Bool[Array, " world"]:
    """Worlds whose next step needs MuJoCo. ``acceleration`` is that of the joints at the end of the last step.

    ``settling`` is 0 or more where objects have not been touched since the reset: their motion is tabulated.

    A contact can arise only where the ball of radius ``REACH`` around the robot, moved by what one step can travel,
    meets an object's bounding box or a pillar; so the test errs on MuJoCo's side alone.
    """
    travel = SUBSTEPS * POINT.timestep * jnp.sqrt(qvel[:, 0] ** 2 + qvel[:, 1] ** 2) + TRAVEL_MARGIN
    radius = REACH + travel
    moving = jnp.any(jnp.abs(qvel[:, 3:]) > STILL_SPEED, -1) | jnp.any(
        jnp.abs(acceleration[:, 3:]) > STILL_ACCELERATION, -1
    )
    near_pillar = _any_within(task.pillars - seen.position[:, None, :2], radius + PILLAR_RADIUS)
    return (moving & (settling < 0)) | near_pillar | _near_objects(scene, seen, qpos, radius)


def next_settling(settling: Int[Array, " world"], simulated: Bool[Array, " world"]) -> Int[Array, " world"]:
    """One step further in the table of untouched objects; -1 for good once MuJoCo has stepped the world."""
    return jnp.where(simulated | (settling < 0), -1, settling + 1)


def settle(
    qpos: Array, qvel: Array, acceleration: Array, settling: Int[Array, " world"], table: Float[Array, "step object 3"]
) -> tuple[Array, Array, Array]:
    """Free objects one step later: along ``table`` (height, speed, acceleration) where untouched, else as they are."""
    worlds, objects = len(qpos), table.shape[1]
    height, speed, change = jnp.moveaxis(jnp.asarray(table)[jnp.clip(settling + 1, 0, len(table) - 1)], -1, 0)
    untouched = (settling >= 0)[:, None]

    def with_third(values, width, third):
        values = values[:, 3:].reshape(worlds, objects, width)
        return values.at[..., 2].set(jnp.where(untouched, third, values[..., 2])).reshape(worlds, -1)

    return with_third(qpos, 7, height), with_third(qvel, 6, speed), with_third(acceleration, 6, change)


def _any_within(offset: Float[Array, "world object axis"], radius: Float[Array, " world"]) -> Bool[Array, " world"]:
    return jnp.any(jnp.sum(offset * offset, -1) < (radius * radius)[:, None], axis=1)


def _near_objects(scene: Scene, seen: Seen, qpos: Array, radius: Float[Array, " world"]) -> Bool[Array, " world"]:
    """Whether the ball around the robot meets a free object's bounding box, in that object's own frame."""
    box = scene.robot.box_half
    halves = [[VASE_HALF] * 3] * scene.vases + [[1.5 * box, 1.5 * box, box]] * (scene.task == "push")
    turns = quaternion_matrix(qpos[:, 3:].reshape(len(qpos), scene.free_objects, 7)[..., 3:])
    offset = seen.position[:, None] - seen.objects
    local = jnp.sum(offset[..., None] * turns, axis=-2)
    outside = jnp.maximum(jnp.abs(local) - jnp.asarray(halves, qpos.dtype).reshape(-1, 3), 0.0)
    return _any_within(outside, radius)
