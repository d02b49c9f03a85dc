"""Figures that are typed into README and docs/results.md are those of the committed records, at the digits shown."""

import json
import re
from pathlib import Path

import pytest

from cppo.reports import published, records
from cppo.reports.summaries import summaries

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "PointCircle": "point_circle",
    "PointGoal1": "point_goal_held",
    "AntCircle": "ant_circle",
    "PointPush1": "point_push",
    "CarPush1": "car_push",
}
BEFORE = {"AntCircle": "ant_circle_feedback", "PointPush1": "point_push_feedback"}  # where the others have run
NAMES = {
    "CPPO": "cppo",
    "CPO": "cpo",
    "PPO-Lag": "ppo_lag",
    "TRPO-Lag": "trpo_lag",
    "PPO-Lagrangian": "ppo_lag",
    "TRPO-Lagrangian": "trpo_lag",
    "PPO with PID": "ppo_pid",
    "PPO": "ppo",
    "TRPO": "trpo",
}
NUMBER = r"-?[\d,]*\d(?:\.\d+)?"


def of_comparison(algo):
    """Return and cost of a method on PointCircle that the study lacks, from the comparison of twelve."""
    content = json.loads((ROOT / "results/point_circle/compare" / f"{algo}.json").read_text())
    return content["summary"]["final_return"], content["summary"]["final_cost"], len(content["seeds"])


@pytest.fixture(scope="module")
def rows():
    """By environment and algorithm."""
    found = {}
    for env, folder in FOLDERS.items():
        for row in summaries(records.load(ROOT / "results" / folder)):
            if not row["variant"]:
                found[env, row["algo"]] = row
    return found


@pytest.fixture(scope="module")
def before():
    """As ``rows``, of records with former presets."""
    return {
        (env, row["algo"]): row
        for env, folder in BEFORE.items()
        for row in summaries(records.load(ROOT / "results" / folder))
    }


def expected(rows, env, algo):
    """Return, cost, the ends of the cost's interval, seeds, limit: means on PointCircle, else the return's IQM."""
    if (env, algo) not in rows:
        reward, cost, seeds = of_comparison(algo)
        return reward, cost, None, seeds, 5.0
    row = rows[env, algo]
    cost, limit = next(iter(row["cost"].values())), next(iter(row["cost_limits"].values()))
    reward = row["mean_return"] if env == "PointCircle" else row["return_iqm"].value
    return reward, cost.value, (cost.low, cost.high), row["seeds"], limit


def shown(text, value):
    """Whether ``text`` is ``value`` rounded to the digits that it shows."""
    digits = len(text.partition(".")[2])
    return abs(float(text.replace(",", "")) - value) <= 0.5 * 10**-digits * (1 + 1e-9)


def table(page, first):
    """Cells of the table whose header begins with ``first``, header first."""
    lines = (ROOT / page).read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(first))
    end = next(number for number in range(begin, len(lines)) if not lines[number].startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[begin:end] if "---" not in line]


def check(cell, found):
    reward, cost, interval, _, limit = found
    numbers = re.findall(NUMBER, cell)
    assert shown(numbers[0], reward) and shown(numbers[1], cost), (cell, found)
    assert ("**" in cell) == (cost > limit), (cell, found)
    if "[" in cell:
        assert shown(numbers[2], interval[0]) and shown(numbers[3], interval[1]), (cell, found)


def test_results_page(rows):
    header, *body = table("docs/results.md", "| | PointCircle")
    checked = 0
    for name, *cells in body:
        if name not in NAMES:
            continue
        for column, cell in zip(header[1:], cells, strict=True):
            env, steps = re.match(rf"(\w+), ({NUMBER})M", column).groups()
            if cell == "–":
                assert (env, NAMES[name]) not in rows
                continue
            check(cell, expected(rows, env, NAMES[name]))
            if (env, NAMES[name]) in rows:
                assert shown(steps, rows[env, NAMES[name]]["steps"] / 1e6)
            checked += 1
    assert checked >= 15
    excess = next(row for row in body if row[0] == "excess cost of CPPO")
    for column, cell in zip(header[1:], excess[1:], strict=True):
        assert shown(cell, rows[column.partition(",")[0], "cppo"]["excess_cost"]), column
    paper = next(row for row in body if row[0] == "the paper's CPPO")
    for column, cell in zip(header[1:], paper[1:], strict=True):
        figure = published.figures(column.partition(",")[0], "cppo")[0]
        assert cell == f"{figure.reward:g} / {figure.cost:g}"


def test_seeds_of_the_results_page(rows):
    header, *body = table("docs/results.md", "| | PointCircle")
    row = next(row for row in body if row[0] == "seeds of CPPO")
    for column, cell in zip(header[1:], row[1:], strict=True):
        env = column.partition(",")[0]
        record = records.load(ROOT / "results" / FOLDERS[env])
        group = next(one for one in record["groups"] if (one["algo"], one["variant"]) == ("cppo", ""))
        seeds = [seed["seed"] for seed in group["seeds"]]
        assert cell == f"{min(seeds)}–{max(seeds)}" and len(seeds) == max(seeds) - min(seeds) + 1


def test_shares_of_iterations_over_the_limit(rows):
    text = (ROOT / "docs/results.md").read_text().replace("\n", " ")
    sentence = re.search(r"CPPO is over it in (.*?)\.\s", re.sub(r"\s+", " ", text))[1]
    found = re.findall(r"(\d+)% (?:of its iterations )?on (\w+)", sentence)
    assert len(found) == len(FOLDERS)
    for share, env in found:
        assert shown(share, 100 * rows[env, "cppo"]["violation_rate"]), (env, share)


def test_readme(rows, before):
    _, *body = table("README.md", "| task, limit")
    assert len(body) == len(FOLDERS)
    for task, ours, other, paper in body:
        env, limit, steps, unit, seeds, of_other = re.match(
            rf"(\w+), (\d+) \(({NUMBER}) (?:of \d+ )?(million)(?: steps)?, (\d+) seeds?; next: (\d+)\)", task
        ).groups()
        assert unit == "million" and shown(steps, rows[env, "cppo"]["steps"] / 1e6)
        mine = expected(rows, env, "cppo")
        check(ours, mine)
        assert (int(seeds), float(limit)) == mine[3:]
        name = re.search(r"\((.*)\)", other)[1]
        theirs = expected(before | rows, env, NAMES[name])
        check(other, theirs)
        assert int(of_other) == theirs[3]
        figure = published.figures(env, "cppo")[0]
        assert paper == f"{figure.reward:g} / {figure.cost:g}"


def test_a_changed_digit_is_noticed(rows):
    found = expected(rows, "PointGoal1", "cppo")
    check("24.7 / 24.6 [23.8, 25.4]", found)
    for wrong in ("24.8 / 24.6", "24.7 / 24.7", "24.7 / **24.6**", "24.7 / 24.6 [23.8, 25.3]"):
        with pytest.raises(AssertionError):
            check(wrong, found)
