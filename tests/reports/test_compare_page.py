"""Tables of comparisons in the docs are those of the summaries beside them."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
specification = importlib.util.spec_from_file_location("compare_page", ROOT / "scripts" / "compare_page.py")
assert specification and specification.loader
compare_page = importlib.util.module_from_spec(specification)
specification.loader.exec_module(compare_page)

MARKED = [
    (path, folder)
    for path in sorted((ROOT / "docs").glob("*.md"))
    for folder in re.findall(r"<!-- comparison: (\S+) -->", path.read_text())
]


@pytest.mark.parametrize(("page", "folder"), MARKED, ids=[path.name for path, _ in MARKED])
def test_the_page_agrees_with_the_summaries(page, folder):
    text = page.read_text()
    assert compare_page.filled(text, folder, compare_page.table(compare_page.read(ROOT / folder))) == text


@pytest.mark.parametrize("folder", sorted({folder for _, folder in MARKED}))
def test_all_were_trained_alike(folder):
    results = compare_page.read(ROOT / folder)
    assert len({json.dumps([r["env"], len(r["seeds"]), r["steps"], r["cost_limits"]]) for r in results.values()}) == 1
    assert all(r["settings"]["batch_size"] == 1000 for r in results.values() if r["env"] == "PointCircle")


def test_a_changed_number_is_noticed():
    assert MARKED
    page, folder = MARKED[0]
    results = compare_page.read(ROOT / folder)
    next(iter(results.values()))["summary"]["seeds"][0]["final_return"] += 40.0
    assert compare_page.filled(page.read_text(), folder, compare_page.table(results)) != page.read_text()
