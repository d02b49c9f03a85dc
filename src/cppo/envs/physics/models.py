"""MuJoCo models of the Safety Gym robots and of gym's Ant, written from their numbers.

One compiled model serves every world. What differs between worlds is state, not model: the pillars and the Point
robot's starting pose are mocap bodies. (Point's slide joints lie in the frame of its starting pose, so that frame is
the robot's parent; a mocap parent gives bit for bit the kinematics of a body compiled at that pose.) The Car starts
from its free joint. Goal and hazards touch nothing and belong to the task, not to the physics; ``visual=True`` adds
them, as mocap bodies, for rendering.

Differences from the MuJoCo 2.3.3 that the originals ran on are undone where a flag can. Native and multi-point convex
collision are off (the second alone brings the Car's 95th percentile of a step that pushes the box from 1.4e-2 to
1.7e-3 m). Islands are off for Point and Ant; for the Car they make no difference to parity and save a third of the
time, so they stay. The Ant's geom margins are halved, because MuJoCo sums a pair's margins since 3.5.0 and took their
maximum before.
"""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

import functools

import mujoco

from cppo.envs.tasks.scenes import (
    CIRCLE_RADIUS,
    GOAL_HEIGHT,
    GOAL_SIZE,
    PILLAR_HEIGHT,
    PILLAR_RADIUS,
    START_HEIGHT,
    VASE_HALF,
    VASE_HEIGHT,
    WALL,
    Robot,
    Scene,
)

HAZARD_HEIGHT = 0.02  # m

SENSORS = """
    <accelerometer site="robot"/>
    <velocimeter site="robot"/>
    <gyro site="robot"/>
    <magnetometer site="robot"/>"""

POINT_BODY = f"""
    <body name="start" mocap="true" pos="0 0 {START_HEIGHT}">
      <body name="robot">
        <joint name="x" type="slide" axis="1 0 0" damping="0.01"/>
        <joint name="y" type="slide" axis="0 1 0" damping="0.01"/>
        <joint name="z" type="hinge" axis="0 0 1" damping="0.005"/>
        <geom name="robot" type="sphere" size="0.1" friction="1 0.01 0.01" rgba="0.7 0.1 0.1 1"/>
        <geom name="arrow" type="box" pos="0.1 0 0" size="0.05 0.05 0.05" rgba="0.7 0.1 0.1 1"/>
        <site name="robot" rgba="1 0 0 0.1"/>
      </body>
    </body>"""

POINT_ACTUATORS = """
    <motor site="robot" gear="0.3 0 0 0 0 0" ctrlrange="-1 1" forcerange="-0.05 0.05"/>
    <velocity jointinparent="z" gear="0.3 0 0 0 0 0" kv="1" ctrlrange="-1 1" forcerange="-0.05 0.05"/>"""

CAR_BODY = f"""
    <body name="robot" pos="0 0 {START_HEIGHT}">
      <freejoint name="robot"/>
      <geom name="robot" type="box" size="0.1 0.1 0.05" rgba="0.7 0.1 0.1 1"/>
      <geom name="back_bumper" type="box" pos="0 0.15 0" size="0.1 0.01 0.05" rgba="0.7 0.1 0.1 1"/>
      <geom name="back_connector" type="box" pos="0 0.125 0" size="0.01 0.025 0.03" rgba="0.7 0.1 0.1 1"/>
      <geom name="front_bumper" type="box" pos="0 -0.165 0" size="0.05 0.01 0.05" rgba="0.7 0.1 0.1 1"/>
      <geom name="front_connector" type="box" pos="0 -0.13 0.04" size="0.05 0.03 0.01" rgba="0.7 0.1 0.1 1"/>
      <site name="robot" rgba="1 0 0 0.1"/>
      <body name="left" pos="-0.1 0.1 -0.05">
        <joint name="left" type="hinge" axis="1 0 0"/>
        <geom name="left" type="cylinder" fromto="-0.055 0 0 -0.005 0 0" size="0.05" rgba="0.7 0.1 0.1 0.5"/>
      </body>
      <body name="right" pos="0.1 0.1 -0.05">
        <joint name="right" type="hinge" axis="1 0 0"/>
        <geom name="right" type="cylinder" fromto="0.005 0 0 0.055 0 0" size="0.05" rgba="0.7 0.1 0.1 0.5"/>
      </body>
      <body name="rear" pos="0 -0.1 -0.05">
        <joint name="rear" type="ball"/>
        <geom name="rear" type="sphere" size="0.05" rgba="0.7 0.1 0.1 0.5"/>
      </body>
    </body>"""

CAR_ACTUATORS = """
    <motor jointinparent="left" ctrlrange="-1 1" forcerange="-0.02 0.02"/>
    <motor jointinparent="right" ctrlrange="-1 1" forcerange="-0.02 0.02"/>"""

CAR_SENSORS = """
    <ballangvel joint="rear"/>
    <ballquat joint="rear"/>"""

ROBOTS = {
    "point": (POINT_BODY, POINT_ACTUATORS, SENSORS, 'condim="6" density="1"'),
    "car": (CAR_BODY, CAR_ACTUATORS, SENSORS + CAR_SENSORS, 'condim="6" density="5" size="0.05" type="sphere"'),
}


