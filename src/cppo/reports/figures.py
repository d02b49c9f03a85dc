"""Figures of a study as PNG and SVG: learning curves as in the paper's Figure 3, variants as in its Figure 4, return
against limit, the geometry of CPPO's updates and the paths of its recovery updates. All are drawn from the record of
``results``, nothing else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from cppo import algos as algorithms
from cppo.plots import COLOURS, LIMIT_COLOUR, STYLE
from cppo.study import results
from cppo.study.results import Record

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
    "mpo": "MPO",
    "cvpo": "CVPO",
}
_LIMIT = re.compile(r"limit (\S+)")
_FLAT = 2.5  # times the range of the methods that mind the limit: beyond it the others would flatten them
_SERIES = (*COLOURS, "#7A4FD0", "#8A6D00")
_DASHED: dict[str, Any] = {"color": LIMIT_COLOUR, "linestyle": (0, (5, 3)), "linewidth": 1.2}


def write(record: Record, folder: Path) -> list[Path]:
    """Every figure that the record has data for."""
    groups = record["groups"]
    plain = [group for group in groups if not group["variant"] and _has_curves(group)]
    written = []
    with matplotlib.rc_context(STYLE):
        if plain:
            written += _save(_learning_curves(plain), folder, "curves")
        varied = {(group["env"], group["algo"]) for group in groups if group["variant"]}
        for env, algo in sorted(varied):
            mine = [group for group in groups if (group["env"], group["algo"]) == (env, algo)]
            if not is_limits(mine):
                written += _save(_variants(record, env, algo), folder, f"ablation-{env}-{algo}")
        for env in sorted({env for env, _ in varied}):
            if is_limits([group for group in groups if group["env"] == env]):
                written += _save(_limits(record, env), folder, f"limits-{env}")
        for group in plain:
            if group["algo"] == "cppo":
                written += _save(_geometry(group), folder, f"geometry-{group['env']}")
        measured = record.get("measured", {}).get("paths", [])
        for env in dict.fromkeys(seed["env"] for seed in measured):
            written += _save(_paths([seed for seed in measured if seed["env"] == env][:4]), folder, f"paths-{env}")
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
    algo = NAMES.get(row["algo"], row["algo"])
    return f"{algo}, {row['variant']}" if row["variant"] else algo


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
                axis.axhline(limit, **_DASHED)
            axis.set_ylim(bottom=0)
        for axis, name in zip(column, ["return", *names], strict=False):
            _frame(axis, here, [group["cost_limits"].get(name) for group in here])
            if most > 1 and name != "return":
                axis.set_ylabel(f"{name if len(names) > 1 else 'episode cost'} (dashed: limit)")
        column[0].set_title(f"{env} ({_seeds(here)})")
        for axis in column[1 + len(names) :]:
            axis.set_visible(False)
        _steps_below(column[len(names)])
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


def _steps_below(axis: Axes) -> None:
    axis.set_xlim(left=0)
    axis.set_xlabel("environment steps")
    axis.tick_params(labelbottom=True)  # a shared axis has its numbers at the figure's bottom alone
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.xaxis.set_major_locator(MaxNLocator(4))


def _seeds(groups: list[Record]) -> str:
    """How many seeds stand behind the curves of several groups.

    >>> _seeds([{"seeds": [1, 2, 3]}, {"seeds": [1]}]), _seeds([{"seeds": [1]}])
    ('1 to 3 seeds', '1 seed')
    """
    numbers = sorted(len(group["seeds"]) for group in groups)
    least, most = numbers[0], numbers[-1]
    return f"{least} to {most} seeds" if least < most else f"{most} seed{'s' if most > 1 else ''}"


def _together(steps: list[list[float]], values: list[list[float | None]]) -> tuple[np.ndarray, np.ndarray]:
    """Steps of the seed that ends first, and every seed's values there, (seed, step), NaN where unknown.

    A point is the mean of the stretch up to it, so the first one holds for the steps before it, too.

    >>> _together([[10, 20, 30, 40], [20, 40, 60]], [[1.0, 2.0, None, 4.0], [5.0, 7.0, 9.0]])[1].tolist()
    [[1.0, 2.0, nan, 4.0], [5.0, 5.0, 6.0, 7.0]]
    """
    common = np.array(min(steps, key=lambda made: (made[-1], -len(made))), float)
    return common, np.array([np.interp(common, x, np.array(y, float)) for x, y in zip(steps, values, strict=True)])


def _curve(axis: Axes, group: Record, column: str, colour: str) -> None:
    curves = [seed["curve"] for seed in group["seeds"] if seed.get("curve")]
    steps, values = _together([curve["steps"] for curve in curves], [curve[column] for curve in curves])
    known = np.isfinite(values).any(axis=0)
    steps, values = steps[known], values[:, known]
    mean = np.nanmean(values, axis=0)
    axis.plot(steps, mean, color=colour, linewidth=1.6, label=name_of(group))
    if len(curves) > 1:
        spread = np.ma.masked_invalid(values).std(axis=0, ddof=1).filled(np.nan)
        axis.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)


def _variants(record: Record, env: str, algo: str) -> Figure:
    rows = [row for row in results.summaries(record) if (row["env"], row["algo"]) == (env, algo)]
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
        axis.axvline(limits[0], **_DASHED)
    else:
        for place, limit in zip(places, limits, strict=True):
            axis.plot([limit, limit], [place - 0.42, place + 0.42], **_DASHED)


def _limits(record: Record, env: str) -> Figure:
    rows = [row for row in results.summaries(record) if row["env"] == env and _LIMIT.fullmatch(row["variant"])]
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
    right.plot(ends, ends, **_DASHED)
    left.set_title(f"{env}: final return")
    right.set_title("final cost (dashed: the limit)")
    left.legend()
    return figure


def _geometry(group: Record) -> Figure:
    figure = Figure(figsize=(8.4, 5.0), layout="constrained")
    axes = figure.subplots(2, 2)
    panels = (
        (axes[0, 0], ("kl",), "KL of an update (dashed: trust region)", 1.0),
        (axes[0, 1], ("recovery",), "iterations in recovery, %", 100.0),
        (axes[1, 0], ("theta", "theta_reward", "theta_feasible"), "angles, degrees", 180 / np.pi),
    )
    for axis, names, title, scale in panels:
        for name, colour in zip(names, COLOURS, strict=False):
            _diagnostic(axis, group, name, scale, colour)
        axis.set_title(title)
        _steps_below(axis)
        if len(axis.get_lines()) > 1:
            axis.legend()
    limits = [x for seed in group["seeds"] for x in seed.get("diagnostics", {}).get("kl_limit", ()) if x]
    if limits:
        axes[0, 0].axhline(limits[0], **_DASHED)
        axes[0, 0].set_ylim(top=max(axes[0, 0].get_ylim()[1], 1.08 * limits[0]))
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 1].set_ylim(-4, 104)
    _scatter(axes[1, 1], group)
    figure.suptitle(f"CPPO on {group['env']}: geometry of its updates, mean of {_seeds([group])}", fontsize=9.5)
    return figure


def _diagnostic(axis: Axes, group: Record, name: str, scale: float, colour: str) -> None:
    seeds = [seed for seed in group["seeds"] if seed.get("curve") and name in seed.get("diagnostics", {})]
    if not seeds:
        return
    labels = {"theta": "chosen", "theta_reward": "best reward", "theta_feasible": "just feasible"}
    steps, values = _together([s["curve"]["steps"] for s in seeds], [s["diagnostics"][name] for s in seeds])
    mean = scale * np.ma.masked_invalid(values).mean(axis=0)
    # Where the chosen angle is the one that is just feasible, it shows between the dashes.
    style = (0, (3, 2)) if name == "theta_feasible" else "-"
    axis.plot(steps, mean, color=colour, linewidth=1.4, linestyle=style, label=labels.get(name, name))


def _scatter(axis: Axes, group: Record) -> None:
    found = [seed.get("diagnostics", {}) for seed in group["seeds"]]
    pairs = [
        (x, y)
        for one in found
        for x, y in zip(one.get("predicted", ()), one.get("realised", ()), strict=True)
        if x is not None and y is not None
    ]
    axis.set_title("change in cost (line: as predicted)")
    axis.set(xlabel="predicted", ylabel="realised")
    if pairs:
        x, y = np.array(pairs).T
        axis.plot(x, y, ".", color=COLOURS[0], alpha=0.4, markersize=4)
        axis.axline((0, 0), slope=1, color="#444444", linewidth=0.8)


def _paths(seeds: list[Record]) -> Figure:
    """The paper's trajectory figure: r − 1 in the plane of the advantages, epoch by epoch, for several β."""
    targets = list(dict.fromkeys(way["waypoints"] for way in seeds[0]["ways"]))
    figure = Figure(figsize=(max(4.2, 0.6 + 2.5 * len(seeds)), 1.2 + 2.4 * len(targets)), layout="constrained")
    axes = figure.subplots(len(targets), len(seeds), sharex="col", sharey="col", squeeze=False)
    for column, seed in enumerate(seeds):
        for axis, count in zip(axes[:, column], targets, strict=True):
            ways = [way for way in seed["ways"] if way["waypoints"] == count]
            for way, colour in zip(ways, COLOURS, strict=False):
                axis.plot(
                    way["x"], way["y"], ".-", color=colour, linewidth=1.3, markersize=3, label=f"β = {way['beta']:g}"
                )
                axis.plot(way["x"][-1:], way["y"][-1:], "o", color=colour, markersize=6)
            _plane(axis, seed)
            axis.set_title(f"seed {seed['seed']}, {count} target{'s' if count > 1 else ''}")
        axes[-1, column].set_xlabel("cost, along e$_c$")
    for axis in axes[:, 0]:
        axis.set_ylabel("reward, along e$_r$")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    figure.suptitle(
        f"Recovery updates on {seeds[0]['env']}, epoch by epoch\n(arrow: towards the target v)", fontsize=9.5
    )
    return figure


