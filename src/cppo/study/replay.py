"""Episodes of saved policies, seen from above: where everything was at each step, for a page to play back.

A *scene* is what the page draws: the visible square, fixed shapes, and moving ones with their tracks. Lengths are in
metres, angles in radians. Each environment has one function from its state to shapes; a new environment adds one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cppo import envs
from cppo.envs import ant_circle, history, point_circle
from cppo.envs.precision import double_on_cpu
from cppo.envs.tasks import ant_circle as ant_task
from cppo.envs.tasks import navigation
from cppo.envs.tasks.scenes import CIRCLE_RADIUS, GOAL_SIZE, PILLAR_RADIUS, SCENES, VASE_HALF, WALL, Scene
from cppo.run import Policy, Run
from cppo.types import UsageError

DIGITS = 3
EPISODE_SEED = 20_000_003  # far from training seeds; the same for all algorithms, so that layouts agree

Shapes = dict[str, Any]  # moving things of all worlds: name -> {"kind", "size", "at": (world, x y [angle])}
Seen = Callable[[Any], Shapes]


def can_replay(env: str) -> bool:
    return env in SCENES or env in ("PointCircle", "AntCircle")


def record(policy: Policy, env: str, episodes: int = 1, seed: int = EPISODE_SEED) -> list[dict[str, Any]]:
    """The first episode of ``episodes`` worlds under ``policy``, actions sampled as in training."""
    backend = "auto" if env in envs.JAX_WORLDS else "threads"
    core = envs.build(env, episodes, backend)
    look = _look(env)
    if policy.settings.encoder == "gru":
        core, look = history.History(core, policy.settings.memory), lambda state: _look(env)(state.env)
    advance = jax.jit(core.advance) if core.jittable else core.advance
    state, obs = core.init(jax.random.split(jax.random.PRNGKey(seed), episodes))
    frames, rewards, costs, ended = [look(state)], [], [], []
    for t in range(core.spec.episode_length):
        action = policy.act(np.asarray(obs), deterministic=False, seed=seed + t)
        state, step = advance(state, action)
        frames.append(look(state))
        rewards.append(np.asarray(step.reward))
        costs.append(np.asarray(step.cost).sum(-1))
        ended.append(np.asarray(step.terminated | step.truncated))
        obs = step.obs
    over = np.stack(ended)
    return [
        _episode(env, world, frames, np.stack(rewards)[:, world], np.stack(costs)[:, world], over[:, world])
        for world in range(episodes)
    ]


def of_run(folder: Path, seed: int, episodes: int, steps: int) -> list[dict[str, Any]]:
    """Episodes of one seed's policy of a saved run, which must be that of step ``steps``."""
    run = Run(folder)
    saved = run.iteration() * run.plan.settings.batch_size
    if saved != steps:
        raise UsageError(f"the saved policy is that of step {saved:,}, not {steps:,}")
    return record(run.policy(seed), run.plan.env, episodes)


def _episode(
    env: str, world: int, frames: list[Shapes], reward: np.ndarray, cost: np.ndarray, ended: np.ndarray
) -> dict[str, Any]:
    length = int(np.argmax(ended)) + 1 if ended.any() else len(ended)
    # The state after the last step is already the next episode's: the last frame stands in for it.
    kept = [*frames[:length], frames[length - 1]]
    moving, fixed = [], list(_fixed(env))
    for name, shape in frames[0].items():
        track = np.stack([frame[name]["at"][world] for frame in kept])
        about = {key: value for key, value in shape.items() if key != "at"}
        if np.all(track == track[0]):
            fixed.append({"name": name, **about, "at": _rounded(track[0])})
        else:
            moving.append({"name": name, **about, "track": _rounded(track)})
    return {
        "view": _view(env, moving),
        "fixed": fixed,
        "moving": moving,
        "reward": _rounded(np.concatenate([[0.0], reward[:length]])),
        "cost": _rounded(np.concatenate([[0.0], cost[:length]])),
    }


def _rounded(values: np.ndarray) -> Any:
    return np.round(np.asarray(values, float), DIGITS).tolist()


