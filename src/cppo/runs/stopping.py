"""Rules that end training before its steps are done: ``feasible,return=20``, ``stalled=200000``.

A rule names conditions that must all hold for every seed; of several rules one is enough. They look at the evaluations
of a run that makes some (``evaluation``; a cost is then its upper bound), else at means over the newest iterations. A
rule is a function of the rows so far, so that a resumed run stops where an undisturbed one does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from cppo.errors import UsageError
from cppo.runs.metrics import Row, cost_columns, place

NEWEST = 10  # iterations whose mean counts where nothing is evaluated
EXAMPLE = "write for example feasible,return=20 or stalled=200000 (steps without progress)"


class Rule(NamedTuple):
    text: str
    feasible: bool
    earned: float
    stalled: float  # steps


def parse(text: str) -> Rule:
    """
    >>> parse("feasible,return=20")
    Rule(text='feasible,return=20', feasible=True, earned=20.0, stalled=-inf)
    """
    rule = Rule(text, False, -math.inf, -math.inf)
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        try:
            if name == "feasible" and not equals:
                rule = rule._replace(feasible=True)
            elif name == "return":
                rule = rule._replace(earned=float(value))
            elif name == "stalled":
                rule = rule._replace(stalled=float(value))
            else:
                raise ValueError
        except ValueError:
            raise UsageError(f"stop_when has no condition {part.strip()!r}: {EXAMPLE}.") from None
    return rule


class _Seed:
    """Where a seed stands, and since when it has stood no better."""

    def __init__(self) -> None:
        self.recent: deque[tuple[float, tuple[float, ...]]] = deque(maxlen=NEWEST)
        self.now: tuple[float, float] | None = None  # return, excess of the cost over its limit
        self.best: tuple[bool, float] | None = None
        self.steps = self.best_at = 0

    def see(self, steps: int, now: tuple[float, float] | None) -> None:
        self.steps = steps
        if now is None:
            return
        self.now, key = now, place(now[1] <= 0, *now)
        if self.best is None or key < self.best:
            self.best, self.best_at = key, steps

    def meets(self, rule: Rule) -> bool:
        if self.now is None:
            return False
        earned, over = self.now
        enough = earned >= rule.earned and self.steps - self.best_at >= rule.stalled
        return enough and (over <= 0 or not rule.feasible)


class Rules:
    """Sees the rows of every iteration; ``met`` is the rule that holds now."""

    def __init__(self, texts: Sequence[str], limits: dict[str, float], evaluated: bool):
        self._rules = [parse(text) for text in texts]
        self._limits = list(limits.values())
        self._earned = "eval_return" if evaluated else "return"
        self._costs = [f"eval_bound{c.removeprefix('cost')}" if evaluated else c for c in cost_columns(limits).values()]
        self._newest = 1 if evaluated else NEWEST
        self._seeds: dict[int, _Seed] = {}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def see(self, rows: Sequence[Row]) -> None:
        for row in rows:
            seed = self._seeds.setdefault(int(row["seed"]), _Seed())
            seed.see(int(row["steps"]), self._measured(seed, row))

    def met(self) -> str | None:
        newest = max((seed.steps for seed in self._seeds.values()), default=0)
        going = [seed for seed in self._seeds.values() if seed.steps == newest]  # one that failed stays behind
        return next((rule.text for rule in self._rules if going and all(seed.meets(rule) for seed in going)), None)

    def _measured(self, seed: _Seed, row: Row) -> tuple[float, float] | None:
        found = (row.get(name) for name in (self._earned, *self._costs))
        values = [math.nan if value is None else float(value) for value in found]
        if any(map(math.isnan, values)):
            return None
        seed.recent.append((values[0], tuple(values[1:])))
        if len(seed.recent) < self._newest:
            return None
        newest = list(seed.recent)[-self._newest :]
        mean = lambda numbers: sum(numbers) / len(newest)  # noqa: E731
        costs = [mean([costs[index] for _, costs in newest]) for index in range(len(self._limits))]
        over = max(cost - limit for cost, limit in zip(costs, self._limits, strict=True))
        return mean([earned for earned, _ in newest]), over
