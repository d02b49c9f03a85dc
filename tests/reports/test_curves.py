"""Figures: every panel shows the numbers it claims to, and runs that lack columns still get a figure."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from cppo.reports import style
from cppo.reports.curves import learning_curves
from cppo.reports.diagnostics import diagnostics
from cppo.types import UsageError


def example(seeds: int = 3, iterations: int = 12, **columns) -> pd.DataFrame:
    """Seed s has return 10 i + s and cost i; the odd iterations are in recovery, the first one still waits."""
    rows = []
    for i in range(1, iterations + 1):
        for seed in range(seeds):
            mode = "waiting" if i == 1 else "recovery" if i % 2 else "normal"
            value = None if i == 1 else float(i)
            row = {"iteration": i, "steps": 100 * i, "seed": seed, "mode": mode, "cost": value}
            row["return"] = None if i == 1 else 10.0 * i + seed
            rows.append({**row, **{name: function(i, seed) for name, function in columns.items()}})
    return pd.DataFrame(rows)


GEOMETRY = {
    "kl": lambda i, seed: None if i == 1 else 0.01 * (i % 3),
    "kl_limit": lambda i, seed: 0.02,
    "tracking_error": lambda i, seed: 1 / i,
    "theta": lambda i, seed: np.radians(90.0 + seed),
    "theta_reward": lambda i, seed: np.radians(45.0),
    "theta_feasible": lambda i, seed: np.radians(100.0),
    "case": lambda i, seed: 1 + (i // 2) % 3 if i % 2 else 0,
    "bound_share": lambda i, seed: 0.25,
    "estep_iterations": lambda i, seed: 3,
    "previous_predicted_cost_change": lambda i, seed: None if i < 3 else float(i + seed),
    "realised_cost_change": lambda i, seed: None if i < 4 else 2.0 * (i + seed),
}


@pytest.fixture
def drawn(monkeypatch) -> list[Figure]:
    figures: list[Figure] = []
    monkeypatch.setattr(style, "save", lambda figure, path: figures.append(figure))
    return figures


def labels(figure: Figure) -> list[str]:
    return [axis.get_ylabel() for axis in figure.axes]


def panel(figure: Figure, words: str):
    return next(axis for axis in figure.axes if words in axis.get_title(loc="left"))


def thick(axis) -> list:
    return [line for line in axis.lines if line.get_linewidth() == 1.8]


def test_single_run_shows_return_cost_limit_and_mode(drawn, tmp_path):
    learning_curves([("CPPO", example())], {"cost": 5.0}, tmp_path / "x.png")
    top, cost, mode = drawn[0].axes
    assert labels(drawn[0]) == ["episode return", "episode cost", "seed"]
    assert mode.get_xlabel() == "environment steps" and "3 seeds" in top.get_title(loc="left")
    (mean,) = thick(top)
    assert np.array_equal(mean.get_xdata(), 100 * np.arange(1, 13))
    assert np.array_equal(mean.get_ydata(), [np.nan, *(10.0 * np.arange(2, 13) + 1)], equal_nan=True)
    (limit,) = [line for line in cost.lines if line.get_color() == style.LIMIT_COLOUR]
    assert set(limit.get_ydata()) == {5.0} and limit.is_dashed()
    kinds = mode.collections[0].get_array()
    assert kinds.shape == (3, 12) and kinds[0].tolist() == [0, *[1, 2] * 5, 1]  # waiting, then normal and recovery


def test_shade_is_one_standard_deviation(drawn, tmp_path):
    learning_curves([("CPPO", example())], {"cost": 5.0}, tmp_path / "x.png")
    shade = drawn[0].axes[0].collections[0].get_paths()[0].vertices
    at_200 = shade[shade[:, 0] == 200.0, 1]
    assert np.isclose(at_200.min(), 21 - np.sqrt(2 / 3)) and np.isclose(at_200.max(), 21 + np.sqrt(2 / 3))


def test_limit_far_above_the_cost_is_still_in_view(drawn, tmp_path):
    learning_curves([("CPPO", example())], {"cost": 500.0}, tmp_path / "x.png")
    low, high = drawn[0].axes[1].get_ylim()
    assert low == 0 and high >= 1.1 * 500


def test_several_runs_share_a_legend_and_have_no_mode_panel(drawn, tmp_path):
    runs = [("CPPO", example()), ("PPO-Lag", example(seeds=1).drop(columns="mode"))]
    learning_curves(runs, {"cost": 5.0}, tmp_path / "x.png")
    assert labels(drawn[0]) == ["episode return", "episode cost"]
    legend = drawn[0].axes[0].get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == ["CPPO", "PPO-Lag"]
    colours = [line.get_color() for line in thick(drawn[0].axes[0])]
    assert colours == list(style.COLOURS[:2])


def test_one_cost_panel_for_each_constraint(drawn, tmp_path):
    frame = example().rename(columns={"cost": "cost.speed"}).assign(**{"cost.force": 2.0})
    learning_curves([("CPPO", frame)], {"speed": 5.0, "force": 3.0}, tmp_path / "x.png")
    assert labels(drawn[0]) == ["episode return", "episode cost: speed", "episode cost: force", "seed"]


def test_many_seeds_show_the_share_in_recovery(drawn, tmp_path):
    learning_curves([("CPPO", example(seeds=20))], {"cost": 5.0}, tmp_path / "x.png")
    axis = drawn[0].axes[-1]
    assert "recovery (%)" in axis.get_ylabel()
    assert {0.0, 100.0} == set(axis.collections[0].get_paths()[0].vertices[:, 1])  # type: ignore[union-attr]


def test_seeds_with_different_steps_are_averaged_on_one_axis(drawn, tmp_path):
    shifted = example(seeds=2)
    shifted.loc[shifted["seed"] == 1, "steps"] += 50
    learning_curves([("CPPO", shifted)], {"cost": 5.0}, tmp_path / "x.png")
    mean = thick(drawn[0].axes[1])[0]
    at = dict(zip(mean.get_xdata(), mean.get_ydata(), strict=True))
    assert at[300.0] == pytest.approx((3.0 + 2.5) / 2)


def test_diagnostics_show_every_logged_quantity(drawn, tmp_path):
    diagnostics(example(**GEOMETRY), {"cost": 5.0}, tmp_path / "x.png")
    (figure,) = drawn
    assert len(figure.axes) == 7
    assert thick(panel(figure, "lower bound"))[0].get_ydata().tolist() == [25.0] * 12  # per cent
    angles = panel(figure, "Direction")
    assert [line.get_ydata()[0] for line in thick(angles)] == pytest.approx([91.0, 45.0, 100.0])  # degrees
    assert any(line.get_color() == style.LIMIT_COLOUR for line in panel(figure, "KL").lines)
    legend = panel(figure, "Kind").get_legend()
    cases = [text.get_text() for text in legend.get_texts()] if legend else []
    assert cases == ["waiting", "normal", "recovery, case 1", "case 2", "case 3"]


def test_scatter_pairs_changes_with_the_update_that_caused_them(drawn, tmp_path):
    diagnostics(example(**GEOMETRY), {"cost": 5.0}, tmp_path / "x.png")
    axis = panel(drawn[0], "promised and realised")
    assert "r = 1.00" in axis.get_title(loc="left")
    points = {scatter.get_label(): np.asarray(scatter.get_offsets()) for scatter in axis.collections}
    # Odd iterations are in recovery, so the changes that followed recovery are seen at even ones: 4, 6, 8, 10, 12.
    assert len(points["after recovery"]) == 3 * 5 and len(points["after a normal update"]) == 3 * 4
    assert all(y == 2 * x for offsets in points.values() for x, y in offsets)


@pytest.mark.parametrize("missing", ["mode", "case", "kl_limit", "theta", "realised_cost_change"])
def test_diagnostics_without_one_column(drawn, tmp_path, missing):
    diagnostics(example(**GEOMETRY).drop(columns=missing), {"cost": 5.0}, tmp_path / "x.png")
    assert len(drawn[0].axes) >= 6


def test_diagnostics_of_a_baseline(drawn, tmp_path):
    diagnostics(example(kl=GEOMETRY["kl"]), {"cost": 5.0}, tmp_path / "x.png")
    assert [axis.get_title(loc="left") for axis in drawn[0].axes] == [
        "KL divergence of each update",
        "Kind of each update",
    ]
    diagnostics(example(), {"cost": 5.0}, tmp_path / "x.png")
    assert not drawn[1].axes and "no geometry" in drawn[1].texts[0].get_text()


def test_diagnostics_of_two_constraints(drawn, tmp_path):
    changes = {
        f"{kind}_cost_change.{name}": GEOMETRY["realised_cost_change"]
        for kind in ("previous_predicted", "realised")
        for name in ("speed", "force")
    }
    diagnostics(example(**changes), {"speed": 5.0, "force": 3.0}, tmp_path / "x.png")
    titles = [axis.get_title(loc="left") for axis in drawn[0].axes]
    assert sum(title.startswith(("Cost (speed)", "Cost (force)")) for title in titles) == 2


@pytest.mark.parametrize("iterations", [1, 12])
@pytest.mark.filterwarnings("error")
def test_files_are_written_without_warnings(tmp_path, iterations):
    frame = example(iterations=iterations, **GEOMETRY)
    learning_curves([("CPPO", frame)], {"cost": 5.0}, tmp_path / "new" / "curves.png")
    diagnostics(frame, {"cost": 5.0}, tmp_path / "new" / "diagnostics.svg")
    assert (tmp_path / "new" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "new" / "diagnostics.svg").read_text()


def test_what_cannot_be_drawn_is_said(tmp_path):
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf"):
        learning_curves([("CPPO", example())], {"cost": 5.0}, tmp_path / "x.txt")
    with pytest.raises(UsageError, match="nothing to plot"):
        learning_curves([("CPPO", example().iloc[:0])], {"cost": 5.0}, tmp_path / "x.png")
