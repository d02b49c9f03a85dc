"""How worlds are looked at, for films, pictures and the report's page. Lengths are in metres, angles in radians."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Shapes = dict[str, Any]  # moving things of all worlds: name -> {"kind", "size", "at": (world, x y [angle])}


class Camera(Protocol):
    """Draws world number 0 of a state and its observation as (height, width, 3) bytes."""

    def restart(self) -> None:
        """An episode begins."""

    def draw(self, state: Any, obs: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class View:
    """What is to be seen of an environment, and the cameras that show it."""

    seconds: float  # of an environment step
    reach: float  # half edge of the square around the origin that is always shown
    look: Callable[[Any], Shapes]  # the moving things of a state
    fixed: tuple[dict[str, Any], ...]  # what stands still, as the page draws it
    above: Callable[[int], Camera]  # pixels of an edge -> a view from above, which works everywhere
    picture: Callable[[int, int], Camera] | None = None  # width, height in pixels -> MuJoCo's own picture
    inset: bool = False  # the picture stays close: films show the view from above in its corner


def rim_and_bounds(radius: float, line: float, axes: str) -> tuple[dict[str, Any], ...]:
    """The circle of a task that runs along one, and the bounds of ``axes`` beyond which a step costs."""
    bounds = [(f"bound of {axis}", {"kind": "band", "axis": axis, "size": line}) for axis in axes]
    things = [("circle", {"kind": "ring", "size": radius}), *bounds]
    return tuple({"name": name, **about, "at": [0.0, 0.0]} for name, about in things)


def yaw_of(quaternions: np.ndarray) -> np.ndarray:
    """The angle about z of quaternions (..., w x y z)."""
    w, x, y, z = np.moveaxis(np.asarray(quaternions), -1, 0)
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def agent(size: float, at: np.ndarray) -> Shapes:
    """A scene with nothing in motion but the agent at (world, x y angle)."""
    return {"agent": {"kind": "agent", "size": size, "at": at}}
