"""CPPO in a study: the geometry of its updates, and the paths of its recovery updates."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cppo.reports.records import Record
from cppo.reports.series import seeds_behind, together
from cppo.reports.style import COLOURS, DASHED, steps_below


def geometry(group: Record) -> Figure:
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
        steps_below(axis)
        if len(axis.get_lines()) > 1:
            axis.legend()
    limits = [x for seed in group["seeds"] for x in seed.get("diagnostics", {}).get("kl_limit", ()) if x]
    if limits:
        axes[0, 0].axhline(limits[0], **DASHED)
        axes[0, 0].set_ylim(top=max(axes[0, 0].get_ylim()[1], 1.08 * limits[0]))
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 1].set_ylim(-4, 104)
    _scatter(axes[1, 1], group)
    figure.suptitle(f"CPPO on {group['env']}: geometry of its updates, mean of {seeds_behind([group])}", fontsize=9.5)
    return figure


def _diagnostic(axis: Axes, group: Record, name: str, scale: float, colour: str) -> None:
    seeds = [seed for seed in group["seeds"] if seed.get("curve") and name in seed.get("diagnostics", {})]
    if not seeds:
        return
    labels = {"theta": "chosen", "theta_reward": "best reward", "theta_feasible": "just feasible"}
    steps, values = together([s["curve"]["steps"] for s in seeds], [s["diagnostics"][name] for s in seeds])
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
    axis.set_title("change in cost (line: as promised)")
    axis.set(xlabel="promised on its own batch", ylabel="realised")
    if pairs:
        x, y = np.array(pairs).T
        axis.plot(x, y, ".", color=COLOURS[0], alpha=0.4, markersize=4)
        axis.axline((0, 0), slope=1, color="#444444", linewidth=0.8)


def paths(seeds: list[Record]) -> Figure:
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
    axis.axvline(seed["budget"], **DASHED)
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
