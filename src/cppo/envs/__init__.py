"""Constrained environments by name: ``cppo.envs.make("PointCircle", num_envs=20)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from cppo.envs.gymnasium import env as gym_env
from cppo.envs.held import Held
from cppo.envs.history import History
from cppo.envs.mujoco import warp
from cppo.envs.registry import ALIASES, TABLE, Environment
from cppo.envs.views import View
from cppo.errors import meant
from cppo.types import BatchedEnv, EnvSpec, PyTree, Step, UsageError, as_numpy

BACKENDS = ("auto", "jax", "threads", "warp", "gymnasium")


def names() -> list[str]:
    return list(TABLE)


def named(name: str) -> str:
    """What an environment is called here: ``SafetyPointGoal1-v0`` and ``cppo/PointGoal1-v0`` are PointGoal1.

    >>> named("SafetyPointGoal1-v0"), named("HalfCheetah-v5")
    ('PointGoal1', 'HalfCheetah-v5')
    """
    return ALIASES.get(name, name)


def remark(name: str) -> str | None:
    """What a person should know who gave an environment another's name for it."""
    if named(name) == name:
        return None
    own = TABLE[named(name)].spec
    words = f"{name} is the built-in {own.name}, with the benchmark's limit"
    if own.num_costs == 1:
        return f"{words} of {own.cost_limits[0]:g}."
    half = " ".join(f"{limit / own.num_costs:g}" for limit in own.cost_limits)
    return (
        f"{words} of {own.cost_limits[0]:g} for each of {', '.join(own.cost_names)}; the benchmark counts a "
        f"step once, whichever is charged, which --cost-limit {half} keeps within it."
    )


def backends(name: str) -> list[str]:
    """Where an environment can run, the best one first; the last one runs on every machine."""
    name = named(name)
    if name in TABLE:
        return list(TABLE[name].backends)
    if gym_env.is_name(name):
        return ["gymnasium"]
    raise UsageError(
        f"unknown environment {name!r}.{meant(name, names())} Environments: {', '.join(names())}; "
        "Gymnasium's as Name-v0, module:Name-v0 or module:Class."
    )


def choose(name: str, backend: str = "auto") -> str:
    """The backend that ``backend`` means on this machine; ``auto`` is the best one that works."""
    name = named(name)
    possible = backends(name)
    if backend not in BACKENDS:
        raise UsageError(f"unknown backend {backend!r}. Backends: {', '.join(BACKENDS)}.")
    if backend == "auto":
        return next(known for known in possible if known != "warp" or warp.available())
    if backend not in possible:
        raise UsageError(f"{name} has no backend {backend!r}; use one of: {', '.join(possible)}.")
    if backend == "warp":
        warp.require()
    return backend


class Described(NamedTuple):
    """What a run must know of an environment before it starts."""

    spec: EnvSpec
    backend: str
    source: gym_env.Source | None  # of a Gymnasium environment


def spec(name: str) -> EnvSpec:
    """What is known of an environment before the first step. Only Gymnasium's are started for it, once."""
    name = named(name)
    return describe(name).spec if name not in TABLE else TABLE[name].spec


def describe(env: str | VectorEnv, backend: str = "auto") -> Described:
    """An environment by name, or one that was made already, as a run sees it; built-in ones are not built for it."""
    if isinstance(env, VectorEnv):
        core = env.core
        return Described(core.spec, core.backend, core.source if isinstance(core, gym_env.GymnasiumEnv) else None)
    env = named(env)
    chosen = choose(env, backend)
    if env in TABLE:
        return Described(TABLE[env].spec, chosen, None)
    source = gym_env.Source(env)
    return Described(gym_env.describe(source), chosen, source)


def build(name: str, num_envs: int, backend: str = "auto") -> BatchedEnv:
    """The environment as functions of an explicit state, for a training loop (see ``cppo.types.BatchedEnv``)."""
    name = named(name)
    chosen = choose(name, backend)
    if num_envs < 1:
        raise UsageError(f"num_envs is {num_envs}; it must be at least 1.")
    if name in TABLE:
        return TABLE[name].backends[chosen](num_envs)
    return gym_env.GymnasiumEnv(gym_env.Source(name), num_envs)


def unwrapped(env: BatchedEnv) -> BatchedEnv:
    """The environment itself, without what holds its actions or remembers its observations."""
    while isinstance(env, History | Held):
        env = env.env
    return env


def close(env: BatchedEnv) -> None:
    """End what an environment runs beside this process, if anything."""
    env = unwrapped(env)
    if isinstance(env, gym_env.GymnasiumEnv):
        env.close()


def last_failure(env: BatchedEnv) -> gym_env.gym_pool.Failure | None:
    """What made an environment lose episodes the last time, if anything did."""
    env = unwrapped(env)
    return env.last_failure if isinstance(env, gym_env.GymnasiumEnv) else None


