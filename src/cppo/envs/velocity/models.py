"""MuJoCo models of the Velocity tasks' robots, written from the numbers of Gymnasium's MJCF files.

Those files are under the MIT licence (© 2016 OpenAI, © 2022 Farama Foundation). Hopper and Walker2d are given there in
global coordinates, which MuJoCo no longer reads; here every position is relative to its parent. The compiled masses,
inertias, joints, geoms and motors are those of the originals (``tests/envs/velocity/test_velocity.py``).

Differences from the MuJoCo 2.3.3 that the originals ran on are undone where a value can: islands are off, and geom
margins are halved, because MuJoCo sums a pair's margins since 3.5.0 and took their maximum before. The Swimmer's
``collision="predefined"`` is gone from MuJoCo: its geoms touch nothing.
"""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import mujoco

from cppo.envs.mujoco import gym_ant
from cppo.envs.velocity.robots import Robot

ROOT = """
      <joint name="rootx" type="slide" axis="1 0 0" armature="0" damping="0" limited="false" stiffness="0"/>
      <joint name="rootz" type="slide" axis="0 0 1" armature="0" damping="0" limited="false" stiffness="0" {ref}/>
      <joint name="rooty" type="hinge" axis="0 1 0" armature="0" damping="0" limited="false" stiffness="0"/>"""

CHEETAH_MASS = 14.0  # kg, which the original asks of the compiler
CHEETAH_RADIUS = 0.046  # m
CHEETAH_DEFAULTS = """
    <joint armature="0.1" damping="0.01" limited="true" solimplimit="0 0.8 0.03" solreflimit="0.02 1" stiffness="8"/>
    <geom conaffinity="0" condim="3" friction="0.4 0.1 0.1" solimp="0 0.8 0.01" solref="0.02 1" rgba="0.8 0.6 0.4 1"
      density="{density}"/>"""

CHEETAH_LIMBS = (  # name, place, range, stiffness, damping, geom's place, its angle and half length; rad, m
    ("bthigh", "-0.5 0 0", "-0.52 1.05", 240, 6, "0.1 0 -0.13", -3.8, 0.145),
    ("bshin", "0.16 0 -0.25", "-0.785 0.785", 180, 4.5, "-0.14 0 -0.07", -2.03, 0.15),
    ("bfoot", "-0.28 0 -0.14", "-0.4 0.785", 120, 3, "0.03 0 -0.097", -0.27, 0.094),
    ("fthigh", "0.5 0 0", "-1 0.7", 180, 4.5, "-0.07 0 -0.12", 0.52, 0.133),
    ("fshin", "-0.14 0 -0.24", "-1.2 0.87", 120, 3, "0.065 0 -0.09", -0.6, 0.106),
    ("ffoot", "0.13 0 -0.18", "-0.5 0.5", 60, 1.5, "0.045 0 -0.07", -0.6, 0.07),
)

HOPPER_DEFAULTS = """
    <joint armature="1" damping="1" limited="true"/>
    <geom condim="1" margin="0.0005" solimp="0.8 0.8 0.01" solref="0.02 1" rgba="0.8 0.6 0.4 1"/>"""

WALKER_DEFAULTS = """
    <joint armature="0.01" damping="0.1" limited="true"/>
    <geom conaffinity="0" condim="3" density="1000" friction="0.7 0.1 0.1" rgba="0.8 0.6 0.4 1"/>"""

SWIMMER_DEFAULTS = """
    <joint armature="0.1"/>
    <geom contype="0" conaffinity="0" condim="1" density="1000" rgba="0.8 0.6 0.4 1"/>"""

SWIMMER_BODY = """
    <body name="torso">
      <geom type="capsule" fromto="1.5 0 0 0.5 0 0" size="0.1"/>
      <joint name="slider1" type="slide" axis="1 0 0"/>
      <joint name="slider2" type="slide" axis="0 1 0"/>
      <joint name="free_body_rot" type="hinge" axis="0 0 1"/>
      <body name="mid" pos="0.5 0 0">
        <geom type="capsule" fromto="0 0 0 -1 0 0" size="0.1"/>
        <joint name="motor1_rot" type="hinge" axis="0 0 1" limited="true" range="-100 100"/>
        <body name="back" pos="-1 0 0">
          <geom type="capsule" fromto="0 0 0 -1 0 0" size="0.1"/>
          <joint name="motor2_rot" type="hinge" axis="0 0 1" limited="true" range="-100 100"/>
        </body>
      </body>
    </body>"""

