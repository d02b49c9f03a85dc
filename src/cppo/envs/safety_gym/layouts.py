"""Random layouts: rejection sampling of object positions with keepouts, reproducible from one key per world.

Objects are placed in safety-gymnasium's order: robot, buttons, goal, hazards, pillars, free objects (vases, box,
gremlins).
Each gets up to 100 uniform draws; it may not come nearer to a placed object than the sum of the two keepouts. An
object that finds no place discards the layout, and the world starts again, up to 10,000 times. The goal is then
drawn anew against the finished layout, as it is whenever it is reached: only its first place shaped the others.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from cppo.envs.mujoco.arrays import Array, Key
from cppo.envs.safety_gym.scenes import BUTTON_KEEPOUT, GREMLIN_KEEPOUT, PILLAR_KEEPOUT, VASE_KEEPOUT, Scene

DRAWS_PER_OBJECT = 100
LAYOUTS = 10_000
GOAL_BLOCK = 25  # goal positions drawn at once
GOAL_BLOCKS = 400  # 400 blocks of 25: 10,000 tries
GOAL_EARLY = 4  # blocks that ``sample_goals_at_once`` draws for every world
GOAL_LATE = 16  # worlds for which it draws all of them


class Layout(NamedTuple):
    """Positions (m) and yaws (rad) of what one world, or a batch of worlds, holds."""

    robot: Float[Array, "*world 2"]
    robot_yaw: Float[Array, "*world"]
    buttons: Float[Array, "*world button 2"]
    hazards: Float[Array, "*world hazard 2"]
    pillars: Float[Array, "*world pillar 2"]
    objects: Float[Array, "*world object 2"]
    object_yaw: Float[Array, "*world object"]


class Asked(NamedTuple):
    """Worlds, and which of them want a goal."""

    keys: Key
    numbers: Int[Array, " world"]  # tell the goals of one key apart
    others: Float[Array, "world other 2"]  # robot, hazards, pillars and free objects, in order: a goal is clear of them
    wanted: Bool[Array, " world"]


def keepouts(scene: Scene) -> np.ndarray:
    """Keepout radii of robot, buttons, goal, hazards, pillars, vases, box, gremlins, in the order of placement.

    Circle has no goal; to keep the order it places one that takes no room and is never seen.
    """
    return np.array(
        [scene.robot_keepout]
        + [BUTTON_KEEPOUT] * scene.buttons
        + [0.0 if scene.task == "circle" else scene.goal_keepout]
        + [scene.hazard_keepout] * scene.hazards
        + [PILLAR_KEEPOUT] * scene.pillars
        + [VASE_KEEPOUT] * scene.vases
        + [scene.box_keepout] * (scene.task == "push")
        + [GREMLIN_KEEPOUT] * scene.gremlins
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
    ends = np.cumsum([1, scene.buttons, 1, scene.hazards, scene.pillars])
    _, buttons, _, hazards, pillars, objects = jnp.split(positions, ends)
    return Layout(positions[0], yaws[0], buttons, hazards, pillars, objects, yaws[1:])


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


def sample_goals(scene: Scene, asked: Asked) -> tuple[Float[Array, "world 2"], Bool[Array, " world"]]:
    """A new goal for every world that wants one, and whether it was found within 10,000 tries, or was not wanted.

    A block of draws is made at a time, and only until every world has its goal.
    """

    *places, wanted = asked

    def missing(carry):
        block, found, _ = carry
        return jnp.any(~found) & (block < GOAL_BLOCKS)

    def look(carry):
        block, found, goals = carry
        draw = partial(_first_goal, scene, blocks=block[None])
        free, candidates = jax.vmap(draw)(*places)
        goals = jnp.where((free & ~found)[:, None], candidates, goals)
        return block + 1, found | free, goals

    start = (jnp.zeros((), jnp.int32), ~wanted, jnp.zeros((len(wanted), 2), asked.others.dtype))
    _, found, goals = jax.lax.while_loop(missing, look, start)
    return goals, found


def sample_goals_at_once(scene: Scene, asked: Asked) -> tuple[Float[Array, "world 2"], Bool[Array, " world"]]:
    """The goals of ``sample_goals`` without a loop, whose every turn would make the host wait for a GPU.

    Every world makes the first 100 draws, and the first 16 worlds that still want a goal all 10,000. (100 draws fail in
    1 of 7 million layouts of PointGoal1 and in 1 of 70 of PointPush0, the most crowded.) Were there ever a 17th, it
    would count as not found.
    """
    *places, wanted = asked
    early, late = (partial(_first_goal, scene, blocks=jnp.arange(blocks)) for blocks in (GOAL_EARLY, GOAL_BLOCKS))
    free, goals = jax.vmap(early)(*places)
    found = jnp.logical_or(free, ~wanted)
    missing, worlds = jnp.logical_not(found), len(found)
    (rows,) = jnp.nonzero(missing, size=min(GOAL_LATE, worlds), fill_value=worlds)  # row ``worlds`` is no world
    free, candidates = jax.vmap(late)(*(jnp.take(x, rows, axis=0, mode="clip") for x in places))
    return goals.at[rows].set(candidates, mode="drop"), found.at[rows].set(free, mode="drop")


def _first_goal(
    scene: Scene, key: Key, number: Int[Array, ""], others: Float[Array, "other 2"], *, blocks: Int[Array, " block"]
) -> tuple[Bool[Array, ""], Float[Array, " 2"]]:
    """The first of a world's draws in ``blocks`` that is clear of the others, and whether there is one."""
    apart = jnp.asarray(np.delete(keepouts(scene), 1) + scene.goal_keepout, others.dtype)
    half = scene.half_extent - scene.goal_keepout
    streams = jax.vmap(partial(jax.random.fold_in, key))(number * GOAL_BLOCKS + blocks)
    unit = jax.vmap(lambda stream: jax.random.uniform(stream, (GOAL_BLOCK, 2), others.dtype))(streams)
    return _first_free((half * (2 * unit - 1)).reshape(-1, 2), others, apart)
