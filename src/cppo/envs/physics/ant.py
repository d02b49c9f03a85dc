"""The Ant's step on CPU threads, with the torso position that the original reads.

After a Runge-Kutta step MuJoCo's derived quantities are those of the last stage, not of the new state, and the
original takes the torso's position from there (median 6e-5 m off, which velocities multiply by 20 and reward by
another 10). ``mujoco.rollout`` does not report it. So Python threads step the worlds here: MuJoCo releases the
interpreter during its five steps (about 300 microseconds), and Python needs about 5 in between, so that some fifty
threads fit before they wait for each other.
"""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import mujoco
import numpy as np
from jaxtyping import Float

from cppo.envs.physics.models import ant_model
from cppo.envs.tasks.ant_circle import POSITIONS, SUBSTEPS, VELOCITIES

STATE = mujoco.mjtState
WHOLE = int(STATE.mjSTATE_PHYSICS | STATE.mjSTATE_WARMSTART | STATE.mjSTATE_CTRL)
TORSO = 1  # body number


class AntStep(NamedTuple):
    """The Ant after one environment step of five physics steps."""

    qpos: Float[np.ndarray, "world 15"]
    qvel: Float[np.ndarray, "world 14"]
    warm: Float[np.ndarray, "world 14"]  # acceleration that starts the next constraint solver
    torso: Float[np.ndarray, "world 2"]  # xy of the torso at the last Runge-Kutta stage, m


class AntThreads:
    """Steps W Ants."""

    def __init__(self, threads: int | None = None):
        self.model = ant_model()
        self.threads = threads or len(os.sched_getaffinity(0))
        self.seconds = 0.0  # spent in MuJoCo so far
        self._data = [mujoco.MjData(self.model) for _ in range(self.threads)]
        self._pool = ThreadPoolExecutor(self.threads)

    def advance(self, qpos: np.ndarray, qvel: np.ndarray, warm: np.ndarray, ctrl: np.ndarray) -> AntStep:
        before = np.concatenate([qpos, qvel, warm, ctrl], 1)
        after, torso = np.empty_like(before), np.empty((len(qpos), 2))

        def step_share(share: int) -> None:
            data = self._data[share]
            place = data.xpos[TORSO, :2]
            for world in range(share, len(before), self.threads):
                mujoco.mj_setState(self.model, data, before[world], WHOLE)
                mujoco.mj_step(self.model, data, SUBSTEPS)
                mujoco.mj_getState(self.model, data, after[world], WHOLE)
                torso[world] = place

        began = time.perf_counter()
        list(self._pool.map(step_share, range(self.threads)))  # list: raises what a thread raised
        self.seconds += time.perf_counter() - began
        ends = np.cumsum([POSITIONS, VELOCITIES, VELOCITIES])
        qpos, qvel, acceleration, _ = np.split(after, ends, axis=1)
        return AntStep(qpos, qvel, acceleration, torso)
