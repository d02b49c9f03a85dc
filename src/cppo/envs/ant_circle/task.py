"""AntCircle: run along a circle of radius 10 m, and stay between two lines |x| = 3 m.

The task of ymzhang01/mujoco-circle on gym's Ant, written from its formulae. Two choices are ours. The observation is
qpos and qvel, 29 numbers: the original appends 84 contact forces that MuJoCo 2 and later leave at zero unless a
force sensor asks for them. And a reset normalises the quaternion, which MuJoCo did by itself before 3.2.0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from cppo.envs.batched import Transition
from cppo.envs.mujoco.arrays import Array, Key
from cppo.types import Box, EnvSpec

RADIUS = 10.0  # m
LINE = 3.0  # m, |x| beyond it costs 1 a step
HEIGHTS = (0.2, 1.0)  # m, the torso is upright between them
POSITIONS, VELOCITIES, ACTUATORS = 15, 14, 8
SUBSTEPS = 5
TIMESTEP = 0.01  # s
DURATION = SUBSTEPS * TIMESTEP  # s
TORSO_HEIGHT = 0.75  # m
POSITION_NOISE, VELOCITY_NOISE = 0.1, 0.1
SPEC = EnvSpec(
    name="AntCircle",
    obs_shape=(POSITIONS + VELOCITIES,),
    action=Box((-1.0,) * ACTUATORS, (1.0,) * ACTUATORS),
    cost_names=("cost",),
    cost_limits=(50.0,),
    episode_length=500,
    measures=("fallen",),
)


def reset(keys: Key, dtype: jnp.dtype) -> tuple[Float[Array, "world 15"], Float[Array, "world 14"]]:
    """A noisy pose at rest height anywhere on the circle. About 81% of resets start beyond the lines."""

    def one(key):
        position_key, velocity_key, angle_key = jax.random.split(key, 3)
        rest = jnp.zeros(POSITIONS, dtype).at[2].set(TORSO_HEIGHT).at[3].set(1.0)
        noise = jax.random.uniform(position_key, (POSITIONS,), dtype, -POSITION_NOISE, POSITION_NOISE)
        angle = jax.random.uniform(angle_key, (), dtype, 0.0, 2 * jnp.pi)
        place = RADIUS * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        qpos = (rest + noise).at[:2].set(place)
        qpos = qpos.at[3:7].divide(jnp.linalg.norm(qpos[3:7]))
        return qpos, VELOCITY_NOISE * jax.random.normal(velocity_key, (VELOCITIES,), dtype)

    return jax.vmap(one)(keys)


def advance(
    before: Float[Array, "world 2"],
    after: Float[Array, "world 2"],
    qpos: Float[Array, "world 15"],
    qvel: Float[Array, "world 14"],
) -> Transition:
    """Reward, cost and end of a step from ``before`` to ``after``, the torso's positions in m.

    With v = (after - before) / 0.05 s and (x, y) = after: r = (-y vx + x vy) / (1 + | |(x, y)| - 10 |) and
    c = [|x| > 3].
    """
    vx, vy = ((after - before) / DURATION).T
    x, y = after.T
    reward = (x * vy - y * vx) / (1.0 + jnp.abs(jnp.sqrt(x * x + y * y) - RADIUS))
    cost = (jnp.abs(x) > LINE).astype(qpos.dtype)[:, None]
    return Transition(observe(qpos, qvel), reward, cost, ~healthy(qpos, qvel))


def observe(qpos: Float[Array, "world 15"], qvel: Float[Array, "world 14"]) -> Float[Array, "world 29"]:
    return jnp.concatenate([qpos, qvel], -1)


def healthy(qpos: Float[Array, "world 15"], qvel: Float[Array, "world 14"]) -> Bool[Array, " world"]:
    """All numbers finite and the torso between 0.2 and 1 m."""
    finite = jnp.all(jnp.isfinite(qpos), -1) & jnp.all(jnp.isfinite(qvel), -1)
    return finite & (qpos[:, 2] >= HEIGHTS[0]) & (qpos[:, 2] <= HEIGHTS[1])
