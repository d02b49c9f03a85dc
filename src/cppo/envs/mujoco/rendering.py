"""MuJoCo's own pictures of one world, without a display."""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from cppo.types import UsageError

NO_RENDERER = (
    "no renderer works here ({reason}). Without a display install EGL (for example apt install libegl1) and set "
    "MUJOCO_GL=egl, or install OSMesa (apt install libosmesa6) and set MUJOCO_GL=osmesa"
)


@dataclass(frozen=True)
class Ball:
    """A mark in the picture that is no part of the model."""

    place: np.ndarray  # m
    radius: float  # m
    colour: tuple[float, ...]  # red, green, blue, opacity


@dataclass(frozen=True)
class Stage:
    """What a picture shows: a model, how a state is put into its data, and who looks at it."""

    model: mujoco.MjModel
    place: Callable[[mujoco.MjData, Any], None]
    camera: Callable[[mujoco.MjData], Any]  # a camera, or the name of one in the model
    marks: Callable[[mujoco.MjData, np.ndarray], Iterable[Ball]] = lambda data, obs: ()


class Picture:
    """Renders world number 0 of an environment state as (height, width, 3) bytes; with its observation, marks too."""

    def __init__(self, stage: Stage, width: int, height: int):
        self.stage = stage
        self.data = mujoco.MjData(stage.model)
        self._renderer = _renderer(stage.model, width, height)

    def restart(self) -> None:
        """Nothing to forget."""

    def draw(self, state: Any, obs: np.ndarray | None = None) -> np.ndarray:
        self.stage.place(self.data, state)
        mujoco.mj_forward(self.stage.model, self.data)
        self._renderer.update_scene(self.data, self.stage.camera(self.data))
        for ball in () if obs is None else self.stage.marks(self.data, obs):
            self._add(ball)
        return self._renderer.render()

    def close(self) -> None:
        self._renderer.close()

    def _add(self, ball: Ball) -> None:
        drawn = self._renderer.scene
        if drawn.ngeom >= drawn.maxgeom:
            return
        sphere, size, turn = mujoco.mjtGeom.mjGEOM_SPHERE, np.full(3, ball.radius), np.eye(3).reshape(-1)
        mujoco.mjv_initGeom(drawn.geoms[drawn.ngeom], sphere, size, ball.place, turn, np.array(ball.colour, np.float32))
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
