"""Constrained reinforcement learning: as much reward as possible while the cost stays under its limit."""

from cppo import envs, maths
from cppo.compare import compare
from cppo.evaluate import evaluate
from cppo.run import Policy, Run, load
from cppo.train import resume, train
from cppo.types import TrainingError, UsageError

__all__ = [
    "Policy",
    "Run",
    "TrainingError",
    "UsageError",
    "compare",
    "envs",
    "evaluate",
    "load",
    "maths",
    "resume",
    "train",
]
