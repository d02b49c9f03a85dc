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

PAIR: dict[tuple[str, str], dict[str, Any]] = {
    ("cppo", "PointCircle"): {
        "reuse": 4,
        "gain": 2.5,
        "beta": 0.7,
        "switch": 0.85,
        "aim": 0.9,
        "waypoints": 1,
        "gae_decay": 0.95,
        "cost_gae_decay": 0.95,
        "value_epochs": 15,
        "normalise_obs": False,
        "horizon_is_end": True,
        "cost_horizon_is_end": True,
        "critic_clock": True,
    },
}


def settings(algo: str, env: str) -> dict[str, Any]:
    return ENVIRONMENT.get(env, {}) | PAIR.get((algo, env), {})


def steps(env: str) -> int:
    return STEPS.get(env, DEFAULT_STEPS)
