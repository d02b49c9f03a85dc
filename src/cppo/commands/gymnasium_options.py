"""Options that commands share for environments of others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cppo.commands.words import names
from cppo.errors import UsageError


@dataclass
class GymnasiumOptions:
    """Options for Gymnasium environments (docs/environments-of-your-own.md)."""

    cost_keys: str | None = None
    """Keys of info that hold costs, one constraint each: a,b (default: the third value of six, else info["cost"])."""
    cost: str | None = None
    """Import path of a function cost(obs, action, next_obs, info): module:function."""
    env_python: Path | None = None
    """Run the environment under this interpreter, which needs NumPy and the environment only."""
    episode_length: int | None = None
    """Truncate episodes after this many steps (default: the environment's own time limit)."""
    env_workers: int | None = None
    """Processes that share the worlds (default: one for each core)."""
    env_timeout: float = 60.0
    """Seconds after which a step counts as hung and its process is restarted."""
    env_max_dropped: float = 0.1
    """Stop training once a larger share of the episodes of 20 iterations is lost to failures (1: never)."""

    measures: str | None = None
    """Keys of info to log of each episode: is_success (its last value), goal_met:sum or success:max; several: a,b."""

    def environment(self, name: str) -> Any:
        """What to train or evaluate on: the name itself, or a Gymnasium environment with these options."""
        from cppo import envs

        if self == GymnasiumOptions():
            return name
        if envs.backends(name) != ["gymnasium"]:
            theirs = f" (that of the package safety-gymnasium is safety_gymnasium:{name})" if "Safety" in name else ""
            raise UsageError(
                f"{name} is no Gymnasium environment{theirs}: leave out --cost-keys, --cost, --env-python and such."
            )
        return envs.from_gymnasium(
            name,
            cost=self.cost,
            cost_keys=names(self.cost_keys),
            python=self.env_python,
            episode_length=self.episode_length,
            workers=self.env_workers,
            timeout=self.env_timeout,
            max_dropped=self.env_max_dropped,
            measures=names(self.measures),
        )
