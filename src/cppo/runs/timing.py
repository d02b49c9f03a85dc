"""Where the time of a run goes: physics, environment, acting, update (E-step, M-step, critics), the rest.

Environments on the host are timed as they run: every call there waits for its result anyway. Environments inside the
compiled program cannot be told apart from the learner, and the split says so. An update is one compiled program too;
its parts are measured once, after the run, by compiling them on their own on the last batch (only after runs long
enough for that to be small beside them), and what is left of the update belongs to the policy's step.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

PARTS_AFTER = 20.0  # seconds of updates from which on their parts are measured
WORDS = {
    "physics": "physics",
    "environment": "rest of environment",
    "acting": "acting",
    "update": "update",
    "compiled": "collect and update (one program)",
    "other": "saving and logging",
}


class Clock:
    """Seconds by part. A context manager for a stretch of work, or ``add`` for what was measured elsewhere."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - began

    def add(self, part: str, seconds: float) -> None:
        self.seconds[part] += seconds

    def restart(self) -> float:
        """Forget everything; returns the seconds forgotten."""
        total = sum(self.seconds.values())
        self.seconds.clear()
        return total


def split(clock: Clock, first: float, wall: float, iterations: int, learner: Any) -> dict[str, Any]:
    """What ``summary.json`` holds under ``time``: seconds by part since the last start or resume.

    ``first`` is the first iteration, compilation included, which the parts leave out; ``wall`` everything.
    """
    seconds = {part: round(clock.seconds[part], 3) for part in WORDS if part in clock.seconds}
    other = max(0.0, wall - first - sum(clock.seconds.values()))
    whole: dict[str, Any] = {"first_iteration": round(first, 3), "iterations": iterations, "seconds": seconds}
    seconds["other"] = round(other, 3)
    if clock.seconds["update"] >= PARTS_AFTER and learner.last is not None:
        each = clock.seconds["update"] / max(1, iterations - 1)
        whole["update"] = {part: round(share, 4) for part, share in update_shares(learner, each).items()}
    return whole


def update_shares(learner: Any, seconds: float) -> dict[str, float]:
    """Shares of an update that takes ``seconds``: its parts run alone, and the policy's step as what is left."""
    from cppo.algos import common, cppo

    if not isinstance(learner.settings, common.OnPolicy):
        return {}

    def prepared(settings: Any, agent: Any, batch: Any) -> Any:
        return common.prepare(learner.networks, settings, agent, batch)

    def critics(settings: Any, agent: Any, data: Any, key: Any) -> Any:
        return common.fit_critics(learner.networks, settings, agent, data, key)[1]

    settings, (agent, batch, key) = learner.settings, learner.last
    data = jax.jit(jax.vmap(prepared))(settings, agent, batch)
    parts = {"critics": _seconds(critics, settings, agent, data, key)}
    rest = "policy"
    if isinstance(settings, cppo.CPPOSettings):
        parts = {"E-step": _seconds(_estep, settings, data), **parts}
        rest = "M-step"
    shares = {part: min(1.0, took / seconds) for part, took in parts.items()}
    return {rest: max(0.0, 1.0 - sum(shares.values())), **shares}


def _estep(settings: Any, data: Any) -> Any:
    from cppo.algos.cppo import KL_TO_VARIANCE
    from cppo.maths import estep

    none = jnp.zeros(len(settings.cost_limit), bool)
    radius = jnp.full(settings.waypoints, 1.0) ** 2 * settings.kl / KL_TO_VARIANCE
    budget = jnp.zeros(len(settings.cost_limit))
    return jax.vmap(lambda r: estep.solve(data.adv, data.cost_adv, budget, r, none, settings.exact).ratios)(radius)


def _seconds(part: Any, *arguments: Any) -> float:
    """Seconds of one run of ``part`` over all lanes, the second of two, so that compiling does not count."""
    run = jax.jit(jax.vmap(part))
    jax.block_until_ready(run(*arguments))
    began = time.perf_counter()
    jax.block_until_ready(run(*arguments))
    return time.perf_counter() - began


def sentence(time_split: dict[str, Any]) -> str:
    """One line for a person."""
    seconds = time_split["seconds"]
    total = sum(seconds.values())
    if time_split["iterations"] < 1:
        return "Time: none, the run had all its steps already."
    if time_split["iterations"] < 2 or total <= 0:
        return f"Time: {time_split['first_iteration']:.1f} s for the only iteration, compilation included."
    parts = {WORDS[part]: spent for part, spent in seconds.items()}
    return shares(parts, time_split["first_iteration"], {WORDS["update"]: _inside(time_split)})


def shares(parts: dict[str, float], first: float, remarks: dict[str, str] | None = None) -> str:
    """Seconds by part as shares of their sum, beside those of the first iteration.

    >>> shares({"collecting": 60.0, "update": 20.0}, 30.0)
    'Time: collecting 75%, update 25%; first iteration with compilation 30.0 s.'
    """
    total = sum(parts.values())
    words = [f"{part} {spent / total:.0%}" + (remarks or {}).get(part, "") for part, spent in parts.items()]
    return f"Time: {', '.join(words)}; first iteration with compilation {first:.1f} s."


def _inside(time_split: dict[str, Any]) -> str:
    parts = time_split.get("update")
    return f" ({', '.join(f'{part} {share:.0%}' for part, share in parts.items())} of it)" if parts else ""
