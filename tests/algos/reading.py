"""What a person has to read to follow one update of an algorithm, starting in ``train``.

    python tests/algos/reading.py        a table of files and lines for every algorithm

Followed are, from the training loop on, all functions of the project that a function names, and theirs in turn, by
their source. *Control flow* is what has to be read in order: the loop, the group, the learner, the algorithm's file and
what algorithms share. *Mathematics* (``maths/``, ``networks.py``, ``episodes.py``) is called by its name and read on
demand: closed definitions, each tested against an independent reference, that know nothing of algorithms. Collecting a
batch is the step before an update; restoring, saving, logging, timing, the watch over bad numbers and the display take
no part in it.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import sys
import textwrap
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import cppo.runs.engine
import cppo.runs.group
import cppo.runs.learner
from cppo import algos

ROOT = Path(cppo.__file__).parent
COLLECTING = ("runs/collect.py", "envs/")
_RECORDS = ("metrics", "display", "timing", "health", "checkpoint", "saving", "start", "member", "run", "plan")
BOOKKEEPING = (*(f"runs/{name}.py" for name in _RECORDS), "types.py", "files.py")
MATHEMATICS = ("maths/", "algos/cppo/", "networks/", "runs/episodes.py")


class Reading(NamedTuple):
    control: dict[str, int]  # lines by file
    mathematics: dict[str, int]


def follow(name: str) -> Reading:
    """Files and lines of one algorithm's update."""
    loop = sys.modules["cppo.runs.engine"].iterations
    group, learner = cppo.runs.group.Group, cppo.runs.learner.Learner
    found: dict[str, FunctionType] = {}
    for start in (
        loop,
        group.iterate,
        learner.iterate,
        learner._iterate_lane,
        learner._update_lane,
        algos.get(name).update,
    ):
        _collect(start, found)
    control: dict[str, int] = {}
    mathematics: dict[str, int] = {}
    for function in found.values():
        file = str(Path(inspect.getsourcefile(function) or "").relative_to(ROOT))
        lines = len(inspect.getsource(function).splitlines())
        part = mathematics if file.startswith(MATHEMATICS) else control
        part[file] = part.get(file, 0) + lines
    return Reading(control, mathematics)


def _collect(thing: Any, found: dict[str, FunctionType]) -> None:
    """``thing`` and all functions of the project that its source names."""
    thing = inspect.unwrap(thing) if callable(thing) else thing  # behind jax.jit
    if isinstance(thing, functools.partial):
        for part in (thing.func, *thing.args, *thing.keywords.values()):
            _collect(part, found)
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):  # a rule passed as a value
        for field in dataclasses.fields(thing):
            _collect(getattr(thing, field.name), found)
    elif isinstance(thing, FunctionType) and thing.__name__ != "<lambda>" and _ours(thing):
        key = f"{thing.__module__}.{thing.__qualname__}"
        if key in found:
            return
        found[key] = thing
        for named in _named(thing):
            _collect(named, found)


def _ours(function: FunctionType) -> bool:
    file = Path(inspect.getsourcefile(function) or "")
    return file.is_relative_to(ROOT) and not str(file.relative_to(ROOT)).startswith((*COLLECTING, *BOOKKEEPING))


def _named(function: FunctionType) -> list[Any]:
    """Objects that the source of ``function`` names, directly or as an attribute of a module."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    own = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}  # parameters hide what is outside
    seen = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in own:
            seen.append(function.__globals__.get(node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = function.__globals__.get(node.value.id)
            if isinstance(owner, ModuleType):
                seen.append(getattr(owner, node.attr, None))
    return [thing for thing in seen if callable(thing) and not isinstance(thing, type)]


def main() -> None:
    print(f"{'algorithm':<12}{'files':>6}{'lines':>7}   mathematics, on demand: files, lines")
    for name in algos.TABLE:
        read = follow(name)
        print(
            f"{name:<12}{len(read.control):>6}{sum(read.control.values()):>7}"
            f"{len(read.mathematics):>9}{sum(read.mathematics.values()):>7}   {', '.join(sorted(read.control))}"
        )


if __name__ == "__main__":
    main()
