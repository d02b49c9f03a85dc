"""Figures of a run: learning curves, and the geometry of its updates.

``learning_curves`` answers whether a run learned and kept its limits, ``diagnostics`` why. Both take the dataframe of
``log.read_metrics`` and write one file whose suffix picks the format (png, svg, pdf). A thick line is the mean over
seeds, the shade one standard deviation to each side, faint lines are single seeds. Nothing is smoothed.
Colours are those of Okabe and Ito (2008), which people with colour-blindness can tell apart; red is kept for limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator, NullLocator

from cppo.log import cost_columns
from cppo.types import UsageError

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
LIMIT_COLOUR = "#C1121F"
STRIP_COLOURS = {
    "waiting": "#FFFFFF",
    "normal": "#CFE3F1",
    "recovery": "#D55E00",
    "recovery, case 1": "#F2B48A",
    "recovery, case 2": "#D55E00",
    "recovery, case 3": "#7A3500",
}
MAX_STRIPS = 16  # above this many seeds a strip for each is unreadable: the share in recovery is drawn instead

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "savefig.dpi": 160,
}

_DASHED = (0, (5, 3))
_RUN_STYLES: tuple[Any, ...] = ("-", (0, (4, 1.2)), (0, (1, 1)))
_TITLE_OVER_LEGEND = 20  # points
_ANGLES = {
    "theta": "θ, chosen",
    "theta_reward": "θ$_A$, best reward",
    "theta_feasible": "θ$_f$, just feasible",
}

Panel = Callable[[Axes], None]


def learning_curves(runs: list[tuple[str, pd.DataFrame]], cost_limits: dict[str, float], path: Path) -> None:
    """Return, each cost with its limit and, for a single run, the switching mode, over environment steps."""
    if not runs or any(frame.empty for _, frame in runs):
        raise UsageError("nothing to plot: a run needs at least one line of metrics (train it first)")
    frames = [frame for _, frame in runs]
    columns = cost_columns(cost_limits)
    with_mode = len(runs) == 1 and _logged(frames[0], "mode")
    heights = [1.0] + [0.75] * len(columns) + ([_mode_height(frames[0])] if with_mode else [])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 0.6 + 2.3 * sum(heights)), layout="constrained")
        axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        _draw_runs(axes[0], runs, "return", "episode return")
        for axis, (name, column) in zip(axes[1:], columns.items(), strict=False):
            _draw_runs(axis, runs, column, "episode cost" if column == "cost" else f"episode cost: {name}")
            _draw_limit(axis, cost_limits[name])
            if len(runs) > 1:
                _compress_above(axis, cost_limits[name])
        if with_mode:
            _draw_mode(axes[-1], frames[0], _words(frames[0], "mode"))
        _label_runs(axes[0], runs)
        _step_axis(axes[-1], frames)
        figure.align_ylabels(list(axes))
        _save(figure, path)


def diagnostics(
    frame: pd.DataFrame,
    cost_limits: dict[str, float],
    path: Path,
    angle_unit: Literal["degrees", "radians"] = "degrees",
) -> None:
    """The geometry of every update of one run: how far it went, where to, and whether the cost did as predicted.

    ``angle_unit`` is the unit of the angle columns; the figure is in degrees. What a run did not log is left out.
    """
    curves, scatters = _curve_panels(frame, angle_unit), _scatter_panels(frame, cost_limits)
    with matplotlib.rc_context(STYLE):
        if curves or scatters:
            figure = _arranged(curves, scatters)
        else:
            figure = Figure(figsize=(6.4, 1.6))
            figure.text(0.5, 0.5, "this run logged no geometry of its updates", ha="center", color="#444444")
        _save(figure, path)


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


# --- from a dataframe to arrays ---------------------------------------------------------------------------------------


def _logged(frame: pd.DataFrame, column: str) -> bool:
    return column in frame and bool(np.any(frame[column].notna()))


def _numbers(frame: pd.DataFrame, column: str) -> np.ndarray:
    return np.asarray(frame[column], dtype=float)


def _words(frame: pd.DataFrame, column: str) -> np.ndarray:
    return np.array([str(word) for word in frame[column]], dtype=object)


def _num_seeds(frame: pd.DataFrame) -> int:
    return len(np.unique(_numbers(frame, "seed")))


def _by_seed(frame: pd.DataFrame, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps (n,), seeds (k,) and ``values``, one for each row of ``frame``, as a table (n, k) with NaN for gaps."""
    steps, row = np.unique(_numbers(frame, "steps"), return_inverse=True)
    seeds, column = np.unique(_numbers(frame, "seed"), return_inverse=True)
    table = np.full((len(steps), len(seeds)), np.nan)
    table[row, column] = values
    return steps, seeds, table


