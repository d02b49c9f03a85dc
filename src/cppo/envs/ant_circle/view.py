"""How AntCircle is looked at: where the Ant is, from above in software, and MuJoCo's picture of it."""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from cppo.envs.ant_circle.physics import ant_model
from cppo.envs.ant_circle.task import DURATION, LINE, RADIUS
from cppo.envs.ant_circle.threads import AntCircleState
from cppo.envs.mujoco.rendering import Picture, Stage
from cppo.envs.top_view import Runner, Track
from cppo.envs.views import Shapes, View, agent, rim_and_bounds, yaw_of


def view() -> View:
    fixed = rim_and_bounds(RADIUS, LINE, "x")
    return View(seconds=DURATION, reach=12.0, look=look, fixed=fixed, above=above, picture=picture, inset=True)


def look(state: AntCircleState) -> Shapes:
    qpos = np.asarray(state.qpos)
    return agent(0.6, np.column_stack([qpos[:, :2], yaw_of(qpos[:, 3:7])]))


def above(size: int) -> Runner:
    model = ant_model()
    data = mujoco.MjData(model)

    def limbs(state: AntCircleState, obs: np.ndarray) -> tuple[Any, list[Any]]:
        _place(data, state)
        mujoco.mj_kinematics(model, data)
        torso, place = data.qpos[:2], data.geom_xpos[:, :2]
        return torso, [[torso, *place[first : first + 3]] for first in range(2, 14, 3)]

    return Runner(Track(RADIUS, LINE, 0.25, 13.0), limbs, size)


def picture(width: int, height: int) -> Picture:
    return Picture(Stage(ant_model(), _place, _behind), width, height)


def _place(data: Any, state: AntCircleState) -> None:
    data.qpos[:] = state.qpos[0]


def _behind(data: Any) -> Any:
    camera = mujoco.MjvCamera()
    camera.lookat[:] = data.qpos[:3]
    camera.distance, camera.elevation = 6.0, -35.0
    return camera
