"""The Ant: gym's, a quarter of the size. An episode ends when its torso comes down to 8 cm.

Written from the numbers of safety-gymnasium's model (Apache-2.0, © 2022-2023 OmniSafe Team), which are gym's with
other lengths and ranges.
"""

from math import pi

from cppo.envs.safety_gym.robots.robot import Robot

LEGS = ((1, 1), (-1, 1), (-1, -1), (1, -1))  # signs of x and y; the ankle's axis is at right angles
BENT = (1, -1, -1, 1)  # sign of the ankle's range


def leg(number: int, x: int, y: int, bent: int) -> str:
    part, foot = f"{0.05 * x} {0.05 * y} 0", f"{0.1 * x} {0.1 * y} 0"
    low, high = (0.52, 1.74) if bent > 0 else (-1.74, -0.52)
    return f"""
      <body name="leg_{number}">
        <geom name="hip_{number}" type="capsule" fromto="0 0 0 {part}" size="0.02"/>
        <body name="aux_{number}" pos="{part}">
          <joint name="hip_{number}" type="hinge" axis="0 0 1" range="-0.7 0.7"/>
          <geom name="aux_{number}" type="capsule" fromto="0 0 0 {part}" size="0.02"/>
          <body name="foot_{number}" pos="{part}">
            <joint name="ankle_{number}" type="hinge" axis="{-1 if x == y else 1} 1 0" range="{low} {high}"/>
            <geom name="foot_{number}" type="capsule" fromto="0 0 0 {foot}" size="0.02"/>
          </body>
        </body>
      </body>"""


BODY = f"""
      <geom name="robot" type="sphere" size="0.0625" rgba="0.7 0.1 0.1 1"/>
      <site name="robot" pos="0 0 -0.02" rgba="1 0 0 0.1"/>{
    "".join(leg(number, *signs, BENT[number - 1]) for number, signs in enumerate(LEGS, start=1))
}"""

JOINTS = [f"{kind}_{number}" for number in range(1, 5) for kind in ("hip", "ankle")]
ACTUATORS = "".join(f'\n    <motor joint="{name}" gear="150" ctrlrange="-1 1"/>' for name in JOINTS)
SENSORS = "".join(
    [f'\n    <jointvel joint="{name}"/>' for name in JOINTS]
    + ['\n    <framepos objtype="site" objname="robot"/>\n    <frameangvel objtype="site" objname="robot"/>']
    + [f'\n    <jointpos joint="{name}"/>' for name in JOINTS]
)

ANT = Robot(
    "ant",
    BODY,
    ACTUATORS,
    geom='condim="6" density="5" rgba="0.8 0.6 0.4 1"',
    timestep=0.01,
    reach=(1.0,) * 8,
    start=0.18,
    joint='armature="1" damping="1" limited="true"',
    integrator="RK4",
    sensors=SENSORS,
    rest=tuple(angle for bent in BENT for angle in (0.0, bent * pi / 2)),
    jitter=0.1,
    speeds=8,
    fallen=0.08,
    senses=(("plain", 8), ("unseen", 2), ("plain", 4), ("angles", 8)),  # of the site's place the height alone is seen
    site=(0.0, 0.0, -0.02),
    front=(0.04, 0.0),
)
