"""Tables of published records beside ours are those of the records, by one measure."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
specification = importlib.util.spec_from_file_location("field_page", ROOT / "scripts" / "field_page.py")
assert specification and specification.loader
field_page = importlib.util.module_from_spec(specification)
sys.modules["field_page"] = field_page
specification.loader.exec_module(field_page)
MARKED = [page for page in sorted((ROOT / "docs").glob("*.md")) if field_page.MARKS.search(page.read_text())]


def test_pages_agree_with_the_records():
    assert MARKED
    for page in MARKED:
        assert field_page.filled(page.read_text()) == page.read_text(), page.name


def test_excess_is_what_a_loop_over_episodes_adds_up():
    """1,000 episodes at a cost of 30, then as many at 10, 26, 10, …: only means of a twentieth count."""
    costs = np.concatenate([np.full(1000, 30.0), np.tile([10.0, 26.0], 500)])
    assert field_page.excess(costs.tolist(), 25.0, 2000 * 500, 500) == pytest.approx(1000 * 5.0)


def test_published_records_are_whole():
    for task in ("PointGoal1", "PointPush1"):
        published = field_page.theirs(task)
        assert {"ppo", "ppo_lag", "trpo_lag", "cpo", "p3o", "cup", "ipo", "ctrpo"} <= set(published)
        assert all(len(values) == 5 for seeds in published.values() for values in seeds)
    # As printed in the publication's notebooks.
    assert np.mean(field_page.theirs("PointGoal1")["cpo"].reward) == pytest.approx(20.9, abs=0.05)
