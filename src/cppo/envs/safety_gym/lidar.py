"""Safety Gym's pseudo lidar: sixteen bins around the robot that say how near the nearest object of a group is."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
from jaxtyping import Float

from cppo.envs.mujoco.arrays import Array
from cppo.envs.safety_gym.scenes import LIDAR_BINS, LIDAR_RANGE


def lidars(
    position: Float[Array, "world 3"],
    rotation: Float[Array, "world 3 3"],
    groups: list[Float[Array, "world _ 2"]],
    reach: float = LIDAR_RANGE,
) -> list[Float[Array, "world 16"]]:
    """One lidar for each group of targets; their beams are computed together, which saves small kernels."""
    beams = _beams(position, rotation, jnp.concatenate(groups, axis=1), reach)
    ends = list(itertools.accumulate(group.shape[1] for group in groups))
    return [jnp.max(beams[:, first:end], axis=1) for first, end in zip([0, *ends], ends, strict=False)]


def _beams(
    position: Float[Array, "world 3"],
    rotation: Float[Array, "world 3 3"],
    targets: Float[Array, "world object 2"],
    reach: float,
) -> Float[Array, "world object 16"]:
    """Closeness max(0, reach - distance) / reach of each target in the bin of its direction, and its aliases next door.

    A target's height is taken as 0 while the robot's is subtracted, so a tilted robot leaks a little of its own
    height into the plane; the original does so. The two neighbours of a target's bin see it weaker, in proportion
    to how far the direction lies towards them. Where targets of a group share a bin, the greatest value wins.
    """
    offset = targets - position[:, None, :2]
    height = position[:, None, 2:3]
    plane = (
        (  # the first two components of (offset, -height) @ rotation
            offset[..., :1] * rotation[:, None, 0, :2] + offset[..., 1:] * rotation[:, None, 1, :2]
        )
        - height * rotation[:, None, 2, :2]
    )
    x, y = plane[..., 0], plane[..., 1]
    closeness = jnp.maximum(0.0, reach - jnp.sqrt(x * x + y * y)) / reach
    turns = (jnp.arctan2(y, x) % (2 * jnp.pi)) * (LIDAR_BINS / (2 * jnp.pi))  # in bins, [0, 16]
    whole = jnp.floor(turns)
    part = turns - whole
    steps = (jnp.arange(LIDAR_BINS) - whole[..., None].astype(jnp.int32)) % LIDAR_BINS  # 0: the bin itself
    share = jnp.where(steps == 0, 1.0, jnp.where(steps == 1, part[..., None], 0.0))
    share = jnp.where(steps == LIDAR_BINS - 1, 1.0 - part[..., None], share)
    return share * closeness[..., None]
