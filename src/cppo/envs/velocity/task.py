"""The Velocity tasks: what is seen, rewarded and charged, as pure functions of W worlds of one robot.

Every backend uses these functions. Physics hands over ``Moved``; speeds are differences of places over the time of a
step, as in the original. ``Moved.place`` and ``Moved.rich`` are those of MuJoCo's last Runge-Kutta stage, which is
where the original reads them, too.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from cppo.envs.batched import Transition
from cppo.envs.mujoco.arrays import Array, Key
from cppo.envs.velocity.robots import Robot


class Moved(NamedTuple):
    """What the task reads from the physics."""

    qpos: Float[Array, "world qpos"]
    qvel: Float[Array, "world qvel"]
    place: Float[Array, "world 2"]  # what speed is measured by, m
    rich: Float[Array, "world number"]  # what else is observed


def reset(robot: Robot, keys: Key, dtype: jnp.dtype) -> tuple[Float[Array, "world qpos"], Float[Array, "world qvel"]]:
    """A noisy pose at rest height. Quaternions are normalised, which MuJoCo did by itself before 3.2.0."""
    rest = jnp.zeros(robot.positions, dtype).at[robot.height_entry].set(robot.rest)
    rest = rest.at[3].set(1.0) if robot.free else rest

    def one(key):
        position_key, velocity_key = jax.random.split(key)
        qpos = rest + jax.random.uniform(position_key, rest.shape, dtype, -robot.noise, robot.noise)
        if robot.free:
            qpos = qpos.at[3:7].divide(jnp.linalg.norm(qpos[3:7]))
        shape = (robot.velocities,)
        if robot.normal_speeds:
            return qpos, robot.noise * jax.random.normal(velocity_key, shape, dtype)
        return qpos, jax.random.uniform(velocity_key, shape, dtype, -robot.noise, robot.noise)

    return jax.vmap(one)(keys)


def advance(
    robot: Robot, before: Float[Array, "world 2"], moved: Moved, action: Float[Array, "world actuator"]
) -> Transition:
    """Reward, cost and end of a step that began at the place ``before``, in m.

    With v = (after - before) / duration: r = w v_x + h - k |a|^2, c = [v_x > threshold], or of |v| where the robot
    moves in space. The reward of being alive, h, is paid for the last step, too.
    """
    velocity = (moved.place - before) / robot.duration
    ahead = velocity[:, 0]
    speed = jnp.sqrt(jnp.sum(velocity * velocity, -1)) if robot.all_ways else ahead
    reward = robot.forward * ahead + robot.alive - robot.control * jnp.sum(action * action, -1)
    cost = (speed > robot.threshold).astype(moved.qpos.dtype)[:, None]
    return Transition(observe(robot, moved), reward, cost, ~healthy(robot, moved))


def observe(robot: Robot, moved: Moved) -> Float[Array, "world obs"]:
    speeds = jnp.clip(moved.qvel, -robot.speed_limit, robot.speed_limit)
    return jnp.concatenate([moved.qpos[:, robot.hidden :], speeds, moved.rich], -1)


def healthy(robot: Robot, moved: Moved) -> Bool[Array, " world"]:
    """All numbers finite, and height, pitch and the other entries within the robot's ranges."""
    state = jnp.concatenate([moved.qpos, moved.qvel], -1)
    finite = jnp.all(jnp.isfinite(state), -1)
    if robot.height is None:
        return finite
    others = jnp.all(_within(state[:, 2:], robot.entries), -1)
    upright = _within(state[:, robot.height_entry], robot.height) & _within(state[:, 2], robot.pitch)
    return finite & others & upright


def _within(x: Array, limits: tuple[float, float]) -> Bool[Array, "..."]:
    return (x > limits[0]) & (x < limits[1])
