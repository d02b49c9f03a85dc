"""The Doggo: four legs with two joints at each hip and one at each ankle, and a waist that twists, unpowered.

Written from the numbers of safety-gymnasium's model (Apache-2.0, © 2022-2023 OmniSafe Team).
"""

from cppo.envs.safety_gym.robots.robot import Robot

LEGS = {1: (1, 1), 2: (-1, 1), 3: (-1, -1), 4: (1, -1)}  # front or rear, left or right; 2 and 3 hang on the rear
KINDS = ("hip_{}_z", "hip_{}_y", "ankle_{}")
JOINTS = [kind.format(number) for kind in KINDS for number in LEGS]
FEET = [f"{number}{end}" for end in "ab" for number in LEGS]  # knee and toe of each leg


def leg(number: int) -> str:
    end, side = LEGS[number]
    hip, knee = f"{0.1 * end} {0.05 * side} 0", f"0.049 {0.0283 * side} -0.025"
    toe = f"-0.0588 {-0.0339 * side} -0.05"
    lift = 'range="-1.308998 0.2618" springref="-0.174533"' if end > 0 else 'range="0 2.356196"'
    look = f'density="20" rgba="{"0 0.15 0.4 1" if end > 0 else "0.74 0.04 0.18 1"}"'
    return f"""
      <body name="leg_{number}">
        <geom name="aux_{number}" fromto="{0.05 * end} 0 0 {hip}" {look}/>
        <body name="aux_{number}" pos="{hip}">
          <joint name="hip_{number}_z" type="hinge" axis="0 0 {side}" range="-0.174533 0.523599"/>
          <joint name="hip_{number}_y" type="hinge" axis="0 1 0" {lift}/>
          <geom name="hip_{number}" fromto="0 0 0 {knee}" {look}/>
          <body name="foot_{number}" pos="{knee}">
            <joint name="ankle_{number}" type="hinge" axis="{-0.5 * side} 0.866 0" range="-1.308998 0"
                   springref="-0.349066"/>
            <geom name="ankle_{number}" fromto="0 0 0 {toe}" density="20"/>
            <site name="{number}a" size="0.018"/>
            <site name="{number}b" size="0.018" pos="{toe}"/>
          </body>
        </body>
      </body>"""


BODY = f"""
      <geom name="robot" type="cylinder" size="0.0375" fromto="0 0 0 0.1 0 0" density="2"/>
      <site name="robot" size="0.018" rgba="1 0 0 0"/>{leg(1)}{leg(4)}
      <body name="rear">
        <joint name="waist" type="hinge" axis="1 0 0" range="-0.523599 0.523599"/>
        <geom name="rear" type="cylinder" size="0.0375" fromto="-0.1 0 0 0 0 0" density="2"/>{leg(2)}{leg(3)}
      </body>"""

ACTUATORS = "".join(f'\n    <motor joint="{name}" gear="0.00625" ctrlrange="-1 1"/>' for name in JOINTS)
SENSORS = "".join(
    [f'\n    <touch site="{name}"/>' for name in FEET]
    + [f'\n    <jointvel joint="{name}"/>' for name in JOINTS]
    + [f'\n    <jointpos joint="{name}"/>' for name in JOINTS]
)

DOGGO = Robot(
    "doggo",
    BODY,
    ACTUATORS,
    geom='condim="6" density="5" size="0.016" type="capsule" rgba="0.8 0.6 0.4 1"',
    timestep=0.01,
    reach=(1.0,) * 12,
    joint='limited="true" stiffness="0.0001" armature="0.00005"',
    sensors=SENSORS,
    start=0.22,
    rest=(0.0,) * 13,
    speeds=13,
    senses=(("plain", 20), ("angles", 12)),
    front=(0.1, 0.0),
    radius=0.15,
)
