"""Constrained reinforcement learning: as much reward as possible while the cost stays under its limit.

What is here is imported when it is first asked for: ``cppo --help`` waits for no JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cppo import envs, maths
    from cppo.errors import TrainingError, UsageError
    from cppo.policies.evaluate import evaluate
    from cppo.runs.options import Options
    from cppo.runs.run import Policy, Run, load
    from cppo.runs.training import Training, resume, resuming, train, training
    from cppo.study.compare import compare

__all__ = [
    "Options",
    "Policy",
    "Run",
    "Training",
    "TrainingError",
    "UsageError",
    "compare",
    "envs",
    "evaluate",
    "load",
    "maths",
    "resume",
    "resuming",
    "train",
    "training",
]
_HOMES = {
    "Options": "runs.options",
    "Policy": "runs.run",
    "Run": "runs.run",
    "Training": "runs.training",
    "TrainingError": "errors",
    "UsageError": "errors",
    "compare": "study.compare",
    "evaluate": "policies.evaluate",
    "load": "runs.run",
    "resume": "runs.training",
    "resuming": "runs.training",
    "train": "runs.training",
    "training": "runs.training",
}


def __getattr__(name: str) -> Any:
    """An object from its home, or a room such as ``cppo.envs``."""
    if name in _HOMES:
        found = getattr(importlib.import_module(f"cppo.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    try:
        return importlib.import_module(f"cppo.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"cppo.{name}":
            raise
    raise AttributeError(f"module 'cppo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
