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
from cppo.learner import Learner
from cppo.types import EnvSpec, UsageError

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

    @property
    def cost_limits(self) -> dict[str, float]:
        return dict(zip(self.spec.cost_names, self.settings.cost_limit, strict=True))

    @property
    def iterations(self) -> int:
        return -(-self.steps // self.settings.batch_size)

    def learner(self) -> Learner:
        lanes = len(self.seeds)
        env = envs.build(self.env, self.settings.num_envs, self.backend)
        if not env.jittable:
            env = envs.build(self.env, self.settings.num_envs * lanes, self.backend)
        return Learner(algos.get(self.algo), env, [self.settings] * lanes, list(self.seeds))

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
        write_json(folder / FILE, saved)
        write_json(folder / "versions.json", versions)


def make(
    algo: str,
    env: str,
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
    built = envs.build(env, 1, backend)
    spec, backend = built.spec, built.backend
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
        algorithm.settings(), presets.settings(algo, env) | {"cost_limit": limits} | chosen
    )
    if len(values.cost_limit) != spec.num_costs:
        raise UsageError(
            f"{len(values.cost_limit)} cost limits given; {env} has {spec.num_costs} constraints "
            f"({', '.join(spec.cost_names)}), for example --cost-limit {' '.join(f'{x:g}' for x in spec.cost_limits)}."
        )
    if values.batch_size % values.num_envs:
        raise UsageError(
            f"batch_size {values.batch_size} is not a multiple of num_envs {values.num_envs}; "
            f"use for example --set batch_size={values.num_envs * max(1, values.batch_size // values.num_envs)}."
        )
    return Plan(algo, env, backend, tuple(range(seed, seed + seeds)), steps, values, spec, init_from)


def load(folder: Path) -> Plan:
    """The plan of a saved run."""
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
    spec = envs.build(saved["env"], 1, saved["backend"]).spec
    seeds = tuple(saved["seeds"])
    return Plan(saved["algo"], saved["env"], saved["backend"], seeds, saved["steps"], values, spec, saved["init_from"])


def with_steps(plan: Plan, steps: int) -> Plan:
    return dataclasses.replace(plan, steps=steps)
