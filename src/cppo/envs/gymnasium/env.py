"""Anybody's Gymnasium environment as a constrained one: where it comes from, what it costs, and how it is stepped.

    env = cppo.envs.from_gymnasium("CartPole-v1", cost=lambda obs, action, next_obs, info: abs(next_obs[0]) > 0.5)
    cppo.train("cppo", env, cost_limit=10)

Here, and only here, costs are fished out of ``info`` (or safety-gymnasium's third value of six, or a function). Time
limits are truncations, the last observation of an episode is kept apart from the first of the next, and the environment
runs in processes of its own, under another interpreter where its pins ask for one (docs/environments-of-your-own.md).
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int

from cppo.envs.gymnasium import pool as gym_pool
from cppo.imports import USER, Trust, is_path, search_path
from cppo.types import AnyArray, Box, Discrete, EnvSpec, MultiDiscrete, Step, UsageError

Make = str | Callable[[], Any]
Cost = str | Callable[..., Any]  # (obs, action, next_obs, info) -> a number, or one for each constraint
RULES = ("last", "sum", "max")  # what an episode's value of a measure is, of those that info had
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
    max_dropped: float = 0.1  # largest share of episodes that training may lose to failures
    measures: tuple[str, ...] = ()  # keys of info to log of each episode: ``key``, ``key:sum`` or ``key:max``
    trust: Trust = field(default=USER, compare=False)  # who gave these names

    def __post_init__(self) -> None:
        if self.cost is not None and self.cost_keys:
            raise UsageError("give either a cost function or --cost-keys, not both.")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"env_workers is {self.workers}; it must be at least 1.")
        keys, rules = ([entry.partition(":")[i] for entry in self.measures] for i in (0, 2))
        if len(set(keys)) < len(keys) or not all(keys) or not {"", *RULES}.issuperset(rules):
            words = "write each key once, as key, key:sum or key:max, for example goal_met:sum"
            raise UsageError(f"measures are {','.join(self.measures)}; {words}.")
        if self.timeout <= 0:
            raise UsageError(f"env_timeout is {self.timeout:g}; it must be above 0 seconds.")
        if not 0 <= self.max_dropped <= 1:
            raise UsageError(f"env_max_dropped is {self.max_dropped:g}; it is a share: 0 to 1 (1: never stop).")
        if self.episode_length is not None and self.episode_length < 1:
            raise UsageError(f"episode_length is {self.episode_length}; it must be at least 1.")
        if self.python is not None:
            functions = [name for name in ("make", "cost") if callable(getattr(self, name))]
            if functions:
                raise UsageError(f"with another interpreter, give {' and '.join(functions)} as import paths.")
            if os.sep in self.python:  # the same one from wherever the run is opened
                object.__setattr__(self, "python", os.path.abspath(self.python))

    @property
    def name(self) -> str:
        return self.make if isinstance(self.make, str) else _import_path(self.make) or "function"

    @property
    def foreign(self) -> tuple[tuple[str, str], ...]:
        """What it names that neither cppo nor Gymnasium's own registry has, with its kind."""
        found = [("environment", self.make), ("cost", self.cost)]
        named = [(kind, name) for kind, name in found if isinstance(name, str) and is_path(name)]
        return (*named, *([("interpreter", self.python)] if self.python is not None else []))

    def setup(self) -> dict[str, Any]:
        """What a process needs to make the environment. No process is started, and nothing imported, without it."""
        self.trust.ask()
        if self.make is None:
            raise UsageError(
                "this run's environment was made by a Python function that has no import path; "
                "pass it again: cppo.resume(folder, env=cppo.envs.from_gymnasium(make, ...))."
            )
        if self.python is not None:
            _check_interpreter(self.python)
        # Only for code that was named: a module of the folder must not stand in for Gymnasium.
        named = self.foreign or callable(self.make) or callable(self.cost)
        place = os.path.abspath(self.trust.place) if named and self.trust.place is not None else None
        setup: dict[str, Any] = {"make": self.make, "cost": self.cost, "pickled": None, "place": place}
        setup["path"] = search_path(None) if self.python is None else []
        if callable(self.make) or callable(self.cost):
            setup |= {"make": None, "cost": None, "pickled": _pickled(self.make, self.cost)}
        measures = [(key, rule or "last") for key, _, rule in (entry.partition(":") for entry in self.measures)]
        return setup | {"cost_keys": self.cost_keys, "episode_length": self.episode_length, "measures": measures}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for ``config.json``; functions by import path, those without one as None."""
        values = {name: value for name, value in vars(self).items() if name != "trust"}
        for name in ("make", "cost"):
            if callable(values[name]):
                values[name] = _import_path(values[name])
        if values["cost"] is None and self.cost is not None:
            values["make"] = None  # without its cost the environment would be another one
        return values


def from_dict(values: dict[str, Any]) -> Source:
    """What ``as_dict`` saved. Its names are only a file's: ``trust`` is for whoever reads it to say."""
    for name in ("make", "cost", "python"):
        if not isinstance(values.get(name), str | None):
            raise UsageError(f"the saved environment is damaged: {name} is {values[name]!r}, no name.")
    keys, measures = (tuple(values.get(name, ())) for name in ("cost_keys", "measures"))
    return Source(**dict(values, cost_keys=keys, measures=measures))


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
        raise failure.told(f"{source.name} cannot be used", UsageError) from failure
    if source.cost_keys:
        names = source.cost_keys
    elif said["num_costs"] == 1:
        names = ("cost",)
    else:
        names = tuple(f"cost{i + 1}" for i in range(said["num_costs"]))
    length = said["episode_length"]
    action = _action(source.name, said["action"])
    obs_shape = tuple(said["obs_shape"])
    measures = tuple(entry.partition(":")[0] for entry in source.measures)
    return EnvSpec(source.name, obs_shape, action, names, (), length or NOMINAL_LENGTH, bool(length), measures)


