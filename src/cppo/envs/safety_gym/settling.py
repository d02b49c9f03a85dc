"""How untouched objects settle on the floor after a reset, measured once from the model.

Objects are placed a little above or below their resting height and sink for about half a second. Until something
touches them the motion is vertical and the same in every world, whatever their yaw, to 1e-13 m.
"""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

import functools

import mujoco
import numpy as np
from jaxtyping import Float

from cppo.envs.safety_gym.models import navigation_model
from cppo.envs.safety_gym.scenes import SUBSTEPS, Scene

STEPS = 45  # environment steps; at the end the speed is below 1e-13 m / s
# The solver stops at a tolerance; while the robot stands still that leaves noise of 1e-8 m / s in the objects.
DRIVE = (1.0, 0.3)


@functools.cache
def settling_table(scene: Scene) -> Float[np.ndarray, "step object 3"]:
    """Height (m), vertical speed (m / s) and acceleration (m / s^2) of the free objects after 0, 1, ... steps."""
    model = navigation_model(scene)
    data = mujoco.MjData(model)  # the compiled model keeps its objects 10 m and more from the robot, 1 m apart
    data.ctrl[:] = DRIVE
    first_q, first_v = scene.robot.positions, scene.robot.velocities
    rows = []
    for _ in range(STEPS):
        mujoco.mj_forward(model, data)
        rows.append(
            np.stack([data.qpos[first_q + 2 :: 7], data.qvel[first_v + 2 :: 6], data.qacc[first_v + 2 :: 6]], -1)
        )
        mujoco.mj_step(model, data, SUBSTEPS)
    return np.array(rows).reshape(STEPS, scene.free_objects, 3)
