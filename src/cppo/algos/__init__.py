"""The table of algorithms. Each is three pure functions and a settings class; a new one is one file and one row."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cppo.algos import common, cppo
from cppo.types import Box, Discrete, EnvSpec, UsageError


@dataclass(frozen=True)
class Algorithm:
    """``init(networks, settings, key) -> state``, ``act(networks, settings, state, obs, key) -> actions``,
    ``update(networks, settings, state, batch, key) -> (state, metrics)``; and what a person wants to know of it."""

    name: str
    settings: type[Any]
    init: Callable[..., Any]
    update: Callable[..., Any]
    act: Callable[..., Any] = common.act
    order: str = "first"
    constraint: str = ""  # how the method treats the limit, for `cppo algos`
    policy: str = "on"
    actions: tuple[type, ...] = (Box, Discrete)
    constraints: str = "any"  # "0", "1" or "any" number
    reference: str = ""

    def check(self, spec: EnvSpec) -> None:
        """Refuse environments that the method cannot treat, naming those that can."""
        if not isinstance(spec.action, self.actions):
            able = [a.name for a in TABLE.values() if isinstance(spec.action, a.actions)]
            kind = type(spec.action).__name__
            raise UsageError(f"{self.name} has no {kind} actions, which {spec.name} needs. Use one of: {', '.join(able)}.")
        if self.constraints == "1" and spec.num_costs > 1:
            able = [a.name for a in TABLE.values() if a.constraints == "any"]
            raise UsageError(
                f"{self.name} takes one constraint; {spec.name} has {spec.num_costs}. Use one of: {', '.join(able)}."
            )


TABLE: dict[str, Algorithm] = {
    row.name: row
    for row in [
        Algorithm(
            "cppo",
            cppo.CPPOSettings,
            cppo.init,
            cppo.update,
            constraint="E-step in the feasible region, recovery updates",
            reference="Xuan et al. 2023",
        ),
    ]
}


def get(name: str) -> Algorithm:
    if name not in TABLE:
        close = difflib.get_close_matches(name, TABLE, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"unknown algorithm {name!r}.{hint} Algorithms: {', '.join(TABLE)}.")
    return TABLE[name]
