"""MuJoCo models of the Safety Gym scenes, written from their numbers.

One compiled model serves every world. What differs between worlds is state, not model: the pillars and the Point
robot's starting pose are mocap bodies, the other robots start from their free joint. Goal and hazards touch nothing
and belong to the task, not to the physics; ``visual=True`` adds them, as mocap bodies, for rendering. The robots are
described in ``robots``.

Differences from the MuJoCo 2.3.3 that the originals ran on are undone where a flag can. Native and multi-point convex
collision are off (the second alone brings the Car's 95th percentile of a step that pushes the box from 1.4e-2 to
1.7e-3 m). Islands are off for Point; for the Car they make no difference to parity and save a third of the time, so
they stay.
"""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

import functools

import mujoco

from cppo.envs.safety_gym.robots.robot import SENSES, Robot
from cppo.envs.safety_gym.scenes import (
    BUTTON_MARK,
    BUTTON_RADIUS,
    CIRCLE_RADIUS,
    GOAL_HEIGHT,
    GOAL_SIZE,
    GREMLIN_HALF,
    PILLAR_HEIGHT,
    PILLAR_RADIUS,
    VASE_HALF,
    VASE_HEIGHT,
    WALL,
    Scene,
)

HAZARD_HEIGHT = 0.02  # m


def navigation_xml(scene: Scene, visual: bool = False) -> str:
    """MJCF of a Safety Gym scene: robot, free objects, pillars, buttons, in the order that fixes qpos and mocap."""
    robot = scene.robot
    vases = "".join(
        _free_box(f"vase{i}", f"0 {10 + i} {VASE_HEIGHT}", VASE_HALF, "0 1 1 1") for i in range(scene.vases)
    )
    box = _push_box(robot) if scene.task == "push" else ""
    gremlins = "".join(
        _free_box(f"gremlin{i}", f"0 {30 + i} {GREMLIN_HALF}", GREMLIN_HALF, "0.5 0 1 1") for i in range(scene.gremlins)
    )
    pillars = "".join(_pillar(i) for i in range(scene.pillars)) + "".join(_button(i) for i in range(scene.buttons))
    handles = "".join(_handle(i) for i in range(scene.gremlins))
    islands = 'island="disable"' if robot.planar else ""
    integrator = "" if robot.integrator == "Euler" else f' integrator="{robot.integrator}"'
    return f"""
<mujoco model="{scene.name}">
  <compiler angle="radian"/>
  <option timestep="{robot.timestep}"{integrator}><flag nativeccd="disable" multiccd="disable" {islands}/></option>
  <default>
    <geom {robot.geom}/>
    <joint {robot.joint}/>
    <site type="sphere" size="0.032"/>
  </default>{f"<asset>{robot.assets}</asset>" if robot.assets else ""}{_SKY if visual else ""}
  <worldbody>
    <geom name="floor" type="plane" size="3.5 3.5 0.1" condim="6"{_FLOOR_LOOK if visual else ""}/>
    {_LIGHT if visual else ""}{_root(robot)}{vases}{box}{gremlins}{pillars}{handles}{_markers(scene) if visual else ""}
  </worldbody>
  <contact>{robot.contact}</contact>
  <equality>{robot.equality}{"".join(_hold(i) for i in range(scene.gremlins))}</equality>
  <actuator>{robot.actuators}
  </actuator>
  <sensor>{SENSES}{robot.sensors}{_object_sensors(scene)}
  </sensor>
</mujoco>"""


def _root(robot: Robot) -> str:
    """The robot at its height of a reset: in a frame that a mocap body holds, or free."""
    if robot.planar:
        return f"""
    <body name="start" mocap="true" pos="0 0 {robot.start}">
      <body name="robot">{robot.body}
      </body>
    </body>"""
    return f"""
    <body name="robot" pos="0 0 {robot.start}">
      <freejoint name="robot"/>{robot.body}
    </body>"""


def _free_box(name: str, place: str, half: float, colour: str) -> str:
    return f"""
    <body name="{name}" pos="{place}">
      <freejoint/>
      <geom type="box" size="{half} {half} {half}" density="0.001" rgba="{colour}"/>
    </body>"""


def _push_box(robot: Robot) -> str:
    half, column = robot.box_half, robot.box_half / 2
    look = f'density="{robot.box_density}" rgba="1 1 0 1"'
    columns = "".join(
        f'\n      <geom type="box" size="{column} {column} {half}" pos="{x * half} {y * half} 0" {look}/>'
        for x, y in ((1, 1), (-1, 1), (1, -1), (-1, -1))
    )
    return f"""
    <body name="box" pos="0 10 {half}">
      <freejoint/>
      <geom type="box" size="{half} {half} {half}" {look}/>{columns}
    </body>"""


