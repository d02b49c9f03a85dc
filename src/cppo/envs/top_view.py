"""Worlds seen from above, drawn in software: what a video shows where no OpenGL renderer works, or none applies.

A world is turned into shapes in metres (discs, polygons, lines), the shapes into pixels. Shapes are drawn at twice the
size and scaled down, which smooths their edges.
"""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from cppo.envs.tasks.scenes import CIRCLE_RADIUS, GOAL_SIZE, LIDAR_BINS, PILLAR_RADIUS, VASE_HALF, WALL, Scene

SMOOTH = 2
FLOOR, GRID, RED, AMBER = (244, 242, 240), (226, 223, 220), (190, 40, 40), (150, 110, 20)
COLOURS = {
    "goal": (60, 170, 80),
    "hazards": (70, 90, 220),
    "pillars": (120, 120, 170),
    "vases": (30, 170, 180),
    "box": (215, 175, 20),
    "circle": (60, 170, 80),
}
LIDAR_RING, LIDAR_STEP = 0.28, 0.075  # m, radius of the innermost ring of lidar dots and from ring to ring


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


def paint(shapes: list[Shape], centre: tuple[float, float], reach: float, size: int, grid: float) -> np.ndarray:
    """The square of half edge ``reach`` metres around ``centre`` as (size, size, 3) bytes, y upwards."""
    pixels = size * SMOOTH
    scale = pixels / (2 * reach)
    image = Image.new("RGB", (pixels, pixels), FLOOR)
    draw = ImageDraw.Draw(image, "RGBA")

    def place(points: Any) -> list[tuple[float, float]]:
        points = np.asarray(points, float).reshape(-1, 2) - centre
        return [(pixels / 2 + scale * x, pixels / 2 - scale * y) for x, y in points]

    for tick in np.arange(
        np.floor((np.asarray(centre) - reach).min() / grid), np.ceil((np.max(centre) + reach) / grid)
    ):
        for ends in ([(tick * grid, -1e3), (tick * grid, 1e3)], [(-1e3, tick * grid), (1e3, tick * grid)]):
            draw.line(place(ends), GRID, SMOOTH)
    for shape in shapes:
        if isinstance(shape, Disc):
            ((x, y),), radius = place([shape.centre]), scale * shape.radius
            box = (x - radius, y - radius, x + radius, y + radius)
            draw.ellipse(box, **({"fill": shape.colour} if shape.filled else {"outline": shape.colour, "width": 5}))
        elif isinstance(shape, Polygon):
            draw.polygon(place(shape.corners), fill=shape.colour)
        else:
            draw.line(place(shape.points), shape.colour, max(1, round(scale * shape.width)), joint="curve")
    return np.asarray(image.resize((size, size), Image.Resampling.LANCZOS))


def square(centre: Any, half: Any, yaw: float, colour: tuple[int, ...]) -> Polygon:
    corners = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)]) * half
    turn = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
    return Polygon(corners @ turn + np.asarray(centre), colour)


def _yaw(quaternion: Any) -> float:
    w, x, y, z = quaternion
    return float(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))


def safety_gym(scene: Scene, state: Any, obs: np.ndarray, size: int) -> np.ndarray:
    """World 0 of a Safety Gym state."""
    task, qpos = state.task, np.asarray(state.physics.qpos[0])
    place, heading = _robot(scene, task, qpos)
    shapes: list[Shape] = []
    if scene.task == "circle":
        shapes += [Disc((0, 0), CIRCLE_RADIUS, (*COLOURS["circle"], 255), filled=False)]
        ends = [[(WALL, -9), (WALL, 9)], [(-WALL, -9), (-WALL, 9)], [(-9, WALL), (9, WALL)], [(-9, -WALL), (9, -WALL)]]
        shapes += [Line(end, (*RED, 160), 0.03) for end in ends[: scene.walls]]
    else:
        shapes.append(Disc(tuple(task.goal[0]), GOAL_SIZE, (*COLOURS["goal"], 150)))
    shapes += [Disc(tuple(xy), scene.hazard_size, (*COLOURS["hazards"], 110)) for xy in task.hazards[0]]
    shapes += [Disc(tuple(xy), PILLAR_RADIUS, (*COLOURS["pillars"], 255)) for xy in task.pillars[0]]
    for index, pose in enumerate(qpos[scene.robot.positions :].reshape(-1, 7)):
        if index < scene.vases:
            shapes.append(square(pose[:2], VASE_HALF, _yaw(pose[3:]), (*COLOURS["vases"], 255)))
        else:
            shapes += _push_box(scene.robot.box_half, pose)
    shapes += _robot_shapes(scene, place, heading) + _lidar_shapes(scene, place, heading, obs)
    reach = max(scene.half_extent, 1.5) + 0.9
    return paint(shapes, (0.0, 0.0), reach, size, 0.5)


