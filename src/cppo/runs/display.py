"""What a person sees while a run trains, and the table at its end.

On a terminal: a progress bar and one line for each seed, redrawn in place. Elsewhere (a pipe, a log file, CI): a plain
ASCII line now and then. Cost against its limit is what matters here, so it is told three ways: the numbers, a colour,
and a mark (✓ within, ≈ within but closer than 10%, ✗ over) that needs no colour.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cppo.log import Row, cost_columns

MAX_SEED_LINES = 8
PLAIN_SECONDS = 10.0  # a plain line at least this often, or
PLAIN_SHARE = 0.05  # after this share of training, whichever comes first
RATE_SECONDS = 30.0  # steps per second are measured over this window
NEAR = 0.1  # a cost is near its limit when less than this share of it is left

_STYLES = {"ok": "green", "near": "yellow", "over": "red"}
_MARKS = {"ok": "✓", "near": "≈", "over": "✗", "": " "}
_WORDS = {"ok": "ok", "near": "near", "over": "over", "": ""}  # for terminals that cannot show the marks
_MODE_STYLES = {"recovery": "magenta", "waiting": "dim"}
_NONE = "-"


class Display:
    """Progress of one run, all its seeds together; use it as a context manager.

    ``total_steps`` counts the steps of one seed. ``interactive`` is found out from the console unless given.
    """

    def __init__(
        self,
        title: str,
        total_steps: int,
        seeds: list[int],
        cost_limits: dict[str, float],
        interactive: bool | None = None,
        console: Console | None = None,
    ) -> None:
        self._title = title
        self._total_steps = total_steps
        self._seeds = list(seeds)
        self._cost_limits = cost_limits
        self._console = console or Console()
        terminal = self._console.is_terminal and not self._console.is_dumb_terminal
        self._interactive = terminal if interactive is None else interactive
        self._marks = _marks(self._console.encoding)
        self._latest: dict[int, Row] = {}
        self._rate = _Rate(RATE_SECONDS)
        self._printed_at: tuple[float, float] | None = None  # (elapsed, share) of the last plain line
        self._unprinted = False
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._interactive:
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
            self._live.start()
        else:
            limits = ", ".join(f"{name} <= {limit:g}" for name, limit in self._cost_limits.items())
            seeds = _count(len(self._seeds), "seed")
            self._print(f"{self._title}: {self._total_steps:,} steps, {seeds}; limits: {limits or 'none'}")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()
        elif self._unprinted:
            self._print(self._plain_line())

    def update(self, rows: list[Row], elapsed: float) -> None:
        """Show the newest ``rows`` (one for each seed), ``elapsed`` seconds into training."""
        # A new dict each time: the refreshing thread may be reading the old one.
        self._latest = {**self._latest, **{row["seed"]: row for row in rows}}
        self._rate.add(elapsed, sum(row["steps"] for row in self._latest.values()))
        if not self._interactive:
            self._unprinted = True
            if self._plain_line_is_due(elapsed):
                self._printed_at = (elapsed, self._share)
                self._unprinted = False
                self._print(self._plain_line())

    def message(self, text: str) -> None:
        """Say something once, above the live part."""
        if self._live:
            self._console.print(escape(text), highlight=False)
        else:
            self._print(text)

    # --- numbers ------------------------------------------------------------------------------------------------------

    @property
    def _rows(self) -> list[Row]:
        return [self._latest[seed] for seed in self._seeds if seed in self._latest]

    @property
    def _steps(self) -> int:
        return min((int(row["steps"]) for row in self._rows), default=0)

    @property
    def _share(self) -> float:
        return min(1.0, self._steps / self._total_steps) if self._total_steps > 0 else 1.0

    def _progress_words(self) -> list[str]:
        rate = self._rate.steps_per_second
        to_go = len(self._seeds) * max(0, self._total_steps - self._steps)
        return [
            f"{self._share:4.0%}",
            f"{self._steps:,}/{self._total_steps:,} steps",
            f"{rate:,.0f} steps/s" if rate else f"{_NONE} steps/s",
            f"{_duration(to_go / rate)} left" if rate else f"{_NONE} left",
        ]

    # --- plain lines --------------------------------------------------------------------------------------------------

    def _plain_line_is_due(self, elapsed: float) -> bool:
        if self._printed_at is None:
            return True
        last_elapsed, last_share = self._printed_at
        just_done = self._share >= 1.0 > last_share
        # The small slack keeps rounding from pushing every line one update later.
        return just_done or elapsed - last_elapsed >= PLAIN_SECONDS or self._share - last_share >= PLAIN_SHARE - 1e-9

    def _plain_line(self) -> str:
        rows = self._rows
        words = [*self._progress_words(), f"return {_number(_mean(rows, 'return'))}"]
        for name, column in cost_columns(self._cost_limits).items():
            cost, limit = _mean(rows, column), self._cost_limits[name]
            label = column.replace("cost.", "cost ")
            words.append(f"{label} {_number(cost)}/{limit:g} {_verdict(cost, limit)}".rstrip())
        if _has(rows, "mode"):
            words.append(_mode(rows))
        if _has(rows, "kl"):
            words.append(f"KL {_kl(rows)}")
        if _has(rows, "multiplier"):
            words.append(f"multiplier {_number(_mean(rows, 'multiplier'), 3)}")
        return "  ".join(words)

    def _print(self, line: str) -> None:
        # Not through rich, which would wrap at its guess of a width.
        if not self._console.quiet:
            print(line, file=self._console.file, flush=True)

    # --- the live part ------------------------------------------------------------------------------------------------

    def _render(self) -> RenderableType:
        title = Text.assemble((self._title, "bold"), (f"  {_count(len(self._seeds), 'seed')}", "dim"))
        return Group(title, self._progress_line(), self._table()) if self._rows else Group(title, Text("starting ..."))

    def _progress_line(self) -> Table:
        line = Table.grid(padding=(0, 2), expand=True)
        line.add_column(ratio=1)
        words = self._progress_words()
        for _ in words:
            line.add_column(justify="right", no_wrap=True)
        line.add_row(ProgressBar(total=1.0, completed=self._share), *words)
        return line

    def _table(self) -> Table:
        rows = self._rows
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("seed", no_wrap=True)
        table.add_column("return", justify="right", no_wrap=True)
        for column in cost_columns(self._cost_limits).values():
            table.add_column(f"{column.replace('cost.', '')}/limit", justify="right", no_wrap=True)
        if _has(rows, "mode"):
            table.add_column("mode", no_wrap=True)
        if _has(rows, "kl"):
            table.add_column("KL/limit" if _has(rows, "kl_limit") else "KL", justify="right", no_wrap=True)
        if _has(rows, "multiplier"):
            table.add_column("multiplier", justify="right", no_wrap=True)
        for row in rows[:MAX_SEED_LINES]:
            table.add_row(str(row["seed"]), *self._cells([row], rows))
        if len(rows) > MAX_SEED_LINES:
            table.add_row(Text(f"{len(rows) - MAX_SEED_LINES} more", "dim"))
        if len(rows) > 1:
            table.add_row(Text(f"mean of {len(rows)}", "bold"), *self._cells(rows, rows))
        return table

    def _cells(self, rows: list[Row], all_rows: list[Row]) -> Iterable[Text]:
        """One line of the table, means over ``rows``; ``all_rows`` decide which columns there are."""
        yield Text(_number(_mean(rows, "return")))
        for name, column in cost_columns(self._cost_limits).items():
            yield self._cost_cell(_mean(rows, column), self._cost_limits[name])
        if _has(all_rows, "mode"):
            mode = _mode(rows)
            yield Text(mode, _MODE_STYLES.get(mode, ""))
        if _has(all_rows, "kl"):
            yield Text(_kl(rows))
        if _has(all_rows, "multiplier"):
            yield Text(_number(_mean(rows, "multiplier"), 3))

    def _cost_cell(self, cost: float | None, limit: float) -> Text:
        verdict = _verdict(cost, limit)
        return Text(f"{_number(cost)}/{limit:g} {self._marks[verdict]}", _STYLES.get(verdict, ""))


class _Rate:
    """Steps per second over a recent window, so that compilation and a resumed start do not count."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, elapsed: float, steps: int) -> None:
        self._samples.append((elapsed, steps))
        while len(self._samples) > 2 and self._samples[1][0] < elapsed - self._seconds:
            self._samples.popleft()

    @property
    def steps_per_second(self) -> float | None:
        if len(self._samples) < 2:
            return None
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        return (last - first) / (end - start) if end > start and last > first else None


