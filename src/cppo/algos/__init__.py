"""The table of algorithms. Each is three pure functions and a settings class; a new one is one file and one row."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from cppo.algos import common, cpo, cppo, focops, mpo, pcpo, ppo, trpo
from cppo.imports import resolve
from cppo.maths import multipliers, nonparametric
from cppo.types import Box, Discrete, EnvSpec, MultiDiscrete, UsageError

IGNORED = "ignored"


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
    actions: tuple[type, ...] = (Box, Discrete, MultiDiscrete)
    constraints: str = "any"  # "0", "1" or "any" number
    reference: str = ""

    def check(self, spec: EnvSpec) -> None:
        """Refuse environments that the method cannot treat, naming those that can."""
        if not isinstance(spec.action, self.actions):
            able = [a.name for a in TABLE.values() if isinstance(spec.action, a.actions)]
            kind = type(spec.action).__name__
            raise UsageError(
                f"{self.name} has no {kind} actions, which {spec.name} needs. Use one of: {', '.join(able)}."
            )
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
        Algorithm(
            "ppo",
            ppo.PPOSettings,
            ppo.init,
            ppo.update,
            constraint=IGNORED,
            reference="Schulman et al. 2017",
        ),
        Algorithm(
            "trpo",
            trpo.TRPOSettings,
            trpo.init,
            trpo.update,
            order="second",
            constraint=IGNORED,
            reference="Schulman et al. 2015",
        ),
        Algorithm(
            "ppo_lag",
            ppo.PPOLagSettings,
            partial(ppo.init, multiplier=multipliers.LAGRANGIAN),
            partial(ppo.update, multiplier=multipliers.LAGRANGIAN),
            constraint="multiplier by Adam",
            reference="Ray et al. 2019",
        ),
        Algorithm(
            "trpo_lag",
            trpo.TRPOLagSettings,
            partial(trpo.init, multiplier=multipliers.LAGRANGIAN),
            partial(trpo.update, multiplier=multipliers.LAGRANGIAN),
            order="second",
            constraint="multiplier by Adam",
            reference="Ray et al. 2019",
        ),
        Algorithm(
            "ppo_pid",
            ppo.PPOPIDSettings,
            partial(ppo.init, multiplier=multipliers.PID),
            partial(ppo.update, multiplier=multipliers.PID),
            constraint="multiplier by PID control",
            reference="Stooke et al. 2020",
        ),
        Algorithm(
            "trpo_pid",
            trpo.TRPOPIDSettings,
            partial(trpo.init, multiplier=multipliers.PID),
            partial(trpo.update, multiplier=multipliers.PID),
            order="second",
            constraint="multiplier by PID control",
            reference="Stooke et al. 2020",
        ),
        Algorithm(
            "cpo",
            cpo.CPOSettings,
            cpo.init,
            cpo.update,
            order="second",
            constraint="step in the feasible part of the trust region",
            reference="Achiam et al. 2017",
        ),
        Algorithm(
            "pcpo",
            pcpo.PCPOSettings,
            pcpo.init,
            pcpo.update,
            order="second",
            constraint="projection onto the limit",
            reference="Yang et al. 2020",
        ),
        Algorithm(
            "focops",
            focops.FOCOPSSettings,
            focops.init,
            focops.update,
            constraint="multiplier by gradient ascent",
            reference="Zhang et al. 2020",
        ),
        Algorithm(
            "mpo",
            mpo.MPOSettings,
            mpo.init,
            mpo.update,
            constraint=IGNORED,
            policy="off",
            actions=(Box, Discrete),
            reference="Abdolmaleki et al. 2018",
        ),
        Algorithm(
            "cvpo",
            mpo.MPOSettings,
            mpo.init,
            partial(mpo.update, estep=nonparametric.reweight),
            constraint="constrained E-step by its dual",
            policy="off",
            actions=(Box, Discrete),
            reference="Liu et al. 2022",
        ),
    ]
}


def get(name: str) -> Algorithm:
    """The row called ``name``, or the one of a user's own that ``module:ROW`` is the import path of."""
    if ":" in name:
        row = resolve(name, "algorithm")
        if not isinstance(row, Algorithm):
            raise UsageError(f"algorithm {name!r} is a {type(row).__name__}; it must be a cppo.algos.Algorithm.")
        return row
    if name not in TABLE:
        close = difflib.get_close_matches(name, TABLE, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"unknown algorithm {name!r}.{hint} Algorithms: {', '.join(TABLE)}; your own as module:ROW.")
    return TABLE[name]
