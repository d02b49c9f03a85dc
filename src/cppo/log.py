"""What a run leaves on disk for people: metrics, versions, summary.

``metrics.jsonl`` has one JSON object for each iteration and seed; it is the record, TensorBoard files are a view of it.
A resumed run first cuts both back to the checkpoint it starts from, so that a run killed and resumed writes the same
``metrics.jsonl`` as one never stopped. Nothing here feeds back into training.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
import pandas as pd

from cppo.checkpoint import write_atomically
from cppo.types import UsageError

Row = dict[str, Any]

METRICS = "metrics.jsonl"
_POSITION = ("iteration", "steps", "seed")  # where a row belongs; not quantities to draw


class RunWriter:
    """Appends rows of metrics to a run's folder.

    ``resume_iteration`` is the iteration of the checkpoint that the run goes on from (rows beyond it are dropped);
    ``None`` starts a new run, which is refused in a folder that already has metrics.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with RunWriter(folder, tensorboard=False) as writer:
    ...     writer.write([{"iteration": 1, "steps": 100, "seed": 0, "return": np.float32(2.5), "cost": float("nan")}])
    >>> (folder / "metrics.jsonl").read_text()
    '{"iteration": 1, "steps": 100, "seed": 0, "return": 2.5, "cost": null}\\n'
    """

    def __init__(self, folder: Path, resume_iteration: int | None = None, tensorboard: bool = True) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / METRICS
        if resume_iteration is None:
            _refuse_existing(path)
            kept: list[Row] = []
        else:
            kept = _cut_back(path, resume_iteration)
        # TensorBoard hides what an earlier part of the run logged at or after the purge step.
        self._purge_steps = {row["seed"]: row["steps"] + 1 for row in kept}
        self._resumed = resume_iteration is not None
        self._tensorboard = tensorboard
        self._writers: dict[int, Any] = {}
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (open as long as the run is)

    def write(self, rows: list[Row]) -> None:
        """Append ``rows``; NumPy and JAX scalars become plain numbers, NaN and infinity null."""
        plain = [_plain(row) for row in rows]
        # One write for all rows: a kill leaves at most one half-written line.
        self._file.write("".join(json.dumps(row, allow_nan=False) + "\n" for row in plain))
        self._file.flush()
        if self._tensorboard:
            for row in plain:
                self._write_scalars(row)

    def flush(self) -> None:
        self._file.flush()
        for writer in self._writers.values():
            writer.flush()

    def sync(self) -> None:
        """Force the metrics to disk. Call it before saving a checkpoint, which must never be ahead of them."""
        self.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        if not self._file.closed:
            self.sync()
            self._file.close()
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _write_scalars(self, row: Row) -> None:
        from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        scalars = [
            Summary.Value(tag=name, simple_value=float(value))
            for name, value in row.items()
            if name not in _POSITION and isinstance(value, int | float)
        ]
        # One event for the whole row: `add_scalar` writes one for each number and takes many times as long.
        self._writer(row["seed"]).file_writer.add_summary(Summary(value=scalars), row["steps"])

    def _writer(self, seed: int) -> Any:
        if seed not in self._writers:
            from tensorboardX import SummaryWriter

            self._writers[seed] = SummaryWriter(
                str(self._folder / "tensorboard" / f"seed{seed}"),
                purge_step=self._purge_steps.get(seed, 0) if self._resumed else None,
                # Event files are named by the second; a quick resume must not overwrite the file it goes on from.
                filename_suffix=f".{time.time_ns()}",
            )
        return self._writers[seed]


def read_json(path: Path) -> dict[str, Any]:
    """An object that a person may have had their hands on."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path} is damaged: it holds no JSON object.")
    return content


def write_json(path: Path, data: Any, compact: bool = False) -> None:
    """Write ``data`` as JSON, atomically, readable or ``compact``; NumPy values become plain ones, NaN and infinity
    null."""
    how: dict[str, Any] = {"separators": (",", ":")} if compact else {"indent": 2}
    text = json.dumps(_plain(data), allow_nan=False, **how) + "\n"
    write_atomically(Path(path), text.encode())


def read_metrics(folder: Path) -> pd.DataFrame:
    """``metrics.jsonl`` of a run, columns as logged, null as NaN. A half-written last line is left out."""
    path = Path(folder) / METRICS
    if not path.is_file():
        raise UsageError(f"no {METRICS} in {folder}: give the folder of a run (what was passed to --out)")
    rows = [row for _, row in _readable(path, through=None)]
    frame = pd.DataFrame(rows)
    # A quantity that was null throughout is still a number.
    empty = [column for column in frame.columns if np.all(frame[column].isna())]
    return frame.astype(dict.fromkeys(empty, float))


