"""The Racecar: driven rear wheels, front wheels that steer. Its front is +x.

Written from measurements of safety-gymnasium's model (Apache-2.0, © 2022-2023 OmniSafe Team). Visual meshes are left
out. The chassis touches others with the convex hull of its mesh: a plate with rounded corners, and two axles. The
differential gears, which nothing touches, are one inertia of the root here. All that can be touched is a body of its
own, as there: how soft MuJoCo makes a contact depends on the bodies' own centres of mass.
"""

import numpy as np

from cppo.envs.safety_gym.robots.robot import Robot

REAR, FRONT = -0.16, 0.165  # m, x of the axles
PLATE = (  # corners of the plate's left half: centre, first and last angle in steps of 22.5 degrees
    ((0.185, 0.04), 0, 3),
    ((0.075, 0.07), 3, 4),
    ((-0.18, 0.07), 4, 8),
)
CORNER, THICK = 0.02, 0.03  # m, radius of the corners, half the thickness
AXLE, TREAD = 0.005, 0.1  # m, radius of the axles, half their length


def hull() -> str:
    """Corners of the chassis, x y z after each other."""
    plate = [
        (x + CORNER * np.cos(angle), side * (y + CORNER * np.sin(angle)), height)
        for (x, y), first, last in PLATE
        for angle in np.arange(first, last + 1) * np.pi / 8
        for side in (1, -1)
        for height in (THICK, -THICK)
    ]
    axles = [
        (x + out * AXLE * np.cos(angle), side * TREAD, AXLE * np.sin(angle))
        for x, out in ((REAR, -1), (FRONT, 1))
        for angle in np.arange(-3, 4) * np.pi / 6
        for side in (1, -1)
    ]
    return " ".join(f"{number:.9g}" for corner in plate + axles for number in corner)


def steered(name: str, side: int) -> str:
    return f"""
      <body name="{name}_hinge" pos="{FRONT} {side * TREAD} 0" quat="0.707105 0 0.707108 0">
        <inertial pos="0 0 0" mass="0.1" diaginertia="4e-6 4e-6 4e-6"/>
        <joint name="{name}_hinge" type="hinge" axis="-1 0 0" range="-0.785 0.785"/>
        <body name="{name}_wheel" quat="0.707105 0.707108 0 0">
          <inertial pos="0 0 {-side * 0.0225}" quat="0.5 0.5 -0.5 0.5" mass="0.34055"
                    diaginertia="0.00041226 0.00026046 0.00026046"/>
          <joint name="{name}_wheel" type="hinge" axis="0 0 -1"/>
          <geom name="{name}_wheel" type="cylinder" size="0.05 0.0225" pos="0 0 {-side * 0.0225}" rgba="0 0 0 1"/>
        </body>
      </body>"""


def driven(name: str, side: int) -> str:
    place = f'pos="0 {side * 0.1225} {side * 8.26471e-8}" quat="0.707105 0.707108 0 0"'
    return f"""
        <body name="{name}_rear">
          <inertial pos="0 {side * 0.105201} {side * 7.09759e-8}" mass="0.39655"
                    diaginertia="0.0256521 0.0250823 0.0450921"/>
          <geom name="{name}_rear_wheel" type="cylinder" size="0.05 0.0225" {place} rgba="0 0 0 1"/>
        </body>"""


BODY = f"""
      <inertial pos="0.07033274956217164 0 0" mass="0.3997"
                diaginertia="0.17269 0.1809451257443083 0.3170251257443083"/>
      <site name="robot" pos="0.02 0 0" rgba="1 0 0 0.1"/>
      <body name="bumper" pos="0.23 0 0.04">
        <geom name="bumper" type="box" size="0.0165 0.0875 0.015" rgba="0 0.15 0.4 1"/>
      </body>
      <body name="chassis">
        <inertial pos="-4.420072521239e-3 -3.826658731145e-4 0" mass="0.0176055376182918"
                  fullinertia="4.1259462792744e-5 2.3849520450518720e-4 2.706324171671689e-4 9.857287975142e-7 0 0"/>
        <geom name="chassis" type="mesh" mesh="chassis" rgba="0.74 0.04 0.18 1"/>
      </body>
      <body name="ring" pos="{REAR} 0 0">
        <inertial pos="0 0 0" mass="0.0637" diaginertia="0.02467 0.02467 0.04411"/>
        <geom name="ring" type="cylinder" size="0.025 0.005" pos="0 0.025 0" quat="0.707107 0.707106 0 0"/>
      </body>{steered("left", 1)}{steered("right", -1)}
      <body name="rear" pos="{REAR} 0 0">
        <joint name="rear" type="hinge" axis="0 1 0"/>{driven("left", 1)}{driven("right", -1)}
      </body>"""

ACTUATORS = """
    <velocity joint="rear" ctrlrange="-20 20" forcerange="-1 1"/>
    <position joint="left_hinge" ctrlrange="-0.785 0.785" forcerange="-1 1"/>"""

RACECAR = Robot(
    "racecar",
    BODY,
    ACTUATORS,
    geom='condim="6" density="5" size="0.05" type="sphere"',
    timestep=0.004,
    reach=(20.0, 0.785),
    integrator="RK4",
    assets=f'<mesh name="chassis" vertex="{hull()}"/>',
    contact="".join(f'<exclude body1="chassis" body2="{name}_wheel"/>' for name in ("left", "right")),
    equality='<joint joint1="left_hinge" joint2="right_hinge"/>',
    start=0.05,
    rest=(0.0,) * 5,
    speeds=5,
    site=(0.02, 0.0, 0.0),
    front=(0.23, 0.0),
    radius=0.2,
)
