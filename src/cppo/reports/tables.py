"""A study's numbers as Markdown tables, one for each environment."""

from __future__ import annotations

import math
from pathlib import Path

from cppo import files
from cppo.reports.figures import foot, name_of
from cppo.reports.records import Record
from cppo.reports.stats import Interval
from cppo.reports.summaries import improvements, path_summaries, summaries

FILE = "tables.md"


def write(record: Record, folder: Path) -> Path:
    return files.write_text(folder / FILE, render(record))


def render(record: Record) -> str:
    """All tables, with what the columns mean."""
    rows = summaries(record)
    parts = [f"# {record['title'] or record['name']}", _LEGEND, *([f"{foot(record)}."] if foot(record) else [])]
    for env in dict.fromkeys(row["env"] for row in rows):
        here = sorted((row for row in rows if row["env"] == env), key=lambda row: row["rank"] or 99)
        steps = max(row["steps"] for row in here)
        longer = record.get("longer", {}).get(env)
        note = f"Cut there, since not all have more; the longest has {longer:,}.\n\n" if longer else ""
        said = list(dict.fromkeys(name for row in here for name in row["task"]))
        parts.append(f"## {env}, {steps:,} steps\n\n{note}{_markdown([_cells(row, said) for row in here])}")
        if any(row["updates"] for row in here):
            cpo = next((row["update_seconds"] for row in here if (row["algo"], row["variant"]) == ("cpo", "")), None)
            table = _markdown([_update_cells(row, cpo) for row in here])
            parts.append(f"### {env}: speed of learning, and its updates\n\n{_UPDATES_LEGEND}\n\n{table}")
        if paths := [_path_cells(row) for row in path_summaries(record) if row["env"] == env]:
            parts.append(f"### {env}: paths of recovery updates\n\n{_PATHS_LEGEND}\n\n{_markdown(paths)}")
    better = [
        f"| {row['algo']} over {row['other']} | {_interval(row['probability'])} | {', '.join(row['envs'])} |"
        for row in improvements(record)
    ]
    if better:
        parts.append("\n".join(["## Probability of improvement\n", "| | P | environments |", "|---|---|---|", *better]))
    for title, found in (("Failed", record["failed"]), ("Not finished", record["unfinished"])):
        lines = [
            f"- {name_of(one)} on {one['env']}, seed {one['seed']}" + (f": {one['error']}" if "error" in one else "")
            for one in found
        ]
        parts += [f"## {title}\n\n" + "\n".join(lines)] if lines else []
    return "\n\n".join(parts) + "\n"


_LEGEND = (
    "Means over the last tenth of training. **Bold:** first within the limit, and ahead by more than noise (Welch's "
    "test, 5%) of each method that may be within it. Worst tenth, episodes over: fresh episodes of the final policies, "
    "their CVaR₀.₉ and the share over the limit. Excess cost: Σ over twentieths of training of (mean cost − limit)₊ × "
    "steps of a twentieth / longest episode. Until a return within: steps until a twentieth of training has that mean "
    "return and a cost within the limit (in brackets: seeds that never did). Published: return / cost from other code."
    "\n\n"
    "Intervals: Student's, of means, cover 95% of normal values from two seeds on. Bootstrap percentiles, of "
    "interquartile means, are printed from five seeds on; of normal values they cover 90 to 94% with 5 to 20 seeds. "
    "Wilson's, of shares, cover 95% on average over shares."
)
_UPDATES_LEGEND = (
    "Means over seeds and all of training. Steps to limit: until every limit is first held for a tenth of training on "
    "end (in brackets: seeds that never did); to 90%: until the running mean of the return reaches 90% of its final "
    "value, whatever that is. E[v log v]: KL(q‖π) of the E-step's target, beside it the share of updates that have it "
    "between δ and δ' = δ/(2 ln 2 − 1); v ≥ 2: share of samples. Update: one update of one seed by itself."
)
_PATHS_LEGEND = (
    "One recovery update of each seed, repeated with other β and numbers of targets along the way. A path arrives when "
    "the cost promised on its own batch is within the limit; cost change in shares of the change that needs. Changes "
    "as the batch's samples promise them, in units of an episode."
)


