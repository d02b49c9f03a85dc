"""The robots of Safety Velocity as values: what each observes, earns, may not exceed, and when it has fallen.

Numbers are those of Gymnasium 0.28.1's MuJoCo tasks, version 4, and of safety-gymnasium 1.0.0's Velocity tasks,
version 1, which charge a step that is faster than a threshold.

===========  ===========  =====  =======  ==========================  =======================  ==================
robot        observation  reset  control  alive while                 speed                    faster costs 1
===========  ===========  =====  =======  ==========================  =======================  ==================
HalfCheetah  17           0.1 N  0.1      always                      of the torso, forwards   3.2096 m/s
Hopper       11           0.005  0.001    z > 0.7, |pitch| < 0.2    of the torso, forwards   0.7402 m/s
Swimmer      8            0.1    0.0001   always                      of the torso, forwards   0.2282 m/s
Walker2d     17           0.005  0.001    0.8 < z < 2, |pitch| < 1  of the torso, forwards   2.3415 m/s
Ant          27           0.1 N  0.5      0.2 < z < 1                 of the torso, any way    2.6222 m/s
Humanoid     376          0.01   0.1      1 < z < 2                   of the mass, any way     1.4149 m/s
===========  ===========  =====  =======  ==========================  =======================  ==================

Reset: the half width of uniform noise on positions and velocities; N where velocities get normal noise of that
deviation. Control: what the sum of squared actions costs a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from cppo.types import Box, EnvSpec

COST_LIMIT = 25.0  # the benchmark's: at most 25 of an episode's 1,000 steps above the threshold, in the mean
EPISODE_LENGTH = 1000
HUMANOID_BODIES = 14  # the world included
Range = tuple[float, float]
ANY: Range = (-math.inf, math.inf)


@dataclass(frozen=True)
class Robot:
    """A robot, its task and its threshold. Lengths in m, angles in rad, times in s."""

    name: str
    positions: int  # entries of qpos
    velocities: int  # entries of qvel
    actuators: int
    substeps: int  # physics steps of an environment step
    timestep: float
    threshold: float  # m / s: a step that is faster costs 1
    control: float  # reward is less by this times the sum of squared actions
    noise: float  # of a reset
    bound: float = 1.0  # of actions
    forward: float = 1.0  # reward for a speed of 1 m / s along x
    alive: float = 0.0  # reward of each step
    normal_speeds: bool = False  # normal noise of deviation ``noise`` on velocities at a reset, else uniform
    speed_limit: float = math.inf  # velocities are observed clipped to it
    hidden: int = 1  # entries of qpos that are not observed: x, or x and y
    measured: Literal["joints", "torso", "mass"] = "joints"  # whose place gives the speed
    all_ways: bool = False  # the threshold holds for the speed in the plane, else for that along x
    rest: float = 0.0  # height of the torso at a reset
    height_entry: int = 1  # of qpos
    height: Range | None = None  # the episode ends outside of it; None: it never ends before its time
    pitch: Range = ANY
    entries: Range = ANY  # of all other positions and velocities
    rich: bool = False  # observes inertias, velocities and forces of its bodies, too

    @property
    def free(self) -> bool:
        """Whether the torso moves in space, with a quaternion at qpos[3:7]."""
        return self.positions != self.velocities

    @property
    def obs_size(self) -> int:
        rich = HUMANOID_BODIES * (10 + 6 + 6) + self.velocities  # inertias, velocities and forces of bodies, motors
        return self.positions - self.hidden + self.velocities + self.rich * rich

    @property
    def duration(self) -> float:
        """Seconds of an environment step."""
        return self.substeps * self.timestep

    @property
    def spec(self) -> EnvSpec:
        """What a learner may know."""
        box = Box((-self.bound,) * self.actuators, (self.bound,) * self.actuators)
        return EnvSpec(f"{self.name}Velocity", (self.obs_size,), box, ("cost",), (COST_LIMIT,), EPISODE_LENGTH)


ROBOTS = (
    Robot("HalfCheetah", 9, 9, 6, 5, 0.01, 3.2096, 0.1, 0.1, normal_speeds=True),
    Robot(
        "Hopper", 6, 6, 3, 4, 0.002, 0.7402, 1e-3, 5e-3, alive=1.0, speed_limit=10.0,
        rest=1.25, height=(0.7, math.inf), pitch=(-0.2, 0.2), entries=(-100.0, 100.0),
    ),
    Robot("Swimmer", 5, 5, 2, 4, 0.01, 0.2282, 1e-4, 0.1, hidden=2),
    Robot(
        "Walker2d", 9, 9, 6, 4, 0.002, 2.3415, 1e-3, 5e-3, alive=1.0, speed_limit=10.0,
        rest=1.25, height=(0.8, 2.0), pitch=(-1.0, 1.0),
    ),
    Robot(
        "Ant", 15, 14, 8, 5, 0.01, 2.6222, 0.5, 0.1, alive=1.0, normal_speeds=True, hidden=2, measured="torso",
        all_ways=True, rest=0.75, height_entry=2, height=(0.2, 1.0),
    ),
    Robot(
        "Humanoid", 24, 23, 17, 5, 0.003, 1.4149, 0.1, 1e-2, bound=0.4, forward=1.25, alive=5.0, hidden=2,
        measured="mass", all_ways=True, rest=1.4, height_entry=2, height=(1.0, 2.0), rich=True,
    ),
)  # fmt: skip
VELOCITY: dict[str, Robot] = {robot.spec.name: robot for robot in ROBOTS}