HUMANOID_DEFAULTS = """
    <joint armature="1" damping="1" limited="true"/>
    <geom condim="1" margin="0.0005" rgba="0.8 0.6 0.4 1"/>"""

HUMANOID_GEARS = {
    "abdomen_y": 100, "abdomen_z": 100, "abdomen_x": 100,
    "right_hip_x": 100, "right_hip_z": 100, "right_hip_y": 300, "right_knee": 200,
    "left_hip_x": 100, "left_hip_z": 100, "left_hip_y": 300, "left_knee": 200,
    "right_shoulder1": 25, "right_shoulder2": 25, "right_elbow": 25,
    "left_shoulder1": 25, "left_shoulder2": 25, "left_elbow": 25,
}  # fmt: skip


def _motors(gears: Mapping[str, float], reach: float = 1.0) -> str:
    return "".join(
        f'\n    <motor joint="{joint}" gear="{gear}" ctrlrange="{-reach} {reach}"/>' for joint, gear in gears.items()
    )


def _cheetah_density() -> float:
    """kg / m^3 that give the capsules of torso, head and limbs their mass."""
    halves = [0.5, 0.15, *(limb[-1] for limb in CHEETAH_LIMBS)]
    volume = sum(math.pi * CHEETAH_RADIUS**2 * (2 * half + 4 / 3 * CHEETAH_RADIUS) for half in halves)
    return CHEETAH_MASS / volume


def _cheetah_body() -> str:
    back, front = (_cheetah_leg(CHEETAH_LIMBS[first : first + 3]) for first in (0, 3))
    return f"""
    <body name="torso" pos="0 0 0.7">{ROOT.format(ref="")}
      <geom type="capsule" fromto="-0.5 0 0 0.5 0 0" size="0.046"/>
      <geom type="capsule" axisangle="0 1 0 0.87" pos="0.6 0 0.1" size="0.046 0.15"/>{back}{front}
    </body>"""


def _cheetah_leg(limbs: tuple[tuple, ...]) -> str:
    (name, place, limits, stiffness, damping, middle, angle, half), *rest = limbs
    return f"""
      <body name="{name}" pos="{place}">
        <joint name="{name}" axis="0 1 0" range="{limits}" stiffness="{stiffness}" damping="{damping}"/>
        <geom type="capsule" axisangle="0 1 0 {angle}" pos="{middle}" size="0.046 {half}"/>{
        _cheetah_leg(tuple(rest)) if rest else ""
    }
      </body>"""


def _standing_body(legs: str) -> str:
    """The torso of Hopper and Walker2d; their height is measured from the floor (``ref``)."""
    return f"""
    <body name="torso" pos="0 0 1.25">{ROOT.format(ref='ref="1.25"')}
      <geom type="capsule" fromto="0 0 0.2 0 0 -0.2" size="0.05" friction="0.9"/>{legs}
    </body>"""


def _standing_leg(side: str, frame: float, heel: float, toe: float, grip: float) -> str:
    """``frame`` is where the foot's body lies, ``heel`` and ``toe`` the ends of its geom, all in m before the ankle."""
    colour = ' rgba="0.7 0.3 0.6 1"' if side else ""
    foot = f'fromto="{heel - frame} 0 0.1 {toe - frame} 0 0.1" size="0.06" friction="{grip}"'
    return f"""
      <body name="thigh{side}" pos="0 0 -0.2">
        <joint name="thigh{side}_joint" axis="0 -1 0" range="-150 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.45" size="0.05" friction="0.9"{colour}/>
        <body name="leg{side}" pos="0 0 -0.7">
          <joint name="leg{side}_joint" pos="0 0 0.25" axis="0 -1 0" range="-150 0"/>
          <geom type="capsule" fromto="0 0 0.25 0 0 -0.25" size="0.04" friction="0.9"{colour}/>
          <body name="foot{side}" pos="{frame} 0 -0.35">
            <joint name="foot{side}_joint" pos="{-frame} 0 0.1" axis="0 -1 0" range="-45 45"/>
            <geom type="capsule" {foot}{colour}/>
          </body>
        </body>
      </body>"""


