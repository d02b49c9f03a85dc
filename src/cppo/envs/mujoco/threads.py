"""MuJoCo on all CPU cores: many worlds of one model, rolled forward without Python in between."""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

import copy
import logging
import os
import time
from typing import NamedTuple

import mujoco
import numpy as np
from jaxtyping import Float
from mujoco import rollout

log = logging.getLogger("cppo.envs")

STATE = mujoco.mjtState
EULER = mujoco.mjtIntegrator.mjINT_EULER
INPUTS = int(STATE.mjSTATE_CTRL | STATE.mjSTATE_MOCAP_POS | STATE.mjSTATE_MOCAP_QUAT)


_told: set[str] = set()


def _tell(warning: str) -> None:
    kind = warning.partition(" at DOF")[0]
    if kind not in _told:
        _told.add(kind)
        log.warning("MuJoCo: %s", warning)


# By itself MuJoCo writes a log into the working directory, which may be a stranger's, with a link of the log's name.
mujoco.set_mju_user_warning(_tell)


class Trajectory(NamedTuple):
    """States after each physics step. ``sensors[:, i]`` belong to the state before step i, that is after step i - 1."""

    qpos: Float[np.ndarray, "world step qpos"]
    qvel: Float[np.ndarray, "world step qvel"]
    sensors: Float[np.ndarray, "world step sensor"]


class Sighted(NamedTuple):
    """W worlds after some steps."""

    qpos: Float[np.ndarray, "world qpos"]
    qvel: Float[np.ndarray, "world qvel"]
    warm: Float[np.ndarray, "world qvel"]  # acceleration, which starts the next constraint solver
    sensors: Float[np.ndarray, "world sensor"]


Start = tuple[
    Float[np.ndarray, "world qpos"], Float[np.ndarray, "world qvel"], Float[np.ndarray, "world qvel"]
]  # positions, velocities, acceleration that starts the constraint solver
Means = tuple[rollout.Rollout, list[mujoco.MjData], mujoco.MjModel]


class Threads:
    """A pool of threads with one ``MjData`` each."""

    def __init__(self, model: mujoco.MjModel, threads: int | None = None):
        self.model = model
        self.threads = threads or len(os.sched_getaffinity(0))
        self.seconds = 0.0  # spent in MuJoCo so far
        self._pool = rollout.Rollout(nthread=self.threads)
        self._data = [mujoco.MjData(model) for _ in range(self.threads)]
        self._once = self._pool, self._data, model
        if model.opt.integrator != EULER:  # one step of Euler's evaluates once, a Runge-Kutta step four times
            euler = copy.copy(model)
            euler.opt.integrator = EULER
            self._once = rollout.Rollout(nthread=self.threads), [mujoco.MjData(euler) for _ in self._data], euler

    def seen(self, start: Start, control: Float[np.ndarray, "world *step control"], steps: int) -> Sighted:
        """The state after ``steps`` steps, and its sensors as a forward evaluation there gives them.

        MuJoCo evaluates sensors at the start of a step. So one step more is made: its sensors are those, and its change
        of velocity is the acceleration, which starts the constraint solver of the next call. A ``control`` for each
        step has one for that, too.
        """
        qpos, qvel, warm = start
        if self.model.opt.integrator == EULER:
            path = self.roll(start, control, steps + 1)
            ends = (path.qpos[:, steps - 1], path.qvel[:, steps - 1]) if steps else (qpos, qvel)
            after, sensors = path.qvel[:, steps], path.sensors[:, steps]
        else:
            ends = qpos, qvel
            if steps:
                path = self.roll(start, control[:, :steps] if control.ndim == 3 else control, steps)
                ends = np.ascontiguousarray(path.qpos[:, -1]), np.ascontiguousarray(path.qvel[:, -1])
                before = path.qvel[:, -2] if steps > 1 else qvel
                warm = (ends[1] - before) / self.model.opt.timestep
            last = control[:, steps:] if control.ndim == 3 else control
            look = self._roll(self._once, (*ends, warm), last, 1)
            after, sensors = look.qvel[:, 0], look.sensors[:, 0]
        return Sighted(*ends, (after - ends[1]) / self.model.opt.timestep, sensors)

    def roll(self, start: Start, control: Float[np.ndarray, "world *step control"], steps: int) -> Trajectory:
        """Roll every world ``steps`` physics steps. ``control`` is ctrl, mocap positions, mocap quaternions.

        A ``control`` of (world, step, control) has its own for each step.
        """
        return self._roll((self._pool, self._data, self.model), start, control, steps)

    def _roll(self, means: Means, start: Start, control: np.ndarray, steps: int) -> Trajectory:
        (pool, data, model), (qpos, qvel, warm) = means, start
        worlds, nq, nv = len(qpos), model.nq, model.nv
        initial = np.empty((worlds, 1 + nq + nv))
        initial[:, 0], initial[:, 1 : 1 + nq], initial[:, 1 + nq :] = 0.0, qpos, qvel
        inputs = np.empty((worlds, steps, control.shape[-1]))
        inputs[:] = control if control.ndim == 3 else control[:, None]
        states = np.empty((worlds, steps, 1 + nq + nv))
        sensors = np.empty((worlds, steps, model.nsensordata))
        began = time.perf_counter()
        pool.rollout(
            [model] * worlds,
            data,
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
