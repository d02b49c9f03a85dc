"""A study: environments × algorithms × variants × seeds, written in Python or TOML, expanded into runs.

A run's id is a hash of every setting that determines its result, so that the same run is found again whatever study
asks for it. The number of steps is not part of it: a study with more steps goes on where a shorter one ended.

>>> study = Study("mine", [Part(envs=["ProbeBox"], algos=["cppo"], seeds=2, variants={"": {}, "no recovery": {"recovery": False}})])
>>> [(run.variant, run.seed) for run in study.runs()]
[('', 0), ('', 1), ('no recovery', 0), ('no recovery', 1)]
"""  # noqa: E501

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import re
import tomllib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

from cppo import envs as environments
from cppo import files
from cppo.errors import meant
from cppo.runs.plan import Plan, make_plan
from cppo.settings import identity
from cppo.types import UsageError

ID_LENGTH = 10  # hexadecimal digits: 40 bits, no collision in any study a person will run


@dataclass(frozen=True)
class Part:
    """A grid: every environment with every algorithm, variant and seed."""

    envs: Sequence[str]
    algos: Sequence[str] = ("cppo",)
    seeds: int = 4
    first_seed: int = 0
    steps: int | None = None  # of each seed; None: the paper's number for the environment
    settings: Mapping[str, Any] = field(default_factory=dict)  # of every run
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})  # label -> further settings
    backend: str = "auto"

    def __post_init__(self) -> None:
        """Check what people write by hand; one name stands for a list of one, 1e5 for 100000."""
        for name in ("envs", "algos"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        object.__setattr__(self, "envs", [environments.named(name) for name in self.envs])
        for name, least in (("seeds", 1), ("first_seed", 0), ("steps", 1)):
            if name != "steps" or self.steps is not None:
                object.__setattr__(self, name, _whole(name, getattr(self, name), least))
        if not isinstance(self.settings, Mapping):
            raise _wrong("settings", self.settings, "a table of settings", "{ kl = 0.01 }")
        if not isinstance(self.backend, str):
            raise _wrong("backend", self.backend, "a name", '"auto"')
        self._check_variants()

    def _check_variants(self) -> None:
        example = '{ "slow" = { kl = 0.005 } }'
        if not isinstance(self.variants, Mapping) or not self.variants:
            raise _wrong("variants", self.variants, "a table of labels, each with the settings that change", example)
        for label, change in self.variants.items():
            if not isinstance(change, Mapping):
                raise _wrong(f"variant {label!r}", change, "a table of the settings that change", example, "variants")
        plain = [repr(label) for label, change in self.variants.items() if not change]
        if len(plain) > 1:
            raise UsageError(f"the variants {' and '.join(plain)} are one and the same, no change; keep one of them.")


@dataclass(frozen=True)
class StudyRun:
    """One run of a study: one seed."""

    env: str
    algo: str
    variant: str
    seed: int
    steps: int | None
    settings: Mapping[str, Any]
    backend: str = "auto"

    @property
    def label(self) -> str:
        words = f"{self.algo} on {self.env}" + (f", {self.variant}" if self.variant else "")
        return f"{words}, seed {self.seed}"

    @cached_property
    def plan(self) -> Plan:
        """Checked and complete; a ``UsageError`` where the run cannot be."""
        return make_plan(
            self.algo, self.env, backend=self.backend, seed=self.seed, steps=self.steps, settings=self.settings
        )

    @cached_property
    def id(self) -> str:
        return run_id(self.plan)


@dataclass(frozen=True)
class Study:
    """A name, a title for people, and the grids it is made of."""

    name: str
    parts: Sequence[Part]
    title: str = ""

    def __post_init__(self) -> None:
        for name in ("name", "title"):
            if not isinstance(getattr(self, name), str):
                raise _wrong(name, getattr(self, name), "text", '"mine"')
        if not self.parts:
            raise UsageError(f"study {self.name} has no part, so no run; give it one: [[part]] with envs and algos.")

    def runs(self) -> list[StudyRun]:
        """Every run; where nothing changes it is the algorithm itself, whatever the variant's label."""
        return [
            StudyRun(
                env, algo, variant if changes else "", seed, part.steps, {**part.settings, **changes}, part.backend
            )
            for part in self.parts
            for env in part.envs
            for algo in part.algos
            for variant, changes in part.variants.items()
            for seed in range(part.first_seed, part.first_seed + part.seeds)
        ]

    def cut(
        self,
        only: Sequence[str] = (),
        algos: Sequence[str] = (),
        seeds: int | None = None,
        steps: int | None = None,
        backend: str | None = None,
    ) -> Study:
        """Fewer environments or algorithms, other numbers of seeds and steps; unknown names are refused."""
        only = [environments.named(name) for name in only]
        self._refuse_unknown("environment", only, [env for part in self.parts for env in part.envs])
        self._refuse_unknown("algorithm", algos, [algo for part in self.parts for algo in part.algos])
        given = {"seeds": seeds, "steps": steps, "backend": backend}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        parts = []
        for part in self.parts:
            left = {
                "envs": [env for env in part.envs if not only or env in only],
                "algos": [algo for algo in part.algos if not algos or algo in algos],
            }
            if all(left.values()):
                parts.append(dataclasses.replace(part, **left, **changes))
        if not parts:
            has = "; ".join(f"{', '.join(part.algos)} on {', '.join(part.envs)}" for part in self.parts)
            raise UsageError(f"study {self.name} has no run of {', '.join(algos)} on {', '.join(only)}; it has {has}.")
        return dataclasses.replace(self, parts=parts)

    def _refuse_unknown(self, kind: str, asked: Sequence[str], known: Sequence[str]) -> None:
        known = list(dict.fromkeys(known))
        for name in asked:
            if name not in known:
                raise UsageError(f"study {self.name} has no {kind} {name!r}; it has {', '.join(known)}.")


def _names(name: str, value: Any) -> Sequence[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not names or not all(isinstance(one, str) for one in names):
        raise _wrong(name, value, "a list of names", '["PointCircle"]' if name == "envs" else '["cppo", "cpo"]')
    return names


def _whole(name: str, value: Any, least: int) -> int:
    whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    if not whole or isinstance(value, bool) or value < least:
        raise _wrong(name, value, f"a whole number from {least}", "100000" if name == "steps" else "4")
    return int(value)


def _wrong(name: str, value: Any, wanted: str, example: str, entry: str = "") -> UsageError:
    return UsageError(f"{name} is {value!r}; it must be {wanted}, for example {entry or name} = {example}.")


def run_id(plan: Plan) -> str:
    """Environment, algorithm and seed for people, and a hash of all that determines the result but its length."""
    content = {
        "algo": plan.algo,
        "env": plan.env,
        "backend": plan.backend,
        "seeds": list(plan.seeds),
        "settings": identity(plan.settings),
        "init_from": plan.init_from,
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    env = re.sub(r"[^\w.-]+", "-", plan.env)
    return f"{env}-{plan.algo}-seed{plan.seeds[0]}-{digest[:ID_LENGTH]}"


def read(path: Path) -> Study:
    """The study in a TOML file, or the one called ``STUDY`` in a Python file."""
    if not path.is_file():
        raise UsageError(f"there is no study {path}; write one (docs/studies.md) or name: paper, ablation, limits.")
    if path.suffix == ".toml":
        return _from_toml(path)
    if path.suffix == ".py":
        return _from_python(path)
    raise UsageError(f"{path}: a study is a .toml or a .py file (docs/studies.md).")


def _from_toml(path: Path) -> Study:
    try:
        content = tomllib.loads(files.read(path).decode())
    except (ValueError, RecursionError) as error:  # also where it is no text at all
        raise UsageError(f"{path} is no TOML: {error}.") from None
    title = content.pop("title", "")
    name = content.pop("name", path.stem)
    # One grid may stand at the top level; several are [[part]] tables, for which the top level gives defaults.
    parts = content.pop("part", [{}])
    parts = [parts] if isinstance(parts, dict) else parts
    if not isinstance(parts, list) or not all(isinstance(table, dict) for table in parts):
        raise UsageError(f"{path}: part is {parts!r}; write each part as a table that begins with [[part]].")
    for table in (content, *parts):
        _refuse_unknown_entries(path, table)
    if not all("envs" in {**content, **table} for table in parts):
        raise UsageError(f'{path}: envs is missing, for example envs = ["PointCircle"].')
    try:
        return Study(name, [Part(**_joined(content, table)) for table in parts], title)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _joined(top: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """A part's entries over those at the top; settings one by one."""
    joined = {**top, **part}
    if all(isinstance(table.get("settings"), dict) for table in (top, part)):
        joined["settings"] = {**top["settings"], **part["settings"]}
    return joined


def _refuse_unknown_entries(path: Path, table: Mapping[str, Any]) -> None:
    known = [item.name for item in dataclasses.fields(Part)]
    entries = ["name", "title", "part", *known]
    for key in table:
        if key not in known:
            raise UsageError(f"{path}: unknown entry {key!r}.{meant(key, entries)} A study has {', '.join(entries)}.")


def _from_python(path: Path) -> Study:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except UsageError:
        raise
    except Exception as error:
        line = getattr(error, "lineno", None) or traceback.extract_tb(error.__traceback__)[-1].lineno
        raise UsageError(f"{path}, line {line}: {type(error).__name__}: {error}") from error
    study = getattr(module, "STUDY", None)
    if not isinstance(study, Study):
        raise UsageError(f"{path} must define STUDY = Study(...), from cppo.study.definition import Part, Study.")
    return study