def _view(env: str, moving: list[dict[str, Any]]) -> list[float]:
    """A square that holds the scene and the agent's whole path: x and y of its lower left corner, and its side."""
    half = {"PointCircle": 17.5, "AntCircle": 12.0}.get(env)
    half = half or max(SCENES[env].half_extent, CIRCLE_RADIUS) + 0.4
    points = np.array([[-half, -half], [half, half]])
    for shape in moving:
        points = np.concatenate([points, np.asarray(shape["track"])[:, :2]])
    low, high = points.min(0), points.max(0)
    side = float((high - low).max()) * 1.04
    centre = (low + high) / 2
    return [round(float(x), DIGITS) for x in (*(centre - side / 2), side)]


def _fixed(env: str) -> list[dict[str, Any]]:
    """Circle tasks: the circle, and the bounds of x and perhaps y beyond which a step costs."""
    circles = {
        "PointCircle": (point_circle.RADIUS, point_circle.CORRIDOR, "x"),
        "AntCircle": (ant_task.RADIUS, ant_task.LINE, "x"),
    }
    circles |= {
        scene.name: (CIRCLE_RADIUS, WALL, "xy"[: scene.walls // 2])
        for scene in SCENES.values()
        if scene.task == "circle"
    }
    if env not in circles:
        return []
    radius, line, axes = circles[env]
    place = {"at": [0.0, 0.0]}
    bands = [{"name": f"bound of {axis}", "kind": "band", "axis": axis, "size": line, **place} for axis in axes]
    return [{"name": "circle", "kind": "ring", "size": radius, **place}, *bands]


def _look(env: str) -> Seen:
    if env == "PointCircle":
        return _point_circle
    if env == "AntCircle":
        return _ant_circle
    return lambda state: _navigation(SCENES[env], state)


def _point_circle(state: Any) -> Shapes:
    at = np.column_stack([np.asarray(state.world.position), np.asarray(state.world.heading)])
    return {"agent": {"kind": "agent", "size": 0.8, "at": at}}


def _ant_circle(state: ant_circle.AntCircleState) -> Shapes:
    w, x, y, z = np.asarray(state.qpos)[:, 3:7].T
    heading = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return {"agent": {"kind": "agent", "size": 0.6, "at": np.column_stack([np.asarray(state.qpos)[:, :2], heading])}}


def _navigation(scene: Scene, state: Any) -> Shapes:
    qpos = np.asarray(state.physics.qpos)
    with double_on_cpu():
        seen = navigation.look(scene, state.task.start, qpos, np.zeros((len(qpos), scene.robot.sensors)))
        position, rotation = np.asarray(seen.position), np.asarray(seen.rotation)
    front = rotation[:, :2, 0] if scene.robot.name == "point" else -rotation[:, :2, 1]
    heading = np.arctan2(front[:, 1], front[:, 0])
    shapes: Shapes = {}
    for number in range(scene.hazards):
        at = np.asarray(state.task.hazards)[:, number]
        shapes[f"hazard{number}"] = {"kind": "hazard", "size": scene.hazard_size, "at": at}
    for number in range(scene.pillars):
        shapes[f"pillar{number}"] = {
            "kind": "pillar",
            "size": PILLAR_RADIUS,
            "at": np.asarray(state.task.pillars)[:, number],
        }
    if scene.task != "circle":
        shapes["goal"] = {"kind": "goal", "size": GOAL_SIZE, "at": np.asarray(state.task.goal)}
    objects = qpos[:, scene.robot.positions :].reshape(len(qpos), scene.free_objects, 7)
    for number in range(scene.free_objects):
        w, x, y, z = objects[:, number, 3:].T
        turn = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        vase = number < scene.vases
        shapes[f"vase{number}" if vase else "box"] = {
            "kind": "vase" if vase else "box",
            "size": VASE_HALF if vase else 1.5 * scene.robot.box_half,  # the columns stand out by half of it
            "at": np.column_stack([objects[:, number, :2], turn]),
        }
    shapes["agent"] = {"kind": "agent", "size": 0.1, "at": np.column_stack([position[:, :2], heading])}
    return shapes