def summary_table(summary: dict[str, Any], title: str) -> Table:
    """The end of a run: one line for each seed of ``summary.json`` and one for their mean."""
    seeds = summary["seeds"]
    marks = _marks(sys.stdout.encoding or "ascii")
    costs = summary["final_cost"]
    names: list[str | None] = list(costs) if isinstance(costs, dict) else [None]
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 3, 0, 0))
    table.add_column("seed", no_wrap=True)
    table.add_column("return", justify="right", no_wrap=True)
    for name in names:
        table.add_column(f"cost {name}" if name else "cost", justify="right", no_wrap=True)
        table.add_column("limit", justify="right", no_wrap=True)
    table.add_column("feasible", justify="center", no_wrap=True)
    table.add_column("over limit", justify="right", no_wrap=True)
    table.add_column("steps", justify="right", no_wrap=True)
    table.add_column("steps/s", justify="right", no_wrap=True)
    for seed in seeds:
        verdict = "ok" if seed["feasible"] else "over"
        table.add_row(str(seed["seed"]), *_summary_cells(seed, names, Text(marks[verdict], _STYLES[verdict])))
    feasible = sum(bool(seed["feasible"]) for seed in seeds)
    share = Text(f"{feasible} of {len(seeds)}", "green" if feasible == len(seeds) else "yellow")
    table.add_row("mean", *_summary_cells(summary, names, share), style="bold")
    return table


