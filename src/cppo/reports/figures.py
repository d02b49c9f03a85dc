"""Figures of a study as PNG and SVG: learning curves as in the paper's Figure 3, variants as in its Figure 4, return
against limit, the geometry of CPPO's updates and the paths of its recovery updates. All are drawn from the record
and nothing else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cppo import algos as algorithms
from cppo import files
from cppo.reports.geometry import geometry, paths
from cppo.reports.records import Record
from cppo.reports.series import seeds_behind, together
from cppo.reports.style import COLOURS, DASHED, no_formulas, steps_below, styled
from cppo.reports.summaries import summaries

NAMES = {
    "cppo": "CPPO",
    "cpo": "CPO",
    "ppo": "PPO",
    "trpo": "TRPO",
    "ppo_lag": "PPO-Lag",
    "trpo_lag": "TRPO-Lag",
    "ppo_pid": "PPO-PID",
    "trpo_pid": "TRPO-PID",
    "pcpo": "PCPO",
    "focops": "FOCOPS",
    "cpo_hyst": "CPO-Hyst",
    "cpo_shares": "CPO-Shares",
    "crpo": "CRPO",
    "ctrpo": "C-TRPO",
    "p3o": "P3O",
    "c3po": "C3PO",
    "ipo": "IPO",
    "cup": "CUP",
    "mpo": "MPO",
    "cvpo": "CVPO",
}
_LIMIT = re.compile(r"limit (\S+)")
_FLAT = 2.5  # times the range of the methods that mind the limit: beyond it the others would flatten them
_SERIES = (*COLOURS, "#7A4FD0", "#8A6D00")


def write(record: Record, folder: Path) -> list[Path]:
    """Every figure that the record has data for."""
    groups = record["groups"]
    plain = [group for group in groups if not group["variant"] and _has_curves(group)]
    written = []

    def save(figure: Figure, name: str) -> list[Path]:
        return _save(figure, folder, name, foot(record))

    with styled():
        if plain:
            written += save(_learning_curves(plain), "curves")
        varied = {(group["env"], group["algo"]) for group in groups if group["variant"]}
        for env, algo in sorted(varied):
            mine = [group for group in groups if (group["env"], group["algo"]) == (env, algo)]
            if not is_limits(mine):
                written += save(_variants(record, env, algo), f"ablation-{env}-{algo}")
        for env in sorted({env for env, _ in varied}):
            if is_limits([group for group in groups if group["env"] == env]):
                written += save(_limits(record, env), f"limits-{env}")
        for group in plain:
            if group["algo"] == "cppo":
                written += save(geometry(group), f"geometry-{group['env']}")
        measured = record.get("measured", {}).get("paths", [])
        for env in dict.fromkeys(seed["env"] for seed in measured):
            written += save(paths([seed for seed in measured if seed["env"] == env][:4]), f"paths-{env}")
    return written


def remove_others(folder: Path, written: list[Path]) -> None:
    """Figures of an earlier report for which the newest has no data."""
    for kind in ("curves", "ablation-*", "limits-*", "geometry-*", "paths-*"):
        for path in [*folder.glob(f"{kind}.png"), *folder.glob(f"{kind}.svg")]:
            if path not in written:
                path.unlink()


def is_limits(groups: list[Record]) -> bool:
    """Whether the variants differ in the cost limit alone."""
    varied = [group for group in groups if group["variant"]]
    return len(varied) > 2 and all(_LIMIT.fullmatch(group["variant"]) for group in varied)


def name_of(row: Record) -> str:
    algo: str = row["algo"]
    name = NAMES.get(algo, algo)
    return f"{name}, {row['variant']}" if row["variant"] else name


def _has_curves(group: Record) -> bool:
    return any(seed.get("curve") for seed in group["seeds"])


def _learning_curves(groups: list[Record]) -> Figure:
    envs = list(dict.fromkeys(group["env"] for group in groups))
    algos = list(dict.fromkeys(group["algo"] for group in groups))
    most = max(len(group["cost_limits"]) for group in groups)
    figure = Figure(figsize=(max(4.2, 3.1 * len(envs)), 2.5 * (1 + most)), layout="constrained")
    axes = figure.subplots(1 + most, len(envs), sharex="col", squeeze=False)
    for column, env in zip(axes.T, envs, strict=True):
        here = [group for group in groups if group["env"] == env]
        names = list(here[0]["cost_limits"])
        for axis, name in zip(column, ["return", *names], strict=False):
            for group in here:
                _curve(axis, group, name, _SERIES[algos.index(group["algo"]) % len(_SERIES)])
        for axis, name in zip(column[1:], names, strict=False):
            for limit in dict.fromkeys(group["cost_limits"][name] for group in here):
                axis.axhline(limit, **DASHED)
            axis.set_ylim(bottom=0)
        for axis, name in zip(column, ["return", *names], strict=False):
            _frame(axis, here, [group["cost_limits"].get(name) for group in here])
            if most > 1 and name != "return":
                axis.set_ylabel(f"{name if len(names) > 1 else 'episode cost'} (dashed: limit)")
        column[0].set_title(f"{env} ({seeds_behind(here)})")
        for axis in column[1 + len(names) :]:
            axis.set_visible(False)
        steps_below(column[len(names)])
    axes[0, 0].set_ylabel("episode return")
    if most == 1:
        axes[1, 0].set_ylabel("episode cost (dashed: limit)")
    handles = {line.get_label(): line for axis in axes[0] for line in axis.get_lines()}
    figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=min(6, 3 * len(envs)))
    return figure


def _frame(axis: Axes, groups: list[Record], limits: list[float | None]) -> None:
    """Let methods that ignore the limit leave the picture where they would flatten the others, and say so."""
    curves = [np.asarray(line.get_ydata(), float) for line in axis.get_lines()[: len(groups)]]
    minding = [curve for curve, group in zip(curves, groups, strict=True) if not _ignores_limits(group["algo"])]
    if not minding:
        return
    marks = [limit for limit in limits if limit is not None]
    low, high = (float(extreme(np.concatenate([*minding, marks]))) for extreme in (np.nanmin, np.nanmax))
    low = 0.0 if marks else low - 0.05 * (high - low)  # costs start at 0
    top = low + 1.3 * (high - low)
    if axis.get_ylim()[1] <= low + _FLAT * (high - low):
        return
    axis.set_ylim(low, top)
    most = {name_of(group): np.nanmax(curve) for curve, group in zip(curves, groups, strict=True)}
    words = "beyond: " + ", ".join(f"{name} (up to {value:,.0f})" for name, value in most.items() if value > top)
    place: dict[str, Any] = {"transform": axis.transAxes, "ha": "right", "va": "top"}
    axis.text(0.99, 0.98, words, fontsize=7, color="0.35", backgroundcolor="white", **place)


def _ignores_limits(algo: str) -> bool:
    return algo in algorithms.TABLE and algorithms.TABLE[algo].constraint == algorithms.IGNORED


def _curve(axis: Axes, group: Record, column: str, colour: str) -> None:
    curves = [seed["curve"] for seed in group["seeds"] if seed.get("curve")]
    steps, values = together([curve["steps"] for curve in curves], [curve[column] for curve in curves])
    known = np.isfinite(values).any(axis=0)
    steps, values = steps[known], values[:, known]
    mean = np.nanmean(values, axis=0)
    axis.plot(steps, mean, color=colour, linewidth=1.6, label=name_of(group))
    if len(curves) > 1:
        spread = np.ma.masked_invalid(values).std(axis=0, ddof=1).filled(np.nan)
        axis.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)


def _variants(record: Record, env: str, algo: str) -> Figure:
    rows = [row for row in summaries(record) if (row["env"], row["algo"]) == (env, algo)]
    names = list(rows[0]["cost_limits"])
    figure = Figure(figsize=(4.2 * (1 + len(names)), 1.0 + 0.32 * len(rows)), layout="constrained")
    axes = figure.subplots(1, 1 + len(names), sharey=True)
    places = np.arange(len(rows))[::-1]
    _intervals(axes[0], rows, places, [row["mean_return_t"] for row in rows])
    axes[0].set_title("final return")
    for axis, name in zip(axes[1:], names, strict=True):
        _intervals(axis, rows, places, [row["cost"][name] for row in rows])
        _limit_marks(axis, places, [row["cost_limits"][name] for row in rows])
        axis.set_title(f"final {name if len(names) > 1 else 'cost'} (dashed: limit)")
    axes[0].set_yticks(places, [f"{row['variant'] or 'as chosen'} ({row['seeds']})" for row in rows])
    axes[0].set_ylim(-0.6, len(rows) - 0.4)
    title = f"{NAMES.get(algo, algo)} on {env}: mean and 95% interval (number of seeds)"
    figure.suptitle(title, fontsize=9.5)
    return figure


def _intervals(axis: Axes, rows: list[Record], places: np.ndarray, found: list[Any]) -> None:
    for place, row, (value, low, high) in zip(places, rows, found, strict=True):
        colour = COLOURS[1] if row["variant"] else COLOURS[0]
        if np.isfinite(low):
            axis.plot([low, high], [place, place], color=colour, linewidth=4, alpha=0.35, solid_capstyle="round")
        axis.plot([value], [place], "o", color=colour, markersize=5)


def _limit_marks(axis: Axes, places: np.ndarray, limits: list[float]) -> None:
    """One line where all rows have the same limit, else a mark at each row."""
    if len(set(limits)) == 1:
        axis.axvline(limits[0], **DASHED)
    else:
        for place, limit in zip(places, limits, strict=True):
            axis.plot([limit, limit], [place - 0.42, place + 0.42], **DASHED)


def _limits(record: Record, env: str) -> Figure:
    rows = [row for row in summaries(record) if row["env"] == env and _LIMIT.fullmatch(row["variant"])]
    algos = list(dict.fromkeys(row["algo"] for row in rows))
    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for algo, colour in zip(algos, _SERIES, strict=False):
        mine = sorted(
            (row for row in rows if row["algo"] == algo), key=lambda row: next(iter(row["cost_limits"].values()))
        )
        limit = np.array([next(iter(row["cost_limits"].values())) for row in mine])
        for axis, found in (
            (left, np.array([row["mean_return_t"] for row in mine])),
            (right, np.array([next(iter(row["cost"].values())) for row in mine])),
        ):
            axis.plot(limit, found[:, 0], "o-", color=colour, linewidth=1.5, markersize=4, label=NAMES.get(algo, algo))
            axis.fill_between(limit, found[:, 1], found[:, 2], color=colour, alpha=0.12, linewidth=0)
            axis.set_xlabel("cost limit")
    ends = [0, right.get_xlim()[1]]
    right.plot(ends, ends, **DASHED)
    left.set_title(f"{env}: final return")
    right.set_title("final cost (dashed: the limit)")
    left.legend()
    return figure


def foot(record: Record) -> str:
    """What a figure says of a record that is a draft."""
    return f"Draft: {'; '.join(record['draft'])}" if "draft" in record else ""


def _save(figure: Figure, folder: Path, name: str, foot: str) -> list[Path]:
    if foot:
        figure.supxlabel(foot, fontsize=7, color="0.45")
    name = re.sub(r"[^\w.-]+", "-", name)  # names of environments may come from anywhere
    no_formulas(figure)
    paths = [folder / f"{name}.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        # Without a date and with a fixed salt the same data gives the same bytes.
        with matplotlib.rc_context({"svg.hashsalt": "cppo"}), files.replacing(path) as partial:
            kind = path.suffix[1:]
            figure.savefig(partial, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return paths
