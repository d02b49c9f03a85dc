"""The studies that come with the package: the paper's comparison, its ablation and claims, and return against limit."""

from __future__ import annotations

from pathlib import Path

from cppo import presets
from cppo.study.definition import Part, Study, read
from cppo.types import UsageError

# The paper's algorithms, its own first, so that a study cut short has what matters most.
ALGORITHMS = ("cppo", "cpo", "ppo_lag", "trpo_lag", "ppo", "trpo")

PAPER = Study(
    "paper",
    [
        Part(envs=["PointCircle"], algos=ALGORITHMS, seeds=4),
        Part(envs=["PointGoal1", "PointPush1", "CarPush1"], algos=ALGORITHMS, seeds=6),
        Part(envs=["AntCircle"], algos=ALGORITHMS, seeds=4),
    ],
    "Figure 3: five environments, six algorithms",
)


def _ablation() -> Study:
    """CPPO on PointCircle with one thing changed at a time; beside it CPO for the time of an update, and the methods
    with a multiplier for the speed of learning."""
    chosen = presets.settings("cppo", "PointCircle")
    changes = {
        "no recovery": {"recovery": False},
        "printed budgets": {"budgets": "printed"},
        "printed rules": {"budgets": "printed", "beta": 0.3, "waypoints": 4},
        "tilt 1.0": {"tilt": 1.0},
        "tilt 0.8": {"tilt": 0.8},
        "slope 5": {"slope": 5.0},
        "switch 1.0": {"switch": 1.0},
        "switch 0.95": {"switch": 0.95},
        "switch 0.8": {"switch": 0.8},
        "beta 0.3": {"beta": 0.3},
        "beta 0.7": {"beta": 0.7},
        "waypoints 4": {"waypoints": 4},
        "KL tracking": {"tracking": "kl"},
        "no lower clip": {"lower_clip": 0.0},
        "heuristic E-step": {"exact": False},
        "no reuse": {"reuse": 1},
    }
    # What equals the chosen settings is that run itself, not a variant of it.
    variants = {name: change for name, change in changes.items() if not change.items() <= chosen.items()}
    return Study(
        "ablation",
        [
            Part(envs=["PointCircle"], algos=["cppo"], seeds=12, variants={"": {}, **variants}),
            Part(envs=["PointCircle"], algos=["cpo", "ppo_lag", "trpo_lag"], seeds=12),
        ],
        "Figure 4: CPPO on PointCircle with one thing changed at a time",
    )


LIMITS = Study(
    "limits",
    [
        Part(
            envs=["PointCircle"],
            algos=ALGORITHMS[:4],
            seeds=6,
            variants={f"limit {limit:g}": {"cost_limit": limit} for limit in (1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0)},
        )
    ],
    "Return against the cost limit",
)
NAMES = ("paper", "ablation", "limits")


def get(name: str) -> Study:
    """A study that comes with the package, or the one in a file."""
    if name in NAMES:
        return {"paper": PAPER, "ablation": _ablation(), "limits": LIMITS}[name]
    if not name.endswith((".toml", ".py")):
        raise UsageError(f"unknown study {name!r}; name one of {', '.join(NAMES)}, or a .toml or .py file.")
    return read(Path(name))
