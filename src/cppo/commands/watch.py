"""``cppo watch``: runs below a folder, as they are now."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cppo import files
from cppo.errors import UsageError, shown
from cppo.runs.record import METRICS, Row
from cppo.runs.sealed import read_sealed, row_in

SILENT = 120.0  # seconds without a new line after which an unfinished run counts as stopped
TAIL = 1 << 16  # bytes of metrics.jsonl that hold the newest iteration
WIDTH = 18  # of a run's name
MARKS = {"damaged": "bold red", "running": "bold cyan", "finished": "green", "stopped": "yellow", "starting": "dim"}


@dataclass
class Watch:
    """Show the running and finished runs below a folder.

    Example: cppo watch runs
    """

    folder: tyro.conf.Positional[Path] = Path("runs")
    """Where to look."""
    once: bool = False
    """Print the table once and end."""
    seconds: float = 2.0
    """Seconds between two looks."""

    def __call__(self) -> None:
        if not self.folder.is_dir():
            raise UsageError(f"{self.folder} is no folder; name one that holds runs, for example: cppo watch runs")
        console = Console()
        if self.once or not console.is_terminal:  # a pipe wants the table, and then the end
            console.print(overview(self.folder))
            return
        try:
            with Live(overview(self.folder), auto_refresh=False, console=console) as live:
                while True:
                    time.sleep(self.seconds)
                    live.update(overview(self.folder), refresh=True)
        except KeyboardInterrupt:
            return


def overview(folder: Path) -> Table:
    table = Table(box=SIMPLE_HEAD, title=Text(shown(f"Runs in {folder}")), title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("run", no_wrap=True)
    table.add_column("algo on env", overflow="ellipsis", no_wrap=True, max_width=20)
    for name, width in (("done", 4), ("return", 7), ("cost/limit", 10)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("state", no_wrap=True, min_width=8)
    for path in sorted(find(folder)):
        seen = look(path)
        if seen is not None:
            name = str(path.relative_to(folder)) if path != folder else path.name
            what = Text(f"{seen['algo']} on {seen['env']}")
            table.add_row(Text(_short(shown(name))), what, f"{seen['share']:.0%}", *_numbers(seen), _state(seen))
    if not table.rows:
        table.caption = "no runs yet"
    return table


def find(folder: Path) -> Iterator[Path]:
    """Folders that hold a run; nothing is looked for inside of one."""
    for place, folders, names in os.walk(folder):
        if "config.json" in names and METRICS in names:
            yield Path(place)
            folders.clear()


def look(run: Path) -> dict[str, Any] | None:
    """What a run's files say: plan, newest metrics (means over seeds), state. None for what is no run."""
    seen = {"algo": "?", "env": "?", "share": 0.0, "return": None, "costs": {}, "state": "damaged", "silent": 0.0}
    try:
        config = read_sealed(run / "config.json", "")
        if not {"algo", "env", "steps", "cost_limits"} <= set(config):
            return None
        seen |= {"algo": str(config["algo"]), "env": str(config["env"])}
        saved = _saved(run)  # before the rows, which are written before it
        rows = _newest(run / METRICS)
        if (rows[0]["iteration"] if rows else 0) < saved:
            return seen
        seen["silent"] = time.time() - (run / METRICS).stat().st_mtime
        return seen | _progress(config, rows, seen["silent"])
    except (OSError, UsageError, TypeError, ValueError, AttributeError, ArithmeticError, LookupError):
        return seen  # cppo check says what is wrong


def _progress(config: dict[str, Any], rows: list[Row], silent: float) -> dict[str, Any]:
    share = min(1.0, rows[0]["steps"] / config["steps"]) if rows else 0.0
    if share >= 1.0:
        state = "finished"
    elif silent > SILENT:
        state = "stopped"
    else:
        state = "running" if rows else "starting"
    limits = config["cost_limits"]
    columns = {name: "cost" if len(limits) == 1 else f"cost.{name}" for name in limits}
    costs = {name: (_mean(rows, column), float(limits[name])) for name, column in columns.items()}
    return {"share": share, "return": _mean(rows, "return"), "costs": costs, "state": state}


def _saved(run: Path) -> int:
    """Iteration of the newest checkpoint, by its name."""
    names = [path.stem.rpartition("-")[2] for path in (run / "checkpoints").glob("checkpoint-*.safetensors")]
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _newest(path: Path) -> list[Row]:
    """Rows of the last complete iteration, read from the end of the file: as much of it as holds them all."""
    size, tail = path.stat().st_size, TAIL
    while True:
        rows, whole = _last_rows(path, tail), tail >= size
        found = [row for row in rows if row["iteration"] == rows[-1]["iteration"]]
        if whole or len(found) < len(rows):
            return found
        tail *= 4
        if tail > files.TEXT:
            raise ValueError("no iteration has so many rows")


def _last_rows(path: Path, tail: int) -> list[Row]:
    with files.open_read(path) as file:
        file.seek(0, os.SEEK_END)
        start = max(0, file.tell() - tail)
        file.seek(start)
        lines = file.read().split(b"\n")[1 if start else 0 : -1]
    rows = [row_in(line)[0] for line in lines]
    if any(row is None or type(row.get("iteration")) is not int for row in rows):
        raise ValueError("a line is damaged")
    return [row for row in rows if row is not None]


def _mean(rows: list[dict[str, Any]], column: str) -> float | None:
    values = [row[column] for row in rows if row.get(column) is not None]
    return sum(values) / len(values) if values else None


def _numbers(seen: dict[str, Any]) -> tuple[Text, Text]:
    earned = Text("-" if seen["return"] is None else f"{seen['return']:.2f}")
    costs = Text()
    for cost, limit in seen["costs"].values():
        costs.append(" " if costs else "")
        style = "dim" if cost is None else "green" if cost <= limit else "bold red"
        costs.append(f"{'-' if cost is None else f'{cost:.2f}'}/{limit:g}", style)
    return earned, costs


def _short(name: str) -> str:
    """The end of a long path, which tells runs apart."""
    return name if len(name) <= WIDTH else "…" + name[1 - WIDTH :]


def _state(seen: dict[str, Any]) -> Text:
    return Text(seen["state"], MARKS[seen["state"]])
