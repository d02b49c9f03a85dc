"""What a run is: every choice that determines its result, checked before anything starts, saved as ``config.json``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from cppo import algos, envs, presets
from cppo.algos.on_policy import Method
from cppo.envs import held, history
from cppo.envs.gymnasium import env as gym_env
from cppo.envs.mujoco import warp
from cppo.errors import reason_of
from cppo.imports import USER, Trust, is_path
from cppo.networks import networks_for
from cppo.runs import own
from cppo.runs.pretrained import located
from cppo.runs.sealed import Damaged, plain, read_sealed, write_sealed
from cppo.settings import as_dict, replace
from cppo.types import BatchedEnv, Box, Discrete, EnvSpec, MultiDiscrete, UsageError

FORMAT = 1
CONFIG = "config.json"


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
    eval_every: int = 0  # steps of each seed; 0: never. Evaluations change nothing in training
    eval_episodes: int = 20
    trust: Trust = field(default=USER, compare=False)  # who gave the names of algorithm and encoder

    @property
    def algorithm(self) -> algos.Algorithm:
        return algos.get(self.algo, self.trust)

    @property
    def cost_limits(self) -> dict[str, float]:
        return dict(zip(self.spec.cost_names, self.settings.cost_limit, strict=True))

    @property
    def iterations(self) -> int:
        return -(-self.steps // self.settings.batch_size)

    @property
    def remark(self) -> str | None:
        """What a person may not expect of the plan."""
        batch = self.settings.batch_size
        if self.steps >= batch:
            return None
        return (
            f"{self.steps:,} steps are less than a batch of {batch:,}, so {batch:,} are trained "
            "(smaller batches: --set batch_size=… num_envs=…)."
        )

    @property
    def spec_seen(self) -> EnvSpec:
        """The environment as the networks see it: in decisions, and through a window for an encoder with a memory."""
        return _seen(self.spec, self.settings)

    def build_env(self, num_envs: int) -> BatchedEnv:
        """The environment as the networks see it."""
        if self.source is not None:
            return self.seen(gym_env.GymnasiumEnv(self.source, num_envs, self.spec))
        return self.seen(envs.build(self.env, num_envs, self.backend))

    def seen(self, env: BatchedEnv) -> BatchedEnv:
        """``env`` with its actions held, and through a window of what is then seen where the encoder has a memory."""
        env = held.holding(env, self.settings.hold)
        return history.History(env, self.settings.memory) if self.settings.encoder == "gru" else env

    def usable_here(self) -> Plan:
        """The same run, to be looked at on this machine: what a GPU trained needs none to be evaluated."""
        return dataclasses.replace(self, backend=_here(self.backend))

    def with_steps(self, steps: int) -> Plan:
        return dataclasses.replace(self, steps=steps)

    def with_env(self, env: envs.VectorEnv) -> Plan:
        """The same run on ``env``, which must be the run's environment made again."""
        if not isinstance(env.core, gym_env.GymnasiumEnv) or env.spec.action != self.spec.action:
            raise UsageError(f"the given environment is not the one of this run ({self.env}).")
        return dataclasses.replace(self, source=env.core.source)

    def saved(self) -> dict[str, Any]:
        """What was asked for, as ``config.json`` holds it."""
        saved: dict[str, Any] = {
            "format": FORMAT,
            "algo": self.algo,
            "env": self.env,
            "backend": self.backend,
            "seeds": list(self.seeds),
            "steps": self.steps,
            "cost_limits": self.cost_limits,
            "settings": as_dict(self.settings),
            "init_from": self.init_from,
        }
        if self.eval_every:
            saved |= {"eval_every": self.eval_every, "eval_episodes": self.eval_episodes}
        if self.source is not None:
            # What the environment is like must be known without starting it, for example to draw its curves.
            saved |= {"gymnasium": self.source.as_dict(), "spec": _spec_to_json(self.spec)}
        return plain(saved)

    def save(self, folder: Path, versions: dict[str, Any]) -> None:
        """Write what was asked for; the user's own is noted before, so that no kill makes a stranger's of it."""
        write_sealed(folder / "versions.json", versions)
        saved = self.saved()
        if self.trust.lasting and _foreign(saved):
            own.note(saved, self.trust.place or os.getcwd())
        write_sealed(folder / CONFIG, saved)