def _pillar(index: int) -> str:
    return f"""
    <body name="pillar{index}" mocap="true" pos="0 {-10 - index} {PILLAR_HEIGHT}">
      <geom type="cylinder" size="{PILLAR_RADIUS} {PILLAR_HEIGHT}" rgba="0.5 0.5 1 1"/>
    </body>"""


def _button(index: int) -> str:
    return f"""
    <body name="button{index}" mocap="true" pos="0 {-20 - index} {BUTTON_RADIUS}">
      <geom type="sphere" size="{BUTTON_RADIUS}" rgba="1 0.5 0 1"/>
    </body>"""


def _handle(index: int) -> str:
    """What a gremlin is held by: a place that moves, in every world along a circle of its own."""
    return f'\n    <body name="handle{index}" mocap="true" pos="0 {30 + index} {GREMLIN_HALF}"/>'


def _hold(index: int) -> str:
    return f'<weld body1="handle{index}" body2="gremlin{index}" relpose="0 0 0 1 0 0 0" solref="0.02 1.5"/>'


def _object_sensors(scene: Scene) -> str:
    """Contacts of the robot with charged vases and pillars, buttons, gremlins; then velocities of charged vases."""
    vases = [f"vase{i}" for i in range(scene.vases * ("vases" in scene.charged))]
    pillars = [f"pillar{i}" for i in range(scene.pillars * ("pillars" in scene.charged))]
    others = [f"button{i}" for i in range(scene.buttons)] + [f"gremlin{i}" for i in range(scene.gremlins)]
    touches = [f'\n    <contact subtree1="robot" body2="{name}" data="found"/>' for name in vases + pillars + others]
    return "".join([*touches, *(f'\n    <framelinvel objtype="xbody" objname="{name}"/>' for name in vases)])


def _markers(scene: Scene) -> str:
    hazard = f'type="cylinder" size="{scene.hazard_size} 0.01" contype="0" conaffinity="0" rgba="0 0 1 0.25"'
    radius = BUTTON_MARK if scene.task == "button" else GOAL_SIZE
    goal = f'type="cylinder" size="{radius} 0.15" contype="0" conaffinity="0" rgba="0 1 0 0.25"'
    bodies = [
        f'\n    <body name="hazard{i}" mocap="true" pos="0 0 {HAZARD_HEIGHT}"><geom {hazard}/></body>'
        for i in range(scene.hazards)
    ]
    if scene.task == "circle":
        return _circle_marks(scene)
    return "".join([*bodies, f'\n    <body name="goal" mocap="true" pos="0 0 {GOAL_HEIGHT}"><geom {goal}/></body>'])


def _circle_marks(scene: Scene) -> str:
    look = 'contype="0" conaffinity="0"'
    rim = f'\n    <geom type="cylinder" size="{CIRCLE_RADIUS} 0.01" pos="0 0 0.01" {look} rgba="0 1 0 0.15"/>'
    places = [(WALL, 0, 0.05, 3.5), (-WALL, 0, 0.05, 3.5), (0, WALL, 3.5, 0.05), (0, -WALL, 3.5, 0.05)]
    return rim + "".join(
        f'\n    <geom type="box" size="{dx} {dy} 0.05" pos="{x} {y} 0.05" {look} rgba="1 0 0 0.3"/>'
        for x, y, dx, dy in places[: scene.walls]
    )


_SKY = """
  <asset>
    <texture type="skybox" builtin="gradient" rgb1="0.5 0.7 0.9" rgb2="0.9 0.95 1" width="64" height="64"/>
    <texture name="tiles" type="2d" builtin="checker" rgb1="0.75 0.7 0.7" rgb2="0.65 0.6 0.6" width="64" height="64"/>
    <material name="tiles" texture="tiles" texrepeat="8 8"/>
  </asset>"""
_FLOOR_LOOK = ' material="tiles" rgba="1 1 1 1"'
_LIGHT = """
    <light pos="0 0 6" dir="0 0 -1" directional="true" diffuse="0.6 0.6 0.6"/>
    <camera name="above" pos="0 0 7" xyaxes="1 0 0 0 1 0"/>"""


@functools.cache
def navigation_model(scene: Scene, visual: bool = False) -> mujoco.MjModel:
    """The compiled model of a Safety Gym scene; the same object for the same scene."""
    return mujoco.MjModel.from_xml_string(navigation_xml(scene, visual))
