"""How the Velocity tasks are looked at: from the side, the camera beside the robot, marks on the floor every metre.

The Swimmer lies in the plane and is seen from above. Everything is drawn relative to the robot, so that a run of a
hundred metres stays in the picture.
"""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import mujoco
import numpy as np

from cppo.envs.mujoco.rendering import Picture, Stage
from cppo.envs.top_view import AMBER, BLUE, RED, Disc, Line, Shape, paint
from cppo.envs.velocity.models import velocity_model
from cppo.envs.velocity.robots import Robot
from cppo.envs.velocity.threads import TORSO, VelocityState
from cppo.envs.views import Shapes, View, agent

REACH = 1.8  # m, half edge of the picture
EYE = 0.8  # m, height of the picture's middle
MARK = 0.12  # m, length of the marks on the floor
FLOOR = 0.03  # m, width of the floor's line


class Limb(NamedTuple):
    """A capsule or a sphere in the picture's plane, relative to the robot."""

    ends: np.ndarray  # (2 ends, 2), m
    radius: float  # m


def view(robot: Robot) -> View:
    return View(
        seconds=robot.duration,
        reach=REACH,
        look=partial(look, robot),
        fixed=({"name": "floor", "kind": "limb", "size": FLOOR, "at": [-REACH, 0.0, REACH, 0.0]},),
        above=partial(Beside, robot),
        picture=partial(picture, robot),
    )


def up(robot: Robot) -> int:
    """The axis that points upwards in the picture: z, and y for who lies flat."""
    return 1 if robot.name == "Swimmer" else 2


def limbs(robot: Robot, data: mujoco.MjData, qpos: np.ndarray) -> tuple[np.ndarray, list[Limb]]:
    """The torso's place, and every geom but the floor."""
    model, axes = velocity_model(robot), [0, up(robot)]
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    torso = data.xpos[TORSO].copy()
    origin = torso[axes] * [1.0, float(up(robot) == 1)]  # heights are kept
    found = []
    for geom in range(1, model.ngeom):
        half = model.geom_size[geom, 1] if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_CAPSULE else 0.0
        along = half * data.geom_xmat[geom].reshape(3, 3)[:, 2]
        ends = np.stack([data.geom_xpos[geom] - along, data.geom_xpos[geom] + along])[:, axes] - origin
        found.append(Limb(ends, float(model.geom_size[geom, 0])))
    return torso, found


def _marks(torso: np.ndarray) -> list[float]:
    """Where the floor's marks are, relative to the robot, m."""
    return [float(mark - torso[0] % 1.0) for mark in range(-1, 3)]


def look(robot: Robot, state: VelocityState) -> Shapes:
    """The robot's limbs and the marks that pass by, in all worlds."""
    model = velocity_model(robot)
    data, rows = mujoco.MjData(model), []
    for qpos in np.asarray(state.qpos):
        torso, found = limbs(robot, data, qpos)
        lines = [np.concatenate(limb.ends) for limb in found]
        lines += [np.array([mark, 0.0, mark, -MARK]) for mark in _marks(torso)]
        rows.append((lines, [0.0, 0.0 if up(robot) == 1 else torso[2], 0.0]))
    sizes = [limb.radius for limb in found] + [FLOOR / 2] * len(_marks(torso))
    names = [f"limb{number}" for number in range(len(sizes))]
    shapes: Shapes = {
        name: {"kind": "limb", "size": size, "at": np.stack([lines[number] for lines, _ in rows])}
        for number, (name, size) in enumerate(zip(names, sizes, strict=True))
    }
    return shapes | agent(0.05, np.array([place for _, place in rows]))


class Beside:
    """A camera that draws world 0 in software."""

    def __init__(self, robot: Robot, size: int):
        self.robot, self.size = robot, size
        self.data = mujoco.MjData(velocity_model(robot))

    def restart(self) -> None:
        """Nothing to forget."""

    def draw(self, state: VelocityState, obs: np.ndarray) -> np.ndarray:
        torso, found = limbs(self.robot, self.data, np.asarray(state.qpos[0]))
        down = np.array([0.0, EYE if up(self.robot) == 2 else 0.0])
        shapes: list[Shape] = [Line(np.array([[-9, 0], [9, 0]]) - down, (*BLUE, 160), FLOOR)]
        for mark in _marks(torso):
            shapes.append(Line(np.array([[mark, 0], [mark, -MARK]]) - down, (*BLUE, 160), FLOOR))
        for number, (ends, radius) in enumerate(found):
            colour = (*(RED if number == 0 else AMBER), 255)
            shapes += [Disc(tuple(end - down), radius, colour) for end in ends]
            shapes.append(Line(ends - down, colour, 2 * radius))
        return paint(shapes, REACH, self.size, 10 * REACH)


def picture(robot: Robot, width: int, height: int) -> Picture:
    """MuJoCo's picture."""
    return Picture(Stage(velocity_model(robot, visual=True), _place, partial(_camera, robot)), width, height)


def _place(data: Any, state: VelocityState) -> None:
    data.qpos[:] = state.qpos[0]


def _camera(robot: Robot, data: Any) -> Any:
    camera = mujoco.MjvCamera()
    flat = up(robot) == 1
    camera.lookat[:] = data.xpos[TORSO] if flat else (data.xpos[TORSO][0], data.xpos[TORSO][1], EYE)
    camera.distance, camera.azimuth, camera.elevation = 4.0, 90.0, -60.0 if flat else -12.0
    return camera
