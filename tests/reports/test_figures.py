"""Figures and charts of records that are not all alike: lengths of training, limits, several constraints."""

import matplotlib.colors
import numpy as np
import pytest
from matplotlib.figure import Figure
from reports.browser import CHROMIUM, Browser

from cppo.reports import figures, report
from cppo.reports.geometry import geometry
from cppo.reports.style import LIMIT_COLOUR

NAMES = ("hazards", "vases")


def seed(number, every, points=10, limits=None, over=()):
    """A seed whose return is its number of steps and whose costs are the same over all of training."""
    limits = limits or {"cost": 5.0}
    steps = [float(every * (i + 1)) for i in range(points)]
    costs = {name: limit + 1.0 if name in over else limit - 1.0 for name, limit in limits.items()}
    flat = {name: [cost] * points for name, cost in costs.items()}
    diagnostics = {"kl": [None, *[0.001 * number] * (points - 1)], "kl_limit": [0.02] * points, "theta": [1.0] * points}
    return {
        "seed": number,
        "final_return": steps[-1],
        "final_cost": costs,
        "feasible": not over,
        "curve": {"steps": steps, "return": steps, **flat},
        "diagnostics": {**diagnostics, "predicted": [-1.0, None], "realised": [2.0, 1.0]},
    }


def group(seeds, algo="cppo", variant="", limits=None, env="PointCircle"):
    limits = limits or {"cost": 5.0}
    about = {"env": env, "algo": algo, "variant": variant, "backend": "jax", "steps": 100, "settings": {}}
    return {**about, "cost_limits": limits, "seeds": seeds}


def record(*groups):
    about = {"format": 1, "name": "small", "title": "", "unfinished": [], "failed": [], "versions": []}
    return {**about, "groups": list(groups)}


def dashed(axis):
    """Lines in the colour of limits."""
    return [line for line in axis.get_lines() if matplotlib.colors.same_color(line.get_color(), LIMIT_COLOUR)]


def test_seeds_are_averaged_at_the_same_steps():
    axis = Figure().subplots()
    figures._curve(axis, group([seed(0, 10), seed(1, 20), seed(2, 30, points=4)]), "return", "black")
    steps, mean = axis.get_lines()[0].get_data()
    np.testing.assert_array_equal(steps, np.arange(10, 101, 10))  # as far as the seed that ends first
    np.testing.assert_allclose(mean[2:], steps[2:])
    figures._curve(axis, group([seed(0, 10), seed(1, 10)]), "return", "black")
    np.testing.assert_array_equal(axis.get_lines()[1].get_data()[1], np.arange(10, 101, 10))


def test_methods_that_ignore_the_limit_do_not_flatten_the_others():
    far = seed(0, 10)
    far["curve"]["return"] = [100.0 * value for value in far["curve"]["return"]]
    figure = figures._learning_curves([group([seed(0, 10)]), group([far], algo="ppo")])
    returns, costs = figure.axes[:2]
    assert 100.0 < returns.get_ylim()[1] < 200.0
    assert returns.texts[0].get_text() == "beyond: PPO (up to 10,000)"
    assert not costs.texts  # there they are near one another
    for other in (group([far]), group([far], algo="my_module:ROW")):  # whoever minds the limit is always shown
        figure = figures._learning_curves([group([seed(0, 10)], algo="cpo"), other])
        assert figure.axes[0].get_ylim()[1] > 10_000 and not figure.axes[0].texts
    assert figures._learning_curves([group([far], algo="ppo")]).axes[0].get_ylim()[1] > 10_000


def test_unknown_values_stay_gaps_and_are_not_spread():
    first, second = seed(0, 10), seed(1, 20)
    first["curve"]["return"] = [None, None, *first["curve"]["return"][2:]]
    second["curve"]["return"] = [None, *second["curve"]["return"][1:]]
    axis = Figure().subplots()
    figures._curve(axis, group([first, second]), "return", "black")
    np.testing.assert_allclose(axis.get_lines()[0].get_data(), [np.arange(30, 101, 10)] * 2)


def test_geometry_of_seeds_of_unequal_length_with_the_trust_region_in_view():
    figure = geometry(group([seed(1, 10), seed(3, 20, points=7)]))
    axis = figure.axes[0]
    steps, mean = axis.get_lines()[0].get_data()
    assert steps[-1] == 100 and np.ma.filled(mean, np.nan)[4] == pytest.approx(0.002)
    (limit,) = dashed(axis)
    low, high = axis.get_ylim()
    assert low == 0 and 0.02 == limit.get_ydata()[0] < high


def test_every_row_of_variants_has_its_own_limit():
    loose = {"cost": 9.0}
    rows = [group([seed(0, 10), seed(1, 10)]), group([seed(0, 10, limits=loose)], variant="loose", limits=loose)]
    cost = figures._variants(record(*rows), "PointCircle", "cppo").axes[1]
    marks = {line.get_xdata()[0]: line.get_ydata() for line in dashed(cost)}
    assert set(marks) == {5.0, 9.0}
    assert min(marks[9.0]) < 0 < max(marks[9.0]) < min(marks[5.0]) < 1 < max(marks[5.0])
    rows[1]["cost_limits"] = rows[0]["cost_limits"]
    assert len(dashed(figures._variants(record(*rows), "PointCircle", "cppo").axes[1])) == 1


