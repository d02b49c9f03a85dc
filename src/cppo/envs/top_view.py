"""Worlds seen from above, drawn in software: what a video shows where no OpenGL renderer works, or none applies.

A world is turned into shapes in metres (discs, polygons, lines), the shapes into pixels. Shapes are drawn at twice the
size and scaled down, which smooths their edges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

SMOOTH = 2
FLOOR, GRID, RED, AMBER = (244, 242, 240), (226, 223, 220), (190, 40, 40), (150, 110, 20)
GREEN, BLUE = (60, 170, 80), (70, 90, 220)


@dataclass(frozen=True)
class Disc:
    centre: tuple[float, float]
    radius: float  # m
    colour: tuple[int, ...]
    filled: bool = True


@dataclass(frozen=True)
class Polygon:
    corners: Any  # (corner, 2), m
    colour: tuple[int, ...]


@dataclass(frozen=True)
class Line:
    points: Any  # (point, 2), m
    colour: tuple[int, ...]
    width: float  # m


Shape = Disc | Polygon | Line


class Track(NamedTuple):
    """A circle to run along, in m."""

    radius: float
    line: float  # |x| beyond it costs
    body: float  # radius of the runner
    reach: float  # half edge of the picture


def paint(shapes: list[Shape], reach: float, size: int, grid: float) -> np.ndarray:
    """The square of half edge ``reach`` metres around the origin as (size, size, 3) bytes, y upwards."""
    pixels = size * SMOOTH
    scale = pixels / (2 * reach)
    image = Image.new("RGB", (pixels, pixels), FLOOR)
    draw = ImageDraw.Draw(image, "RGBA")

    def place(points: Any) -> list[tuple[float, float]]:
        points = np.asarray(points, float).reshape(-1, 2)
        return [(pixels / 2 + scale * x, pixels / 2 - scale * y) for x, y in points]

    for tick in np.arange(np.floor(-reach / grid), np.ceil(reach / grid)):
        for ends in ([(tick * grid, -1e3), (tick * grid, 1e3)], [(-1e3, tick * grid), (1e3, tick * grid)]):
            draw.line(place(ends), GRID, SMOOTH)
    for shape in shapes:
        if isinstance(shape, Disc):
            ((x, y),), radius = place([shape.centre]), scale * shape.radius
            box = (x - radius, y - radius, x + radius, y + radius)
            if shape.filled:
                draw.ellipse(box, fill=shape.colour)
            else:
                draw.ellipse(box, outline=shape.colour, width=5)
        elif isinstance(shape, Polygon):
            draw.polygon(place(shape.corners), fill=shape.colour)
        else:
            draw.line(place(shape.points), shape.colour, max(1, round(scale * shape.width)), joint="curve")
    return np.asarray(image.resize((size, size), Image.Resampling.LANCZOS))


def square(centre: Any, half: Any, yaw: float, colour: tuple[int, ...]) -> Polygon:
    corners = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)]) * half
    turn = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
    return Polygon(corners @ turn + np.asarray(centre), colour)


class Runner:
    """A camera for tasks that run along a circle: it, the lines not to cross, the way so far and the runner.

    ``limbs`` says of a state and its observation where the runner is and which lines its limbs make, in m.
    """

    def __init__(self, track: Track, limbs: Callable[[Any, np.ndarray], tuple[Any, list[Any]]], size: int):
        self.track, self.limbs, self.size = track, limbs, size
        self.trail: list[np.ndarray] = []

    def restart(self) -> None:
        self.trail = []

    def draw(self, state: Any, obs: np.ndarray) -> np.ndarray:
        place, limbs = self.limbs(state, obs)
        self.trail.append(np.array(place))
        radius, line, body, reach = self.track
        far = 10 * reach
        shapes: list[Shape] = [
            Polygon([(side * line, -far), (side * far, -far), (side * far, far), (side * line, far)], (*RED, 40))
            for side in (-1, 1)
        ]
        shapes += [Line([(side * line, -far), (side * line, far)], (*RED, 160), reach / 120) for side in (-1, 1)]
        shapes.append(Disc((0, 0), radius, (*GREEN, 255), filled=False))
        if len(self.trail) > 1:
            shapes.append(Line(np.array(self.trail), (*BLUE, 200), reach / 90))
        shapes += [Line(limb, (*AMBER, 255), reach / 60) for limb in limbs]
        shapes.append(Disc(tuple(place), max(body, reach / 40), RED))
        return paint(shapes, reach, self.size, reach / 4)