def _robot(scene: Scene, task: Any, qpos: np.ndarray) -> tuple[np.ndarray, float]:
    if scene.robot.name == "car":
        return qpos[:2], _yaw(qpos[3:7])
    x0, y0, cosine, sine = np.asarray(task.start[0])
    start = 2 * np.arctan2(sine, cosine)
    turn = np.array([[np.cos(start), -np.sin(start)], [np.sin(start), np.cos(start)]])
    return np.array([x0, y0]) + turn @ qpos[:2], float(start + qpos[2])


def _push_box(half: float, pose: np.ndarray) -> list[Shape]:
    yaw, colour = _yaw(pose[3:]), (*COLOURS["box"], 255)
    turn = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
    columns = [np.array(corner) * half @ turn + pose[:2] for corner in ((1, 1), (-1, 1), (1, -1), (-1, -1))]
    return [square(pose[:2], half, yaw, colour), *(square(column, half / 2, yaw, colour) for column in columns)]


def _robot_shapes(scene: Scene, place: np.ndarray, heading: float) -> list[Shape]:
    along = np.array([np.cos(heading), np.sin(heading)])
    if scene.robot.name == "point":
        return [Disc(tuple(place), 0.1, RED), square(place + 0.1 * along, 0.05, heading, AMBER)]
    front = place + 0.165 * np.array([np.sin(heading), -np.cos(heading)])  # the Car's front is -y
    return [square(place, (0.14, 0.15), heading, RED), square(front, (0.05, 0.02), heading, AMBER)]


def _lidar_shapes(scene: Scene, place: np.ndarray, heading: float, obs: np.ndarray) -> list[Shape]:
    angles = heading + (np.arange(LIDAR_BINS) + 0.5) * 2 * np.pi / LIDAR_BINS
    shapes: list[Shape] = []
    for group, name in enumerate(scene.lidars):
        values = obs[scene.robot.observed + group * LIDAR_BINS :][:LIDAR_BINS]
        radius = LIDAR_RING + group * LIDAR_STEP
        for angle, value in zip(angles, values, strict=True):
            dot = place + radius * np.array([np.cos(angle), np.sin(angle)])
            shapes.append(Disc(tuple(dot), 0.028, (*COLOURS[name], int(25 + 230 * min(1.0, float(value))))))
    return shapes


def circle_run(
    trail: np.ndarray, radius: float, line: float, legs: list[Any], body: float, size: int, reach: float
) -> np.ndarray:
    """PointCircle and AntCircle: the circle to run on, the lines not to cross, the way so far and the runner."""
    far, place = 10 * reach, trail[-1]
    shapes: list[Shape] = [
        Polygon([(side * line, -far), (side * far, -far), (side * far, far), (side * line, far)], (*RED, 40))
        for side in (-1, 1)
    ]
    shapes += [Line([(side * line, -far), (side * line, far)], (*RED, 160), reach / 120) for side in (-1, 1)]
    shapes.append(Disc((0, 0), radius, (*COLOURS["circle"], 255), filled=False))
    if len(trail) > 1:
        shapes.append(Line(trail, (*COLOURS["hazards"], 200), reach / 90))
    shapes += [Line(leg, (*AMBER, 255), reach / 60) for leg in legs]
    shapes.append(Disc(tuple(place), max(body, reach / 40), RED))
    return paint(shapes, (0.0, 0.0), reach, size, reach / 4)
