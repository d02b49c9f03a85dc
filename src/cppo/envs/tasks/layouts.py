"""Random layouts: rejection sampling of object positions with keepouts, reproducible from one key per world.

Objects are placed in safety-gymnasium's order: robot, goal, hazards, pillars, free objects (vases, then the box).
Each gets up to 100 uniform draws; it may not come nearer to a placed object than the sum of the two keepouts. An
object that finds no place discards the layout, and the world starts again, up to 10,000 times. The goal is then
drawn anew against the finished layout, as it is whenever it is reached: only its first place shaped the others.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from cppo.envs.arrays import Array, Key
from cppo.envs.tasks.scenes import Scene

DRAWS_PER_OBJECT = 100
LAYOUTS = 10_000
GOAL_BLOCK = 25  # goal positions drawn at once
GOAL_BLOCKS = 400  # 400 blocks of 25: 10,000 tries


class Layout(NamedTuple):
    """Positions (m) and yaws (rad) of what one world, or a batch of worlds, holds."""

    robot: Float[Array, "*world 2"]
    robot_yaw: Float[Array, "*world"]
    hazards: Float[Array, "*world hazard 2"]
    pillars: Float[Array, "*world pillar 2"]
    objects: Float[Array, "*world object 2"]
    object_yaw: Float[Array, "*world object"]


def keepouts(scene: Scene) -> np.ndarray:
    """Keepout radii of robot, goal, hazards, pillars, vases and box, in the order of placement.

    Circle has no goal; to keep the order it places one that takes no room and is never seen.
    """
    return np.array(
        [scene.robot_keepout, 0.0 if scene.task == "circle" else scene.goal_keepout]
        + [scene.hazard_keepout] * scene.hazards
        + [scene.pillar_keepout] * scene.pillars
        + [scene.vase_keepout] * scene.vases
        + [scene.box_keepout] * (scene.task == "push")
    )


def sample_layouts(scene: Scene, keys: Key, dtype: jnp.dtype) -> Layout:
    """One layout for each key: (world, 2) -> Layout."""
    return jax.vmap(lambda key: _layout(scene, key, dtype))(keys)


def _layout(scene: Scene, key: Key, dtype: jnp.dtype) -> Layout:
    count = len(keepouts(scene))

    def unplaced(carry):
        attempt, placed, _ = carry
        return ~placed & (attempt < LAYOUTS)

    def try_again(carry):
        attempt, _, _ = carry
        placed, layout = _try_layout(scene, jax.random.fold_in(key, attempt), dtype)
        return attempt + 1, placed, layout

    nowhere = jnp.zeros((count, 2), dtype), jnp.zeros(1 + scene.free_objects, dtype)
    _, placed, (positions, yaws) = jax.lax.while_loop(unplaced, try_again, (0, jnp.zeros((), bool), nowhere))
    positions = jnp.where(placed, positions, jnp.nan)  # a scene too crowded to build must not pass for a layout
    hazards, pillars = 2 + scene.hazards, 2 + scene.hazards + scene.pillars
    return Layout(
        positions[0], yaws[0], positions[2:hazards], positions[hazards:pillars], positions[pillars:], yaws[1:]
    )


def _try_layout(
    scene: Scene, key: Key, dtype: jnp.dtype
) -> tuple[Bool[Array, ""], tuple[Float[Array, "object 2"], Float[Array, " yaw"]]]:
    radii = keepouts(scene)
    count, places = len(radii), len(radii) * DRAWS_PER_OBJECT * 2
    unit = jax.random.uniform(key, (places + 1 + scene.free_objects,), dtype)
    halves = (scene.half_extent - radii)[:, None, None]
    draws = halves * (2 * unit[:places].reshape(count, DRAWS_PER_OBJECT, 2) - 1)
    # Objects that are not placed yet keep nobody away: a negative distance is always kept.
    apart = np.where(np.tri(count, k=-1, dtype=bool), radii[:, None] + radii[None], -1.0)

    def place(carry, turn):
        placed, positions = carry
        index, candidates, distances = turn
        free, position = _first_free(candidates, positions, distances)
        return (placed & free, positions.at[index].set(position)), None

    start = (jnp.ones((), bool), jnp.zeros((count, 2), dtype))
    turns = (jnp.arange(count), draws.astype(dtype), jnp.asarray(apart, dtype))
    (placed, positions), _ = jax.lax.scan(place, start, turns)
    return placed, (positions, 2 * jnp.pi * unit[places:])


def _first_free(
    draws: Float[Array, "draw 2"], others: Float[Array, "other 2"], apart: Float[Array, " other"]
) -> tuple[Bool[Array, ""], Float[Array, " 2"]]:
    """The first draw that keeps its distance from every other object, and whether there is one."""
    offset = draws[:, None] - others[None]
    fits = jnp.all(jnp.sqrt(jnp.sum(offset * offset, -1)) >= apart, axis=1)
    return jnp.any(fits), draws[jnp.argmax(fits)]


def sample_goals(
    scene: Scene,
    keys: Key,
    numbers: Int[Array, " world"],
    others: Float[Array, "world other 2"],
    wanted: Bool[Array, " world"],
) -> tuple[Float[Array, "world 2"], Bool[Array, " world"]]:
    """A new goal for every wanted world, clear of robot, hazards, pillars and free objects (``others``, in order).

    ``numbers`` tells the goals of one key apart. Returns positions and whether one was found within 10,000 tries;
    worlds that want none count as found. A block of draws is made at a time, and only until every world has its goal.
    """
    radii = np.delete(keepouts(scene), 1)
    apart = jnp.asarray(radii + scene.goal_keepout, others.dtype)
    half = scene.half_extent - scene.goal_keepout

    def missing(carry):
        block, found, _ = carry
        return jnp.any(~found) & (block < GOAL_BLOCKS)

    def draw(key, stream, around):
        unit = jax.random.uniform(jax.random.fold_in(key, stream), (GOAL_BLOCK, 2), others.dtype)
        return _first_free(half * (2 * unit - 1), around, apart)

    def look(carry):
        block, found, goals = carry
        free, candidates = jax.vmap(draw)(keys, numbers * GOAL_BLOCKS + block, others)
        goals = jnp.where((free & ~found)[:, None], candidates, goals)
        return block + 1, found | free, goals

    start = (0, ~wanted, jnp.zeros((len(others), 2), others.dtype))
    _, found, goals = jax.lax.while_loop(missing, look, start)
    return goals, found