def make_plan(
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
    eval_every: int = 0,
    eval_episodes: int = 20,
) -> Plan:
    """Check every choice and fill in presets; a wrong one is a ``UsageError`` that says what to type instead."""
    algorithm = algos.get(algo)
    spec, backend, source = envs.describe(env, backend)
    env = spec.name
    algorithm.check(spec)
    if init_from is not None and not (located(init_from) / CONFIG).is_file():
        raise UsageError(f"init_from is {init_from}, which is no run: it has no {CONFIG}; give the folder of a run.")
    if seeds < 1:
        raise UsageError(f"seeds is {seeds}; at least one seed has to be trained.")
    if seed < 0:
        raise UsageError(f"seed is {seed}; seeds are whole numbers from 0.")
    steps = presets.steps(env) if steps is None else steps
    if steps < 1:
        raise UsageError(f"steps is {steps}; it must be at least 1.")
    if eval_every < 0 or eval_episodes < 2:
        raise UsageError("eval_every is a number of steps (0: never); eval_episodes is 2 or more, for example 20.")
    chosen = dict(settings or {})
    limits = cost_limit if cost_limit is not None else chosen.pop("cost_limit", spec.cost_limits)
    values = replace(algorithm.settings(), presets.settings(algo, env, backend) | {"cost_limit": limits} | chosen)
    _check(values, spec, env, backend)
    lanes = tuple(range(seed, seed + seeds))
    return Plan(algo, env, backend, lanes, steps, values, spec, init_from, source, eval_every, eval_episodes)


def _check(values: Any, spec: EnvSpec, env: str, backend: str) -> None:
    """Settings that do not fit the environment, or one another."""
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
    _check_batches(values, spec)
    if getattr(values, "diagnose", 0) and values.num_envs < 2:
        raise UsageError("diagnose compares worlds with one another; it needs num_envs of at least 2.")
    if values.ignore and max(values.ignore) >= spec.obs_shape[-1]:
        raise UsageError(
            f"ignore names entry {max(values.ignore)}; the last entry of {env} is {spec.obs_shape[-1] - 1}."
        )
    if values.encoder == "gru" and backend == "warp":
        raise UsageError("encoder=gru does not run with the backend warp; use --backend threads.")
    networks_for(_seen(spec, values), values)  # checks the encoder


def _check_batches(values: Any, spec: EnvSpec) -> None:
    """Whole decisions of every world make a batch, and an episode."""
    if spec.time_limit and spec.episode_length % values.hold:
        fitting = max(n for n in range(1, values.hold) if spec.episode_length % n == 0)
        raise UsageError(
            f"hold {values.hold} does not divide the {spec.episode_length} steps of an episode of {spec.name}; "
            f"use for example --set hold={fitting}."
        )
    each = values.num_envs * values.hold
    if values.batch_size % each:
        held_for = f" × hold {values.hold}" if values.hold > 1 else ""
        raise UsageError(
            f"batch_size {values.batch_size} is not a multiple of num_envs {values.num_envs}{held_for}; "
            f"use for example --set batch_size={each * max(1, values.batch_size // each)}."
        )


def _seen(spec: EnvSpec, settings: Any) -> EnvSpec:
    spec = held.slowed(spec, settings.hold)
    return history.windowed(spec, settings.memory) if settings.encoder == "gru" else spec