class GymnasiumEnv:
    """W worlds of a ``Source``; see ``cppo.types.BatchedEnv`` for the contract. Processes start with ``init``."""

    backend = "gymnasium"
    jittable = False
    resumable = False

    def __init__(self, source: Source, num_envs: int, spec: EnvSpec | None = None, pictures: bool = False):
        source.trust.ask()  # before anything is compiled for it
        self.source, self.num_envs, self.pictures, self.hold = source, num_envs, pictures, 1
        self.rate = 0.0  # pictures in a second, known with the first one
        self.spec = describe(source) if spec is None else spec
        self.pool: gym_pool.Pool | None = None

    def init(
        self, keys: AnyArray, ages: Int[AnyArray, " world"] | None = None
    ) -> tuple[Int[np.ndarray, " world"], np.ndarray]:
        """Start an episode in every world, seeded by its key. The state is no more than the episodes' ages."""
        seeds = (np.asarray(keys).astype(np.uint64)[:, -1] % 2**31).tolist()
        age = np.zeros(self.num_envs, np.int32) if ages is None else np.asarray(ages, np.int32)
        left = np.where(age > 0, np.maximum(self.spec.episode_length - age, 1) * self.hold, 0)
        if self.pool is None:
            self.pool = self._start()
        return age, self.pool.reset(seeds, left.tolist())

    def advance(self, state: Int[np.ndarray, " world"], actions: AnyArray) -> tuple[Int[np.ndarray, " world"], Step]:
        if self.pool is None:
            raise UsageError("call init before advance: the environment's processes are not running.")
        seen = self.pool.step(np.asarray(actions))
        ended = seen.terminated | seen.truncated
        return np.where(ended, 0, state + 1).astype(np.int32), Step(*seen)

    def held(self, hold: int, spec: EnvSpec) -> GymnasiumEnv:
        """The same, ``spec`` that of decisions, with processes of its own that hold each action for ``hold`` steps."""
        env = GymnasiumEnv(self.source, self.num_envs, spec, self.pictures)
        env.hold = hold
        return env

    @property
    def last_failure(self) -> gym_pool.Failure | None:
        return None if self.pool is None else self.pool.last_failure

    def picture(self) -> np.ndarray:
        """The first world as (height, width, 3) bytes, where it was made with ``pictures``."""
        if self.pool is None:
            raise UsageError("call init before picture: the environment's processes are not running.")
        seen, self.rate = self.pool.picture()
        return seen

    def close(self) -> None:
        """End the processes; ``init`` starts new ones."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None

    def _start(self) -> gym_pool.Pool:
        source, workers = self.source, self.source.workers or len(os.sched_getaffinity(0))
        python = source.python or sys.executable
        setup = source.setup() | {"pictures": self.pictures, "hold": self.hold}
        return gym_pool.Pool(python, setup, self.spec, self.num_envs, workers, source.timeout * self.hold)


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
    test = "import numpy; sys.exit(0 if sys.version_info >= (3, 8) else 'it is older than Python 3.8')"
    try:
        command = [python, "-c", gym_pool.NOT_FROM_HERE + test]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except OSError as error:
        raise UsageError(f"env_python {python} cannot be run ({error.strerror}); give the path of a Python.") from None
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1]
        raise UsageError(f"env_python {python} cannot be used: {reason} (it needs Python 3.8 or newer and NumPy).")
