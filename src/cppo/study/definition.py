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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cppo import plan as plans
from cppo.settings import as_dict
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
    def plan(self) -> plans.Plan:
        """Checked and complete; a ``UsageError`` where the run cannot be."""
        return plans.make(
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

    def runs(self) -> list[StudyRun]:
        return [
            StudyRun(env, algo, variant, seed, part.steps, {**part.settings, **changes}, part.backend)
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
        self._refuse_unknown("environment", only, [env for part in self.parts for env in part.envs])
        self._refuse_unknown("algorithm", algos, [algo for part in self.parts for algo in part.algos])
        if seeds is not None and seeds < 1:
            raise UsageError(f"seeds is {seeds}; a study needs at least one.")
        parts = [
            dataclasses.replace(
                part,
                envs=[env for env in part.envs if not only or env in only],
                algos=[algo for algo in part.algos if not algos or algo in algos],
                seeds=part.seeds if seeds is None else seeds,
                steps=part.steps if steps is None else steps,
                backend=part.backend if backend is None else backend,
            )
            for part in self.parts
        ]
        return dataclasses.replace(self, parts=[part for part in parts if part.envs and part.algos])

    def _refuse_unknown(self, kind: str, asked: Sequence[str], known: Sequence[str]) -> None:
        known = list(dict.fromkeys(known))
        for name in asked:
            if name not in known:
                raise UsageError(f"study {self.name} has no {kind} {name!r}; it has {', '.join(known)}.")


def run_id(plan: plans.Plan) -> str:
    """Environment, algorithm and seed for people, and a hash of all that determines the result but its length."""
    content = {
        "algo": plan.algo,
        "env": plan.env,
        "backend": plan.backend,
        "seeds": list(plan.seeds),
        "settings": as_dict(plan.settings),
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
        content = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}.") from None
    title = content.pop("title", "")
    name = content.pop("name", path.stem)
    # One grid may stand at the top level; several are [[part]] tables, for which the top level gives defaults.
    parts = content.pop("part", [{}])
    known = {item.name for item in dataclasses.fields(Part)}
    for table in (content, *parts):
        for key in table:
            if key not in known:
                raise UsageError(f"{path}: unknown entry {key!r}; a study has name, title, part, {', '.join(known)}.")
    if not all("envs" in {**content, **table} for table in parts):
        raise UsageError(f'{path}: envs is missing, for example envs = ["PointCircle"].')
    return Study(name, [Part(**{**content, **table}) for table in parts], title)


def _from_python(path: Path) -> Study:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    study = getattr(module, "STUDY", None)
    if not isinstance(study, Study):
        raise UsageError(f"{path} must define STUDY = Study(...), from cppo.study.definition import Part, Study.")
    return study
