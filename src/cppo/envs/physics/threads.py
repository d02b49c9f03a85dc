"""MuJoCo on all CPU cores: many worlds of one model, rolled forward without Python in between."""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

import os
import time
from typing import NamedTuple

import mujoco
import numpy as np
from jaxtyping import Float
from mujoco import rollout

STATE = mujoco.mjtState
INPUTS = int(STATE.mjSTATE_CTRL | STATE.mjSTATE_MOCAP_POS | STATE.mjSTATE_MOCAP_QUAT)


class Trajectory(NamedTuple):
    """States after each physics step. ``sensors[:, i]`` belong to the state before step i, that is after step i - 1."""

    qpos: Float[np.ndarray, "world step qpos"]
    qvel: Float[np.ndarray, "world step qvel"]
    sensors: Float[np.ndarray, "world step sensor"]


class Threads:
    """A pool of threads with one ``MjData`` each.

    MuJoCo evaluates sensors at the start of a step. To read them after step n, as a forward evaluation would give
    them, roll n + 1 steps: the last step's sensors are those, and its change of velocity is the acceleration there,
    which starts the constraint solver of the next roll.
    """

    def __init__(self, model: mujoco.MjModel, threads: int | None = None):
        self.model = model
        self.threads = threads or len(os.sched_getaffinity(0))
        self.seconds = 0.0  # spent in MuJoCo so far
        self._pool = rollout.Rollout(nthread=self.threads)
        self._data = [mujoco.MjData(model) for _ in range(self.threads)]

    def roll(
        self,
        qpos: Float[np.ndarray, "world qpos"],
        qvel: Float[np.ndarray, "world qvel"],
        warm: Float[np.ndarray, "world qvel"],
        control: Float[np.ndarray, "world control"],
        steps: int,
    ) -> Trajectory:
        """Roll every world ``steps`` physics steps. ``control`` is ctrl, mocap positions, mocap quaternions."""
        worlds, nq, nv = len(qpos), self.model.nq, self.model.nv
        initial = np.empty((worlds, 1 + nq + nv))
        initial[:, 0], initial[:, 1 : 1 + nq], initial[:, 1 + nq :] = 0.0, qpos, qvel
        inputs = np.empty((worlds, steps, control.shape[1]))
        inputs[:] = control[:, None]
        states = np.empty((worlds, steps, 1 + nq + nv))
        sensors = np.empty((worlds, steps, self.model.nsensordata))
        began = time.perf_counter()
        self._pool.rollout(
            [self.model] * worlds,
            self._data,
            initial,
            inputs,
            control_spec=INPUTS,
            skip_checks=True,
            nstep=steps,
            initial_warmstart=np.ascontiguousarray(warm),
            state=states,
            sensordata=sensors,
        )
        self.seconds += time.perf_counter() - began
        return Trajectory(states[..., 1 : 1 + nq], states[..., 1 + nq :], sensors)
