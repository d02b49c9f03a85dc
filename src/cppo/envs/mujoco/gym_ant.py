"""The bodies of Gymnasium's Ant, written from its numbers: the robot of every task here that has an ant."""

from __future__ import annotations

LEGS = (  # name, signs of x and y, ankle axis, ankle range in degrees
    ("front_left", 1, 1, "-1 1 0", "30 70"),
    ("front_right", -1, 1, "1 1 0", "-70 -30"),
    ("back", -1, -1, "-1 1 0", "-70 -30"),
    ("right_back", 1, -1, "1 1 0", "30 70"),
)
DEFAULTS = """
    <joint armature="1" damping="1" limited="true"/>
    <geom conaffinity="0" condim="3" density="5" friction="1 0.5 0.5" margin="0.005" rgba="0.8 0.6 0.4 1"/>"""
MOTORS = "".join(
    f'\n    <motor joint="{kind}_{leg}" gear="150" ctrlrange="-1 1"/>'
    for leg in (4, 1, 2, 3)
    for kind in ("hip", "ankle")
)


def ant_body() -> str:
    """The torso at 0.75 m, and its legs. Every geom touches the floor only (conaffinity 0), never another leg."""
    legs = "".join(_leg(number, *leg) for number, leg in enumerate(LEGS, start=1))
    return f"""
    <body name="torso" pos="0 0 0.75">
      <joint type="free" name="root" armature="0" damping="0" limited="false" margin="0.01"/>
      <geom name="torso" size="0.25"/>{legs}
    </body>"""


def _leg(number: int, name: str, x: int, y: int, axis: str, ankle_range: str) -> str:
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
