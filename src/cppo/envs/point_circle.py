"""PointCircle: a point earns reward for running along a wide circle but must stay in a narrow corridor.

After Achiam et al. 2017 (CPO). The original release leaves several things open; the choices made here:

- State (x, y, heading). An action (a₀, a₁) turns by a₁, then moves a₀ along the new heading; no physics is integrated.
  Actions are clipped to [−1, 1] × [−0.25, 0.25] (the original declares these bounds but does not enforce them).
- x and y are clipped to ±40.
- Observation (9): x, y, heading (unwrapped); three velocities that the original never updates after reset, so they are
  constant noise of the episode; centre of mass (x + c cos, y + c sin, 0.5), c = 0.0425834850.
- Reward (x dy − y dx)/(1 + |√(x² + y²) − 15|), x and y after the move, dx and dy the commanded displacement per step.
- Cost 1 where |x| > 2.5 *after* the move, x the body's position (the original looks at the centre of mass before the
  move).
- 50 steps to an episode, a time limit (truncation); nothing terminates. Limit: 5 costly steps an episode.
- Start: position and heading N(0, 0.01²), velocities N(0, 0.1²).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cppo.envs.batched import Transition
from cppo.envs.views import Camera, Shapes, View, agent, rim_and_bounds
from cppo.types import Box, EnvSpec, Key

RADIUS = 15.0
CORRIDOR = 2.5
ARENA = 40.0
ACTIONS = Box(low=(-1.0, -0.25), high=(1.0, 0.25))  # speed, turn (rad)
CENTRE_OF_MASS = 0.0425834850  # offset along the heading, m
CENTRE_HEIGHT = 0.5


class PointState(NamedTuple):
    position: Float[Array, "2"]
    heading: Float[Array, ""]
    velocity: Float[Array, "3"]  # drawn at reset, never updated


class PointCircle:
    """See the module's text; ``cppo.envs.make("PointCircle")`` gives many of these at once."""

    spec = EnvSpec(
        name="PointCircle",
        obs_shape=(9,),
        action=ACTIONS,
        cost_names=("cost",),
        cost_limits=(5.0,),
        episode_length=50,
    )

    def reset(self, key: Key) -> tuple[PointState, Float[Array, "9"]]:
        pose_key, velocity_key = jax.random.split(key)
        pose = 0.01 * jax.random.normal(pose_key, (3,))
        state = PointState(pose[:2], pose[2], 0.1 * jax.random.normal(velocity_key, (3,)))
        return state, observe(state)

    def step(self, state: PointState, action: Float[Array, "2"], key: Key) -> tuple[PointState, Transition]:
        del key  # deterministic
        speed, turn = jnp.clip(action, jnp.asarray(ACTIONS.low), jnp.asarray(ACTIONS.high))
        heading = state.heading + turn
        move = speed * jnp.stack([jnp.cos(heading), jnp.sin(heading)])
        x, y = position = jnp.clip(state.position + move, -ARENA, ARENA)
        reward = (x * move[1] - y * move[0]) / (1.0 + jnp.abs(jnp.hypot(x, y) - RADIUS))
        cost = (jnp.abs(x) > CORRIDOR).astype(jnp.float32)[None]
        moved = PointState(position, heading, state.velocity)
        return moved, Transition(observe(moved), reward, cost, jnp.asarray(False))


def observe(state: PointState) -> Float[Array, "9"]:
    direction = jnp.stack([jnp.cos(state.heading), jnp.sin(state.heading)])
    centre = jnp.append(state.position + CENTRE_OF_MASS * direction, CENTRE_HEIGHT)
    return jnp.concatenate([state.position, state.heading[None], state.velocity, centre])


def view() -> View:
    """A step has no duration of its own: films show ten a second."""
    return View(seconds=0.1, reach=17.5, look=look, fixed=rim_and_bounds(RADIUS, CORRIDOR, "x"), above=above)


def look(state: Any) -> Shapes:
    point: PointState = state.world
    return agent(0.8, np.column_stack([np.asarray(point.position), np.asarray(point.heading)]))


def above(size: int) -> Camera:
    from cppo.envs.top_view import Runner, Track  # draws, which few need

    def limbs(state: Any, obs: np.ndarray) -> tuple[Any, list[Any]]:
        ahead = obs[:2] + 1.5 * np.array([np.cos(obs[2]), np.sin(obs[2])])
        return obs[:2], [[obs[:2], ahead]]

    return Runner(Track(RADIUS, CORRIDOR, 0.5, 20.0), limbs, size)