def _plane(axis: Axes, seed: Record) -> None:
    """The feasible side, the direction of the target and the line on which the return stays, behind the paths."""
    x = np.concatenate([[0.0, 1.25 * seed["budget"]], *(way["x"] for way in seed["ways"])])
    y = np.concatenate([[0.0], *(way["y"] for way in seed["ways"])])
    side = 1.15 * max(np.ptp(x), np.ptp(y))
    left, low = (x.min() + x.max() - side) / 2, (y.min() + y.max() - side) / 2
    axis.axvspan(left - side, seed["budget"], color="#2E8B57", alpha=0.12, linewidth=0, label="within the limit")
    axis.axvline(seed["budget"], **_DASHED)
    angle = seed["theta_reward"]
    along = (-np.sin(angle), np.cos(angle))
    axis.axline((0, 0), along, color="#444444", linewidth=0.9, linestyle=":", label="return unchanged")
    target = np.array(seed["target"])
    tip = 0.4 * side * target / np.linalg.norm(target)
    axis.annotate("", tip, (0, 0), arrowprops={"arrowstyle": "->", "color": "#8A6D00", "linewidth": 1.2})
    axis.plot([0], [0], "s", color="#222222", markersize=4)
    axis.set(xlim=(left, left + side), ylim=(low, low + side), aspect="equal")
    axis.xaxis.set_major_locator(MaxNLocator(4))
    axis.yaxis.set_major_locator(MaxNLocator(4))


def _save(figure: Figure, folder: Path, name: str) -> list[Path]:
    paths = [folder / f"{name}.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        # Without a date and with a fixed salt the same data gives the same bytes.
        with matplotlib.rc_context({"svg.hashsalt": "cppo"}):
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths
