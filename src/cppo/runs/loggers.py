"""Other places for a run's metrics, by option: a CSV file, Weights & Biases. ``metrics.jsonl`` stays the record.

A logger takes the rows of an iteration and is closed at the end. Anything else is a callback of one function:
``cppo.train(..., callback=lambda rows: ...)``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from cppo import files
from cppo.runs.appended import Appended
from cppo.runs.metrics import Row, read_metrics
from cppo.runs.plan import Plan
from cppo.settings import as_dict
from cppo.types import UsageError

CSV = "metrics.csv"


class Logger(Protocol):
    def write(self, rows: list[Row]) -> None: ...

    def close(self) -> None: ...


def _cell(value: Any) -> Any:
    """What is unknown is empty; a text is one, and no formula to the spreadsheet that opens the file."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    return "" if value is None or value != value else value


class CSVLogger:
    """``metrics.csv``: the columns of ``metrics.jsonl``, one row for each iteration and seed."""

    def __init__(self, folder: Path, plan: Plan):
        before = read_metrics(folder).to_dict("records")  # of a resumed run, cut back to its checkpoint already
        self._file, self._text = Appended(folder / CSV, anew=True), io.StringIO(newline="")
        self._writer: csv.DictWriter[str] | None = None
        self.write([{str(name): value for name, value in row.items()} for row in before])

    def write(self, rows: list[Row]) -> None:
        if not rows:
            return
        if self._writer is None:
            self._writer = csv.DictWriter(self._text, list(rows[0]), restval="", extrasaction="ignore")
            self._writer.writerow({name: _cell(name) for name in rows[0]})
        self._writer.writerows([{name: _cell(value) for name, value in row.items()} for row in rows])
        self._file.write(self._text.getvalue().encode())
        self._text.seek(0)
        self._text.truncate()

    def close(self) -> None:
        self._file.close()


class WandbLogger:
    """Weights & Biases: one run for each seed, grouped by the folder's name; a resumed run goes on in the same ones.

    ``WANDB_MODE=offline``, ``WANDB_PROJECT`` and its other variables work as usual.
    """

    def __init__(self, folder: Path, plan: Plan):
        try:
            import wandb  # pyright: ignore[reportMissingImports]  (optional)
        except ImportError:
            raise UsageError("Weights & Biases needs a package: pip install 'cppo[wandb]'") from None
        files.subfolder(folder, "wandb")
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

    def write(self, rows: list[Row]) -> None:
        for row in rows:
            values = {name: value for name, value in row.items() if value is not None and name != "seed"}
            self._runs[row["seed"]].log(values, step=row["steps"])

    def close(self) -> None:
        for run in self._runs.values():
            run.finish()


TABLE: dict[str, Callable[[Path, Plan], Logger]] = {"csv": CSVLogger, "wandb": WandbLogger}


def check_loggers(names: Sequence[str]) -> None:
    for name in names:
        if name not in TABLE:
            raise UsageError(f"unknown logger {name!r}. Loggers: {', '.join(TABLE)} (TensorBoard has --tensorboard).")
