"""Ranking: feasible first, then return; the rest by how far they are over the limit."""

import pytest
from rich.console import Console

from cppo.reports import ranking


def summary(returns, costs, limit=5.0, violation=0.25):
    seeds = [
        {"seed": i, "final_return": r, "final_cost": c, "feasible": c is not None and c <= limit, "violation_rate": v}
        for i, (r, c, v) in enumerate(zip(returns, costs, [violation - 0.05, violation + 0.05], strict=True))
    ]
    return {"seeds": seeds, "wall_seconds": 75.0}


LIMIT = {"cost": 5.0}
ROWS = [
    ranking.standing("wild", summary([200, 220], [15, 17]), LIMIT),
    ranking.standing("timid", summary([10, 12], [1, 2]), LIMIT),
    ranking.standing("close", summary([90, 110], [5, 5.2]), LIMIT),
    ranking.standing("good", summary([70, 90], [4, 4.5]), LIMIT),
    ranking.standing("half", summary([170, 190], [4, 5.5]), LIMIT),
    ranking.standing("silent", summary([None, 300], [None, 1.0]), LIMIT),
]


def test_order():
    assert [row.name for row in ranking.ranked(ROWS)] == ["good", "timid", "half", "close", "wild", "silent"]
    assert [row.feasible for row in ranking.ranked(ROWS)] == [True, True, False, False, False, False], (
        "half is not most"
    )


def test_numbers_of_one_row():
    good = ROWS[3]
    assert good.reward.mean == 80 and good.reward.deviation == pytest.approx(200**0.5)
    assert good.cost["cost"].mean == 4.25 and good.within == 2 and good.seeds == 2
    assert good.violation_rate.mean == pytest.approx(0.25)
    assert good.excess == pytest.approx(-0.15)


def test_the_worst_of_several_constraints_decides():
    limits = {"a": 2.0, "b": 6.0}
    seeds = [
        {"seed": 0, "final_return": 1.0, "final_cost": {"a": 3.0, "b": 1.0}, "feasible": False, "violation_rate": 0.0}
    ]
    row = ranking.standing("x", {"seeds": seeds, "wall_seconds": 1.0}, limits)
    assert row.excess == pytest.approx(0.5) and not row.feasible
    assert row.as_dict()["cost"]["b"] == {"mean": 1.0, "deviation": None}


def test_the_table_fits_a_terminal_and_says_everything():
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(ranking.table(ROWS, "PointCircle"))
    lines = console.export_text().splitlines()
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert "80.0 ± 14.1" in text and "4.75 ± 1.06" in text and "1 of 2" in text and "25 ± 7%" in text
    assert "1:15 min" in text and "cost (≤ 5)" in text
    assert text.index("good") < text.index("timid") < text.index("close")
