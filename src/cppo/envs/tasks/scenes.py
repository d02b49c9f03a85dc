"""The numbers of the Safety Gym scenes: how many objects of which size stand where, and what counts as cost.

Sizes are radii or half edges in metres; a keepout is the radius in metres around an object's centre that the layout
sampler keeps free of other keepouts. The values are those of safety-gymnasium 1.0.0 (equal to openai/safety-gym).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GOAL_SIZE = 0.3  # m, radius
GOAL_HEIGHT = 0.16  # m, z of the goal's centre: it enters the 3-D distances of Push
START_HEIGHT = 0.1  # m, both robots
VASE_HALF = 0.1  # m
VASE_HEIGHT = 0.1 - 4e-5  # m, the vase's centre at a reset
PILLAR_RADIUS = 0.2  # m
PILLAR_HEIGHT = 0.5  # m, half height and z of the centre
LIDAR_BINS = 16
LIDAR_RANGE = 3.0  # m
ROBOT_KEEPOUT = 0.4  # m


@dataclass(frozen=True)
class Robot:
    """A robot's place in ``qpos`` and ``qvel``, and its time step."""

    name: Literal["point", "car"]
    positions: int  # entries of qpos
    velocities: int  # entries of qvel
    timestep: float  # s, one physics step; an environment step makes ten
    sensors: int  # entries of the model's sensordata
    observed: int  # sensor entries of the observation
    box_half: float  # m, half edge of the push box that goes with this robot
    box_density: float  # kg / m^3


POINT = Robot("point", 3, 3, 0.002, 12, 12, 0.2, 0.001)
CAR = Robot("car", 13, 11, 0.004, 19, 24, 0.125, 0.0005)


@dataclass(frozen=True)
class Scene:
    """A robot, a task and the objects around it."""

    name: str
    robot: Robot
    task: Literal["goal", "push"]
    half_extent: float  # m, objects are placed in [-half_extent, half_extent]^2
    hazards: int = 0
    hazard_size: float = 0.2
    hazard_keepout: float = 0.18
    vases: int = 0
    vase_keepout: float = 0.15
    pillars: int = 0
    pillar_keepout: float = 0.3
    goal_keepout: float = 0.305
    cost_limit: float = 25.0
    episode_length: int = 1000

    @property
    def free_objects(self) -> int:
        return self.vases + (self.task == "push")

    @property
    def box_keepout(self) -> float:
        return self.robot.box_half

    @property
    def qpos_size(self) -> int:
        return self.robot.positions + 7 * self.free_objects

    @property
    def qvel_size(self) -> int:
        return self.robot.velocities + 6 * self.free_objects

    @property
    def lidars(self) -> tuple[str, ...]:
        """Groups that the lidar sees, in the order of the observation."""
        present = {"goal": True, "hazards": self.hazards, "pillars": self.pillars, "vases": self.vases}
        return tuple(name for name, count in present.items() if count) + (("box",) if self.task == "push" else ())

    @property
    def obs_size(self) -> int:
        return self.robot.observed + LIDAR_BINS * len(self.lidars)


def _goal1(robot: Robot) -> Scene:
    return Scene(f"{robot.name.capitalize()}Goal1", robot, "goal", 1.5, hazards=8, vases=1)


def _push1(robot: Robot) -> Scene:
    return Scene(
        f"{robot.name.capitalize()}Push1",
        robot,
        "push",
        1.5,
        hazards=2,
        hazard_size=0.3,
        hazard_keepout=0.4,
        pillars=1,
        goal_keepout=0.4,
    )


SCENES: dict[str, Scene] = {scene.name: scene for scene in (_goal1(POINT), _push1(POINT), _push1(CAR), _goal1(CAR))}
