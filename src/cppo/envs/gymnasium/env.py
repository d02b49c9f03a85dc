"""Anybody's Gymnasium environment as a constrained one: where it comes from, what it costs, and how it is stepped.

    env = cppo.envs.from_gymnasium("CartPole-v1", cost=lambda obs, action, next_obs, info: abs(next_obs[0]) > 0.5)
    cppo.train("cppo", env, cost_limit=10)

Here, and only here, costs are fished out of ``info`` (or safety-gymnasium's third value of six, or a function). Time
limits are truncations, the last observation of an episode is kept apart from the first of the next, and the environment
runs in processes of its own, under another interpreter where its pins ask for one (docs/environments-of-your-own.md).
"""

from __future__ import annotations

import base64
import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Array, Int

from cppo.envs import gym_pool
from cppo.types import Box, Discrete, EnvSpec, Key, MultiDiscrete, Step, UsageError

Make = str | Callable[[], Any]
Cost = str | Callable[..., Any]  # (obs, action, next_obs, info) -> a number, or one for each constraint
NOMINAL_LENGTH = 1000  # where an environment says nothing of a time limit


@dataclass(frozen=True)
class Source:
    """How to make an environment and what in it counts as cost."""

    make: Make | None  # a name, an import path, or a function; None: a function that a saved run could not name
    cost: Cost | None = None
    cost_keys: tuple[str, ...] = ()
    python: str | None = None  # another interpreter
    episode_length: int | None = None  # a time limit to impose
    workers: int | None = None  # processes (default: one for each core)
    timeout: float = 60.0  # seconds that a step may take

    def __post_init__(self) -> None:
        if self.cost is not None and self.cost_keys:
            raise UsageError("give either a cost function or --cost-keys, not both.")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"env_workers is {self.workers}; it must be at least 1.")
        if self.timeout <= 0:
            raise UsageError(f"env_timeout is {self.timeout:g}; it must be above 0 seconds.")
        if self.episode_length is not None and self.episode_length < 1:
            raise UsageError(f"episode_length is {self.episode_length}; it must be at least 1.")
        if self.python is not None:
            functions = [name for name in ("make", "cost") if callable(getattr(self, name))]
            if functions:
                raise UsageError(f"with another interpreter, give {' and '.join(functions)} as import paths.")
            _check_interpreter(self.python)

    @property
    def name(self) -> str:
        return self.make if isinstance(self.make, str) else _import_path(self.make) or "function"

    def setup(self) -> dict[str, Any]:
        """What a process needs to make the environment."""
        if self.make is None:
            raise UsageError(
                "this run's environment was made by a Python function that has no import path; "
                "pass it again: cppo.resume(folder, env=cppo.envs.from_gymnasium(make, ...))."
            )
        setup: dict[str, Any] = {"make": self.make, "cost": self.cost, "pickled": None, "path": []}
        if self.python is None:
            setup["path"] = [entry for entry in sys.path if entry]
        if callable(self.make) or callable(self.cost):
            setup |= {"make": None, "cost": None, "pickled": _pickled(self.make, self.cost)}
        return setup | {"cost_keys": list(self.cost_keys), "episode_length": self.episode_length}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for ``config.json``; functions by import path, those without one as None."""
        values = dataclasses.asdict(self)
        for field in ("make", "cost"):
            if callable(values[field]):
                values[field] = _import_path(values[field])
        if values["cost"] is None and self.cost is not None:
            values["make"] = None  # without its cost the environment would be another one
        return values


def from_dict(values: dict[str, Any]) -> Source:
    return Source(**values | {"cost_keys": tuple(values["cost_keys"])})


def is_name(name: str) -> bool:
    """Whether a name can only mean a Gymnasium environment: ``module:Name``, or ``Name-v0``."""
    return ":" in name or re.search(r"-v\d+$", name) is not None


@lru_cache(maxsize=64)
def describe(source: Source) -> EnvSpec:
    """What a learner must know of the environment. Starts a process once for each source."""
    python = source.python or sys.executable
    try:
        said = gym_pool.describe(python, source.setup())
    except gym_pool.Failure as failure:
        raise UsageError(f"{source.name} cannot be used: {failure}") from None
    if source.cost_keys:
        names = source.cost_keys
    elif said["num_costs"] == 1:
        names = ("cost",)
    else:
        names = tuple(f"cost{i + 1}" for i in range(said["num_costs"]))
    length = said["episode_length"]
    action = _action(source.name, said["action"])
    obs_shape = tuple(said["obs_shape"])
    return EnvSpec(source.name, obs_shape, action, names, (), length or NOMINAL_LENGTH, time_limit=bool(length))


class GymnasiumEnv:
    """W worlds of a ``Source``; see ``cppo.types.BatchedEnv`` for the contract. Processes start with ``init``."""

    backend = "gymnasium"
    jittable = False
    resumable = False

    def __init__(self, source: Source, num_envs: int, spec: EnvSpec | None = None):
        self.source, self.num_envs = source, num_envs
        self.spec = describe(source) if spec is None else spec
        self._pool: gym_pool.Pool | None = None

    def init(self, keys: Key, ages: Int[Array, " world"] | None = None) -> tuple[Int[np.ndarray, " world"], np.ndarray]:
        """Start an episode in every world, seeded by its key. The state is no more than the episodes' ages."""
        seeds = (np.asarray(keys).astype(np.uint64)[:, -1] % 2**31).tolist()
        age = np.zeros(self.num_envs, np.int32) if ages is None else np.asarray(ages, np.int32)
        left = np.where(age > 0, np.maximum(self.spec.episode_length - age, 1), 0)
        if self._pool is None:
            self._pool = self._start()
        return age, self._pool.reset(seeds, left.tolist())

    def advance(self, state: Int[np.ndarray, " world"], actions: Array) -> tuple[Int[np.ndarray, " world"], Step]:
        if self._pool is None:
            raise UsageError("call init before advance: the environment's processes are not running.")
        seen = self._pool.step(np.asarray(actions))
        ended = seen.terminated | seen.truncated
        return np.where(ended, 0, state + 1).astype(np.int32), Step(*seen)

    def close(self) -> None:
        """End the processes; ``init`` starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    @property
    def pool(self) -> gym_pool.Pool | None:
        return self._pool

    def _start(self) -> gym_pool.Pool:
        action = self.spec.action
        return gym_pool.Pool(
            self.source.python or sys.executable,
            self.source.setup(),
            self.num_envs,
            self.source.workers or len(os.sched_getaffinity(0)),
            self.source.timeout,
            self.spec.obs_shape,
            action.shape,
            "float32" if isinstance(action, Box) else "int64",
            self.spec.num_costs,
        )


def _action(name: str, said: dict[str, Any]) -> Box | Discrete | MultiDiscrete:
    if said["kind"] == "Discrete":
        return Discrete(said["n"])
    if said["kind"] == "MultiDiscrete":
        return MultiDiscrete(tuple(said["sizes"]))
    if not np.all(np.isfinite([said["low"], said["high"]])):
        raise UsageError(
            f"{name} has actions without bounds. Give them some: gymnasium.wrappers.TransformAction(env, lambda a: a, "
            "gymnasium.spaces.Box(-1, 1, env.action_space.shape))."
        )
    return Box(tuple(said["low"]), tuple(said["high"]))


def _pickled(*functions: Any) -> str:
    try:
        import cloudpickle
    except ImportError:
        raise UsageError("functions in place of import paths need cloudpickle: pip install 'cppo[gymnasium]'") from None
    return base64.b64encode(cloudpickle.dumps(functions)).decode()


def _import_path(function: Any) -> str | None:
    """``module:name`` where that leads back to the function."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name or module == "__main__" or "<" in name:
        return None
    return f"{module}:{name}"


@lru_cache(maxsize=16)
def _check_interpreter(python: str) -> None:
    test = "import sys, numpy; sys.exit(0 if sys.version_info >= (3, 8) else 'it is older than Python 3.8')"
    try:
        done = subprocess.run([python, "-c", test], capture_output=True, text=True, timeout=120)
    except OSError as error:
        raise UsageError(f"env_python {python} cannot be run ({error.strerror}); give the path of a Python.") from None
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1]
        raise UsageError(f"env_python {python} cannot be used: {reason} (it needs Python 3.8 or newer and NumPy).")
