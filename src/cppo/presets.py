"""Settings for each environment and for pairs of algorithm and environment: plain values, later ones win.

The paper's batch sizes and step counts (its appendix D) are here; values found by our own study say so.
"""

from __future__ import annotations

from typing import Any

ENVIRONMENT: dict[str, dict[str, Any]] = {
    "PointCircle": {"batch_size": 1000, "num_envs": 20},
    "ProbeBox": {"batch_size": 400, "num_envs": 40},
    "ProbeDiscrete": {"batch_size": 400, "num_envs": 40},
    "ProbeState": {"batch_size": 400, "num_envs": 40},
    "ProbeTwo": {"batch_size": 400, "num_envs": 40},
    "AntCircle": {"num_envs": 60},
}

STEPS: dict[str, int] = {
    "PointCircle": 200_000,
    "ProbeBox": 40_000,
    "ProbeDiscrete": 40_000,
    "ProbeState": 40_000,
    "ProbeTwo": 40_000,
}
DEFAULT_STEPS = 10_000_000

PAIR: dict[tuple[str, str], dict[str, Any]] = {}


def settings(algo: str, env: str) -> dict[str, Any]:
    return ENVIRONMENT.get(env, {}) | PAIR.get((algo, env), {})


def steps(env: str) -> int:
    return STEPS.get(env, DEFAULT_STEPS)
