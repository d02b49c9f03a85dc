"""What several finished runs of one problem say about each other: one record a run, ranked, as a table.

A method is ranked by what the limit asks of it first: those whose mean cost over seeds is within every limit, and most
of whose seeds are, come first, by return; the others follow, the least excess (in units of the limit) first. Spreads
are sample standard deviations over seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from cppo.runs.metrics import place


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds; unknown (a seed without a finished episode) is None."""

    mean: float | None
    deviation: float | None

    def __str__(self) -> str:
        return self.format(2)

    def format(self, decimals: int, scale: float = 1.0, unit: str = "") -> str:
        if self.mean is None:
            return "-"
        around = "" if self.deviation is None else f" ± {scale * self.deviation:.{decimals}f}"
        return f"{scale * self.mean:.{decimals}f}{around}{unit}"


@dataclass(frozen=True)
class Standing:
    """How one run ended. ``seconds`` has no spread: all seeds of a run train at once, in one program."""

    name: str
    reward: Spread  # final return
    cost: dict[str, Spread]  # final cost, by constraint
    limit: dict[str, float]
    within: int  # seeds that ended within every limit
    seeds: int
    violation_rate: Spread  # share of training iterations over a limit
    seconds: float

    @property
    def excess(self) -> float:
        """How far the worst mean cost is beyond its limit, in units of the limit; at most 0 when all are met."""
        worst = [
            math.inf if cost.mean is None else (cost.mean - self.limit[name]) / max(self.limit[name], 1e-9)
            for name, cost in self.cost.items()
        ]
        return max(worst, default=0.0)

    @property
    def feasible(self) -> bool:
        return self.excess <= 0.0 and 2 * self.within > self.seeds

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "feasible": self.feasible}


def standing(name: str, summary: Mapping[str, Any], limits: Mapping[str, float]) -> Standing:
    """The record of a run's ``summary.json``."""
    seeds = [seed for seed in summary["seeds"] if "error" not in seed]
    costs = [seed["final_cost"] if len(limits) > 1 else {next(iter(limits)): seed["final_cost"]} for seed in seeds]
    return Standing(
        name,
        spread(seed["final_return"] for seed in seeds),
        {constraint: spread(cost[constraint] for cost in costs) for constraint in limits},
        dict(limits),
        sum(bool(seed["feasible"]) for seed in seeds),
        len(summary["seeds"]),
        spread(seed["violation_rate"] for seed in seeds),
        float(summary["wall_seconds"]),
    )


def spread(values: Iterable[float | None]) -> Spread:
    """Mean and deviation; unknown as soon as one value is.

    >>> print(spread([1.0, 3.0]), spread([2.0]), spread([1.0, None]))
    2.00 ± 1.41 2.00 -
    """
    seen = list(values)
    known = [value for value in seen if value is not None]
    if not known or len(known) < len(seen):
        return Spread(None, None)
    return Spread(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)


def ranked(standings: Iterable[Standing]) -> list[Standing]:
    """Best first."""

    def key(row: Standing) -> tuple[bool, float]:
        return place(row.feasible, row.reward.mean, row.excess)

    return sorted(standings, key=key)


def table(standings: Iterable[Standing], title: str) -> Table:
    """One line a run, best first, for a terminal of 80 columns."""
    rows = ranked(standings)
    limits = rows[0].limit
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
        caption="mean ± standard deviation over seeds; return and cost: last tenth of training",
        caption_justify="left",
    )
    made.add_column("algorithm", no_wrap=True)
    made.add_column("return", justify="right", no_wrap=True)
    for name, limit in limits.items():
        label = "cost" if len(limits) == 1 else name
        made.add_column(f"{label} (≤ {limit:g})", justify="right", no_wrap=True)
    made.add_column("within", justify="right", no_wrap=True)
    made.add_column("over while\ntraining", justify="right", no_wrap=True)
    made.add_column("time", justify="right", no_wrap=True)
    for row in rows:
        costs = [
            Text(cost.format(2), "" if cost.mean is not None and cost.mean <= limits[name] else "red")
            for name, cost in row.cost.items()
        ]
        share = Text(f"{row.within} of {row.seeds}", _share_style(row))
        rate = row.violation_rate.format(0, scale=100, unit="%")
        made.add_row(row.name, row.reward.format(1), *costs, share, rate, duration(row.seconds))
    return made


def _share_style(row: Standing) -> str:
    return "green" if row.within == row.seeds else "yellow" if row.within else "red"


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(8.4), duration(75), duration(7260)
    ('8 s', '1:15 min', '2:01 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60}:{whole % 60:02d} min" if whole < 3600 else f"{whole // 3600}:{whole % 3600 // 60:02d} h"
