"""Published records of other people's runs beside ours, on the pages of docs/ that have the marks.

    python scripts/field_page.py             write the tables
    python scripts/field_page.py --check     say whether the pages agree with the records (exit code 1 where not)

A table stands between ``<!-- field: TASK FOLDER ... -->`` and ``<!-- end of field -->``. Theirs is computed from
``field.json``, seed by seed; ours from the records in the folders named. Both by one measure: return and cost over the
last tenth, and the excess cost while learning, Σ over twentieths of (mean J_c − limit)₊ × episodes of a twentieth.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cppo import envs
from cppo.reports import records
from cppo.reports.figures import NAMES

ROOT = Path(__file__).parents[1]
PUBLISHED = Path(__file__).with_name("field.json")
MARKS = re.compile(r"<!-- field: (?P<task>\w+)(?P<folders>[^>]*) -->\n(?P<table>.*?)<!-- end of field -->", re.DOTALL)
TWENTIETHS = 20


class Seeds(NamedTuple):
    """One method, an entry for each seed."""

    reward: list[float]
    cost: list[float]
    excess: list[float]
    over: list[float]

    def cells(self) -> list[str]:
        each = " · ".join(f"{reward:.1f} / {cost:.0f}" for reward, cost in zip(self.reward, self.cost, strict=True))
        share = f"{100 * np.mean(self.over):.0f}%"
        return [f"{np.mean(self.reward):.1f} / {np.mean(self.cost):.1f}", f"{np.mean(self.excess):,.0f}", share, each]


def theirs(task: str) -> dict[str, Seeds]:
    published = json.loads(PUBLISHED.read_text())[task]
    return {
        name: Seeds(*(seeds[key] for key in ("return", "cost", "excess", "over"))) for name, seeds in published.items()
    }


def excess(curve: list[float], limit: float, steps: int, length: int) -> float:
    """Of a curve of equal stretches of training.

    >>> excess([30.0] * 20 + [20.0] * 20, 25.0, 10_000, 1_000)
    25.0
    """
    means = np.array([part.mean() for part in np.array_split(np.asarray(curve, float), TWENTIETHS)])
    return float(np.maximum(means - limit, 0.0).sum() * steps / TWENTIETHS / length)


def ours(task: str, folders: list[str]) -> dict[str, tuple[Seeds, int]]:
    """Of each method its seeds, and how long they trained."""
    found: dict[str, tuple[Seeds, int]] = {}
    for folder in folders:
        for group in records.load(ROOT / folder)["groups"]:
            if group["env"] == task and not group["variant"]:
                found[group["algo"]] = _seeds(group), group["steps"]
    return found


def _seeds(group: Any) -> Seeds:
    (name, limit), seeds = next(iter(group["cost_limits"].items())), group["seeds"]
    length = envs.spec(group["env"]).episode_length
    spent = [excess(seed["curve"]["cost"], limit, group["steps"], length) for seed in seeds]
    costs = [seed["final_cost"][name] for seed in seeds]
    return Seeds([seed["final_return"] for seed in seeds], costs, spent, [seed["violation_rate"] for seed in seeds])


def table(task: str, folders: list[str]) -> str:
    """Theirs first where both have a method; the dearest while learning comes last."""
    here, there = ours(task, folders), theirs(task)
    label = lambda name: name.replace(name.split(",")[0], NAMES.get(name.split(",")[0], name))  # noqa: E731
    lines = ["| method | whose | return / cost | excess | over | each seed |", "|---|---|---|---|---|---|"]
    worth = lambda name: np.mean((there[name] if name in there else here[name][0]).excess)  # noqa: E731
    for name in sorted({*here, *there}, key=worth):
        rows = [("published", there[name])] if name in there else []
        if name in here:
            seeds, steps = here[name]
            rows.append((f"here, {steps / 1e6:.1f}M", seeds))
        for i, (whose, seeds) in enumerate(rows):
            lines.append(f"| {' | '.join([label(name) if i == 0 else '', whose, *seeds.cells()])} |")
    return "\n".join(lines) + "\n"


def filled(page: str) -> str:
    """``page`` with its tables made anew."""

    def anew(found: re.Match[str]) -> str:
        start = f"<!-- field: {found['task']}{found['folders']} -->\n"
        return start + table(found["task"], found["folders"].split()) + "<!-- end of field -->"

    return MARKS.sub(anew, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    for path in sorted((ROOT / "docs").glob("*.md")):
        old = path.read_text()
        if filled(old) != old and check:
            sys.exit(f"{path.name}: its tables differ from the records; run this without --check")
        if filled(old) != old:
            path.write_text(filled(old))
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
