"""One environment step from every row of recorded transitions: what the parity tests are built on.

``transitions`` holds arrays named as in the recordings, one row a step: qpos, qvel, warm (the acceleration that starts
the solver), place (what speed is measured by, as the last step saw it, xy in m) and action. For
``physics="recorded"`` also qpos_next, qvel_next, place_next and obs, whose part beyond positions and velocities (the
Humanoid's) is taken over.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np

from cppo.envs.mujoco.precision import double_on_cpu
from cppo.envs.velocity import task
from cppo.envs.velocity.robots import Robot
from cppo.envs.velocity.task import Moved
from cppo.envs.velocity.threads import moved_of, stepper
from cppo.types import UsageError, as_numpy

NEEDED = ("qpos", "qvel", "warm", "place", "action")


def step_once(robot: Robot, transitions: Mapping[str, np.ndarray], backend: str, physics: str) -> dict[str, np.ndarray]:
    """Step every row once; see ``cppo.envs.replay``. Returns place_next and terminated, too."""
    missing = [key for key in NEEDED if key not in transitions]
    if missing:
        raise UsageError(f"the transitions have no {', '.join(missing)}; {robot.spec.name} needs them")
    rows = {key: np.asarray(transitions[key], np.float64) for key in NEEDED}
    with double_on_cpu():
        if physics == "recorded":
            qpos, qvel, place = (np.asarray(transitions[f"{key}_next"]) for key in ("qpos", "qvel", "place"))
            rich = np.asarray(transitions["obs"])[:, robot.positions - robot.hidden + robot.velocities :]
            moved = Moved(qpos, qvel, place, rich)
        else:
            stepped = stepper(robot).advance(rows["qpos"], rows["qvel"], rows["warm"], rows["action"])
            moved = as_numpy(moved_of(robot, stepped))
        outcome = as_numpy(jax.jit(task.advance, static_argnums=0)(robot, rows["place"], moved, rows["action"]))
    seen = {"qpos_next": moved.qpos, "qvel_next": moved.qvel, "place_next": moved.place, "obs": outcome.obs}
    return seen | {"reward": outcome.reward, "cost": outcome.cost[:, 0], "terminated": outcome.terminated}
