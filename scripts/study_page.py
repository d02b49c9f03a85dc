"""A study's tables on a page of docs/, from the record that is kept in the repository.

    cppo report runs/study-ablation --measure --no-page --out results/ablation
    python scripts/study_page.py results/ablation            write the tables into every page that has the marks
    python scripts/study_page.py results/ablation --check    say whether they agree (exit code 1 where not)

The tables stand between ``<!-- study: FOLDER -->`` and ``<!-- end of study -->``.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from cppo.reports import records as results
from cppo.reports import tables

ROOT = Path(__file__).parents[1]


def content(folder: Path) -> str:
    """The tables without their title, one heading lower."""
    _, rest = tables.render(results.load(folder)).split("\n\n", 1)
    return re.sub("^##", "###", rest, flags=re.MULTILINE)


def filled(page: str, folder: str, text: str) -> str:
    """``page`` with what stands between its marks replaced."""
    start, end = f"<!-- study: {folder} -->\n", "<!-- end of study -->"
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    return pattern.sub(lambda _: f"{start}{text}{end}", page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="folder of the record, relative to the repository")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder.rstrip("/")
    text = content(ROOT / folder)
    for path in sorted((ROOT / "docs").glob("*.md")):
        old = path.read_text()
        new = filled(old, folder, text)
        if new != old and arguments.check:
            sys.exit(f"{path.name}: the tables differ from {folder}; run this without --check")
        if new != old:
            path.write_text(new)
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