def _cells(row: Record, said: list[str]) -> dict[str, str]:
    """``said`` are what the task says of its episodes, such as goals reached; means over seeds."""
    costs = [f"{_interval(cost)} / {row['cost_limits'][name]:g}" for name, cost in row["cost"].items()]
    within = row["within"]
    name = f"**{name_of(row)}**" if row["leads"] else name_of(row)
    until = {} if row["wanted"] is None else {f"until {row['wanted']:g} within": _until(row)}
    return {
        "": name,
        "seeds": str(row["seeds"]),
        "return (IQM)": _interval(row["return_iqm"]),
        "return (mean)": _interval(row["mean_return_t"]),
        "cost": "; ".join(costs),
        **{name: _number(row["task"].get(name), ".2f") for name in said},
        "worst seed": ", ".join(f"{cost:.2f}" for cost in row["worst_cost"].values()),
        "seeds within": f"{row['within_count']}/{row['seeds']} [{within.low:.0%}, {within.high:.0%}]",
        "worst tenth": _tail(row["worst_tenth"], ".1f"),
        "episodes over": _tail(row["episodes_over"], ".0%"),
        "iterations over": _number(row["violation_rate"], ".0%"),
        "excess cost": _number(row["excess_cost"], ",.0f"),
        **until,
        "switches": _number(row["switches"], ".0f"),
        "published": "; ".join(f"{one.reward:g} / {one.cost:g} ({one.source})" for one in row["published"]),
    }


def _update_cells(row: Record, cpo: float | None) -> dict[str, str]:
    seen, seconds = row["updates"].get, row["update_seconds"]
    never = f" ({row['never_feasible']} never)" if row["never_feasible"] else ""
    return {
        "": name_of(row),
        "steps to limit": _number(row["first_feasible"], ",.0f") + never,
        "to 90%": _number(row["to_90"], ",.0f"),
        "switches": _number(row["switches"], ".0f"),
        "in recovery": _number(seen("recovery") or None, ".0%"),
        "KL": _number(seen("kl"), ".4f"),
        "tracking error": _number(seen("tracking_error"), ".3f"),
        "E[v log v]": _number(seen("target_kl"), ".4f"),
        "between δ and δ'": _number(seen("target_kl_within"), ".0%"),
        "v ≥ 2": _number(seen("above_two_share"), ".2%"),
        "update": "-" if seconds is None else f"{1e3 * seconds:.0f} ms",
        "of CPO's": "-" if seconds is None or cpo is None else f"{seconds / cpo:.2f}",
    }


_OF_PATHS = {
    "epochs until then": ("epochs", ".1f"),
    "return change then": ("reward_then", "+.1f"),
    "cost change at the end": ("cost_share", ".2f"),
    "return change at the end": ("reward", "+.1f"),
    "KL": ("kl", ".4f"),
}


def _path_cells(row: Record) -> dict[str, str]:
    return {
        "β": f"{row['beta']:g}",
        "targets": str(row["waypoints"]),
        "arrive": f"{row['arrived']}/{row['seeds']}",
        **{name: _number(row[key], kind) for name, (key, kind) in _OF_PATHS.items()},
    }


def _until(row: Record) -> str:
    never = f" ({row['never_wanted']} never)" if row["never_wanted"] else ""
    return _number(row["until_wanted"], ",.0f") + never


def _tail(found: dict[str, float | None], kind: str) -> str:
    return ", ".join(_number(value, kind) for value in found.values()) or "-"


def _markdown(rows: list[dict[str, str]]) -> str:
    """One line a row, below the names of its cells."""
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
        for row in (rows[0], *(row.values() for row in rows))
    ]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _interval(found: Interval, kind: str = ".2f") -> str:
    if math.isnan(found.low):
        return _number(found.value, kind)
    return f"{found.value:{kind}} [{found.low:{kind}}, {found.high:{kind}}]"


def _number(value: float | None, kind: str) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:{kind}}"
