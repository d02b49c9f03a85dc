"""Worlds of one model for whole environment steps: on Python threads, or without Python in between.

``Stepper`` is for tasks that read what ``mujoco.rollout`` does not report, ``Roller`` for all others.

After a Runge-Kutta step MuJoCo's derived quantities (places of bodies, inertias, forces) are those of the last stage,
not of the new state, and Gymnasium's tasks read them there. MuJoCo releases the interpreter during the steps (40 to
600 microseconds), and Python needs a few in between. The solver's warm start is kept as MuJoCo leaves it.
"""

# pyright: reportAttributeAccessIssue=false
# (MuJoCo's compiled module ships no type stubs)
from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import mujoco
import numpy as np
from jaxtyping import Float

from cppo.envs.mujoco.threads import Threads

STATE = mujoco.mjtState
WHOLE = int(STATE.mjSTATE_PHYSICS | STATE.mjSTATE_WARMSTART | STATE.mjSTATE_CTRL)

Reader = Callable[[mujoco.MjData], list[np.ndarray]]  # views of what is read after the last stage, one-dimensional


class Stepped(NamedTuple):
    """W worlds after one environment step."""

    qpos: Float[np.ndarray, "world qpos"]
    qvel: Float[np.ndarray, "world qvel"]
    warm: Float[np.ndarray, "world qvel"]  # acceleration that starts the next constraint solver
    seen: Float[np.ndarray, "world number"]  # what the reader names, one after the other


class Stepper:
    """Steps W worlds ``substeps`` physics steps; ``after`` is called on model and data before they are read."""

    def __init__(
        self,
        model: mujoco.MjModel,
        substeps: int,
        reader: Reader = lambda data: [],
        threads: int | None = None,
        after: Callable[[mujoco.MjModel, mujoco.MjData], Any] | None = None,
    ):
        self.model, self.substeps, self.after = model, substeps, after
        self.threads = threads or len(os.sched_getaffinity(0))
        self.seconds = 0.0  # spent in MuJoCo so far
        self._data = [mujoco.MjData(model) for _ in range(self.threads)]
        self._views = [reader(data) for data in self._data]
        self._ends = np.cumsum([0, *(len(view) for view in self._views[0])])
        self._pool = ThreadPoolExecutor(self.threads)

    def advance(self, qpos: np.ndarray, qvel: np.ndarray, warm: np.ndarray, ctrl: np.ndarray) -> Stepped:
        model, after = self.model, self.after

        def step(data: mujoco.MjData, row: np.ndarray, result: np.ndarray) -> None:
            mujoco.mj_setState(model, data, row, WHOLE)
            mujoco.mj_step(model, data, self.substeps)
            if after is not None:
                after(model, data)
            mujoco.mj_getState(model, data, result, WHOLE)

        return self._each(np.concatenate([qpos, qvel, warm, ctrl], 1), step)

    def look(self, qpos: np.ndarray, qvel: np.ndarray) -> Stepped:
        """What is seen of states in which episodes begin, and the warm start that goes with them."""
        model, size = self.model, self.model.nv + self.model.nu

        def forward(data: mujoco.MjData, row: np.ndarray, result: np.ndarray) -> None:
            mujoco.mj_resetData(model, data)  # forces that only ``after`` computes are 0
            mujoco.mj_setState(model, data, row, WHOLE)
            mujoco.mj_forward(model, data)
            data.qacc_warmstart[:] = data.qacc
            mujoco.mj_getState(model, data, result, WHOLE)

        return self._each(np.concatenate([qpos, qvel, np.zeros((len(qpos), size))], 1), forward)

    def _each(self, rows: np.ndarray, do: Callable[[mujoco.MjData, np.ndarray, np.ndarray], None]) -> Stepped:
        """Every world's row through ``do``, on all threads."""
        after, seen = np.empty_like(rows), np.empty((len(rows), self._ends[-1]))
        pieces = [slice(int(a), int(b)) for a, b in zip(self._ends[:-1], self._ends[1:], strict=True)]

        worlds = iter(range(len(rows)))  # whoever is free takes the next one

        def share(number: int) -> None:
            data, views = self._data[number], list(zip(pieces, self._views[number], strict=True))
            for world in worlds:
                do(data, rows[world], after[world])
                for piece, view in views:
                    seen[world, piece] = view

        began = time.perf_counter()
        list(self._pool.map(share, range(self.threads)))  # list: raises what a thread raised
        self.seconds += time.perf_counter() - began
        nq, nv = self.model.nq, self.model.nv
        qpos, qvel, warm, _ = np.split(after, np.cumsum([nq, nv, nv]), axis=1)
        return Stepped(qpos, qvel, warm, seen)


class Roller:
    """A ``Stepper`` that sees nothing but positions and velocities, through ``mujoco.rollout``.

    The solver's next warm start is the last physics step's change of velocity: near the acceleration that MuJoCo would
    keep, and the Newton solver converges to the same from either.
    """

    def __init__(self, model: mujoco.MjModel, substeps: int, threads: int | None = None):
        self.model, self.substeps = model, substeps
        self._rolling, self._looking = Threads(model, threads), Stepper(model, substeps, threads=1)

    @property
    def seconds(self) -> float:
        """Spent in MuJoCo so far."""
        return self._rolling.seconds + self._looking.seconds

    def advance(self, qpos: np.ndarray, qvel: np.ndarray, warm: np.ndarray, ctrl: np.ndarray) -> Stepped:
        path = self._rolling.roll((qpos, qvel, warm), ctrl, self.substeps)
        change = path.qvel[:, -1] - path.qvel[:, -2]
        return Stepped(path.qpos[:, -1], path.qvel[:, -1], change / self.model.opt.timestep, qpos[:, :0])

    def look(self, qpos: np.ndarray, qvel: np.ndarray) -> Stepped:
        return self._looking.look(qpos, qvel)
