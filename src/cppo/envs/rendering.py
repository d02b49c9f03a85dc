"""Pictures of one world, without a display: robot, objects, hazards, goal and what the lidar sees.

Each lidar bin is a small ball on a ring above the robot, one ring a group, the more opaque the nearer its object.
"""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

import os
import sys
from typing import Any

import mujoco
import numpy as np

from cppo.envs.ant_circle import AntCircleState
from cppo.envs.physics.models import HAZARD_HEIGHT, ant_model, navigation_model
from cppo.envs.safety_gym import SafetyGymState
from cppo.envs.tasks.scenes import GOAL_HEIGHT, LIDAR_BINS, Scene
from cppo.types import UsageError

LIDAR_COLOURS = {
    "goal": (0, 1, 0),
    "hazards": (0, 0, 1),
    "pillars": (0.5, 0.5, 1),
    "vases": (0, 1, 1),
    "box": (1, 1, 0),
    "circle": (0, 1, 0),
}
RING_RADIUS, RING_HEIGHT, RING_SPACING, BALL = 0.25, 0.35, 0.08, 0.025  # m
NO_RENDERER = (
    "no renderer works here ({reason}). Without a display install EGL (for example apt install libegl1) and set "
    "MUJOCO_GL=egl, or install OSMesa (apt install libosmesa6) and set MUJOCO_GL=osmesa"
)


class Picture:
    """Renders world number 0 of an environment state."""

    def __init__(self, scene: Scene | None, width: int = 480, height: int = 480):
        """``scene`` is None for AntCircle."""
        self.scene = scene
        self.model = ant_model() if scene is None else navigation_model(scene, visual=True)
        self.data = mujoco.MjData(self.model)
        self._renderer = _renderer(self.model, width, height)

    def draw(self, state: Any, obs: np.ndarray | None = None) -> np.ndarray:
        """The world as (height, width, 3) bytes; with its observation, the lidar too."""
        if isinstance(state, AntCircleState):
            self.data.qpos[:] = state.qpos[0]
        else:
            self._place(state)
        mujoco.mj_forward(self.model, self.data)
        self._renderer.update_scene(self.data, self._camera())
        if obs is not None and self.scene is not None:
            self._draw_lidars(obs, self.scene)
        return self._renderer.render()

    def close(self) -> None:
        self._renderer.close()

    def _camera(self) -> Any:
        if self.scene is not None:
            return "above"
        camera = mujoco.MjvCamera()
        camera.lookat[:] = self.data.qpos[:3]
        camera.distance, camera.elevation = 6.0, -35.0
        return camera

    def _place(self, state: SafetyGymState) -> None:
        scene, data = self.scene, self.data
        assert scene is not None
        data.qpos[:] = state.physics.qpos[0]
        fixed = np.asarray(state.physics.mocap[0]).reshape(-1)
        bodies = len(fixed) // 7
        data.mocap_pos[:bodies] = fixed[: 3 * bodies].reshape(bodies, 3)
        data.mocap_quat[:bodies] = fixed[3 * bodies :].reshape(bodies, 4)
        hazards = np.column_stack([state.task.hazards[0], np.full(scene.hazards, HAZARD_HEIGHT)])
        data.mocap_pos[bodies : bodies + scene.hazards] = hazards
        if scene.task != "circle":
            data.mocap_pos[bodies + scene.hazards] = (*state.task.goal[0], GOAL_HEIGHT)

    def _draw_lidars(self, obs: np.ndarray, scene: Scene) -> None:
        body = self.data.body("robot")
        rotation = body.xmat.reshape(3, 3)
        angles = (np.arange(LIDAR_BINS) + 0.5) * 2 * np.pi / LIDAR_BINS
        for group, name in enumerate(scene.lidars):
            values = obs[scene.robot.observed + group * LIDAR_BINS :][:LIDAR_BINS]
            ring = np.column_stack([np.cos(angles), np.sin(angles), 0 * angles]) * RING_RADIUS
            centre = body.xpos + np.array([0, 0, RING_HEIGHT + group * RING_SPACING])
            for place, value in zip(ring @ rotation.T + centre, values, strict=True):
                self._add_ball(place, (*LIDAR_COLOURS[name], 0.1 + 0.9 * float(value)))

    def _add_ball(self, place: np.ndarray, colour: tuple[float, ...]) -> None:
        drawn = self._renderer.scene
        if drawn.ngeom >= drawn.maxgeom:
            return
        sphere, size, turn = mujoco.mjtGeom.mjGEOM_SPHERE, np.full(3, BALL), np.eye(3).reshape(-1)
        mujoco.mjv_initGeom(drawn.geoms[drawn.ngeom], sphere, size, place, turn, np.array(colour, np.float32))
        drawn.ngeom += 1


def _renderer(model: Any, width: int, height: int) -> Any:
    try:
        _use_egl_without_display()
        return mujoco.Renderer(model, height, width)
    except Exception as error:
        raise UsageError(NO_RENDERER.format(reason=str(error) or type(error).__name__)) from error


def _use_egl_without_display() -> None:
    """MuJoCo asks for a window unless MUJOCO_GL says otherwise, and reads that when it is first imported."""
    if sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("MUJOCO_GL"):
        return
    from mujoco.egl import GLContext

    sys.modules[mujoco.Renderer.__module__].gl_context.GLContext = GLContext