def test_each_constraint_has_a_row_of_its_own():
    two = dict(zip(NAMES, (5.0, 9.0), strict=True))
    one, both = group([seed(0, 10)]), group([seed(0, 10, limits=two)], limits=two, env="PointGoal2")
    axes = np.array(figures._learning_curves([one, both]).axes).reshape(3, 2)
    assert [axis.get_ylabel() for axis in axes[1:, 1]] == ["hazards (dashed: limit)", "vases (dashed: limit)"]
    assert [dashed(axis)[0].get_ydata()[0] for axis in axes[1:, 1]] == [5.0, 9.0]
    assert axes[1, 0].get_ylabel() == "episode cost (dashed: limit)" and not axes[2, 0].get_visible()
    assert axes[1, 0].get_xlabel() == axes[2, 1].get_xlabel() == "environment steps"
    costs = figures._variants(record(both, {**both, "variant": "same"}), "PointGoal2", "cppo").axes[1:]
    assert [axis.get_title() for axis in costs] == [f"final {name} (dashed: limit)" for name in NAMES]


def open_page(browser, page, *groups, replays=(), probability=None):
    text = report.render(record(*groups), list(replays))
    if probability:
        text = text.replace('"improvements":[]', f'"improvements":{probability}')
    page.write_text(text, encoding="utf-8")
    browser.open(page)
    assert browser.complaints == []


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_page_with_uneven_seeds_limits_and_constraints(tmp_path):
    two = dict(zip(NAMES, (5.0, 9.0), strict=True))
    uneven = group([seed(0, 10), seed(1, 20, points=7)])
    loose = group([seed(0, 10, limits={"cost": 9.0})], variant="loose", limits={"cost": 9.0})
    both = group([seed(0, 10, limits=two, over=("vases",))], limits=two, env="PointGoal2")
    unknown = '[{"algo":"cppo","other":"cpo","envs":["PointCircle"],"probability":[0.5,null,null]}]'
    with Browser(1280, 900) as browser:
        open_page(browser, tmp_path / "page.html", uneven, loose, both, probability=unknown)

        lines = "together([[10, 20, 30, 40], [20, 40, 60]], [[1, 2, null, 4], [5, 7, null]])"
        assert browser.run(lines) == {"x": [10, 20, 30, 40], "lines": [[1, 2, None, 4], [5, 5, 6, 7]]}
        mean = "meanAndSpread(together([[10, 20], [10, 20, 30]], [[null, 2], [null, 4, 6]]).lines).mean"
        assert browser.run(mean) == [None, 3]

        # Each cost by its own limit, and all of them.
        tiles = browser.run("[...document.querySelectorAll('.tile span')].map(s => [s.className, s.textContent])")
        assert tiles == [["good", "4.00 / 5"], ["good", "4.00 / 5"], ["bad", "10.0 / 9"]]
        titles = browser.run("[...document.querySelectorAll('#curves svg')].map(s => s.getAttribute('aria-label'))")
        assert "episode cost: vases" in titles

        # Limits that differ are drawn row by row, a common one once.
        assert browser.run("document.querySelectorAll('#ablation svg .limit').length") == 2
        assert "its limit" in browser.run("document.querySelectorAll('#ablation svg')[1].textContent")

        # A probability without an interval has a mark and no range.
        assert browser.run("document.querySelectorAll('#improvement .bar-track i').length") == 0
        assert "50%" in browser.run("document.querySelector('#improvement td:nth-child(3)').textContent")
        assert "[" not in browser.run("document.querySelector('#improvement td:nth-child(3)').textContent")

        browser.run("document.querySelector('#curves .choice').click()")  # single seeds, each to its own end
        assert browser.run("document.querySelectorAll('#curves svg')[0].querySelectorAll('path').length") == 2
        assert browser.complaints == []


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_page_says_which_replays_are_left_out(tmp_path):
    left = {
        "env": "PointCircle",
        "algo": "cppo",
        "variant": "",
        "seed": 3,
        "limit": 5.0,
        "error": "CheckpointError: gone",
    }
    with Browser(1280, 900) as browser:
        open_page(browser, tmp_path / "page.html", group([seed(3, 10)]), replays=[left])
        text = browser.run("document.querySelector('#replay').textContent")
        assert "Left out: CPPO on PointCircle, seed 3 (CheckpointError: gone)." in text


def test_figures_of_an_earlier_report_do_not_stay(tmp_path):
    kept = figures.write(record(group([seed(0, 10)])), tmp_path)
    for name in ("limits-Old.png", "paths-Old.svg", "mine.png"):
        (tmp_path / name).touch()
    figures.remove_others(tmp_path, kept)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.png", *(path.name for path in kept)}
