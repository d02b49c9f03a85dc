"""What a run is: every choice that determines its result, checked before anything starts, saved as ``config.json``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cppo import algos, envs, presets
from cppo import settings as settings_module
from cppo.envs import gym_env, history
from cppo.envs.physics import warp
from cppo.learner import Learner
from cppo.networks import networks_for
from cppo.types import BatchedEnv, Box, Discrete, EnvSpec, MultiDiscrete, UsageError

FORMAT = 1
FILE = "config.json"


@dataclass(frozen=True)
class Plan:
    """One run: an algorithm with its settings on an environment, for several seeds at once."""

    algo: str
    env: str
    backend: str
    seeds: tuple[int, ...]
    steps: int  # environment steps of each seed
    settings: Any
    spec: EnvSpec
    init_from: str | None = None
    source: gym_env.Source | None = None  # of a Gymnasium environment

    @property
    def cost_limits(self) -> dict[str, float]:
        return dict(zip(self.spec.cost_names, self.settings.cost_limit, strict=True))

    @property
    def iterations(self) -> int:
        return -(-self.steps // self.settings.batch_size)

    def learner(self) -> Learner:
        lanes = len(self.seeds)
        env = self.build_env(self.settings.num_envs)
        if not env.jittable:
            env = self.build_env(self.settings.num_envs * lanes)
        return Learner(algos.get(self.algo), env, [self.settings] * lanes, list(self.seeds))

    def build_env(self, num_envs: int) -> BatchedEnv:
        """The environment as the networks see it."""
        if self.source is not None:
            return self.seen(gym_env.GymnasiumEnv(self.source, num_envs, self.spec))
        return self.seen(envs.build(self.env, num_envs, self.backend))

    def seen(self, env: BatchedEnv) -> BatchedEnv:
        """``env`` through a window of its last observations where the encoder has a memory."""
        return history.History(env, self.settings.memory) if self.settings.encoder == "gru" else env

    def save(self, folder: Path, versions: dict[str, Any]) -> None:
        from cppo.log import write_json

        saved = {
            "format": FORMAT,
            "algo": self.algo,
            "env": self.env,
            "backend": self.backend,
            "seeds": list(self.seeds),
            "steps": self.steps,
            "cost_limits": self.cost_limits,
            "settings": settings_module.as_dict(self.settings),
            "init_from": self.init_from,
        }
        if self.source is not None:
            # What the environment is like must be known without starting it, for example to draw its curves.
            saved |= {"gymnasium": self.source.as_dict(), "spec": _spec_to_json(self.spec)}
        write_json(folder / FILE, saved)
        write_json(folder / "versions.json", versions)


def make(
    algo: str,
    env: str | envs.VectorEnv,
    *,
    backend: str = "auto",
    seeds: int = 1,
    seed: int = 0,
    steps: int | None = None,
    cost_limit: float | tuple[float, ...] | None = None,
    settings: Mapping[str, Any] | None = None,
    init_from: str | None = None,
) -> Plan:
    """Check every choice and fill in presets; a wrong one is a ``UsageError`` that says what to type instead."""
    algorithm = algos.get(algo)
    built = env.core if isinstance(env, envs.VectorEnv) else envs.build(env, 1, backend)
    spec, backend = built.spec, built.backend
    source = built.source if isinstance(built, gym_env.GymnasiumEnv) else None
    env = env if isinstance(env, str) else spec.name
    algorithm.check(spec)
    if seeds < 1:
        raise UsageError(f"seeds is {seeds}; at least one seed has to be trained.")
    if seed < 0:
        raise UsageError(f"seed is {seed}; seeds are whole numbers from 0.")
    steps = presets.steps(env) if steps is None else steps
    if steps < 1:
        raise UsageError(f"steps is {steps}; it must be at least 1.")
    chosen = dict(settings or {})
    limits = cost_limit if cost_limit is not None else chosen.pop("cost_limit", spec.cost_limits)
    values = settings_module.replace(
        algorithm.settings(), presets.settings(algo, env, backend) | {"cost_limit": limits} | chosen
    )
    if not values.cost_limit:
        example = " ".join(["10"] * spec.num_costs)
        raise UsageError(
            f"{env} has no cost limit of its own; give one for {', '.join(spec.cost_names)}: --cost-limit {example}."
        )
    if len(values.cost_limit) != spec.num_costs:
        example = " ".join(f"{x:g}" for x in spec.cost_limits or [10.0] * spec.num_costs)
        raise UsageError(
            f"{len(values.cost_limit)} cost limits given; {env} has {spec.num_costs} constraints "
            f"({', '.join(spec.cost_names)}), for example --cost-limit {example}."
        )
    if values.batch_size % values.num_envs:
        raise UsageError(
            f"batch_size {values.batch_size} is not a multiple of num_envs {values.num_envs}; "
            f"use for example --set batch_size={values.num_envs * max(1, values.batch_size // values.num_envs)}."
        )
    if values.ignore and max(values.ignore) >= spec.obs_shape[-1]:
        raise UsageError(
            f"ignore names entry {max(values.ignore)}; the last entry of {env} is {spec.obs_shape[-1] - 1}."
        )
    if values.encoder == "gru" and backend == "warp":
        raise UsageError("encoder=gru does not run with the backend warp; use --backend threads.")
    networks_for(history.windowed(spec, values.memory) if values.encoder == "gru" else spec, values)
    return Plan(algo, env, backend, tuple(range(seed, seed + seeds)), steps, values, spec, init_from, source)


def load(folder: Path) -> Plan:
    """The plan of a saved run. Environments of others are not started for it."""
    path = folder / FILE
    if not path.is_file():
        raise UsageError(f"{folder} is not a run: it has no {FILE}.")
    try:
        saved = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise UsageError(f"{path} is damaged ({error}).") from None
    if saved.get("format") != FORMAT:
        raise UsageError(f"{path} has format {saved.get('format')!r}; this version of cppo reads format {FORMAT}.")
    algorithm = algos.get(saved["algo"])
    values = settings_module.replace(algorithm.settings(), saved["settings"])
    source = gym_env.from_dict(saved["gymnasium"]) if "gymnasium" in saved else None
    spec = (
        envs.build(saved["env"], 1, _here(saved["backend"])).spec if source is None else _spec_from_json(saved["spec"])
    )
    return Plan(
        algo=saved["algo"],
        env=saved["env"],
        backend=saved["backend"],
        seeds=tuple(saved["seeds"]),
        steps=saved["steps"],
        settings=values,
        spec=spec,
        init_from=saved["init_from"],
        source=source,
    )


def usable_here(plan: Plan) -> Plan:
    """The same run, to be looked at on this machine: what a GPU trained needs none to be evaluated."""
    return dataclasses.replace(plan, backend=_here(plan.backend))


def _here(backend: str) -> str:
    return "threads" if backend == "warp" and not warp.available() else backend


def with_steps(plan: Plan, steps: int) -> Plan:
    return dataclasses.replace(plan, steps=steps)


def with_env(plan: Plan, env: envs.VectorEnv) -> Plan:
    """The same run on ``env``, which must be the run's environment made again."""
    if not isinstance(env.core, gym_env.GymnasiumEnv) or env.spec.action != plan.spec.action:
        raise UsageError(f"the given environment is not the one of this run ({plan.env}).")
    return dataclasses.replace(plan, source=env.core.source)


def _spec_to_json(spec: EnvSpec) -> dict[str, Any]:
    return dataclasses.asdict(spec) | {"action": {type(spec.action).__name__: dataclasses.asdict(spec.action)}}


def _spec_from_json(saved: dict[str, Any]) -> EnvSpec:
    kinds = {kind.__name__: kind for kind in (Box, Discrete, MultiDiscrete)}
    ((kind, fields),) = saved["action"].items()
    action = kinds[kind](**{name: tuple(x) if isinstance(x, list) else x for name, x in fields.items()})
    lists = {name: tuple(x) if isinstance(x, list) else x for name, x in saved.items()}
    return EnvSpec(**lists | {"action": action})
