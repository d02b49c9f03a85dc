"""Button of Safety Gym: press the button that is wanted, no other, and keep clear of gremlins and hazards.

A press is a contact of the robot with the button. It pays 1 and another button is wanted at once, perhaps the same.
For ten steps after it no button is seen, and none is wrong. Gremlins are boxes that are held by places which run along
circles, one radian a second, all in step; they can be pushed and come back.

Order inside a step, as in the original: reward, cost, timer, press, new button, observation.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from cppo.envs.mujoco.arrays import Array, Key
from cppo.envs.safety_gym.scenes import (
    BUTTON_DELAY,
    BUTTON_RADIUS,
    GREMLIN_HALF,
    GREMLIN_HEIGHT,
    GREMLIN_TRAVEL,
    SUBSTEPS,
    Scene,
)


class Pressing(NamedTuple):
    """What Button knows of W worlds besides hazards and the goal, which marks the button that is wanted."""

    buttons: Float[Array, "world button 2"]
    wanted: Int[Array, " world"]
    timer: Int[Array, " world"]  # steps until buttons are seen again
    gremlins: Float[Array, "world gremlin 3"]  # middles of their circles, m, and yaw, rad
    clock: Float[Array, " world"]  # s since the reset: gremlins' phase, rad


def begin(buttons: Array, gremlins: Array, yaws: Array, keys: Key) -> Pressing:
    worlds = len(keys)
    wanted = draw(keys, jnp.zeros(worlds, jnp.int32), buttons.shape[1])
    start = jnp.concatenate([gremlins, yaws[..., None]], -1)
    return Pressing(buttons, wanted, jnp.zeros(worlds, jnp.int32), start, jnp.zeros(worlds, buttons.dtype))


def draw(keys: Key, numbers: Int[Array, " world"], buttons: int) -> Int[Array, " world"]:
    """A button for each world; ``numbers`` tell the draws of one key apart."""
    streams = jax.vmap(jax.random.fold_in)(keys, numbers)
    return jax.vmap(lambda stream: jax.random.randint(stream, (), 0, buttons, jnp.int32))(streams)


def wanted_place(state: Pressing) -> Float[Array, "world 2"]:
    return jnp.take_along_axis(state.buttons, state.wanted[:, None, None], 1)[:, 0]


def touched(scene: Scene, sensors: Float[Array, "world sensor"]) -> tuple[Bool[Array, "..."], Bool[Array, "..."]]:
    """Which buttons and which gremlins the robot touches."""
    touches = sensors[:, scene.robot.sensed :][:, : scene.buttons + scene.gremlins] > 0
    return touches[:, : scene.buttons], touches[:, scene.buttons :]


def pressed(scene: Scene, state: Pressing, sensors: Float[Array, "world sensor"]) -> Bool[Array, " world"]:
    """Whether the button that is wanted is touched."""
    buttons, _ = touched(scene, sensors)
    return jnp.any(buttons & (jnp.arange(scene.buttons) == state.wanted[:, None]), 1)


def wrong(scene: Scene, state: Pressing, sensors: Float[Array, "world sensor"]) -> Bool[Array, "world button"]:
    """Buttons that are touched and not wanted, once the timer is over."""
    buttons, _ = touched(scene, sensors)
    return buttons & (jnp.arange(scene.buttons) != state.wanted[:, None]) & (state.timer == 0)[:, None]


def renewed(
    scene: Scene, state: Pressing, met: Bool[Array, " world"], keys: Key, ages: Int[Array, " world"]
) -> Pressing:
    """The state after a step: the clock moves on, a press wants another button and starts the timer."""
    wanted = jnp.where(met, draw(keys, ages, scene.buttons), state.wanted)
    timer = jnp.where(met, BUTTON_DELAY, jnp.maximum(state.timer - 1, 0))
    clock = state.clock + SUBSTEPS * scene.robot.timestep
    return state._replace(wanted=wanted, timer=timer, clock=clock)


def handles(scene: Scene, state: Pressing) -> tuple[Float[Array, "world body 3"], Float[Array, "world body 4"]]:
    """Poses of buttons and of what holds the gremlins, at a reset."""
    worlds, dtype = len(state.clock), state.buttons.dtype
    low = lambda places, height: jnp.concatenate([places, jnp.full((*places.shape[:-1], 1), height, dtype)], -1)  # noqa: E731
    places = jnp.concatenate([low(state.buttons, BUTTON_RADIUS), low(state.gremlins[..., :2], GREMLIN_HALF)], 1)
    half = jnp.concatenate([jnp.zeros((worlds, scene.buttons), dtype), state.gremlins[..., 2] / 2], 1)
    zero = jnp.zeros_like(half)
    return places, jnp.stack([jnp.cos(half), zero, zero, jnp.sin(half)], -1)


def controls(scene: Scene, state: Pressing, control: np.ndarray) -> np.ndarray:
    """``control`` for each physics step of an environment step and the look after it, with the gremlins' handles moved.

    (world, number) -> (world, 11, number). The original moves them before each step, so the look sees the last move.
    """
    whole = np.repeat(control[:, None], SUBSTEPS + 1, 1)
    steps = np.minimum(np.arange(SUBSTEPS + 1), SUBSTEPS - 1) * scene.robot.timestep
    phase = np.asarray(state.clock)[:, None] + steps
    circle = GREMLIN_TRAVEL * np.stack([np.sin(phase), np.cos(phase)], -1)
    actuated = scene.robot.actuated
    bodies = (control.shape[1] - actuated) // 7
    for number in range(scene.gremlins):
        first = actuated + 3 * (bodies - scene.gremlins + number)
        whole[:, :, first : first + 2] = np.asarray(state.gremlins)[:, None, number, :2] + circle
        whole[:, :, first + 2] = GREMLIN_HEIGHT
    return whole