def having(part: str) -> dict[str, Environment]:
    """The environments whose row has ``part`` (a field of ``Environment``)."""
    return {name: row for name, row in TABLE.items() if getattr(row, part) is not None}


def view(name: str) -> View:
    """How an environment is looked at."""
    row = TABLE.get(named(name))
    if row is None or row.view is None:
        raise UsageError(f"there is no picture of {name}; films exist for {', '.join(having('view'))}.")
    return row.view()


def replay(
    name: str, transitions: Mapping[str, np.ndarray], backend: str = "threads", physics: str = "simulated"
) -> dict[str, np.ndarray]:
    """Step every row of recorded transitions once; returns what came, each array named as in the recordings.

    That is qpos_next, qvel_next, obs, reward and cost, which has one number for each row, or (row, constraint) where
    there are several, and the ends that the task knows. ``transitions`` holds arrays, one row a step; ``recordings`` in
    the task's folder names them. ``physics="recorded"`` takes the next state from the transitions, so that only sensors
    and task are computed.
    """
    if physics not in ("simulated", "recorded"):
        raise UsageError(f"physics is {physics!r}, expected 'simulated' or 'recorded'")
    row = TABLE.get(named(name))
    if row is None or row.replay is None or backend not in row.backends:
        known = ", ".join(having("replay"))
        raise UsageError(f"no replay of {name!r} on {backend!r}: names are {known}; backends are threads, warp")
    return row.replay(transitions, backend, physics)


class VectorEnv:
    """Many worlds for a person: ``obs = env.reset(seed=0)``, then ``step = env.step(actions)``.

    ``step`` has the fields obs, final_obs, reward, cost, terminated, truncated; ended worlds restart by themselves.
    """

    def __init__(self, core: BatchedEnv):
        self.core = core
        self._init = jax.jit(core.init) if core.jittable else core.init
        self._advance = jax.jit(core.advance) if core.jittable else core.advance
        self.state: PyTree = None

    @property
    def spec(self) -> EnvSpec:
        return self.core.spec

    @property
    def num_envs(self) -> int:
        return self.core.num_envs

    def close(self) -> None:
        close(self.core)
        self.state = None

    def reset(self, seed: int = 0) -> np.ndarray:
        return self.start(jax.random.split(jax.random.PRNGKey(seed), self.num_envs))

    def start(self, keys: PyTree) -> np.ndarray:
        """``reset`` with a key for each world, two numbers of uint32."""
        self.state, obs = self._init(keys)
        return np.asarray(obs)

    def step(self, actions: np.ndarray) -> Step:
        if self.state is None:
            raise UsageError("call reset(seed=...) before the first step.")
        actions = np.asarray(actions)
        wanted = (self.num_envs, *self.spec.action.shape)
        if actions.shape != wanted:
            raise UsageError(f"actions have shape {actions.shape}; {self.spec.name} needs {wanted}: a row a world.")
        if not np.all(np.isfinite(actions)):
            raise UsageError("actions contain NaN or infinity: a policy that gives them has diverged.")
        self.state, step = self._advance(self.state, actions)
        return as_numpy(step)


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
    max_dropped: float = 0.1,
    measures: Sequence[str] = (),
) -> VectorEnv:
    """``num_envs`` worlds of a Gymnasium environment, to step or to hand to ``cppo.train``.

    ``make`` is a registered name (``Name-v0``, ``module:Name-v0``), the import path of a class or function
    (``module:Name``), or a function without arguments. Costs come from ``cost(obs, action, next_obs, info)`` (a
    function or its import path), else from ``info[key]`` of each of ``cost_keys``, else from safety-gymnasium's third
    value of six, else from ``info["cost"]``. ``python`` runs the environment under another interpreter;
    ``episode_length`` imposes a time limit; ``workers`` processes share the worlds; a step that takes over ``timeout``
    seconds counts as hung. Training stops where a larger share than ``max_dropped`` of the episodes of 20 iterations is
    lost with their processes. ``measures`` are keys of ``info`` to log of each episode: the last value
    (``is_success``), the sum (``goal_met:sum``) or the greatest (``success:max``).
    """
    keys = (cost_keys,) if isinstance(cost_keys, str) else tuple(cost_keys)
    interpreter = None if python is None else str(python)
    named = (measures,) if isinstance(measures, str) else tuple(measures)
    source = gym_env.Source(make, cost, keys, interpreter, episode_length, workers, timeout, max_dropped, named)
    if num_envs < 1:
        raise UsageError(f"num_envs is {num_envs}; it must be at least 1.")
    return VectorEnv(gym_env.GymnasiumEnv(source, num_envs))
