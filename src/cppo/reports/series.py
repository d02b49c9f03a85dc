"""Values of several seeds over one axis of steps, from the metrics of a run or from a record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


def numbers(frame: pd.DataFrame, column: str) -> np.ndarray:
    return np.asarray(frame[column], dtype=float)


def words(frame: pd.DataFrame, column: str) -> np.ndarray:
    return np.array([str(word) for word in frame[column]], dtype=object)


def logged(frame: pd.DataFrame, column: str) -> bool:
    return column in frame and bool(frame[column].notna().any())


def thinned(frame: pd.DataFrame, most: int) -> pd.DataFrame:
    """Every so many-th iteration, as it is, and the last one, so that there are not many more than ``most``."""
    iteration = np.asarray(frame["iteration"])
    step = -(-int(iteration.max()) // most) if len(frame) else 1
    return frame if step <= 1 else frame.loc[(iteration % step == 0) | (iteration == iteration.max())]


def num_seeds(frame: pd.DataFrame) -> int:
    return len(np.unique(numbers(frame, "seed")))


def by_seed(frame: pd.DataFrame, values: np.ndarray) -> pd.DataFrame:
    """``values``, one for each row of ``frame``, as a table of steps (rows) by seeds, NaN for gaps."""
    long = pd.DataFrame({"steps": numbers(frame, "steps"), "seed": numbers(frame, "seed"), "value": values})
    return long.pivot(index="steps", columns="seed", values="value").astype(float)


def together(steps: list[list[float]], values: list[list[float | None]]) -> tuple[np.ndarray, np.ndarray]:
    """Steps of the seed that ends first, and every seed's values there, (seed, step), NaN where unknown.

    A point is the mean of the stretch up to it, so the first one holds for the steps before it, too.

    >>> together([[10, 20, 30, 40], [20, 40, 60]], [[1.0, 2.0, None, 4.0], [5.0, 7.0, 9.0]])[1].tolist()
    [[1.0, 2.0, nan, 4.0], [5.0, 5.0, 6.0, 7.0]]
    """
    common = np.array(min(steps, key=lambda made: (made[-1], -len(made))), float)
    return common, np.array([np.interp(common, x, np.array(y, float)) for x, y in zip(steps, values, strict=True)])


def seeds_behind(groups: list[dict[str, Any]]) -> str:
    """How many seeds stand behind the curves of several groups.

    >>> seeds_behind([{"seeds": [1, 2, 3]}, {"seeds": [1]}]), seeds_behind([{"seeds": [1]}])
    ('1 to 3 seeds', '1 seed')
    """
    numbers = sorted(len(group["seeds"]) for group in groups)
    least, most = numbers[0], numbers[-1]
    return f"{least} to {most} seeds" if least < most else f"{most} seed{'s' if most > 1 else ''}"
