"""Learning curves of runs: whether they learned and kept their limits.

A thick line is the mean over seeds, the shade one standard deviation to each side, faint lines are single seeds.
Nothing is smoothed. The suffix of the file picks its format (png, svg, pdf).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from cppo.reports import strips, style
from cppo.reports.series import by_seed, logged, num_seeds, numbers, words
from cppo.reports.style import COLOURS, DASHED, label_limit, legend_above
from cppo.runs.metrics import MEASURE, cost_columns, measures
from cppo.types import UsageError

_RUN_STYLES: tuple[Any, ...] = ("-", (0, (4, 1.2)), (0, (1, 1)))


def learning_curves(runs: list[tuple[str, pd.DataFrame]], limits: dict[str, float], path: Path, env: str = "") -> None:
    """Return, each cost with its limit and, for a single run, the switching mode, over environment steps."""
    if not runs or any(frame.empty for _, frame in runs):
        raise UsageError("nothing to plot: a run needs at least one line of metrics (train it first)")
    frames = [frame for _, frame in runs]
    columns = cost_columns(limits)
    said = {name: column for name, column in measures(frames[0].columns).items() if logged(frames[0], column)}
    with_mode = len(runs) == 1 and logged(frames[0], "mode")
    heights = [1.0] + [0.75] * len(columns) + [0.6] * len(said) + ([strips.height(frames[0])] if with_mode else [])
    with style.styled():
        figure = Figure(figsize=(6.4, 0.6 + 2.3 * sum(heights)), layout="constrained")
        axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        _draw_runs(axes[0], runs, "return", "episode return")
        for axis, (name, column) in zip(axes[1:], columns.items(), strict=False):
            _draw_runs(axis, runs, column, "episode cost" if column == "cost" else f"episode cost: {name}")
            _draw_limit(axis, limits[name])
            if len(runs) > 1:
                _compress_above(axis, limits[name])
        for axis, (name, column) in zip(axes[1 + len(columns) :], said.items(), strict=False):
            _draw_runs(axis, runs, column, f"{name} an episode")
        for axis, column in zip(axes, ["return", *columns.values(), *said.values()], strict=False):
            if len(runs) == 1:
                _draw_evaluations(axis, frames[0], column)
        if with_mode:
            strips.draw(axes[-1], frames[0], words(frames[0], "mode"))
        _label_runs(axes[0], runs, env)
        step_axis(axes[-1], *frames)
        figure.align_ylabels(list(axes))
        style.save(figure, path)


def _draw_evaluations(axis: Axes, frame: pd.DataFrame, column: str) -> None:
    """Means of evaluations while training, sampled actions; a line goes up to the upper bound of a cost."""
    name = f"eval_{column}"
    if name not in frame or not logged(frame, name):
        return
    evaluated = frame.dropna(subset=[name])
    means = pd.DataFrame(evaluated.groupby("steps").mean(numeric_only=True))
    axis.plot(means.index, means[name], "o", color="black", markersize=3, label="evaluated")
    if column == "return":
        axis.legend(loc="best", frameon=False)
    elif not column.startswith(MEASURE):
        axis.vlines(means.index, means[name], means[name.replace("cost", "bound", 1)], color="black", linewidth=0.8)


def draw_curve(
    axis: Axes,
    frame: pd.DataFrame,
    values: np.ndarray,
    colour: str,
    label: str | None = None,
    faint: float = 0.25,
    dashes: Any = "-",
) -> None:
    # Gaps are bridged, since seeds of merged runs may not share their steps.
    curves = by_seed(frame, values).interpolate(method="index", limit_area="inside")
    steps, mean, spread = curves.index, curves.mean(axis=1), curves.std(axis=1, ddof=0)
    if curves.shape[1] > 1 and faint > 0:
        axis.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.72 * faint, linewidth=0)
        axis.plot(steps, curves, color=colour, alpha=faint, linewidth=0.6)
    # A run of one iteration is a point, which a line would not show.
    marker = "o" if len(steps) == 1 else None
    width = 1.8 if faint > 0 else 1.2
    axis.plot(steps, mean, color=colour, linewidth=width, label=label, marker=marker, linestyle=dashes)


def _draw_runs(axis: Axes, runs: list[tuple[str, pd.DataFrame]], column: str, label: str) -> None:
    faint = 0.25 / len(runs) ** 0.5 if len(runs) <= len(COLOURS) else 0.0  # many would bury each other in shades
    for index, (name, frame) in enumerate(runs):
        if column in frame:
            turn, place = divmod(index, len(COLOURS))  # once the colours are used up, the dashes tell runs apart
            dashes = _RUN_STYLES[turn % len(_RUN_STYLES)]
            draw_curve(axis, frame, numbers(frame, column), COLOURS[place], name, faint, dashes)
    axis.set_ylabel(label)
    axis.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def _draw_limit(axis: Axes, limit: float) -> None:
    axis.axhline(limit, **DASHED)
    low, high = axis.get_ylim()
    # Room for the limit, also where the cost stays far away from it; costs are seldom negative.
    axis.set_ylim(low if low < -0.2 * high else 0.0, max(high, 1.15 * limit))
    label_limit(axis, limit)


def _compress_above(axis: Axes, limit: float) -> None:
    """A scale that is linear up to twice the limit and logarithmic beyond, where a method that ignores its limit would
    press all others together."""
    top = axis.get_ylim()[1]
    if limit <= 0 or top < 4 * limit:
        return
    axis.set_yscale("symlog", linthresh=2 * limit, linscale=1.5)
    axis.set_ylim(0, top)
    ticks = [share * limit for share in (0, 0.5, 1, 1.5, 2, 4, 8, 16, 32) if share * limit <= top]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.yaxis.set_minor_locator(NullLocator())


def _label_runs(axis: Axes, runs: list[tuple[str, pd.DataFrame]], env: str) -> None:
    if len(runs) > 1:
        what = "mean and standard deviation over seeds" if len(runs) <= len(COLOURS) else "mean over seeds"
        what = f"{env}: {what}" if env else what
        legend_above(axis, columns=4 if len(runs) <= 8 else 6, title=what)
        return
    name, frame = runs[0]
    seeds = num_seeds(frame)
    name = f"{name} on {env}" if env else name
    axis.set_title(name + (f"  (mean and standard deviation over {seeds} seeds)" if seeds > 1 else ""))


def step_axis(axis: Axes, *frames: pd.DataFrame) -> None:
    style.step_axis(axis, max(numbers(frame, "steps").max() for frame in frames) or 1.0)