def _humanoid_body() -> str:
    return f"""
    <body name="torso" pos="0 0 1.4">
      <joint name="root" type="free" armature="0" damping="0" limited="false" stiffness="0"/>
      <geom type="capsule" fromto="0 -0.07 0 0 0.07 0" size="0.07"/>
      <geom type="sphere" pos="0 0 0.19" size="0.09"/>
      <geom type="capsule" fromto="-0.01 -0.06 -0.12 -0.01 0.06 -0.12" size="0.06"/>
      <body name="lwaist" pos="-0.01 0 -0.26" quat="1 0 -0.002 0">
        <geom type="capsule" fromto="0 -0.06 0 0 0.06 0" size="0.06"/>
        {_joint("abdomen_z", "0 0 1", "-45 45", 0.02, 5, 20, "0 0 0.065")}
        {_joint("abdomen_y", "0 1 0", "-75 30", 0.02, 5, 10, "0 0 0.065")}
        <body name="pelvis" pos="0 0 -0.165" quat="1 0 -0.002 0">
          {_joint("abdomen_x", "1 0 0", "-35 35", 0.02, 5, 10, "0 0 0.1")}
          <geom type="capsule" fromto="-0.02 -0.07 0 -0.02 0.07 0" size="0.09"/>{_humanoid_leg("right", -1, 0.008, 0)}{
        _humanoid_leg("left", 1, 0.01, 1)
    }
        </body>
      </body>{_humanoid_arm("right", -1, "-85 60")}{_humanoid_arm("left", 1, "-60 85")}
    </body>"""


def _joint(
    name: str, axis: str, limits: str, armature: float, damping: float, stiffness: float, pos: str = "0 0 0"
) -> str:
    return (
        f'<joint name="{name}" axis="{axis}" range="{limits}" armature="{armature}" damping="{damping}" '
        f'stiffness="{stiffness}" pos="{pos}"/>'
    )


def _humanoid_leg(name: str, side: int, hip_armature: float, knee_stiffness: float) -> str:
    """``side`` is the sign of y. The two legs differ in the armature of a hip and the stiffness of a knee."""
    return f"""
          <body name="{name}_thigh" pos="0 {0.1 * side} -0.04">
            {_joint(f"{name}_hip_x", f"{-side} 0 0", "-25 5", 0.01, 5, 10)}
            {_joint(f"{name}_hip_z", f"0 0 {-side}", "-60 35", 0.01, 5, 10)}
            {_joint(f"{name}_hip_y", "0 1 0", "-110 20", hip_armature, 5, 20)}
            <geom type="capsule" fromto="0 0 0 0 {-0.01 * side} -0.34" size="0.06"/>
            <body name="{name}_shin" pos="0 {-0.01 * side} -0.403">
              {_joint(f"{name}_knee", "0 -1 0", "-160 -2", 0.006, 1, knee_stiffness, "0 0 0.02")}
              <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.049"/>
              <body name="{name}_foot" pos="0 0 -0.45"><geom type="sphere" pos="0 0 0.1" size="0.075"/></body>
            </body>
          </body>"""


def _humanoid_arm(name: str, side: int, limits: str) -> str:
    start, end = f"0.01 {-0.01 * side} 0.01", f"0.17 {-0.17 * side} 0.17"
    return f"""
      <body name="{name}_upper_arm" pos="0 {0.17 * side} 0.06">
        {_joint(f"{name}_shoulder1", f"2 {-side} 1", limits, 0.0068, 1, 1)}
        {_joint(f"{name}_shoulder2", f"0 {side} 1", limits, 0.0051, 1, 1)}
        <geom type="capsule" fromto="0 0 0 0.16 {0.16 * side} -0.16" size="0.04 0.16"/>
        <body name="{name}_lower_arm" pos="0.18 {0.18 * side} -0.18">
          {_joint(f"{name}_elbow", f"0 -1 {-side}", "-90 50", 0.0028, 1, 0)}
          <geom type="capsule" fromto="{start} {end}" size="0.031"/>
          <geom type="sphere" pos="0.18 {-0.18 * side} 0.18" size="0.04"/>
        </body>
      </body>"""


