"""Constrained environments by name: ``cppo.envs.make("PointCircle", num_envs=20)``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cppo.envs import gym_env, mujoco_tasks
from cppo.envs import replay as replay  # cppo.envs.replay(name, transitions, backend)
from cppo.envs.batched import JaxEnv, World
from cppo.envs.history import History
from cppo.envs.point_circle import PointCircle
from cppo.envs.probes import ProbeBox, ProbeDiscrete, ProbeState, ProbeTwo
from cppo.types import BatchedEnv, EnvSpec, PyTree, Step, UsageError

JAX_WORLDS: dict[str, Callable[[], World]] = {
    "PointCircle": PointCircle,
    "ProbeBox": ProbeBox,
    "ProbeDiscrete": ProbeDiscrete,
    "ProbeState": ProbeState,
    "ProbeTwo": ProbeTwo,
}
BACKENDS = ("auto", "jax", "threads", "warp", "gymnasium")


def names() -> list[str]:
    return [*JAX_WORLDS, *mujoco_tasks.THREADS]


def backends(name: str) -> list[str]:
    """Where an environment can run, the best one first."""
    if name in JAX_WORLDS:
        return ["jax"]
    if name in mujoco_tasks.THREADS:
        return [backend for backend, table in mujoco_tasks.TABLE.items() if name in table]
    if gym_env.is_name(name):
        return ["gymnasium"]
    close = difflib.get_close_matches(name, names(), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UsageError(
        f"unknown environment {name!r}.{hint} Environments: {', '.join(names())}; "
        "Gymnasium's as Name-v0, module:Name-v0 or module:Class."
    )


def spec(name: str) -> EnvSpec:
    """What is known of an environment before the first step."""
    return build(name, 1).spec


def build(name: str, num_envs: int, backend: str = "auto") -> BatchedEnv:
    """The environment as functions of an explicit state, for a training loop (see ``cppo.types.BatchedEnv``)."""
    possible = backends(name)
    if backend not in BACKENDS:
        raise UsageError(f"unknown backend {backend!r}. Backends: {', '.join(BACKENDS)}.")
    if num_envs < 1:
        raise UsageError(f"num_envs is {num_envs}; it must be at least 1.")
    if backend not in ("auto", *possible):
        raise UsageError(f"{name} has no backend {backend!r}; use one of: {', '.join(possible)}.")
    if name in JAX_WORLDS:
        return JaxEnv(JAX_WORLDS[name](), num_envs)
    if possible == ["gymnasium"]:
        return gym_env.GymnasiumEnv(gym_env.Source(name), num_envs)
    return mujoco_tasks.build(name, num_envs, mujoco_tasks.best() if backend == "auto" else backend)


def close(env: BatchedEnv) -> None:
    """End what an environment runs beside this process, if anything."""
    if isinstance(env, History):
        close(env.env)
    elif isinstance(env, gym_env.GymnasiumEnv):
        env.close()


class VectorEnv:
    """Many worlds for a person: ``obs = env.reset(seed=0)``, then ``step = env.step(actions)``.

    ``step`` has the fields obs, final_obs, reward, cost, terminated, truncated; ended worlds restart by themselves.
    """

    def __init__(self, core: BatchedEnv):
        self.core = core
        self._init = jax.jit(core.init) if core.jittable else core.init
        self._advance = jax.jit(core.advance) if core.jittable else core.advance
        self._state: PyTree = None

    @property
    def spec(self) -> EnvSpec:
        return self.core.spec

    @property
    def num_envs(self) -> int:
        return self.core.num_envs

    def close(self) -> None:
        close(self.core)
        self._state = None

    def reset(self, seed: int = 0) -> np.ndarray:
        keys = jax.random.split(jax.random.PRNGKey(seed), self.num_envs)
        self._state, obs = self._init(keys)
        return np.asarray(obs)

    def step(self, actions: np.ndarray) -> Step:
        if self._state is None:
            raise UsageError("call reset(seed=...) before the first step.")
        actions = np.asarray(actions)
        wanted = (self.num_envs, *self.spec.action.shape)
        if actions.shape != wanted:
            raise UsageError(
                f"actions have shape {actions.shape}; {self.spec.name} with {self.num_envs} worlds needs {wanted}."
            )
        if not np.all(np.isfinite(actions)):
            raise UsageError("actions contain NaN or infinity.")
        self._state, step = self._advance(self._state, actions)
        return Step(*(None if part is None else np.asarray(part) for part in step))


def make(name: str, num_envs: int = 1, backend: str = "auto") -> VectorEnv:
    """An environment of ``num_envs`` worlds by name; ``auto`` picks the best backend that is installed.

    >>> env = make("PointCircle", num_envs=2)
    >>> env.reset(seed=0).shape
    (2, 9)
    >>> env.step(np.zeros((2, 2))).cost.tolist()
    [[0.0], [0.0]]
    """
    return VectorEnv(build(name, num_envs, backend))


def from_gymnasium(
    make: str | Callable[[], Any],
    *,
    cost: str | Callable[..., Any] | None = None,
    cost_keys: Sequence[str] = (),
    num_envs: int = 1,
    python: str | Path | None = None,
    episode_length: int | None = None,
    workers: int | None = None,
    timeout: float = 60.0,
) -> VectorEnv:
    """``num_envs`` worlds of a Gymnasium environment, to step or to hand to ``cppo.train``.

    ``make`` is a registered name (``Name-v0``, ``module:Name-v0``), the import path of a class or function
    (``module:Name``), or a function without arguments. Costs come from ``cost(obs, action, next_obs, info)`` (a
    function or its import path), else from ``info[key]`` of each of ``cost_keys``, else from safety-gymnasium's third
    value of six, else from ``info["cost"]``. ``python`` runs the environment under another interpreter;
    ``episode_length`` imposes a time limit; ``workers`` processes share the worlds; a step that takes over ``timeout``
    seconds counts as hung.
    """
    keys = (cost_keys,) if isinstance(cost_keys, str) else tuple(cost_keys)
    interpreter = None if python is None else str(python)
    source = gym_env.Source(make, cost, keys, interpreter, episode_length, workers, timeout)
    if num_envs < 1:
        raise UsageError(f"num_envs is {num_envs}; it must be at least 1.")
    return VectorEnv(gym_env.GymnasiumEnv(source, num_envs))
