"""One environment step from every row of recorded transitions: what parity tests are built on.

``transitions`` holds arrays named as in the recordings, one row a step: qpos, qvel, warm, xpos_prev and action.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

import jax.numpy as jnp
import numpy as np

from cppo.envs.ant_circle import task
from cppo.envs.ant_circle.physics import ant_stepper
from cppo.envs.ant_circle.warp import WarpAntCircle, torso_of
from cppo.envs.mujoco.precision import double_on_cpu
from cppo.types import as_numpy

Moved = tuple[np.ndarray, np.ndarray, np.ndarray]  # qpos, qvel, the torso's place


def step_once(transitions: Mapping[str, np.ndarray], backend: str, physics: str) -> dict[str, np.ndarray]:
    """Step every row once; see ``cppo.envs.replay``. Returns xpos_next and terminated, too."""
    if physics == "recorded":
        qpos, qvel, torso = (transitions[key] for key in ("qpos_next", "qvel_next", "xpos_next"))
    else:
        start = tuple(np.asarray(transitions[key], np.float64) for key in ("qpos", "qvel", "warm", "action"))
        qpos, qvel, torso = STEPPERS[backend](start)
    with nullcontext() if backend == "warp" else double_on_cpu():
        outcome = as_numpy(task.advance(*(jnp.asarray(x) for x in (transitions["xpos_prev"], torso, qpos, qvel))))
    seen = {"qpos_next": qpos, "qvel_next": qvel, "xpos_next": torso, "obs": outcome.obs}
    return seen | {"reward": outcome.reward, "cost": outcome.cost[:, 0], "terminated": outcome.terminated}


def _threads_step(start: tuple[np.ndarray, ...]) -> Moved:
    qpos, qvel, _, torso = ant_stepper().advance(*start)
    return qpos, qvel, torso


def _warp_step(start: tuple[np.ndarray, ...]) -> Moved:
    qpos, qvel, warm, ctrl = (jnp.asarray(x, jnp.float32) for x in start)
    physics = WarpAntCircle(len(start[0])).physics
    moved = as_numpy(physics.run("step", physics.pack(qpos, qvel, warm, ctrl)))
    return moved.qpos, moved.qvel, torso_of(moved)


STEPPERS = {"threads": _threads_step, "warp": _warp_step}
