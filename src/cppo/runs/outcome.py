"""The end of a run as a table, and how a cost beside its limit is told to a person, here and while training."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rich.table import Table
from rich.text import Text

NEAR = 0.1  # a cost is near its limit when less than this share of it is left
STYLES = {"ok": "green", "near": "yellow", "over": "red"}
_MARKS = {"ok": "✓", "near": "≈", "over": "✗", "": " "}
_WORDS = {"ok": "ok", "near": "near", "over": "over", "": ""}  # for terminals that cannot show the marks
NONE = "-"


def summary_table(summary: dict[str, Any], title: str) -> Table:
    """The end of a run: one line for each seed of ``summary.json`` and one for their mean."""
    seeds = summary["seeds"]
    mark = marks(sys.stdout.encoding or "ascii")
    costs = summary["final_cost"]
    names: list[str | None] = list(costs) if isinstance(costs, dict) else [None]
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 3, 0, 0))
    table.add_column("seed", no_wrap=True)
    table.add_column("return", justify="right", no_wrap=True)
    for name in names:
        table.add_column(f"{name or 'cost'}/limit", justify="right", no_wrap=True)
    for name in summary.get("final_task", {}):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("feasible", justify="center", no_wrap=True)
    table.add_column("over limit", justify="right", no_wrap=True)
    table.add_column("steps", justify="right", no_wrap=True)
    for seed in seeds:
        how = "ok" if seed["feasible"] else "over"
        held = Text("failed", "red") if "error" in seed else Text(mark[how], STYLES[how])
        table.add_row(str(seed["seed"]), *_summary_cells(seed, names, held))
    feasible = sum(bool(seed["feasible"]) for seed in seeds)
    share = Text(f"{feasible} of {len(seeds)}", "green" if feasible == len(seeds) else "yellow")
    table.add_row("mean", *_summary_cells(summary, names, share), style="bold")
    return table


def _summary_cells(values: dict[str, Any], names: list[str | None], feasible: Text) -> Iterable[Text | str]:
    yield number(values["final_return"])
    for name in names:
        cost = values["final_cost"][name] if name else values["final_cost"]
        limit = values["cost_limit"][name] if name else values["cost_limit"]
        of = f"/{limit:g}" if limit is not None else ""
        yield Text(f"{number(cost)}{of}", STYLES["over"] if verdict(cost, limit) == "over" else "")
    yield from map(number, values.get("final_task", {}).values())
    yield feasible
    rate = values["violation_rate"]
    yield f"{rate:.0%}" if rate is not None else NONE
    yield f"{values['steps']:,}"


def marks(encoding: str) -> dict[str, str]:
    return _MARKS if "utf" in encoding.lower() else _WORDS


def verdict(cost: float | None, limit: float | None) -> str:
    if cost is None or limit is None:
        return ""
    if cost > limit:
        return "over"
    return "near" if limit > 0 and cost > (1 - NEAR) * limit else "ok"


def number(value: float | None, decimals: int = 2) -> str:
    if value is None:
        return NONE
    return f"{value:,.{decimals}f}" if abs(value) < 10_000 else f"{value:,.0f}"