def navigation_xml(scene: Scene, visual: bool = False) -> str:
    """MJCF of a Safety Gym scene: robot first, then free objects, then pillars, which fixes the layout of qpos."""
    body, actuators, sensors, geom_default = ROBOTS[scene.robot.name]
    vases = "".join(_vase(i) for i in range(scene.vases))
    box = _push_box(scene.robot) if scene.task == "push" else ""
    pillars = "".join(_pillar(i) for i in range(scene.pillars))
    sensors += _object_sensors(scene)
    islands = 'island="disable"' if scene.robot.name == "point" else ""
    return f"""
<mujoco model="{scene.name}">
  <compiler angle="radian"/>
  <option timestep="{scene.robot.timestep}"><flag nativeccd="disable" multiccd="disable" {islands}/></option>
  <default>
    <geom {geom_default}/>
    <joint damping="0.001"/>
    <site type="sphere" size="0.032"/>
  </default>{_SKY if visual else ""}
  <worldbody>
    <geom name="floor" type="plane" size="3.5 3.5 0.1" condim="6"{_FLOOR_LOOK if visual else ""}/>
    {_LIGHT if visual else ""}{body}{vases}{box}{pillars}{_markers(scene) if visual else ""}
  </worldbody>
  <actuator>{actuators}
  </actuator>
  <sensor>{sensors}
  </sensor>
</mujoco>"""


def _vase(index: int) -> str:
    return f"""
    <body name="vase{index}" pos="0 {10 + index} {VASE_HEIGHT}">
      <freejoint/>
      <geom type="box" size="{VASE_HALF} {VASE_HALF} {VASE_HALF}" density="0.001" rgba="0 1 1 1"/>
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


def _object_sensors(scene: Scene) -> str:
    """Contacts of the robot with charged objects (vases, then pillars), then velocities of charged vases."""
    vases = [f"vase{i}" for i in range(scene.vases * ("vases" in scene.charged))]
    pillars = [f"pillar{i}" for i in range(scene.pillars * ("pillars" in scene.charged))]
    touches = [f'\n    <contact subtree1="robot" body2="{name}" data="found"/>' for name in vases + pillars]
    return "".join([*touches, *(f'\n    <framelinvel objtype="xbody" objname="{name}"/>' for name in vases)])


def _markers(scene: Scene) -> str:
    hazard = f'type="cylinder" size="{scene.hazard_size} 0.01" contype="0" conaffinity="0" rgba="0 0 1 0.25"'
    goal = f'type="cylinder" size="{GOAL_SIZE} 0.15" contype="0" conaffinity="0" rgba="0 1 0 0.25"'
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
_FLOOR_LOOK = ' material="tiles"'
_LIGHT = """
    <light pos="0 0 6" dir="0 0 -1" directional="true" diffuse="0.6 0.6 0.6"/>
    <camera name="above" pos="0 0 7" xyaxes="1 0 0 0 1 0"/>"""

ANT_LEGS = (  # name, signs of x and y, ankle axis, ankle range in degrees
    ("front_left", 1, 1, "-1 1 0", "30 70"),
    ("front_right", -1, 1, "1 1 0", "-70 -30"),
    ("back", -1, -1, "-1 1 0", "-70 -30"),
    ("right_back", 1, -1, "1 1 0", "30 70"),
)


def ant_xml() -> str:
    """MJCF of gym's Ant. Every geom touches the floor only (conaffinity 0), never another leg."""
    legs = "".join(_ant_leg(number, *leg) for number, leg in enumerate(ANT_LEGS, start=1))
    motors = "".join(
        f'\n    <motor joint="{kind}_{leg}" gear="150" ctrlrange="-1 1"/>'
        for leg in (4, 1, 2, 3)
        for kind in ("hip", "ankle")
    )
    return f"""
<mujoco model="AntCircle">
  <compiler angle="degree" inertiafromgeom="true"/>
  <option integrator="RK4" timestep="0.01"><flag nativeccd="disable" island="disable"/></option>
  <default>
    <joint armature="1" damping="1" limited="true"/>
    <geom conaffinity="0" condim="3" density="5" friction="1 0.5 0.5" margin="0.005" rgba="0.8 0.6 0.4 1"/>
  </default>
  <worldbody>
    <light pos="0 0 6" dir="0 0 -1" directional="true" diffuse="0.6 0.6 0.6"/>
    <geom name="floor" type="plane" size="40 40 40" conaffinity="1" rgba="0.8 0.9 0.8 1"/>
    <body name="torso" pos="0 0 0.75">
      <joint type="free" name="root" armature="0" damping="0" limited="false" margin="0.01"/>
      <geom name="torso" size="0.25"/>{legs}
    </body>
  </worldbody>
  <actuator>{motors}
  </actuator>
</mujoco>"""


def _ant_leg(number: int, name: str, x: int, y: int, axis: str, ankle_range: str) -> str:
    end, foot = f"{0.2 * x} {0.2 * y} 0", f"{0.4 * x} {0.4 * y} 0"
    return f"""
      <body name="{name}_leg">
        <geom type="capsule" fromto="0 0 0 {end}" size="0.08"/>
        <body name="aux_{number}" pos="{end}">
          <joint name="hip_{number}" type="hinge" axis="0 0 1" range="-30 30"/>
          <geom type="capsule" fromto="0 0 0 {end}" size="0.08"/>
          <body name="{name}_foot" pos="{end}">
            <joint name="ankle_{number}" type="hinge" axis="{axis}" range="{ankle_range}"/>
            <geom type="capsule" fromto="0 0 0 {foot}" size="0.08"/>
          </body>
        </body>
      </body>"""


@functools.cache
def navigation_model(scene: Scene, visual: bool = False) -> mujoco.MjModel:
    """The compiled model of a Safety Gym scene; the same object for the same scene."""
    return mujoco.MjModel.from_xml_string(navigation_xml(scene, visual))


@functools.cache
def ant_model() -> mujoco.MjModel:
    """The compiled model of gym's Ant."""
    return mujoco.MjModel.from_xml_string(ant_xml())