def _count(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _all(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and bool(value) and all(map(fits, value))


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and "\n" not in value


ENTRIES: dict[str, Callable[[Any], bool]] = {  # of a run's file, and what each may be
    "algo": _text,
    "env": _text,
    "backend": _text,
    "seeds": _all(_count),
    "steps": lambda value: _count(value, 1),
    "settings": lambda value: isinstance(value, dict),
    "init_from": lambda value: value is None or _text(value),
    "eval_every": lambda value: value is None or _count(value),
    "eval_episodes": lambda value: value is None or _count(value, 2),
}


def read_config(folder: Path) -> dict[str, Any]:
    """What was asked of a run. It goes on with what it began with, so a file that was changed since is refused."""
    path = folder / CONFIG
    return read_sealed(
        path,
        f"A run keeps the settings that it began with: cppo check {folder} --repair takes them from its checkpoints. "
        f"For a variation: cppo train --config {path} --init-from {folder}",
    )


def load_plan(folder: Path, trust: bool = False) -> Plan:
    """The plan of a saved run. Nothing is started for it; what its names stand for is imported where the user vouched
    for them (``trust``, or a run that he started): else the settings are plain values, enough to draw its curves."""
    path = folder / CONFIG
    if not path.is_file():
        raise UsageError(f"{folder} is not a run: it has no {CONFIG}.")
    saved = read_config(folder)
    if "format" not in saved:
        raise UsageError(f"{path} is damaged: it is no record of a run.")
    if saved["format"] != FORMAT:
        raise UsageError(f"{path} has format {saved.get('format')!r}; this version of cppo reads format {FORMAT}.")
    wrong = [name for name, fits in ENTRIES.items() if not fits(saved.get(name))]
    if wrong:
        raise UsageError(f"{path} is damaged: {', '.join(wrong)} cannot be {saved.get(wrong[0])!r}.")
    try:
        return _plan_of(folder, saved, trust)
    except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise Damaged(f"{path} is damaged ({reason_of(error)}).") from None


def _plan_of(folder: Path, saved: dict[str, Any], trust: bool) -> Plan:
    vouched = _trust_in(folder, saved, trust)
    source = gym_env.from_dict(saved["gymnasium"]) if "gymnasium" in saved else None
    if source is None and envs.backends(saved["env"]) == ["gymnasium"]:
        raise UsageError(f"{folder / CONFIG} is damaged: it does not say how the environment {saved['env']} is made.")
    spec = envs.spec(saved["env"]) if source is None else _spec_from_json(saved["spec"])
    settings = _settings(saved, vouched)
    if len(settings.cost_limit) != spec.num_costs:
        raise UsageError(f"{folder / CONFIG} is damaged: {spec.name} has {spec.num_costs} limits, not these.")
    return Plan(
        algo=saved["algo"],
        env=saved["env"],
        backend=saved["backend"],
        seeds=tuple(saved["seeds"]),
        steps=saved["steps"],
        settings=settings,
        spec=spec,
        init_from=saved["init_from"],
        source=None if source is None else dataclasses.replace(source, trust=vouched),
        eval_every=saved.get("eval_every", 0),
        eval_episodes=saved.get("eval_episodes", 20),
        trust=vouched,
    )


def _foreign(saved: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What a run's file names that cppo does not bring."""
    named = [("algorithm", str(saved["algo"])), ("encoder", str(saved["settings"].get("encoder", "")))]
    found = gym_env.from_dict(saved["gymnasium"]).foreign if "gymnasium" in saved else ()
    return (*[(kind, name) for kind, name in named if is_path(name)], *found)


def _trust_in(folder: Path, saved: Mapping[str, Any], given: bool) -> Trust:
    """Whether the names in a run's file may be followed: the one place that decides it."""
    names, whose = _foreign(saved), str(folder)
    if not names:
        return Trust(place=None, whose=whose)
    place = own.place_of(saved)
    if place is not None:
        return Trust(names, place=place, whose=whose)
    # Modules that came with a run are not the user's, even where he works in its folder.
    here = None if Path.cwd().is_relative_to(folder.resolve()) else os.getcwd()
    return Trust(names, vouched=given, place=here, lasting=False, whose=whose)


def _settings(saved: Mapping[str, Any], trust: Trust) -> Any:
    values = saved["settings"]
    try:
        algorithm = algos.get(saved["algo"], trust)
    except UsageError:
        if not is_path(saved["algo"]):
            raise
    else:
        return replace(algorithm.settings(), algorithm.upgraded(values))
    common: Any = cast(Any, Method)()
    known = {name: values[name] for name in as_dict(common) if name in values}
    return SimpleNamespace(**_tuples(values) | as_dict(replace(common, known)))


def _here(backend: str) -> str:
    return "threads" if backend == "warp" and not warp.available() else backend


def _spec_to_json(spec: EnvSpec) -> dict[str, Any]:
    return dataclasses.asdict(spec) | {"action": {type(spec.action).__name__: dataclasses.asdict(spec.action)}}


def _spec_from_json(saved: dict[str, Any]) -> EnvSpec:
    kinds = {kind.__name__: kind for kind in (Box, Discrete, MultiDiscrete)}
    ((kind, fields),) = saved["action"].items()
    return EnvSpec(**_tuples(saved | {"action": kinds[kind](**_tuples(fields))}))


def _tuples(saved: dict[str, Any]) -> dict[str, Any]:
    """JSON knows lists only."""
    return {name: tuple(x) if isinstance(x, list) else x for name, x in saved.items()}