def _bridged(steps: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """``curve`` with the gaps inside it interpolated, since seeds of merged runs may not share their steps."""
    known = np.isfinite(curve)
    if not known.any():
        return curve
    return np.interp(steps, steps[known], curve[known], left=np.nan, right=np.nan)


def _mean_and_spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over the seeds that have a value."""
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=1), 1)
    mean = np.where(known.any(axis=1), np.nansum(values, axis=1) / count, np.nan)
    spread = np.sqrt(np.nansum((values - mean[:, None]) ** 2, axis=1) / count)
    return mean, spread


# --- curves and limits ------------------------------------------------------------------------------------------------


def _draw_curve(
    axis: Axes,
    frame: pd.DataFrame,
    values: np.ndarray,
    colour: str,
    label: str | None = None,
    faint: float = 0.25,
    style: Any = "-",
) -> None:
    steps, _, table = _by_seed(frame, values)
    curves = np.stack([_bridged(steps, curve) for curve in table.T], axis=1)
    mean, spread = _mean_and_spread(curves)
    if curves.shape[1] > 1 and faint > 0:
        axis.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.72 * faint, linewidth=0)
        axis.plot(steps, curves, color=colour, alpha=faint, linewidth=0.6)
    # A run of one iteration is a point, which a line would not show.
    marker = "o" if len(steps) == 1 else None
    width = 1.8 if faint > 0 else 1.2
    axis.plot(steps, mean, color=colour, linewidth=width, label=label, marker=marker, linestyle=style)


def _draw_runs(axis: Axes, runs: list[tuple[str, pd.DataFrame]], column: str, label: str) -> None:
    faint = 0.25 / len(runs) ** 0.5 if len(runs) <= len(COLOURS) else 0.0  # many would bury each other in shades
    for index, (name, frame) in enumerate(runs):
        if column in frame:
            turn, place = divmod(index, len(COLOURS))  # once the colours are used up, the dashes tell runs apart
            style = _RUN_STYLES[turn % len(_RUN_STYLES)]
            _draw_curve(axis, frame, _numbers(frame, column), COLOURS[place], name, faint, style)
    axis.set_ylabel(label)
    axis.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def _draw_limit(axis: Axes, limit: float) -> None:
    axis.axhline(limit, color=LIMIT_COLOUR, linestyle=_DASHED, linewidth=1.3)
    low, high = axis.get_ylim()
    # Room for the limit, also where the cost stays far away from it; costs are seldom negative.
    axis.set_ylim(low if low < -0.2 * high else 0.0, max(high, 1.15 * limit))
    _label_limit(axis, limit)


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


def _label_limit(axis: Axes, limit: float) -> None:
    """Beside the axes, where no curve can cover it."""
    axis.annotate(
        f"limit\n{limit:g}",
        (1.0, limit),
        xycoords=("axes fraction", "data"),
        xytext=(5, 0),
        textcoords="offset points",
        ha="left",
        va="center",
        fontsize=8,
        color=LIMIT_COLOUR,
    )


def _label_runs(axis: Axes, runs: list[tuple[str, pd.DataFrame]]) -> None:
    if len(runs) > 1:
        what = "mean and standard deviation over seeds" if len(runs) <= len(COLOURS) else "mean over seeds"
        _legend_above(axis, columns=4 if len(runs) <= 8 else 6, title=what)
        return
    name, frame = runs[0]
    seeds = _num_seeds(frame)
    axis.set_title(name + (f"  (mean and standard deviation over {seeds} seeds)" if seeds > 1 else ""))


def _legend_above(axis: Axes, columns: int, title: str | None = None, handles: list[Patch] | None = None) -> None:
    """A legend in the margin, since curves may run anywhere inside."""
    axis.legend(
        handles=handles or axis.get_legend_handles_labels()[0],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        title=title,
        title_fontsize=8,
        alignment="left",
        borderaxespad=0.2,
        borderpad=0.2,
        handlelength=1.0 if handles else 1.6,
        columnspacing=1.2,
    )


def _step_axis(axis: Axes, frames: list[pd.DataFrame]) -> None:
    axis.set_xlim(0, max(float(np.max(_numbers(frame, "steps"))) for frame in frames) or 1.0)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.set_xlabel("environment steps")


# --- strips: which kind of update, for each seed ----------------------------------------------------------------------


def _mode_height(frame: pd.DataFrame) -> float:
    seeds = _num_seeds(frame)
    return 0.22 + 0.035 * seeds if seeds <= MAX_STRIPS else 0.4


def _draw_mode(axis: Axes, frame: pd.DataFrame, kinds: np.ndarray) -> None:
    """``kinds`` names the kind of update for each row of ``frame``."""
    if _num_seeds(frame) > MAX_STRIPS:
        _draw_recovery_share(axis, frame)
    else:
        _draw_strips(axis, frame, kinds)


def _draw_recovery_share(axis: Axes, frame: pd.DataFrame) -> None:
    steps, _, recovery = _by_seed(frame, _words(frame, "mode") == "recovery")
    share, _ = _mean_and_spread(recovery)
    axis.fill_between(steps, 100 * share, step="pre", color=STRIP_COLOURS["recovery"], alpha=0.7, linewidth=0)
    axis.set_ylim(0, 100)
    axis.set_ylabel("seeds in\nrecovery (%)")


def _draw_strips(axis: Axes, frame: pd.DataFrame, kinds: np.ndarray) -> None:
    """One row of coloured cells for each seed; a cell reaches from the previous update to its own."""
    names = [name for name in STRIP_COLOURS if name in set(kinds)]
    codes = np.array([names.index(kind) if kind in names else np.nan for kind in kinds])
    steps, seeds, table = _by_seed(frame, codes)
    edges = np.concatenate([[2 * steps[0] - steps[1] if len(steps) > 1 else 0.0], steps])
    colours = ListedColormap([STRIP_COLOURS[name] for name in names] or ["#FFFFFF"])
    rows = np.arange(len(seeds) + 1)
    image = np.ma.masked_invalid(table.T)
    axis.pcolormesh(edges, rows, image, cmap=colours, vmin=-0.5, vmax=max(len(names), 1) - 0.5, rasterized=True)
    axis.hlines(rows[1:-1], edges[0], edges[-1], color="white", linewidth=1.5)
    axis.set_ylim(len(seeds), 0)
    axis.set_yticks(rows[:-1] + 0.5, [f"{seed:.0f}" for seed in seeds])
    axis.tick_params(axis="y", length=0, labelsize=7 if len(seeds) <= 8 else 5)
    axis.set_ylabel("seed")
    axis.grid(False)
    if names:
        _legend_above(axis, columns=len(names), handles=_strip_patches(names))


def _strip_patches(names: list[str]) -> list[Patch]:
    first_case = next((name for name in names if "case" in name), None)
    patches = []
    for name in names:
        # The cases stand next to each other: "recovery" once is enough.
        label = name if name == first_case else name.removeprefix("recovery, ")
        patches.append(Patch(facecolor=STRIP_COLOURS[name], edgecolor="#999999", linewidth=0.5, label=label))
    return patches


# --- the panels of the diagnostics ------------------------------------------------------------------------------------


def _curve_panels(frame: pd.DataFrame, angle_unit: str) -> list[Panel]:
    angles = [name for name in _ANGLES if _logged(frame, name)]

    def quantity(column: str, title: str, label: str, scale: float = 1.0) -> Panel:
        return lambda axis: _draw_quantity(axis, frame, column, title, label, scale)

    panels: dict[str, Panel] = {
        "kl": lambda axis: _draw_kl(axis, frame),
        "tracking_error": quantity("tracking_error", "Tracking error of the M-step", "tracking error"),
        angles[0] if angles else "theta": lambda axis: _draw_angles(axis, frame, angles, angle_unit),
        "mode": lambda axis: _draw_cases(axis, frame),
        "bound_share": quantity("bound_share", "Ratios at their lower bound", "share of samples (%)", scale=100),
        "estep_iterations": quantity("estep_iterations", "Iterations of the E-step", "iterations"),
    }
    found = [column for column in panels if _logged(frame, column)]
    # The mode alone is already in the learning curves.
    return [panels[column] for column in found] if found != ["mode"] else []


def _scatter_panels(frame: pd.DataFrame, cost_limits: dict[str, float]) -> list[Panel]:
    panels = []
    for name, column in cost_columns(cost_limits).items():
        suffix = column.removeprefix("cost")
        predicted, realised = f"previous_predicted_cost_change{suffix}", f"realised_cost_change{suffix}"
        if _logged(frame, predicted) and _logged(frame, realised):
            panels.append(_scatter_panel(frame, predicted, realised, f" ({name})" if suffix else ""))
    return panels


def _draw_quantity(axis: Axes, frame: pd.DataFrame, column: str, title: str, label: str, scale: float = 1.0) -> None:
    _draw_curve(axis, frame, scale * _numbers(frame, column), COLOURS[0])
    axis.set(title=title, ylabel=label)
    axis.set_ylim(bottom=0)
    _step_axis(axis, [frame])


def _draw_kl(axis: Axes, frame: pd.DataFrame) -> None:
    _draw_quantity(axis, frame, "kl", "KL divergence of each update", "KL (nats)")
    if not _logged(frame, "kl_limit"):
        return
    steps, _, limits = _by_seed(frame, _numbers(frame, "kl_limit"))
    limit, _ = _mean_and_spread(limits)
    axis.plot(steps, limit, color=LIMIT_COLOUR, linestyle=_DASHED, linewidth=1.3)
    axis.set_ylim(0, max(axis.get_ylim()[1], 1.15 * float(np.nanmax(limit))))
    _label_limit(axis, float(limit[np.isfinite(limit)][-1]))


def _draw_angles(axis: Axes, frame: pd.DataFrame, names: list[str], unit: str) -> None:
    scale = 180 / math.pi if unit == "radians" else 1.0
    for name, colour in zip(_ANGLES, COLOURS, strict=False):
        if name in names:
            _draw_curve(axis, frame, scale * _numbers(frame, name), colour, _ANGLES[name])
    axis.set(ylabel="angle (degrees)", ylim=(0, 182))
    axis.set_title("Direction of each update", pad=_TITLE_OVER_LEGEND)
    axis.set_yticks([0, 45, 90, 135, 180])
    _legend_above(axis, columns=3)
    _step_axis(axis, [frame])


def _draw_cases(axis: Axes, frame: pd.DataFrame) -> None:
    """Mode of each update and, in recovery, which of its three cases it was."""
    kinds = _words(frame, "mode")
    if _logged(frame, "case"):
        cases = _numbers(frame, "case")
        for case in (1, 2, 3):
            kinds[(kinds == "recovery") & (cases == case)] = f"recovery, case {case}"
    _draw_mode(axis, frame, kinds)
    axis.set_title("Kind of each update", pad=_TITLE_OVER_LEGEND)
    _step_axis(axis, [frame])


def _scatter_panel(frame: pd.DataFrame, predicted: str, realised: str, name: str) -> Panel:
    return lambda axis: _draw_scatter(axis, frame, predicted, realised, name)


def _draw_scatter(axis: Axes, frame: pd.DataFrame, predicted: str, realised: str, name: str) -> None:
    x, y = _numbers(frame, predicted), _numbers(frame, realised)
    both = np.isfinite(x) & np.isfinite(y)
    recovery = _previous_in_recovery(frame)
    for chosen, colour, marker, label in (
        (both & ~recovery, COLOURS[0], "o", "after a normal update"),
        (both & recovery, STRIP_COLOURS["recovery"], "^", "after recovery"),
    ):
        if chosen.any():
            axis.scatter(x[chosen], y[chosen], s=12, color=colour, marker=marker, alpha=0.5, linewidths=0, label=label)
    axis.axline((0, 0), slope=1, color="#444444", linewidth=1, linestyle=_DASHED, label="as predicted")
    axis.set(xlabel="predicted change of episode cost", ylabel="realised change of episode cost")
    title = f"Cost{name}: predicted and realised change{_correlation_words(x[both], y[both])}"
    axis.set_title(title, pad=_TITLE_OVER_LEGEND)
    _legend_above(axis, columns=3)


def _previous_in_recovery(frame: pd.DataFrame) -> np.ndarray:
    """For each row whether its seed's update before was a recovery: that one caused, and predicted, the change."""
    previous = np.zeros(len(frame), dtype=bool)
    if not _logged(frame, "mode"):
        return previous
    order = np.lexsort((_numbers(frame, "iteration"), _numbers(frame, "seed")))
    seeds, recovery = _numbers(frame, "seed")[order], (_words(frame, "mode") == "recovery")[order]
    previous[order[1:]] = recovery[:-1] & (seeds[1:] == seeds[:-1])
    return previous


def _correlation_words(x: np.ndarray, y: np.ndarray) -> str:
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return ""
    return f" (r = {np.corrcoef(x, y)[0, 1]:.2f})"


def _save(figure: Figure, path: Path) -> None:
    path = Path(path)
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"cannot write a figure as {path.name!r}: end its name in .png, .svg or .pdf")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
