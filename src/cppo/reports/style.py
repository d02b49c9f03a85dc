"""How figures look: colours, fonts, limits, legends and axes that all of them share.

Colours are those of Okabe and Ito (2008), which people with colour-blindness can tell apart; red is kept for limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import EngFormatter, MaxNLocator

from cppo import files
from cppo.types import UsageError

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
LIMIT_COLOUR = "#C1121F"
DASHED: dict[str, Any] = {"color": LIMIT_COLOUR, "linestyle": (0, (5, 3)), "linewidth": 1.2}
TITLE_OVER_LEGEND = 20  # points
_NAME = re.compile(r"\$(?!_\w\$)(?<!\$_\w\$)")  # a dollar that is not of our own subscripts

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


@contextmanager
def styled() -> Iterator[None]:
    """The figures' own style, whatever a ``matplotlibrc`` says: one in the working directory could have TeX started."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def label_limit(axis: Axes, limit: float) -> None:
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


def legend_above(axis: Axes, columns: int, title: str | None = None, handles: list[Patch] | None = None) -> None:
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


def step_axis(axis: Axes, end: float | None = None) -> None:
    axis.set_xlim(0, end)
    axis.set_xlabel("environment steps")
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def no_formulas(figure: Figure) -> None:
    """Draw names as they are, also those that begin like a formula."""
    for text in figure.findobj(Text):
        text.set_parse_math(not _NAME.search(text.get_text()))  # pyright: ignore[reportAttributeAccessIssue]


def save(figure: Figure, path: Path) -> None:
    path = Path(path)
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"cannot write a figure as {path.name!r}: end its name in .png, .svg or .pdf")
    path.parent.mkdir(parents=True, exist_ok=True)
    no_formulas(figure)
    with files.replacing(path) as partial:
        figure.savefig(partial, format=path.suffix.lower()[1:])


def steps_below(axis: Axes) -> None:
    step_axis(axis)
    axis.tick_params(labelbottom=True)  # a shared axis has its numbers at the figure's bottom alone
    axis.xaxis.set_major_locator(MaxNLocator(4))
