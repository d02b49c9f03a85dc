"""How Safety Gym's scenes are looked at: what stands where, a view from above drawn in software, MuJoCo's picture.

Each lidar bin is a dot on a ring around the robot (in MuJoCo's picture a small ball above it), one ring a group, the
more opaque the nearer its object.
"""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import mujoco
import numpy as np
from scipy.spatial import ConvexHull

from cppo.envs.mujoco.precision import double_on_cpu
from cppo.envs.mujoco.rendering import Ball, Picture, Stage
from cppo.envs.safety_gym import navigation, scenes
from cppo.envs.safety_gym.models import HAZARD_HEIGHT, navigation_model
from cppo.envs.safety_gym.scenes import CIRCLE_RADIUS, LIDAR_BINS, WALL, Scene
from cppo.envs.safety_gym.threads import SafetyGymState
from cppo.envs.top_view import AMBER, BLUE, GREEN, RED, Disc, Line, Polygon, Shape, paint, square
from cppo.envs.views import Shapes, View, agent, rim_and_bounds, yaw_of

COLOURS = {
    "goal": GREEN,
    "hazards": BLUE,
    "pillars": (120, 120, 170),
    "vases": (30, 170, 180),
    "box": (215, 175, 20),
    "circle": GREEN,
    "buttons": (240, 130, 20),
    "gremlins": (130, 40, 200),
}
LIDAR_COLOURS = {
    "goal": (0, 1, 0),
    "hazards": (0, 0, 1),
    "pillars": (0.5, 0.5, 1),
    "vases": (0, 1, 1),
    "box": (1, 1, 0),
    "circle": (0, 1, 0),
    "buttons": (1, 0.5, 0),
    "gremlins": (0.5, 0, 1),
}
DOT_RING, DOT_STEP, DOT = 0.28, 0.075, 0.028  # m, radius of the innermost ring, from ring to ring, and of a dot
RING_RADIUS, RING_HEIGHT, RING_SPACING, BALL = 0.25, 0.35, 0.08, 0.025  # m
BIN_ANGLES = (np.arange(LIDAR_BINS) + 0.5) * 2 * np.pi / LIDAR_BINS
CUBE = np.array(list(itertools.product((-1, 1), repeat=3)))
ENDS = np.array([-1, 1])
ROUND = np.stack([np.cos(np.arange(12) * np.pi / 6), np.sin(np.arange(12) * np.pi / 6)], 1)
MARK = 0.03  # m, radius of the mark at the front
CORNERS = np.array([(1, 1), (-1, 1), (1, -1), (-1, -1)])  # columns of the push box


