"""The table of docs/what-is-normal.md is that of the records."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
METHODS = ("cppo", "cpo", "ppo_lag", "trpo_lag", "ppo")
TASKS = {
    "PointCircle": "point_circle",
    "PointGoal1": "point_goal_held",
    "AntCircle": "ant_circle",
    "PointPush1": "point_push",
    "CarPush1": "car_push",
}
BEFORE = {"PointGoal1": "point_goal", "AntCircle": "ant_circle_feedback", "PointPush1": "point_push_feedback"}
FORMER = " †"  # by former presets: in the record before alone


def seeds_of(task, algo, folders=TASKS):
    if task not in folders:
        return []
    folder = ROOT / "results" / folders[task]
    groups = json.loads((folder / "results.json").read_text())["groups"]
    for group in groups:
        if (group["env"], group["algo"], group["variant"]) == (task, algo, ""):
            return group["seeds"]
    compared = folder / "compare" / f"{algo}.json"
    return json.loads(compared.read_text())["summary"]["seeds"] if compared.is_file() else []


def span(values):
    low, high = (f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.1f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def cost_of(seed):
    return seed["final_cost"]["cost"] if isinstance(seed["final_cost"], dict) else seed["final_cost"]


def row(task, algo):
    seeds, mark = seeds_of(task, algo), ""
    if not seeds:
        seeds, mark = seeds_of(task, algo, BEFORE), FORMER
    if not seeds:
        return None
    returns, costs = span([seed["final_return"] for seed in seeds]), span([cost_of(seed) for seed in seeds])
    over = sum(seed["violation_rate"] for seed in seeds) / len(seeds)
    return f"| {task} | `{algo}`{mark} | {len(seeds)} | {returns} | {costs} | {over:.0%} |"


def test_the_table_is_that_of_the_records():
    rows = [found for task in TASKS for algo in METHODS if (found := row(task, algo))]
    page = (ROOT / "docs" / "what-is-normal.md").read_text()
    start = page.index("| PointCircle | `cppo` |")
    assert page[start : page.index("\n\n", start)].splitlines() == rows
