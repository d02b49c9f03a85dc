"""AntCircle's model, and its step on CPU threads with the torso position that the original reads.

The original takes the torso's position from the last Runge-Kutta stage, not from the new state (median 6e-5 m off,
which velocities multiply by 20 and reward by another 10); ``cppo.envs.mujoco.stepping`` reads it there.

Differences from the MuJoCo 2.3.3 that the original ran on are undone where a flag can: native convex collision and
islands are off. Geom margins are halved, because MuJoCo sums a pair's margins since 3.5.0 and took their maximum
before.
"""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

import functools

import mujoco

from cppo.envs.ant_circle.task import SUBSTEPS
from cppo.envs.mujoco.gym_ant import DEFAULTS, MOTORS, ant_body
from cppo.envs.mujoco.stepping import Stepper

TORSO = 1  # body number


def ant_xml() -> str:
    """MJCF of gym's Ant on a plain floor."""
    return f"""
<mujoco model="AntCircle">
  <compiler angle="degree" inertiafromgeom="true"/>
  <option integrator="RK4" timestep="0.01"><flag nativeccd="disable" island="disable"/></option>
  <default>{DEFAULTS}
  </default>
  <worldbody>
    <light pos="0 0 6" dir="0 0 -1" directional="true" diffuse="0.6 0.6 0.6"/>
    <geom name="floor" type="plane" size="40 40 40" conaffinity="1" rgba="0.8 0.9 0.8 1"/>{ant_body()}
  </worldbody>
  <actuator>{MOTORS}
  </actuator>
</mujoco>"""


@functools.cache
def ant_model() -> mujoco.MjModel:
    """The compiled model of gym's Ant."""
    return mujoco.MjModel.from_xml_string(ant_xml())


def ant_stepper(threads: int | None = None) -> Stepper:
    """Steps Ants and sees the xy of their torsos at the last Runge-Kutta stage, m."""
    return Stepper(ant_model(), SUBSTEPS, lambda data: [data.xpos[TORSO, :2]], threads)
