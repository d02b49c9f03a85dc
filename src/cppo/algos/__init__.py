"""The table of algorithms. Each is three pure functions and a settings class; a new one is one file and one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import partial
from inspect import signature
from typing import Any

from jaxtyping import Array

from cppo.algos import cpo, cppo, ctrpo, cup, focops, mpo, p3o, pcpo, ppo, trpo
from cppo.algos import on_policy as common
from cppo.errors import meant
from cppo.imports import USER, Trust, is_path, resolve
from cppo.maths import multipliers, nonparametric, trust_region
from cppo.types import Box, Discrete, EnvSpec, Metrics, MultiDiscrete, PyTree, UsageError

IGNORED = "ignored"


@dataclass(frozen=True)
class Algorithm:
    """``init(networks, settings, key) -> state``, ``act(networks, settings, state, obs, key) -> actions``,
    ``update(networks, settings, state, batch, key) -> (state, metrics)``; and what a person wants to know of it."""

    name: str
    settings: type[common.Method]
    init: Callable[..., PyTree]
    update: Callable[..., tuple[PyTree, Metrics]]
    act: Callable[..., Array] = common.act
    order: str = "first"
    constraint: str = ""  # how the method treats the limit, for `cppo algos`
    policy: str = "on"
    actions: tuple[type, ...] = (Box, Discrete, MultiDiscrete)
    reference: str = ""
    upgraded: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict  # settings that an earlier version saved

    def check(self, spec: EnvSpec) -> None:
        """Refuse environments that the method cannot treat, naming those that can."""
        if not isinstance(spec.action, self.actions):
            able = [a.name for a in TABLE.values() if isinstance(spec.action, a.actions)]
            kind = type(spec.action).__name__
            raise UsageError(
                f"{self.name} has no {kind} actions, which {spec.name} needs. Use one of: {', '.join(able)}."
            )


def _row(
    name: str, module: Any, settings: type[common.Method], constraint: str, reference: str, **more: Any
) -> Algorithm:
    """A method that a module of this package holds. What ``more`` names beside fields of a row is a rule: each of the
    two functions is given those that it takes."""
    rules = {name: more.pop(name) for name in list(more) if name not in Algorithm.__dataclass_fields__}
    given = lambda f: partial(f, **{name: rules[name] for name in signature(f).parameters if name in rules})  # noqa: E731
    functions = given(module.init), given(module.update)
    order = "second" if issubclass(settings, trust_region.Region) else "first"
    return Algorithm(name, settings, *functions, order=order, constraint=constraint, reference=reference, **more)


ADAM, PID = multipliers.LAGRANGIAN, multipliers.PID
MILOSEVIC, HYSTERESIS = "Milosevic et al. 2025", "CPO whose recovery goes on below the limit"
REWEIGHT = nonparametric.reweight
OFF: dict[str, Any] = {"policy": "off", "actions": (Box, Discrete)}
ROWS = (
    _row(
        "cppo",
        cppo,
        cppo.CPPOSettings,
        "E-step in the feasible region, recovery updates",
        "Xuan et al. 2023",
        upgraded=cppo.upgraded,
    ),
    _row("ppo", ppo, ppo.PPOSettings, IGNORED, "Schulman et al. 2017"),
    _row("trpo", trpo, trpo.TRPOSettings, IGNORED, "Schulman et al. 2015"),
    _row("ppo_lag", ppo, ppo.PPOLagSettings, "multiplier by Adam", "Ray et al. 2019", multiplier=ADAM),
    _row("trpo_lag", trpo, trpo.TRPOLagSettings, "multiplier by Adam", "Ray et al. 2019", multiplier=ADAM),
    _row("ppo_pid", ppo, ppo.PPOPIDSettings, "multiplier by PID control", "Stooke et al. 2020", multiplier=PID),
    _row("trpo_pid", trpo, trpo.TRPOPIDSettings, "multiplier by PID control", "Stooke et al. 2020", multiplier=PID),
    _row("cpo", cpo, cpo.CPOSettings, "step in the feasible part of the trust region", "Achiam et al. 2017"),
    _row("pcpo", pcpo, pcpo.PCPOSettings, "projection onto the limit", "Yang et al. 2020"),
    _row("focops", focops, focops.FOCOPSSettings, "multiplier by gradient ascent", "Zhang et al. 2020"),
    _row("cpo_hyst", cpo, cpo.CPOHysteresisSettings, HYSTERESIS, "Milosevic et al. 2025", budgets=cpo.HYSTERESIS),
    _row("cpo_shares", cpo, cpo.CPOSharesSettings, "CPO asking for shares of its reach", "ours", budgets=cpo.SHARES),
    _row("crpo", ctrpo, ctrpo.CRPOSettings, "up the reward or down the cost, in turns", "Xu et al. 2021"),
    _row("ctrpo", ctrpo, ctrpo.CTRPOSettings, "part of the trust region", MILOSEVIC, beside_kl=ctrpo.barrier),
    _row("p3o", p3o, p3o.P3OSettings, "fixed price on the excess", "Zhang et al. 2022"),
    _row(
        "c3po", p3o, p3o.C3POSettings, "rising price on more than a share of the room", MILOSEVIC, penalty=p3o.central
    ),
    _row("ipo", p3o, p3o.IPOSettings, "logarithmic barrier", "Liu et al. 2020", penalty=p3o.barrier),
    _row("cup", cup, cup.CUPSettings, "multiplier in a projection by KL", "Yang et al. 2022"),
    _row("mpo", mpo, mpo.MPOSettings, IGNORED, "Abdolmaleki et al. 2018", **OFF),
    _row("cvpo", mpo, mpo.MPOSettings, "constrained E-step by its dual", "Liu et al. 2022", estep=REWEIGHT, **OFF),
)
TABLE: dict[str, Algorithm] = {row.name: row for row in ROWS}


def get(name: str, trust: Trust = USER) -> Algorithm:
    """The row called ``name``, or the one of a user's own that ``module:ROW`` is the import path of."""
    if is_path(name):
        row = resolve(name, "algorithm", trust)
        if not isinstance(row, Algorithm):
            kind = type(row).__name__
            raise UsageError(f"algorithm {name!r} is a {kind}; it must be a cppo.algos.Algorithm.")
        if not is_dataclass(row.settings):
            raise UsageError(f"the settings of algorithm {name!r} are no class made with @cppo.settings.settings.")
        return row
    if name not in TABLE:
        raise UsageError(
            f"unknown algorithm {name!r}.{meant(name, TABLE)} Algorithms: {', '.join(TABLE)}; your own as module:ROW."
        )
    return TABLE[name]