def view(scene: Scene) -> View:
    return View(
        seconds=scenes.SUBSTEPS * scene.robot.timestep,
        reach=max(scene.half_extent, CIRCLE_RADIUS) + 0.4,
        look=partial(look, scene),
        fixed=rim_and_bounds(CIRCLE_RADIUS, WALL, "xy"[: scene.walls // 2]) if scene.task == "circle" else (),
        above=partial(FromAbove, scene),
        picture=partial(picture, scene),
    )


def look(scene: Scene, state: SafetyGymState) -> Shapes:
    """Where everything is, in all worlds; the agent's angle is that of its front."""
    task, qpos = state.task, np.asarray(state.physics.qpos)
    with double_on_cpu():
        seen = navigation.look(scene, task.start, qpos, np.zeros((len(qpos), scene.sensors)))
        position, rotation = np.asarray(seen.position), np.asarray(seen.rotation)
    front = rotation[:, :2, :2] @ np.array(scene.robot.front)
    heading = np.arctan2(front[:, 1], front[:, 0])
    shapes: Shapes = {}
    for kind, places, size in (
        ("hazard", task.hazards, scene.hazard_size),
        ("pillar", task.pillars, scenes.PILLAR_RADIUS),
    ):
        for number, at in enumerate(np.moveaxis(np.asarray(places), 1, 0)):
            shapes[f"{kind}{number}"] = {"kind": kind, "size": size, "at": at}
    if scene.task != "circle":
        size = scenes.BUTTON_MARK if scene.buttons else scenes.GOAL_SIZE
        shapes["goal"] = {"kind": "goal", "size": size, "at": np.asarray(task.goal)}
    for number in range(scene.buttons):
        place = np.asarray(task.pressing.buttons)[:, number]
        shapes[f"button{number}"] = {"kind": "button", "size": scenes.BUTTON_RADIUS, "at": place}
    objects = qpos[:, scene.robot.positions :].reshape(len(qpos), scene.free_objects, 7)
    for number, pose in enumerate(np.moveaxis(objects, 1, 0)):
        kind = "vase" if number < scene.vases else "gremlin" if scene.gremlins else "box"
        # The box's columns stand out by half of it.
        sizes = {"vase": scenes.VASE_HALF, "gremlin": scenes.GREMLIN_HALF, "box": 1.5 * scene.robot.box_half}
        shapes[kind if kind == "box" else f"{kind}{number}"] = {
            "kind": kind,
            "size": sizes[kind],
            "at": np.column_stack([pose[:, :2], yaw_of(pose[:, 3:])]),
        }
    return shapes | agent(scene.robot.radius, np.column_stack([position[:, :2], heading]))


class FromAbove:
    """A camera that draws world 0 in software."""

    def __init__(self, scene: Scene, size: int):
        self.scene, self.size = scene, size
        self.data = mujoco.MjData(navigation_model(scene))

    def restart(self) -> None:
        """Nothing to forget."""

    def draw(self, state: SafetyGymState, obs: np.ndarray) -> np.ndarray:
        scene, things = self.scene, look(self.scene, state)
        del things["agent"]
        shapes = _rim(scene) if scene.task == "circle" else []
        for thing in things.values():
            shapes += _painted(thing["kind"], thing["size"], thing["at"][0])
        place, turn = self._pose(state)
        yaw = np.arctan2(turn[1, 0], turn[0, 0])
        mark = place + turn[:2, :2] @ np.array(scene.robot.front)
        shapes += [*self._robot(), Disc(tuple(mark), MARK, AMBER), *_dots(scene, place, yaw, obs)]
        return paint(shapes, max(scene.half_extent, CIRCLE_RADIUS) + 0.9, self.size, 0.5)

    def _pose(self, state: SafetyGymState) -> tuple[np.ndarray, np.ndarray]:
        """The root's place, m, and rotation, once all geoms are where the state has them."""
        data, model = self.data, navigation_model(self.scene)
        data.qpos[:] = state.physics.qpos[0]
        data.mocap_pos[:], data.mocap_quat[:] = _mocap(state)
        mujoco.mj_kinematics(model, data)
        body = data.body("robot")
        return body.xpos[:2].copy(), body.xmat.reshape(3, 3)

    def _robot(self) -> list[Shape]:
        """The robot's geoms, the highest last."""
        model, data = navigation_model(self.scene), self.data
        root = model.body_rootid[model.body("robot").id]
        geoms = np.flatnonzero(model.body_rootid[model.geom_bodyid] == root)
        return [_outline(model, data, geom) for geom in geoms[np.argsort(data.geom_xpos[geoms, 2])]]


def _outline(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> Shape:
    """A geom from above."""
    colour, size = tuple(int(255 * part) for part in model.geom_rgba[geom, :3]), model.geom_size[geom]
    place, turn = data.geom_xpos[geom], data.geom_xmat[geom].reshape(3, 3)
    kind, kinds = model.geom_type[geom], mujoco.mjtGeom
    if kind == kinds.mjGEOM_SPHERE:
        return Disc((place[0], place[1]), size[0], colour)
    if kind == kinds.mjGEOM_CAPSULE:
        along = size[1] * turn[:2, 2]
        return Line([place[:2] - along, place[:2] + along], colour, 2 * size[0])
    if kind == kinds.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        corners = model.mesh_vert[model.mesh_vertadr[mesh] :][: model.mesh_vertnum[mesh]]
    elif kind == kinds.mjGEOM_BOX:
        corners = CUBE * size
    else:
        corners = np.concatenate(
            [np.column_stack([size[0] * ROUND, np.full(len(ROUND), end)]) for end in size[1] * ENDS]
        )
    flat = place[:2] + corners @ turn[:2].T
    return Polygon(flat[ConvexHull(flat).vertices], colour)


def _mocap(state: SafetyGymState) -> tuple[np.ndarray, np.ndarray]:
    """Positions and quaternions of world 0's mocap bodies."""
    fixed = np.asarray(state.physics.mocap[0]).reshape(-1)
    bodies = len(fixed) // 7
    return fixed[: 3 * bodies].reshape(bodies, 3), fixed[3 * bodies :].reshape(bodies, 4)


def _rim(scene: Scene) -> list[Shape]:
    ends = [[(WALL, -9), (WALL, 9)], [(-WALL, -9), (-WALL, 9)], [(-9, WALL), (9, WALL)], [(-9, -WALL), (9, -WALL)]]
    rim = Disc((0, 0), CIRCLE_RADIUS, (*COLOURS["circle"], 255), filled=False)
    return [rim, *(Line(end, (*RED, 160), 0.03) for end in ends[: scene.walls])]


def _painted(kind: str, size: float, at: np.ndarray) -> list[Shape]:
    if kind in ("vase", "gremlin"):
        return [square(at[:2], size, at[2], (*COLOURS[f"{kind}s"], 255))]
    if kind == "box":
        half, yaw, colour = size / 1.5, at[2], (*COLOURS["box"], 255)
        turn = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
        columns = CORNERS * half @ turn + at[:2]
        return [square(at[:2], half, yaw, colour), *(square(column, half / 2, yaw, colour) for column in columns)]
    opacities = {"goal": 150, "hazard": 110, "pillar": 255, "button": 255}
    name, opacity = kind if kind == "goal" else f"{kind}s", opacities[kind]
    return [Disc((at[0], at[1]), size, (*COLOURS[name], opacity))]


def _dots(scene: Scene, place: np.ndarray, yaw: float, obs: np.ndarray) -> list[Shape]:
    shapes: list[Shape] = []
    for group, (name, values) in enumerate(_lidars(scene, obs)):
        radius = DOT_RING + group * DOT_STEP
        for angle, value in zip(yaw + BIN_ANGLES, values, strict=True):
            dot = place + radius * np.array([np.cos(angle), np.sin(angle)])
            shapes.append(Disc(tuple(dot), DOT, (*COLOURS[name], int(25 + 230 * min(1.0, float(value))))))
    return shapes


def _lidars(scene: Scene, obs: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Each lidar group of an observation with its bins."""
    for group, name in enumerate(scene.lidars):
        yield name, obs[scene.robot.observed + group * LIDAR_BINS :][:LIDAR_BINS]


def picture(scene: Scene, width: int, height: int) -> Picture:
    """MuJoCo's picture, with what has no body in the physics, too."""
    model = navigation_model(scene, visual=True)
    return Picture(Stage(model, partial(_place, scene), lambda _: "above", partial(_ring, scene)), width, height)


def _place(scene: Scene, data: Any, state: SafetyGymState) -> None:
    data.qpos[:] = state.physics.qpos[0]
    positions, quaternions = _mocap(state)
    bodies = len(positions)  # gremlins' handles are not seen
    data.mocap_pos[:bodies], data.mocap_quat[:bodies] = positions, quaternions
    hazards = np.column_stack([state.task.hazards[0], np.full(scene.hazards, HAZARD_HEIGHT)])
    data.mocap_pos[bodies : bodies + scene.hazards] = hazards
    if scene.task != "circle":
        data.mocap_pos[bodies + scene.hazards] = (*state.task.goal[0], scenes.GOAL_HEIGHT)


def _ring(scene: Scene, data: Any, obs: np.ndarray) -> Iterator[Ball]:
    body = data.body("robot")
    ring = np.column_stack([np.cos(BIN_ANGLES), np.sin(BIN_ANGLES), 0 * BIN_ANGLES]) * RING_RADIUS
    for group, (name, values) in enumerate(_lidars(scene, obs)):
        centre = body.xpos + np.array([0, 0, RING_HEIGHT + group * RING_SPACING])
        for place, value in zip(ring @ body.xmat.reshape(3, 3).T + centre, values, strict=True):
            yield Ball(place, BALL, (*LIDAR_COLOURS[name], 0.1 + 0.9 * float(value)))
