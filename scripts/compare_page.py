"""The comparison on a results page, from summaries that are kept in the repository.

    python scripts/compare_page.py results/point_circle/compare --runs runs/compare-PointCircle
        take the finished runs of a `cppo compare` folder into the summaries (one small JSON file an algorithm)
    python scripts/compare_page.py results/point_circle/compare
        write the table into every page of docs/ that has the marks below, and draw the figure
    python scripts/compare_page.py results/point_circle/compare --check
        say whether the pages agree with the summaries (exit code 1 where not)

The table stands between ``<!-- comparison: FOLDER -->`` and ``<!-- end of comparison -->``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from cppo.reports import ranking
from cppo.reports.curves import learning_curves
from cppo.runs.metrics import cost_columns, read_metrics
from cppo.runs.sealed import read_json

ROOT = Path(__file__).parents[1]
PAPER = {"cppo": "85 / 5.5", "cpo": "122 / 7.5", "ppo_lag": "9 / 1.5", "trpo_lag": "41 / 2.9"}  # PointCircle, by eye
VERSIONS = ("cppo", "git_commit", "python", "jax", "jaxlib", "numpy", "cpu_count")
MARKS = "<!-- comparison: {} -->\n", "<!-- end of comparison -->"


def take(runs: Path, folder: Path) -> None:
    """Summaries of all finished runs in ``runs``: outcome, settings, versions, and the curves to four digits."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(runs.glob("*/summary.json")):
        config, versions = (read_json(path.parent / name) for name in ("config.json", "versions.json"))
        frame = read_metrics(path.parent)
        columns = ["steps", "seed", "return", *cost_columns(config["cost_limits"]).values()]
        curves = {name: [_short(value) for value in frame[name]] for name in columns}
        kept = {name: config[name] for name in ("algo", "env", "seeds", "steps", "cost_limits", "settings")}
        kept |= {"versions": {name: versions.get(name) for name in VERSIONS}, "summary": read_json(path)}
        text = json.dumps(kept, indent=1)[:-2] + f',\n "curves": {json.dumps(curves)}\n}}\n'
        (folder / f"{config['algo']}.json").write_text(text)


def _short(value: float) -> float:
    return int(value) if float(value).is_integer() else float(f"{value:.4g}")


def read(folder: Path) -> dict[str, dict[str, Any]]:
    found = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    if not found:
        sys.exit(f"no summaries in {folder}")
    return found


def table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown, best first."""
    rows = ranking.ranked(ranking.standing(name, r["summary"], r["cost_limits"]) for name, r in results.items())
    lines = [
        "| method | return | cost | seeds within | over while training | time | each seed: return / cost | paper |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        seeds = results[row.name]["summary"]["seeds"]
        each = " · ".join(f"{seed['final_return']:.0f} / {seed['final_cost']:.2f}" for seed in seeds)
        cost = next(iter(row.cost.values())).format(2)
        cells = [
            f"`{row.name}`",
            row.reward.format(1),
            cost if row.excess <= 0 else f"**{cost}**",
            f"{row.within} of {row.seeds}",
            row.violation_rate.format(0, scale=100, unit="%"),
            ranking.duration(row.seconds),
            each,
            PAPER.get(row.name, "–"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def filled(page: str, folder: str, content: str) -> str:
    """``page`` with the table between its marks replaced."""
    start, end = MARKS[0].format(folder), MARKS[1]
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    return pattern.sub(lambda _: f"{start}{content}{end}", page)


def pages(folder: str) -> list[Path]:
    return [path for path in sorted((ROOT / "docs").glob("*.md")) if MARKS[0].format(folder) in path.read_text()]


def figure(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Learning curves, in the table's order."""
    rows = ranking.ranked(ranking.standing(name, r["summary"], r["cost_limits"]) for name, r in results.items())
    named = [(row.name, pd.DataFrame(results[row.name]["curves"])) for row in rows]
    learning_curves(named, rows[0].limit, path, "PointCircle")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="folder of the summaries, relative to the repository")
    parser.add_argument("--runs", type=Path, help="folder of a comparison to take into the summaries first")
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "images" / "compare.png")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.runs is not None:
        take(args.runs, ROOT / args.folder)
    results = read(ROOT / args.folder)
    content, wrong = table(results), []
    for path in pages(args.folder):
        new = filled(path.read_text(), args.folder, content)
        if args.check and new != path.read_text():
            wrong.append(path.name)
        elif not args.check:
            path.write_text(new)
            print(f"wrote {path.relative_to(ROOT)}")
    if wrong:
        sys.exit(f"{', '.join(wrong)}: the table differs from {args.folder}; run this without --check")
    if not args.check:
        figure(results, args.figure)
        print(f"wrote {args.figure}")


if __name__ == "__main__":
    main()