def versions() -> dict[str, Any]:
    """What a result may depend on beside the settings: software, machine and the commit of this checkout."""
    packages = ("jax", "jaxlib", "numpy", "equinox", "optax", "mujoco")
    return {
        "cppo": _package_version("cppo") or "unknown",
        **_git_state(Path(__file__)),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu_count": os.cpu_count(),
        "device": jax.local_devices()[0].device_kind,
        **{name: _package_version(name) for name in packages},
    }


def cost_columns(cost_limits: dict[str, float]) -> dict[str, str]:
    """The column of each constraint's episode cost: ``cost`` when there is one, else ``cost.<name>``."""
    if len(cost_limits) == 1:
        return dict.fromkeys(cost_limits, "cost")
    return {name: f"cost.{name}" for name in cost_limits}


def summarise(frame: pd.DataFrame, cost_limits: dict[str, float], wall_seconds: float, steps: int) -> dict[str, Any]:
    """The content of ``summary.json``: one dict for each seed in ``seeds``, and the same keys as means over them.

    ``steps`` counts the environment steps of one seed, ``wall_seconds`` the time that all seeds took together.
    ``final_*`` are means over the last tenth of the iterations (at least one), rows without a finished episode left
    out. With several constraints ``final_cost`` and ``cost_limit`` are dicts; a seed is feasible when all hold, and an
    iteration a violation when any does not. At the top ``feasible`` is the share of feasible seeds.
    """
    speed = steps / wall_seconds if wall_seconds > 0 else None
    run = {"steps": steps, "wall_seconds": wall_seconds, "steps_per_second": speed}
    seeds = [
        {"seed": int(seed), **_outcome(frame.loc[frame["seed"] == seed], cost_limits), **run}
        for seed in np.unique(frame["seed"])
    ]
    names = ("final_return", "final_cost", "cost_limit", "feasible", "violation_rate", *run)
    return {**{name: _mean([seed[name] for seed in seeds]) for name in names}, "seeds": seeds}


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
    }


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
        return {name: _mean([value[name] for value in known]) for name in known[0]}
    mean = float(np.mean(known))
    return int(mean) if all(type(value) is int for value in known) and mean.is_integer() else mean


def _plain(value: Any) -> Any:
    """``value`` in terms of what JSON has."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # NumPy and JAX arrays and scalars
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _refuse_existing(path: Path) -> None:
    if path.exists() and path.stat().st_size > 0:
        raise UsageError(
            f"{path.parent} already holds a run: go on with it (--resume {path.parent}) or choose another --out"
        )


def _cut_back(path: Path, iteration: int) -> list[Row]:
    """Keep only the rows up to ``iteration``, byte for byte, and return them."""
    if not path.exists():
        return []
    kept = _readable(path, through=iteration)
    write_atomically(path, b"".join(line + b"\n" for line, _ in kept))
    return [row for _, row in kept]


def _readable(path: Path, through: int | None) -> list[tuple[bytes, Row]]:
    """Lines and rows up to iteration ``through``.

    What cannot be read after the last of them is the tail of an interrupted write and dropped; anything unreadable
    between them is damage that must not pass unnoticed.
    """
    kept: list[tuple[bytes, Row]] = []
    unreadable: int | None = None
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        row = _parsed(line)
        if row is None:
            unreadable = unreadable or (number if line else None)
        elif through is None or row["iteration"] <= through:
            if unreadable is not None:
                problem = f"{path}: line {unreadable} is damaged"
                raise UsageError(f"{problem}; restore the file, or remove that line to go on")
            kept.append((line, row))
    return kept


def _parsed(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and "iteration" in row else None


def _package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_state(file: Path) -> dict[str, Any]:
    """Commit of the checkout that tracks ``file``, and whether its tracked files were changed since.

    ``ls-files`` is asked first because an installed copy may lie in a virtual environment inside another repository,
    whose commit would say nothing about this code.
    """
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return {"git_commit": None, "git_modified": None}
    changes = _git(file.parent, "status", "--porcelain", "--untracked-files=no")
    return {"git_commit": _git(file.parent, "rev-parse", "HEAD"), "git_modified": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
