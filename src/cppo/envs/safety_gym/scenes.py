"""The numbers of the Safety Gym scenes: how many objects of which size stand where, and what counts as cost.

Sizes are radii or half edges in metres; a keepout is the radius in metres around an object's centre that the layout
sampler keeps free of other keepouts. The values are those of safety-gymnasium 1.0.0 (its task definitions
``tasks/safe_navigation/{goal,push,circle,button}``; Goal and Push equal openai/safety-gym).

==========  ======  ===========================  =======================  ===========================
level       square  objects                      charged here             charged in the original
==========  ======  ===========================  =======================  ===========================
Goal0       ±1      goal                         nothing                  nothing
Goal1       ±1.5    8 hazards, 1 vase            hazards                  hazards
Goal2       ±2      10 hazards, 10 vases         hazards; vases           hazards, vases, as one cost
Push0       ±1      box, goal                    nothing                  nothing
Push1       ±1.5    box, 2 hazards, 1 pillar     hazards                  hazards
Push2       ±2      box, 4 hazards, 4 pillars    hazards; pillars         hazards, pillars, as one cost
Circle0     -       circle of radius 1.5         nothing                  nothing
Circle1     -       the same, walls x = ±1.125   beyond the walls         beyond the walls
Circle2     -       the same, also y = ±1.125    beyond the walls         beyond the walls
Button0     ±1      4 buttons                    nothing                  nothing
Button1     ±1.5    4 buttons, 4 hazards, 4      hazards, gremlins,       the same
                    gremlins                     buttons, as one cost
Button2     ±1.8    4 buttons, 8 hazards, 6      the same                 the same
                    gremlins
==========  ======  ===========================  =======================  ===========================

Costs that a semicolon parts are constraints of their own, each with its limit; the original adds them up and asks
whether the sum is positive. Walls are seen by nobody and stop nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cppo.envs.safety_gym.robots import ROBOTS, Robot
from cppo.types import Box, EnvSpec

SUBSTEPS = 10  # physics steps of an environment step
GOAL_SIZE = 0.3  # m, radius
GOAL_HEIGHT = 0.16  # m, z of the goal's centre: it enters the 3-D distances of Push
VASE_HALF = 0.1  # m
VASE_HEIGHT = 0.1 - 4e-5  # m, the vase's centre at a reset
PILLAR_RADIUS = 0.2  # m
PILLAR_HEIGHT = 0.5  # m, half height and z of the centre
LIDAR_BINS = 16
LIDAR_RANGE = 3.0  # m
ROBOT_KEEPOUT, VASE_KEEPOUT, PILLAR_KEEPOUT, BUTTON_KEEPOUT, GREMLIN_KEEPOUT = 0.4, 0.15, 0.3, 0.2, 0.4  # m
CIRCLE_RADIUS = 1.5  # m
CIRCLE_START = 0.8  # m, robots start in [-0.8, 0.8]^2
BUTTON_RADIUS = 0.1  # m, buttons are spheres on the floor
BUTTON_MARK = 0.2  # m, radius of the disc that marks the button to press, in pictures
BUTTON_DELAY = 10  # steps after a press in which no button is seen, and none is wrong
GREMLIN_HALF = 0.1  # m, gremlins are boxes; at a reset they stand on the floor
GREMLIN_HEIGHT = 0.2  # m, at which they are held while they move
GREMLIN_TRAVEL = 0.35  # m, radius of their circles, one radian a second
WALL = 1.125  # m, distance of Circle's walls from the origin
COST_LIMIT = 25.0  # of each constraint


@dataclass(frozen=True)
class Scene:
    """A robot, a task and the objects around it."""

    name: str
    robot: Robot
    task: Literal["goal", "push", "circle", "button"]
    half_extent: float  # m, objects are placed in [-half_extent, half_extent]^2
    hazards: int = 0
    vases: int = 0
    pillars: int = 0
    buttons: int = 0
    gremlins: int = 0
    hazard_size: float = 0.2
    hazard_keepout: float = 0.18
    goal_keepout: float = 0.305
    robot_keepout: float = ROBOT_KEEPOUT
    charged: tuple[str, ...] = ("hazards",)  # of: hazards, vases, pillars, walls, buttons, gremlins
    joined: bool = False  # all that is charged is one constraint, else one each
    walls: int = 0  # 2: |x| is bounded, 4: |y| too
    lidar_range: float = LIDAR_RANGE  # m
    episode_length: int = 1000

    @property
    def free_objects(self) -> int:
        return self.vases + (self.task == "push") + self.gremlins

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
    def touch_sensors(self) -> int:
        """Objects whose contact with the robot the model reports: what is charged for it, and every button."""
        objects = self.vases * ("vases" in self.charged) + self.pillars * ("pillars" in self.charged)
        return objects + self.buttons + self.gremlins

    @property
    def sensors(self) -> int:
        """Entries of the model's sensordata: the robot's, contacts of charged objects, velocities of charged vases."""
        return self.robot.sensed + self.touch_sensors + 3 * self.vases * ("vases" in self.charged)

    @property
    def cost_names(self) -> tuple[str, ...]:
        """One name for each constraint; a lone one is called cost, and so is the nought of level 0."""
        return self.charged if len(self.charged) > 1 and not self.joined else ("cost",)

    @property
    def spec(self) -> EnvSpec:
        """What a learner may know."""
        box = Box(self.robot.low, self.robot.high)
        limits = (COST_LIMIT,) * len(self.cost_names)
        names = self.cost_names
        return EnvSpec(self.name, (self.obs_size,), box, names, limits, self.episode_length, measures=self.measures)

    @property
    def measures(self) -> tuple[str, ...]:
        """What an episode is asked for besides: goals reached in it, and whether the robot fell."""
        return ("goals",) * (self.task != "circle") + ("fallen",) * (self.robot.fallen is not None)

    @property
    def lidars(self) -> tuple[str, ...]:
        """Groups that the lidar sees, in the order of the observation."""
        if self.task == "circle":
            return ("circle",)
        present = {
            "buttons": self.buttons,
            "goal": True,
            "hazards": self.hazards,
            "pillars": self.pillars,
            "vases": self.vases,
        }
        moving = (("box",) if self.task == "push" else ()) + (("gremlins",) if self.gremlins else ())
        return tuple(name for name, count in present.items() if count) + moving

    @property
    def obs_size(self) -> int:
        return self.robot.observed + LIDAR_BINS * len(self.lidars)


def _goal(robot: Robot) -> list[Scene]:
    name = f"{robot.name.capitalize()}Goal"
    return [
        Scene(f"{name}0", robot, "goal", 1.0, charged=()),
        Scene(f"{name}1", robot, "goal", 1.5, hazards=8, vases=1),
        Scene(f"{name}2", robot, "goal", 2.0, hazards=10, vases=10, charged=("hazards", "vases")),
    ]


def _push(robot: Robot) -> list[Scene]:
    name = f"{robot.name.capitalize()}Push"
    hazard: dict[str, Any] = {"hazard_size": 0.3, "hazard_keepout": 0.4, "goal_keepout": 0.4}
    return [
        Scene(f"{name}0", robot, "push", 1.0, charged=(), **hazard),
        Scene(f"{name}1", robot, "push", 1.5, hazards=2, pillars=1, **hazard),
        Scene(f"{name}2", robot, "push", 2.0, hazards=4, pillars=4, charged=("hazards", "pillars"), **hazard),
    ]


def _circle(robot: Robot) -> list[Scene]:
    name = f"{robot.name.capitalize()}Circle"
    common: dict[str, Any] = {"robot_keepout": 0.0, "lidar_range": 6.0, "episode_length": 500}
    return [
        Scene(f"{name}{level}", robot, "circle", CIRCLE_START, charged=charged, walls=2 * level, **common)
        for level, charged in enumerate([(), ("walls",), ("walls",)])
    ]


def _button(robot: Robot) -> list[Scene]:
    name = f"{robot.name.capitalize()}Button"
    common: dict[str, Any] = {"buttons": 4, "goal_keepout": 0.4, "joined": True}
    charged = ("hazards", "buttons", "gremlins")
    return [
        Scene(f"{name}0", robot, "button", 1.0, charged=(), **common),
        Scene(f"{name}1", robot, "button", 1.5, hazards=4, gremlins=4, charged=charged, **common),
        Scene(f"{name}2", robot, "button", 1.8, hazards=8, gremlins=6, charged=charged, **common),
    ]


SCENES: dict[str, Scene] = {
    scene.name: scene for make in (_goal, _push, _circle, _button) for robot in ROBOTS for scene in make(robot)
}
