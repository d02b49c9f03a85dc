"""Other places for a run's metrics, by option: a CSV file, Weights & Biases. ``metrics.jsonl`` stays the record.

A logger takes the rows of an iteration and is closed at the end. Anything else is a callback of one function:
``cppo.train(..., callback=lambda rows: ...)``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from cppo import log
from cppo.plan import Plan
from cppo.settings import as_dict
from cppo.types import UsageError

CSV = "metrics.csv"


class Logger(Protocol):
    def write(self, rows: list[log.Row]) -> None: ...

    def close(self) -> None: ...


class CSVLogger:
    """``metrics.csv``: the columns of ``metrics.jsonl``, one row for each iteration and seed."""

    def __init__(self, folder: Path, plan: Plan):
        before = log.read_metrics(folder).to_dict("records")  # of a resumed run, cut back to its checkpoint already
        self._file = open(folder / CSV, "w", newline="", encoding="utf-8")  # noqa: SIM115 (open as long as the run is)
        self._writer: csv.DictWriter[str] | None = None
        self.write([{str(name): value for name, value in row.items()} for row in before])

    def write(self, rows: list[log.Row]) -> None:
        if not rows:
            return
        if self._writer is None:
            self._writer = csv.DictWriter(self._file, list(rows[0]), restval="", extrasaction="ignore")
            self._writer.writeheader()
        known = [
            {name: "" if value is None or value != value else value for name, value in row.items()} for row in rows
        ]
        self._writer.writerows(known)
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class WandbLogger:
    """Weights & Biases: one run for each seed, grouped by the folder's name; a resumed run goes on in the same ones.

    ``WANDB_MODE=offline``, ``WANDB_PROJECT`` and its other variables work as usual.
    """

    def __init__(self, folder: Path, plan: Plan):
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise UsageError("Weights & Biases needs a package: pip install 'cppo[wandb]'") from None
        group = folder.resolve().name
        config = {"algo": plan.algo, "env": plan.env, "steps": plan.steps} | as_dict(plan.settings)
        self._runs = {
            seed: wandb.init(
                project="cppo",
                group=group,
                name=f"{group}-seed{seed}",
                id=f"{group}-seed{seed}",
                config=config | {"seed": seed},
                dir=str(folder),
                resume="allow",
                reinit="create_new",
            )
            for seed in plan.seeds
        }

    def write(self, rows: list[log.Row]) -> None:
        for row in rows:
            values = {name: value for name, value in row.items() if value is not None and name != "seed"}
            self._runs[row["seed"]].log(values, step=row["steps"])

    def close(self) -> None:
        for run in self._runs.values():
            run.finish()


TABLE: dict[str, Callable[[Path, Plan], Logger]] = {"csv": CSVLogger, "wandb": WandbLogger}


def check(names: Sequence[str]) -> None:
    for name in names:
        if name not in TABLE:
            raise UsageError(f"unknown logger {name!r}. Loggers: {', '.join(TABLE)} (TensorBoard has --tensorboard).")


class Loggers:
    """Several loggers as one, closed together."""

    def __init__(self, names: Sequence[str], folder: Path, plan: Plan):
        self._all: list[Logger] = [TABLE[name](folder, plan) for name in names]

    def write(self, rows: list[log.Row]) -> None:
        for logger in self._all:
            logger.write(rows)

    def __enter__(self) -> Loggers:
        return self

    def __exit__(self, *exception: Any) -> None:
        for logger in self._all:
            logger.close()
