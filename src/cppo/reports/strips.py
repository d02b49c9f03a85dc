"""Strips of colour: which kind every update was, for each seed."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from cppo.reports.series import by_seed, num_seeds, words
from cppo.reports.style import legend_above

COLOURS = {
    "waiting": "#FFFFFF",
    "normal": "#CFE3F1",
    "recovery": "#D55E00",
    "recovery, case 1": "#F2B48A",
    "recovery, case 2": "#D55E00",
    "recovery, case 3": "#7A3500",
}
MOST = 16  # above this many seeds a strip for each is unreadable: the share in recovery is drawn instead


def height(frame: pd.DataFrame) -> float:
    seeds = num_seeds(frame)
    return 0.22 + 0.035 * seeds if seeds <= MOST else 0.4


def draw(axis: Axes, frame: pd.DataFrame, kinds: np.ndarray) -> None:
    """``kinds`` names the kind of update for each row of ``frame``."""
    if num_seeds(frame) > MOST:
        _draw_recovery_share(axis, frame)
    else:
        _draw_strips(axis, frame, kinds)


def _draw_recovery_share(axis: Axes, frame: pd.DataFrame) -> None:
    share = 100 * by_seed(frame, words(frame, "mode") == "recovery").mean(axis=1)
    axis.fill_between(share.index, share, step="pre", color=COLOURS["recovery"], alpha=0.7, linewidth=0)
    axis.set_ylim(0, 100)
    axis.set_ylabel("seeds in\nrecovery (%)")


def _draw_strips(axis: Axes, frame: pd.DataFrame, kinds: np.ndarray) -> None:
    """One row of coloured cells for each seed; a cell reaches from the previous update to its own."""
    names = [name for name in COLOURS if name in set(kinds)]
    codes = np.array([names.index(kind) if kind in names else np.nan for kind in kinds])
    table = by_seed(frame, codes)
    steps, seeds = table.index.to_numpy(), table.columns
    edges = np.concatenate([[2 * steps[0] - steps[1] if len(steps) > 1 else 0.0], steps])
    colours = ListedColormap([COLOURS[name] for name in names] or ["#FFFFFF"])
    rows = np.arange(len(seeds) + 1)
    image = np.ma.masked_invalid(table.to_numpy().T)
    axis.pcolormesh(edges, rows, image, cmap=colours, vmin=-0.5, vmax=max(len(names), 1) - 0.5, rasterized=True)
    axis.hlines(rows[1:-1], edges[0], edges[-1], color="white", linewidth=1.5)
    axis.set_ylim(len(seeds), 0)
    axis.set_yticks(rows[:-1] + 0.5, [f"{seed:.0f}" for seed in seeds])
    axis.tick_params(axis="y", length=0, labelsize=7 if len(seeds) <= 8 else 5)
    axis.set_ylabel("seed")
    axis.grid(False)
    if names:
        legend_above(axis, columns=len(names), handles=_strip_patches(names))


def _strip_patches(names: list[str]) -> list[Patch]:
    first_case = next((name for name in names if "case" in name), None)
    patches = []
    for name in names:
        # The cases stand next to each other: "recovery" once is enough.
        label = name if name == first_case else name.removeprefix("recovery, ")
        patches.append(Patch(facecolor=COLOURS[name], edgecolor="#999999", linewidth=0.5, label=label))
    return patches
