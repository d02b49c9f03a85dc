"""A study's numbers as Markdown tables, one for each environment."""

from __future__ import annotations

import math
from pathlib import Path

from cppo.study import results
from cppo.study.figures import name_of
from cppo.study.results import Record
from cppo.study.stats import Interval

FILE = "tables.md"
HEAD = (
    "",
    "seeds",
    "return (IQM)",
    "cost",
    "worst seed",
    "seeds within",
    "iterations over",
    "excess cost",
    "switches",
    "published",
)


def write(record: Record, folder: Path) -> Path:
    path = folder / FILE
    path.write_text(render(record), encoding="utf-8")
    return path


def render(record: Record) -> str:
    """All tables, with what the columns mean."""
    rows = results.summaries(record)
    parts = [f"# {record['title'] or record['name']}", _LEGEND]
    for env in dict.fromkeys(row["env"] for row in rows):
        here = sorted((row for row in rows if row["env"] == env), key=lambda row: row["rank"] or 99)
        steps = max(row["steps"] for row in here)
        parts.append(f"## {env}, {steps:,} steps\n\n{_table(here)}")
    improvements = results.improvements(record)
    if improvements:
        lines = [
            f"| {row['algo']} over {row['other']} | {_interval(row['probability'], '.2f')} | {', '.join(row['envs'])} |"
            for row in improvements
        ]
        parts.append("## Probability of improvement\n\n| | P | environments |\n|---|---|---|\n" + "\n".join(lines))
    for title, found in (("Failed", record["failed"]), ("Not finished", record["unfinished"])):
        if found:
            lines = [f"- {name_of(one)} on {one['env']}, seed {one['seed']}: {one.get('error', '')}" for one in found]
            parts.append(f"## {title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


_LEGEND = (
    "Means over the last tenth of training. Return: interquartile mean, 95% bootstrap interval. Cost: mean, Student's "
    "95% interval / limit. Seeds within the limit: Wilson's 95% interval. Published: return / cost from other code."
)


def _table(rows: list[Record]) -> str:
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    for row in rows:
        costs = [f"{_interval(cost)} / {row['cost_limits'][name]:g}" for name, cost in row["cost"].items()]
        within = row["within"]
        cells = [
            name_of(row),
            str(row["seeds"]),
            _interval(row["return_iqm"]),
            "; ".join(costs),
            ", ".join(f"{cost:.2f}" for cost in row["worst_cost"].values()),
            f"{row['within_count']}/{row['seeds']} [{within.low:.0%}, {within.high:.0%}]",
            _number(row["violation_rate"], ".0%"),
            _number(row["excess_cost"], ",.0f"),
            _number(row["switches"], ".0f"),
            "; ".join(f"{one.reward:g} / {one.cost:g} ({one.source})" for one in row["published"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _interval(found: Interval, kind: str = ".2f") -> str:
    if math.isnan(found.low):
        return _number(found.value, kind)
    return f"{found.value:{kind}} [{found.low:{kind}}, {found.high:{kind}}]"


def _number(value: float | None, kind: str) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:{kind}}"
