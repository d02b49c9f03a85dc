"""Where the time of a run goes: physics, environment, acting, update (E-step, M-step, critics), the rest.

Environments on the host are timed as they run: every call there waits for its result anyway. Environments inside the
compiled program cannot be told apart from the learner, and the split says so. An update is one compiled program too;
its parts are measured once, after the run, by compiling them on their own on the last batch (only after runs long
enough for that to be small beside them), and what is left of the update belongs to the policy's step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

PARTS_AFTER = 20.0  # seconds of updates from which on their parts are measured
WORDS = {
    "physics": "physics",
    "environment": "rest of environment",
    "acting": "acting",
    "update": "update",
    "evaluation": "evaluating",
    "compiled": "collect and update (one program)",
    "other": "saving and logging",
}


class Doing(NamedTuple):
    """What an iteration is at, with how many of how many steps of one seed where that is known."""

    what: str
    steps: int = 0
    of: int = 0


class Clock:
    """Seconds by part. A context manager for a stretch of work, or ``add`` for what was measured elsewhere.

    ``tell`` says what is being done, to whoever ``listens``.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.listens: Callable[[Doing], None] | None = None

    def tell(self, what: str, steps: int = 0, of: int = 0) -> None:
        if self.listens is not None:
            self.listens(Doing(what, steps, of))

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(part, time.perf_counter() - began)

    def add(self, part: str, seconds: float) -> None:
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds

    def restart(self) -> float:
        """Forget everything; returns the seconds forgotten."""
        total = sum(self.seconds.values())
        self.seconds.clear()
        return total


class Done(NamedTuple):
    iterations: int
    steps: int  # of an iteration, all seeds together


def split(clock: Clock, first: float, wall: float, done: Done, learner: Any = None) -> dict[str, Any]:
    """What ``summary.json`` holds under ``time``: seconds by part since the last start or resume.

    ``first`` is the first iteration, compilation included, which the parts and the speed leave out; ``wall``
    everything. The parts of an update are measured where its ``learner`` is given.
    """
    iterations = done.iterations
    seconds = {part: round(spent, 3) for part, spent in sorted(clock.seconds.items(), key=_order)}
    other = max(0.0, wall - first - sum(clock.seconds.values()))
    rate = (iterations - 1) * done.steps / (wall - first) if iterations > 1 and wall > first else None
    whole: dict[str, Any] = {"first_iteration": round(first, 3), "iterations": iterations, "seconds": seconds}
    whole |= {"steps_per_second": rate and round(rate, 1)}
    seconds["other"] = round(other, 3)
    updating = clock.seconds.get("update", 0.0)
    if learner is not None and updating >= PARTS_AFTER and learner.last is not None:
        each = updating / max(1, iterations - 1)
        whole["update"] = {part: round(share, 4) for part, share in update_shares(learner, each).items()}
    return whole


def _order(item: tuple[str, float]) -> int:
    """Parts as ``WORDS`` lists them; those with names of their own last."""
    return list(WORDS).index(item[0]) if item[0] in WORDS else len(WORDS)


def update_shares(learner: Any, seconds: float) -> dict[str, float]:
    """Shares of an update that takes ``seconds``: its parts run alone, and the policy's step as what is left."""
    from cppo.algos import cppo
    from cppo.algos import on_policy as common

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
    from cppo.algos.cppo import KL_TO_VARIANCE, estep

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
    words = []
    for part, spent in seconds.items():
        inside = _inside(time_split) if part == "update" else ""
        words.append(f"{WORDS.get(part, part)} {spent / total:.0%}{inside}")
    said = f"Time: {', '.join(words)}; first iteration with compilation {time_split['first_iteration']:.1f} s."
    rate = time_split.get("steps_per_second")
    return said + (f" After it {rate:,.0f} steps/s, all seeds together." if rate else "")


def _inside(time_split: dict[str, Any]) -> str:
    parts = time_split.get("update")
    return f" ({', '.join(f'{part} {share:.0%}' for part, share in parts.items())} of it)" if parts else ""