# Each: compiler and option attributes, defaults, floor, body, motors.
HOPPER_LEG = _standing_leg("", 0.13, -0.13, 0.26, 2.0)
WALKER_LEGS = _standing_leg("", 0.2, 0, 0.2, 0.9) + _standing_leg("_left", 0.2, 0, 0.2, 1.9)
PARTS = {
    "HalfCheetah": (
        'angle="radian"',
        'timestep="0.01"',
        CHEETAH_DEFAULTS.format(density=_cheetah_density()),
        'size="40 40 40" conaffinity="1"',
        _cheetah_body(),
        _motors({"bthigh": 120, "bshin": 90, "bfoot": 60, "fthigh": 120, "fshin": 60, "ffoot": 30}),
    ),
    "Hopper": (
        'angle="degree"',
        'timestep="0.002" integrator="RK4"',
        HOPPER_DEFAULTS,
        'size="20 20 0.125" condim="3"',
        _standing_body(HOPPER_LEG),
        _motors(dict.fromkeys(("thigh_joint", "leg_joint", "foot_joint"), 200)),
    ),
    "Swimmer": (
        'angle="degree"',
        'timestep="0.01" integrator="RK4" density="4000" viscosity="0.1"',
        SWIMMER_DEFAULTS,
        'size="40 40 0.1" pos="0 0 -0.1"',
        SWIMMER_BODY,
        _motors({"motor1_rot": 150, "motor2_rot": 150}),
    ),
    "Walker2d": (
        'angle="degree"',
        'timestep="0.002" integrator="RK4"',
        WALKER_DEFAULTS,
        'size="40 40 40" conaffinity="1"',
        _standing_body(WALKER_LEGS),
        _motors({f"{part}{side}_joint": 100 for side in ("", "_left") for part in ("thigh", "leg", "foot")}),
    ),
    "Ant": (
        'angle="degree"',
        'timestep="0.01" integrator="RK4"',
        gym_ant.DEFAULTS,
        'size="40 40 40" conaffinity="1"',
        gym_ant.ant_body(),
        gym_ant.MOTORS,
    ),
    "Humanoid": (
        'angle="degree"',
        'timestep="0.003" integrator="RK4" iterations="50" solver="PGS"',
        HUMANOID_DEFAULTS,
        'size="20 20 0.125" condim="3" friction="1 0.1 0.1"',
        _humanoid_body(),
        _motors(HUMANOID_GEARS, 0.4),
    ),
}

LOOK = """
  <asset>
    <texture type="skybox" builtin="gradient" rgb1="0.6 0.7 0.8" rgb2="0.2 0.2 0.3" width="100" height="100"/>
    <texture name="tiles" type="2d" builtin="checker" rgb1="0.25 0.3 0.3" rgb2="0.7 0.75 0.75" width="99" height="99"/>
    <material name="tiles" texture="tiles" texrepeat="1 1" texuniform="true"/>
  </asset>"""


def velocity_xml(robot: Robot, visual: bool = False) -> str:
    """MJCF of a robot on its floor; ``visual`` adds what a picture needs."""
    compiler, option, defaults, floor, body, motors = PARTS[robot.name]
    light = '<light pos="0 0 6" dir="0 0 -1" directional="true" diffuse="0.7 0.7 0.7"/>' if visual else ""
    return f"""
<mujoco model="{robot.name}">
  <compiler inertiafromgeom="true" {compiler}/>
  <option {option}><flag nativeccd="disable" multiccd="disable" island="disable"/></option>
  <default>{defaults}
  </default>{LOOK if visual else ""}
  <worldbody>
    {light}<geom name="floor" type="plane" {floor}{' material="tiles" rgba="1 1 1 1"' if visual else ""}/>{body}
  </worldbody>
  <actuator>{motors}
  </actuator>
</mujoco>"""


@functools.cache
def velocity_model(robot: Robot, visual: bool = False) -> mujoco.MjModel:
    """The compiled model of a robot; the same object for the same robot."""
    return mujoco.MjModel.from_xml_string(velocity_xml(robot, visual))
