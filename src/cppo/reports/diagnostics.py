"""The geometry of a run's updates: how far each went, where to, and whether the cost did as promised."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cppo.reports import response, strips, style
from cppo.reports.curves import draw_curve, step_axis
from cppo.reports.series import by_seed, logged, numbers, words
from cppo.reports.style import COLOURS, DASHED, TITLE_OVER_LEGEND, label_limit, legend_above
from cppo.runs.metrics import cost_columns

_ANGLES = {
    "theta": "θ, chosen",
    "theta_reward": "θ$_A$, best reward",
    "theta_feasible": "θ$_f$, just feasible",
}

Panel = Callable[[Axes], None]


def diagnostics(frame: pd.DataFrame, cost_limits: dict[str, float], path: Path, title: str = "") -> None:
    """The geometry of every update of one run. What it did not log is left out."""
    curves = [*_curve_panels(frame), *response.panels(frame, cost_limits)]
    scatters = _scatter_panels(frame, cost_limits)
    with style.styled():
        if curves or scatters:
            figure = _arranged(curves, scatters)
            if title:
                figure.suptitle(f"{title}: its updates", fontsize=10.5)
        else:
            figure = Figure(figsize=(6.4, 1.6))
            figure.text(0.5, 0.5, "this run logged no geometry of its updates", ha="center", color="#444444")
        style.save(figure, path)


def _arranged(curves: list[Panel], scatters: list[Panel]) -> Figure:
    """Two columns; a single scatter is as tall as two curves, at the bottom right, since it is best nearly square."""
    tall = len(scatters) == 1 and len(curves) >= 2
    rows = math.ceil((len(curves) + len(scatters) + tall) / 2)
    figure = Figure(figsize=(9.8, 0.3 + 2.4 * rows), layout="constrained")
    grid = figure.add_gridspec(rows, 2)
    cells = [(row, column) for row in range(rows) for column in range(2)]
    if tall:
        cells = [cell for cell in cells if cell not in ((rows - 2, 1), (rows - 1, 1))]
        scatters[0](figure.add_subplot(grid[rows - 2 :, 1]))
        scatters = []
    for panel, cell in zip([*curves, *scatters], cells, strict=False):
        panel(figure.add_subplot(grid[cell]))
    return figure


def _curve_panels(frame: pd.DataFrame) -> list[Panel]:
    angles = [name for name in _ANGLES if logged(frame, name)]

    def quantity(column: str, title: str, label: str, scale: float = 1.0) -> Panel:
        return lambda axis: _draw_quantity(axis, frame, column, title, label, scale)

    panels: dict[str, Panel] = {
        "kl": lambda axis: _draw_kl(axis, frame),
        "tracking_error": quantity("tracking_error", "Tracking error of the M-step", "tracking error"),
        angles[0] if angles else "theta": lambda axis: _draw_angles(axis, frame, angles),
        "mode": lambda axis: _draw_cases(axis, frame),
        "bound_share": quantity("bound_share", "Ratios at their lower bound", "share of samples (%)", scale=100),
        "estep_iterations": quantity("estep_iterations", "Iterations of the E-step", "iterations"),
    }
    found = [column for column in panels if logged(frame, column)]
    # The mode alone is already in the learning curves.
    return [panels[column] for column in found] if found != ["mode"] else []


def _scatter_panels(frame: pd.DataFrame, cost_limits: dict[str, float]) -> list[Panel]:
    panels = []
    for name, column in cost_columns(cost_limits).items():
        suffix = column.removeprefix("cost")
        predicted, realised = f"previous_predicted_cost_change{suffix}", f"realised_cost_change{suffix}"
        if logged(frame, predicted) and logged(frame, realised):
            panels.append(_scatter_panel(frame, predicted, realised, f" ({name})" if suffix else ""))
    return panels


def _draw_quantity(axis: Axes, frame: pd.DataFrame, column: str, title: str, label: str, scale: float = 1.0) -> None:
    draw_curve(axis, frame, scale * numbers(frame, column), COLOURS[0])
    axis.set(title=title, ylabel=label)
    axis.set_ylim(bottom=0)
    step_axis(axis, frame)


def _draw_kl(axis: Axes, frame: pd.DataFrame) -> None:
    _draw_quantity(axis, frame, "kl", "KL divergence of each update", "KL (nats)")
    if not logged(frame, "kl_limit"):
        return
    limit = by_seed(frame, numbers(frame, "kl_limit")).mean(axis=1).dropna()
    axis.plot(limit.index, limit, **DASHED)
    axis.set_ylim(0, max(axis.get_ylim()[1], 1.15 * limit.max()))
    label_limit(axis, limit.iloc[-1])


def _draw_angles(axis: Axes, frame: pd.DataFrame, names: list[str]) -> None:
    for name, colour in zip(_ANGLES, COLOURS, strict=False):
        if name in names:
            draw_curve(axis, frame, np.degrees(numbers(frame, name)), colour, _ANGLES[name])
    axis.set(ylabel="angle (degrees)", ylim=(0, 182))
    axis.set_title("Direction of each update", pad=TITLE_OVER_LEGEND)
    axis.set_yticks([0, 45, 90, 135, 180])
    legend_above(axis, columns=3)
    step_axis(axis, frame)


def _draw_cases(axis: Axes, frame: pd.DataFrame) -> None:
    """Mode of each update and, in recovery, which of its three cases it was."""
    kinds = words(frame, "mode")
    if logged(frame, "case"):
        cases = numbers(frame, "case")
        for case in (1, 2, 3):
            kinds[(kinds == "recovery") & (cases == case)] = f"recovery, case {case}"
    strips.draw(axis, frame, kinds)
    axis.set_title("Kind of each update", pad=TITLE_OVER_LEGEND)
    step_axis(axis, frame)


def _scatter_panel(frame: pd.DataFrame, predicted: str, realised: str, name: str) -> Panel:
    return lambda axis: _draw_scatter(axis, frame, predicted, realised, name)


def _draw_scatter(axis: Axes, frame: pd.DataFrame, predicted: str, realised: str, name: str) -> None:
    x, y = numbers(frame, predicted), numbers(frame, realised)
    both = np.isfinite(x) & np.isfinite(y)
    recovery = _previous_in_recovery(frame)
    for chosen, colour, marker, label in (
        (both & ~recovery, COLOURS[0], "o", "after a normal update"),
        (both & recovery, strips.COLOURS["recovery"], "^", "after recovery"),
    ):
        if chosen.any():
            axis.scatter(x[chosen], y[chosen], s=12, color=colour, marker=marker, alpha=0.5, linewidths=0, label=label)
    axis.axline((0, 0), slope=1, color="#444444", linewidth=1, linestyle=DASHED["linestyle"], label="as promised")
    axis.set(xlabel="change promised on the update's own batch", ylabel="realised change of episode cost")
    title = f"Cost{name}: promised and realised change{_correlation_words(x[both], y[both])}"
    axis.set_title(title, pad=TITLE_OVER_LEGEND)
    legend_above(axis, columns=3)


def _previous_in_recovery(frame: pd.DataFrame) -> np.ndarray:
    """For each row whether its seed's update before was a recovery: that one caused, and promised, the change."""
    previous = np.zeros(len(frame), dtype=bool)
    if not logged(frame, "mode"):
        return previous
    order = np.lexsort((numbers(frame, "iteration"), numbers(frame, "seed")))
    seeds, recovery = numbers(frame, "seed")[order], (words(frame, "mode") == "recovery")[order]
    previous[order[1:]] = recovery[:-1] & (seeds[1:] == seeds[:-1])
    return previous


def _correlation_words(x: np.ndarray, y: np.ndarray) -> str:
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return ""
    return f" (r = {np.corrcoef(x, y)[0, 1]:.2f})"
