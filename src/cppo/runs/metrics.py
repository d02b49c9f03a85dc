"""What a run leaves on disk for people: metrics and summary.

``metrics.jsonl`` has one JSON object for each iteration and seed; it is the record, TensorBoard files are a view of it.
A resumed run first cuts both back to the checkpoint it starts from, so that a run killed and resumed writes the same
``metrics.jsonl`` as one never stopped. Nothing here feeds back into training.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cppo.errors import shown
from cppo.files import write_atomically
from cppo.runs import checkpoint, compact, record, sealed
from cppo.runs.appended import Appended
from cppo.runs.record import METRICS, Row
from cppo.runs.sealed import plain
from cppo.runs.tensorboard import EventFiles
from cppo.types import UsageError

FAILED_SEEDS = "failed_seeds"  # in a checkpoint: seeds that bad numbers have stopped, with why
MEASURE = "task."  # columns of what a task itself says of its episodes


class RunWriter:
    """Appends rows of metrics to a run's folder.

    ``resume_iteration`` is the iteration of the checkpoint that the run goes on from (rows beyond it are dropped);
    ``None`` starts a new run, which is refused in a folder that already has metrics. ``seeds`` are those that must have
    a row at that iteration (default: some seed).

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with RunWriter(folder, tensorboard=False) as writer:
    ...     writer.write([{"iteration": 1, "steps": 100, "seed": 0, "return": np.float32(2.5), "cost": float("nan")}])
    >>> (folder / "metrics.jsonl").read_text()
    '{"iteration": 1, "steps": 100, "seed": 0, "return": 2.5, "cost": null, "check": "0c6ee9ad"}\\n'
    """

    def __init__(
        self,
        folder: Path,
        resume_iteration: int | None = None,
        tensorboard: bool = True,
        seeds: Collection[int] | None = None,
    ) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / METRICS
        if resume_iteration is None:
            _refuse_existing(self._folder)
            kept: list[Row] = []
        else:
            kept = _cut_back(path, resume_iteration, seeds)
        self._events = EventFiles(self._folder, None if resume_iteration is None else kept) if tensorboard else None
        self._file = Appended(path)

    def write(self, rows: list[Row]) -> None:
        """Append ``rows``, each with its check; NumPy and JAX scalars become plain numbers, NaN and infinity null."""
        logged = [plain(row) for row in rows]
        self._file.write(b"".join(map(sealed.line, logged)))
        if self._events is not None:
            for row in logged:
                self._events.write(row)

    def sync(self) -> None:
        """Force the metrics to disk. Call it before saving a checkpoint, which must never be ahead of them."""
        if self._events is not None:
            self._events.flush()
        self._file.sync()

    def is_in_place(self) -> bool:
        """Whether the run's folder is still where the run was begun."""
        return self._file.is_in_place()

    def close(self) -> None:
        self._file.close()
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def read_metrics(folder: Path) -> pd.DataFrame:
    """``metrics.jsonl`` of a run, columns as logged, null as NaN. A half-written last line is left out.

    A file that is not what the run wrote is ``Damaged``: it must reach the newest checkpoint, which follows it.
    """
    path, folder = Path(folder) / METRICS, Path(folder)
    if not path.is_file():
        raise UsageError(f"no {METRICS} in {folder}: give the folder of a run (what was passed to --out)")
    iteration, seeds = _saved(folder)  # before the rows, which a run writes before its checkpoint
    rows = (one.row for one in record.rows(path) if one.row is not None)
    try:
        found = compact.read(path, rows) if path.stat().st_size >= compact.WORTH else framed(list(rows))
    except (TypeError, OverflowError) as error:
        raise sealed.Damaged(f"{path}: {error}. {record.advice(folder)}") from None
    for name in found.columns:
        if name != compact.WORDS and found[name].dtype.kind not in "biuf":  # sound by its checks: somebody made it so
            raise sealed.Damaged(f"{path}: {shown(name)} is not a number in every line. {record.advice(folder)}")
    record.ends_at(path, _last(found), iteration, seeds)
    return found


def _last(frame: pd.DataFrame) -> dict[int, int]:
    """The last iteration of each seed."""
    if frame.empty:
        return {}
    seeds, iterations = np.asarray(frame["seed"]), np.asarray(frame["iteration"])
    return {int(seed): int(iterations[seeds == seed].max()) for seed in np.unique(seeds)}


def _saved(folder: Path) -> tuple[int, list[int] | None]:
    """Iteration of the newest checkpoint, and the seeds that were sound then, where it says so."""
    found = checkpoint.by_iteration(folder / "checkpoints")
    if not found:
        return 0, None
    try:
        meta = sealed.parse(checkpoint.read_header(found[-1])["meta"], strict=False)
        failed = meta.get(FAILED_SEEDS, {})
        return checkpoint.iteration_of(found[-1]), [seed for seed in meta["config"]["seeds"] if str(seed) not in failed]
    except (checkpoint.Unusable, ValueError, KeyError, TypeError, AttributeError):
        return checkpoint.iteration_of(found[-1]), None


