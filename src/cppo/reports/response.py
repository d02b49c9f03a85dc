"""Panels of what other worlds say of a run's updates, where it measured that (setting ``diagnose``)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from cppo.reports.curves import draw_curve, step_axis
from cppo.reports.series import logged, numbers
from cppo.reports.style import COLOURS, TITLE_OVER_LEGEND, legend_above
from cppo.runs.metrics import cost_columns

AVERAGED = 10  # measurements: a single one is noise
LEAST = 3

Panel = Callable[[Axes], None]


def panels(frame: pd.DataFrame, cost_limits: dict[str, float]) -> list[Panel]:
    """For each constraint the angle between reward and cost, the shares that hold, and the changes of the cost."""
    if not logged(frame, "response_reward"):
        return []
    ends = {name: column.removeprefix("cost") for name, column in cost_columns(cost_limits).items()}
    realised = {end: _realised(frame, f"cost{end}") for end in ends.values()}
    chosen = np.isfinite(numbers(frame, "response_reward"))
    measured = pd.DataFrame(frame.loc[chosen])
    found: list[Panel] = []
    for name, end in ends.items():
        title = f" ({name})" if end else ""
        found.append(lambda axis, end=end, title=title: _draw_angle(axis, measured, end, title))
        found.append(lambda axis, end=end, title=title: _draw_shares(axis, measured, end, title))
        came = realised[end][chosen]
        found.append(lambda axis, end=end, came=came, title=title: _draw_changes(axis, measured, end, came, title))
    return found


def angles(frame: pd.DataFrame, end: str = "") -> np.ndarray:
    """Degrees between reward and cost, of responses averaged over some measurements; NaN where there is none."""
    reward, cost, both = (_averaged(frame, f"response_{what}") for what in ("reward", f"cost{end}", f"both{end}"))
    with np.errstate(invalid="ignore"):
        found = np.degrees(np.arccos(np.clip(both / np.sqrt(reward * cost), -1.0, 1.0)))
    return np.where((reward > 0) & (cost > 0), found, np.nan)


def _draw_angle(axis: Axes, frame: pd.DataFrame, end: str, title: str) -> None:
    draw_curve(axis, frame, angles(frame, end), COLOURS[0], "by other worlds")
    draw_curve(axis, frame, np.degrees(_averaged(frame, f"batch_angle{end}")), COLOURS[1], "by the update's own batch")
    axis.set(ylabel="angle (degrees)", ylim=(0, 182))
    axis.set_yticks([0, 45, 90, 135, 180])
    axis.set_title(f"Angle between reward and cost{title}", pad=TITLE_OVER_LEGEND)
    legend_above(axis, columns=2)
    step_axis(axis, frame)


def _draw_shares(axis: Axes, frame: pd.DataFrame, end: str, title: str) -> None:
    for column, name, colour in (("reward", "of the reward", COLOURS[0]), (f"cost{end}", "of the cost", COLOURS[1])):
        draw_curve(axis, frame, 100 * _averaged(frame, f"confirmed_{column}"), colour, name)
    axis.set(ylabel="share (%)")
    axis.set_title(f"Share that other worlds confirm{title}", pad=TITLE_OVER_LEGEND)
    legend_above(axis, columns=2)
    step_axis(axis, frame)


def _draw_changes(axis: Axes, frame: pd.DataFrame, end: str, came: np.ndarray, title: str) -> None:
    draw_curve(axis, frame, _averaged(frame, f"promised_step_cost{end}"), COLOURS[1], "promised on its own batch")
    draw_curve(axis, frame, _averaged(frame, f"confirmed_step_cost{end}"), COLOURS[0], "confirmed by other worlds")
    draw_curve(axis, frame, _smooth(frame, came), COLOURS[5], "realised")
    axis.set(ylabel="change of episode cost")
    axis.set_title(f"An update's change of the cost{title}", pad=TITLE_OVER_LEGEND)
    legend_above(axis, columns=3)
    step_axis(axis, frame)


def _realised(frame: pd.DataFrame, column: str) -> np.ndarray:
    """For each row the cost of its seed's next iteration less its own; NaN where that is not there."""
    order = np.lexsort((numbers(frame, "iteration"), numbers(frame, "seed")))
    seeds, iterations, costs = (numbers(frame, name)[order] for name in ("seed", "iteration", column))
    follows = (seeds[1:] == seeds[:-1]) & (iterations[1:] == iterations[:-1] + 1)
    found = np.full(len(frame), np.nan)
    found[order[:-1]] = np.where(follows, np.diff(costs), np.nan)
    return found


def _averaged(frame: pd.DataFrame, column: str) -> np.ndarray:
    return _smooth(frame, numbers(frame, column))


def _smooth(frame: pd.DataFrame, values: np.ndarray) -> np.ndarray:
    """Running means of each seed."""
    rows = pd.Series(values, index=frame.index)
    means = rows.groupby(numbers(frame, "seed")).transform(lambda x: x.rolling(AVERAGED, min_periods=LEAST).mean())
    return np.asarray(means, float)
