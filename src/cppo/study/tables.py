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
UPDATES_HEAD = (
    "",
    "steps to limit",
    "to 90%",
    "switches",
    "in recovery",
    "KL",
    "tracking error",
    "E[v log v]",
    "between δ and δ'",
    "v ≥ 2",
    "update",
    "of CPO's",
)
PATHS_HEAD = (
    "β",
    "targets",
    "arrive",
    "epochs until then",
    "return change then",
    "cost change at the end",
    "return change at the end",
    "KL",
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
        longer = record.get("longer", {}).get(env)
        note = f"Cut there, since not all have more; the longest has {longer:,}.\n\n" if longer else ""
        parts.append(f"## {env}, {steps:,} steps\n\n{note}{_table(here)}")
        if any(row["updates"] for row in here):
            parts.append(
                f"### {env}: speed of learning, and its updates\n\n{_UPDATES_LEGEND}\n\n{_updates_table(here)}"
            )
        paths = [row for row in results.path_summaries(record) if row["env"] == env]
        if paths:
            parts.append(f"### {env}: paths of recovery updates\n\n{_PATHS_LEGEND}\n\n{_paths_table(paths)}")
    improvements = results.improvements(record)
    if improvements:
        lines = [
            f"| {row['algo']} over {row['other']} | {_interval(row['probability'], '.2f')} | {', '.join(row['envs'])} |"
            for row in improvements
        ]
        parts.append("## Probability of improvement\n\n| | P | environments |\n|---|---|---|\n" + "\n".join(lines))
    for title, found in (("Failed", record["failed"]), ("Not finished", record["unfinished"])):
        if found:
            reasons = [f": {one['error']}" if "error" in one else "" for one in found]
            lines = [
                f"- {name_of(one)} on {one['env']}, seed {one['seed']}{reason}"
                for one, reason in zip(found, reasons, strict=True)
            ]
            parts.append(f"## {title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


_LEGEND = (
    "Means over the last tenth of training. Return: interquartile mean, 95% bootstrap interval. Cost: mean, Student's "
    "95% interval / limit. Seeds within the limit: Wilson's 95% interval. Published: return / cost from other code."
)
_UPDATES_LEGEND = (
    "Means over seeds and all of training. Steps to limit: until every limit is first held for a tenth of training on "
    "end (in brackets: seeds that never did); to 90%: until the running mean of the return reaches 90% of its final "
    "value, whatever that is. E[v log v]: KL(q‖π) of the E-step's target, beside it the share of updates that have it "
    "between δ and δ' = δ/(2 ln 2 − 1); v ≥ 2: share of samples. Update: one update of one seed by itself."
)
_PATHS_LEGEND = (
    "One recovery update of each seed, repeated with other β and numbers of targets along the way. A path arrives when "
    "the predicted cost is within the limit; cost change in shares of the change that needs. Changes as the batch's "
    "samples predict them, in units of an episode."
)


def _table(rows: list[Record]) -> str:
    return _markdown(HEAD, [_cells(row) for row in rows])


def _cells(row: Record) -> list[str]:
    costs = [f"{_interval(cost)} / {row['cost_limits'][name]:g}" for name, cost in row["cost"].items()]
    within = row["within"]
    return [
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


def _updates_table(rows: list[Record]) -> str:
    cpo = next((row["update_seconds"] for row in rows if (row["algo"], row["variant"]) == ("cpo", "")), None)
    lines = []
    for row in rows:
        seen, seconds = row["updates"].get, row["update_seconds"]
        never = f" ({row['never_feasible']} never)" if row["never_feasible"] else ""
        lines.append([
            name_of(row),
            _number(row["first_feasible"], ",.0f") + never,
            _number(row["to_90"], ",.0f"),
            _number(row["switches"], ".0f"),
            _number(seen("recovery") or None, ".0%"),
            _number(seen("kl"), ".4f"),
            _number(seen("tracking_error"), ".3f"),
            _number(seen("target_kl"), ".4f"),
            _number(seen("target_kl_within"), ".0%"),
            _number(seen("above_two_share"), ".2%"),
            "-" if seconds is None else f"{1e3 * seconds:.0f} ms",
            "-" if seconds is None or cpo is None else f"{seconds / cpo:.2f}",
        ])  # fmt: skip
    return _markdown(UPDATES_HEAD, lines)


def _paths_table(rows: list[Record]) -> str:
    return _markdown(
        PATHS_HEAD,
        [
            [
                f"{row['beta']:g}",
                str(row["waypoints"]),
                f"{row['arrived']}/{row['seeds']}",
                _number(row["epochs"], ".1f"),
                _number(row["reward_then"], "+.1f"),
                _number(row["cost_share"], ".2f"),
                _number(row["reward"], "+.1f"),
                _number(row["kl"], ".4f"),
            ]
            for row in rows
        ],
    )


def _markdown(head: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def _interval(found: Interval, kind: str = ".2f") -> str:
    if math.isnan(found.low):
        return _number(found.value, kind)
    return f"{found.value:{kind}} [{found.low:{kind}}, {found.high:{kind}}]"


def _number(value: float | None, kind: str) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:{kind}}"