def framed(rows: Sequence[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    # A quantity that was null throughout is still a number.
    empty = [column for column in frame.columns if np.all(frame[column].isna())]
    return frame.astype(dict.fromkeys(empty, float))


def has_rows(folder: Path) -> bool:
    path = folder / METRICS
    return path.is_file() and path.stat().st_size > 0


def cost_columns(cost_limits: dict[str, float]) -> dict[str, str]:
    """The column of each constraint's episode cost: ``cost`` when there is one, else ``cost.<name>``."""
    if len(cost_limits) == 1:
        return dict.fromkeys(cost_limits, "cost")
    return {name: f"cost.{name}" for name in cost_limits}


def summarise(
    frame: pd.DataFrame,
    cost_limits: dict[str, float],
    wall_seconds: float,
    steps: int,
    failed: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """The content of ``summary.json``: one dict for each seed in ``seeds``, and the same keys as means over them.

    ``steps`` counts the environment steps of one seed, ``wall_seconds`` the time that all seeds took together.
    ``final_*`` are means over the last tenth of the iterations (at least one), rows without a finished episode left
    out; ``final_task`` is there where the task says more of its episodes. With several constraints ``final_cost`` and
    ``cost_limit`` are dicts; a seed is feasible when all hold, and an iteration a violation when any does not. At the
    top ``feasible`` is the share of feasible seeds. ``failed`` seeds have an ``error`` and the steps of their rows;
    they are never feasible, and means leave them out.
    """
    failed = failed or {}
    run = {"steps": steps, "wall_seconds": wall_seconds}
    seeds = []
    for seed in sorted({*np.unique(frame["seed"]).tolist(), *failed}):
        rows = frame.loc[frame["seed"] == seed]
        seeds.append({"seed": int(seed), **_outcome(rows, cost_limits), **run})
        if seed in failed:
            last = int(rows["steps"].max()) if len(rows) else 0
            seeds[-1] |= {"feasible": False, "steps": last, "error": failed[seed]}
    sound = [seed for seed in seeds if "error" not in seed]
    names = ("final_return", "final_cost", "cost_limit", "feasible", "violation_rate", *run)
    names += ("final_task",) if any("final_task" in seed for seed in sound) else ()
    means = {name: _mean([seed[name] for seed in sound]) for name in names}
    return means | {"feasible": _mean([seed["feasible"] for seed in seeds]), "seeds": seeds}


def place(feasible: bool, earned: float | None, over: float) -> tuple[bool, float]:
    """Sorting key: feasible before infeasible; within the first by return, within the second by how far over."""
    worth = -math.inf if earned is None else earned
    return (not feasible, -worth if feasible else over)


def _outcome(rows: pd.DataFrame, cost_limits: dict[str, float]) -> dict[str, Any]:
    """How one seed ended."""
    rows = rows.sort_values("iteration")
    returns = np.asarray(rows["return"], dtype=float)
    finished = np.isfinite(returns)
    tenth = math.ceil(len(rows) / 10)
    last = np.flatnonzero(finished)[-tenth:]
    costs = {name: np.asarray(rows[column], dtype=float) for name, column in cost_columns(cost_limits).items()}
    limits = {name: float(limit) for name, limit in cost_limits.items()}
    over = np.any([costs[name][finished] > limits[name] for name in costs] or [np.zeros(finished.sum())], axis=0)
    final = {name: _mean_of(cost[last]) for name, cost in costs.items()}
    met = [cost is not None and cost <= limits[name] for name, cost in final.items()]
    return {
        "final_return": _mean_of(returns[last]),
        "final_cost": _single(final),
        "cost_limit": _single(limits),
        "feasible": len(last) > 0 and all(met),
        "violation_rate": _mean_of(over),
        **_measured(rows),
    }


def measures(columns: Iterable[str]) -> dict[str, str]:
    """What a task says of its episodes, with the column of each."""
    return {column.removeprefix(MEASURE): column for column in columns if column.startswith(MEASURE)}


def _measured(rows: pd.DataFrame) -> dict[str, Any]:
    found = {name: np.asarray(rows[column], float) for name, column in measures(rows.columns).items()}
    last = {name: values[np.isfinite(values)][-math.ceil(len(rows) / 10) :] for name, values in found.items()}
    return {"final_task": {name: _mean_of(values) for name, values in last.items()}} if last else {}


def _single(values: dict[str, Any]) -> Any:
    """The one value where there is one constraint, else all by name."""
    return next(iter(values.values())) if len(values) == 1 else values


def _mean_of(values: np.ndarray) -> float | None:
    return float(np.mean(values)) if len(values) and np.isfinite(values).all() else None


def _mean(values: list[Any]) -> Any:
    """Mean of numbers, or of dicts key by key; what is unknown (None) is left out."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    if isinstance(known[0], dict):
        return {name: _mean([value[name] for value in known]) for name in known[0]}  # the same names in all
    mean = float(np.mean(known))
    return int(mean) if all(type(value) is int for value in known) and mean.is_integer() else mean


def _refuse_existing(folder: Path) -> None:
    if has_rows(folder):
        raise UsageError(f"{folder} already holds a run: go on with it (--resume {folder}) or choose another --out")


def _cut_back(path: Path, iteration: int, seeds: Collection[int] | None) -> list[Row]:
    """Keep only the rows up to ``iteration``, byte for byte, and return them; all of them must be there."""
    kept = list(record.rows(path, through=iteration)) if path.exists() else []
    found = [one.row for one in kept if one.row is not None]
    record.ends_at(path, {row["seed"]: row["iteration"] for row in found}, iteration, seeds)
    if path.exists():
        write_atomically(path, b"".join(one.text + b"\n" for one in kept))
    return found