def _summary_cells(values: dict[str, Any], names: list[str | None], feasible: Text) -> Iterable[Text | str]:
    yield _number(values["final_return"])
    for name in names:
        cost = values["final_cost"][name] if name else values["final_cost"]
        limit = values["cost_limit"][name] if name else values["cost_limit"]
        yield Text(_number(cost), _STYLES["over"] if _verdict(cost, limit) == "over" else "")
        yield f"{limit:g}" if limit is not None else _NONE
    yield feasible
    rate = values["violation_rate"]
    yield f"{rate:.0%}" if rate is not None else _NONE
    yield f"{values['steps']:,}"
    speed = values["steps_per_second"]
    yield f"{speed:,.0f}" if speed is not None else _NONE


def _marks(encoding: str) -> dict[str, str]:
    return _MARKS if "utf" in encoding.lower() else _WORDS


def _verdict(cost: float | None, limit: float | None) -> str:
    if cost is None or limit is None:
        return ""
    if cost > limit:
        return "over"
    return "near" if limit > 0 and cost > (1 - NEAR) * limit else "ok"


def _values(rows: list[Row], column: str) -> list[float]:
    found = [float(row[column]) for row in rows if row.get(column) is not None]
    return [value for value in found if math.isfinite(value)]


def _mean(rows: list[Row], column: str) -> float | None:
    values = _values(rows, column)
    return sum(values) / len(values) if values else None


def _has(rows: list[Row], column: str) -> bool:
    return any(row.get(column) is not None for row in rows)


def _number(value: float | None, decimals: int = 2) -> str:
    if value is None:
        return _NONE
    return f"{value:,.{decimals}f}" if abs(value) < 10_000 else f"{value:,.0f}"


def _kl(rows: list[Row]) -> str:
    """KL to two digits beyond the first of its limit, so that columns line up."""
    kl, limit = _mean(rows, "kl"), _mean(rows, "kl_limit")
    decimals = 2 - math.floor(math.log10(limit)) if limit and 1e-8 < limit < 1 else 4
    return _number(kl, decimals) + (f"/{limit:g}" if limit is not None else "")


def _mode(rows: list[Row]) -> str:
    """The mode that all rows share, else how many are in another one than normal."""
    counts = Counter(str(row["mode"]) for row in rows if row.get("mode") is not None)
    if len(counts) < 2:
        return next(iter(counts), _NONE)
    return ", ".join(f"{count}/{len(rows)} {mode}" for mode, count in sorted(counts.items()) if mode != "normal")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
