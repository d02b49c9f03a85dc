"""What a person sees while a run trains, and the table at its end.

On a terminal: a progress bar and one line for each seed, redrawn in place. Elsewhere (a pipe, a log file, CI): a plain
ASCII line now and then. Cost against its limit is what matters here, so it is told three ways: the numbers, a colour,
and a mark (✓ within, ≈ within but closer than 10%, ✗ over) that needs no colour.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cppo.runs.metrics import Row, cost_columns
from cppo.runs.outcome import NONE, STYLES, marks, number, verdict
from cppo.runs.timing import Doing

MAX_SEED_LINES = 8
PLAIN_SECONDS = 10.0  # a plain line at least this often, or
PLAIN_SHARE = 0.05  # after this share of training, whichever comes first
RATE_SECONDS = 30.0  # steps per second are measured over this window
BATCH_SECONDS = 30.0  # after the first batch, a plain line from inside of one after so much silence

_MODE_STYLES = {"recovery": "magenta", "waiting": "dim"}


class Display:
    """Progress of one run, all its seeds together; use it as a context manager.

    ``total_steps`` counts the steps of one seed. ``interactive`` is found out from the console unless given.
    """

    def __init__(
        self,
        title: str,
        total_steps: int,
        seeds: Sequence[int | str],
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
        self._marks = marks(self._console.encoding)
        self._latest: dict[int | str, Row] = {}
        self._rate = _Rate(RATE_SECONDS)
        self._printed_at: tuple[float, float] | None = None  # (elapsed, share) of the last plain line
        self._unprinted = False
        self._told_waiting = False
        self._batch = _Batch(len(self._seeds))
        self._said = time.monotonic()  # when the last plain line was printed
        self._live: Live | None = None

    def __enter__(self) -> Display:
        if self._interactive:
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
            self._live.start()
        else:
            limits = ", ".join(f"{name} <= {limit:g}" for name, limit in self._cost_limits.items())
            seeds = "1 seed" if len(self._seeds) == 1 else f"each of {len(self._seeds)} seeds"
            self._print(f"{self._title}: {self._total_steps:,} steps, {seeds}; limits: {limits or 'none'}")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()
        elif self._unprinted:
            self._print(self._plain_line())

    def update(self, rows: list[Row], elapsed: float) -> None:
        """Show the newest ``rows`` (one for each seed), ``elapsed`` seconds into training."""
        self._batch.end()
        # A new dict each time: the refreshing thread may be reading the old one.
        self._latest = {**self._latest, **{row["seed"]: row for row in rows}}
        self._rate.add(elapsed, sum(row["steps"] for row in self._latest.values()))
        if not self._interactive:
            self._unprinted = True
            if self._plain_line_is_due(elapsed):
                self._printed_at = (elapsed, self._share)
                self._unprinted = False
                self._print(self._plain_line())
        if not self._told_waiting and any(row.get("mode") == "waiting" for row in rows):
            self._told_waiting = True
            self.message("No episode has ended yet, so the cost is unknown: waiting before the first update.")

    def doing(self, now: Doing) -> None:
        """Show what an iteration is at: on a terminal once it takes a second, in a log as far as it is worth a line."""
        changed = self._batch.see(now)
        if self._interactive:
            return
        patience = BATCH_SECONDS if self._latest else PLAIN_SECONDS
        compiling = changed and not now.of and not self._latest
        if compiling or (now.steps and time.monotonic() - self._said >= patience):
            self._print(f"{self._share:4.0%}  {self._batch.words()}")

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
        return max((int(row["steps"]) for row in self._rows), default=0)  # a failed seed stays behind

    @property
    def _share(self) -> float:
        return min(1.0, self._steps / self._total_steps) if self._total_steps > 0 else 1.0

    def _progress_words(self) -> list[str]:
        rate = self._rate.steps_per_second
        to_go = len(self._seeds) * max(0, self._total_steps - self._steps)
        return [
            f"{self._share:4.0%}",
            f"{self._steps:,}/{self._total_steps:,} steps",
            f"{rate:,.0f} steps/s" if rate else f"{NONE} steps/s",
            f"{_duration(to_go / rate)} left" if rate else f"{NONE} left",
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
        words = [*self._progress_words(), f"return {number(_mean(rows, 'return'))}"]
        for name, column in cost_columns(self._cost_limits).items():
            cost, limit = _mean(rows, column), self._cost_limits[name]
            label = column.replace("cost.", "cost ")
            words.append(f"{label} {number(cost)}/{limit:g} {verdict(cost, limit)}".rstrip())
        if _has(rows, "mode"):
            words.append(_mode(rows))
        if _has(rows, "kl"):
            words.append(f"KL {_kl(rows)}")
        if _has(rows, "multiplier"):
            words.append(f"multiplier {number(_mean(rows, 'multiplier'), 3)}")
        return "  ".join(words)

    def _print(self, line: str) -> None:
        # Not through rich, which would wrap at its guess of a width.
        self._said = time.monotonic()
        if not self._console.quiet:
            with suppress(OSError):  # a log on a full disk, a closed pipe: no reason to stop training
                print(line, file=self._console.file, flush=True)

    # --- the live part ------------------------------------------------------------------------------------------------

    def _render(self) -> RenderableType:
        words = [_count(len(self._seeds), "seed"), self._batch.words() if self._batch.is_long else ""]
        title = Text.assemble((self._title, "bold"), ("  " + "  ".join(words), "dim"), no_wrap=True)
        return Group(title, self._progress_line(), self._table()) if self._rows else Group(title)

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
        yield Text(number(_mean(rows, "return")))
        for name, column in cost_columns(self._cost_limits).items():
            yield self._cost_cell(_mean(rows, column), self._cost_limits[name])
        if _has(all_rows, "mode"):
            mode = _mode(rows)
            yield Text(mode, _MODE_STYLES.get(mode, ""))
        if _has(all_rows, "kl"):
            yield Text(_kl(rows))
        if _has(all_rows, "multiplier"):
            yield Text(number(_mean(rows, "multiplier"), 3))

    def _cost_cell(self, cost: float | None, limit: float) -> Text:
        how = verdict(cost, limit)
        return Text(f"{number(cost)}/{limit:g} {self._marks[how]}", STYLES.get(how, ""))


class _Batch:
    """What the iteration that runs is at."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._now, self._first = Doing("starting"), 0
        self._began = self._since = time.monotonic()  # the iteration, and what it is at

    def see(self, now: Doing) -> bool:
        """Whether it is at something else than before."""
        changed = now.what != self._now.what
        if changed:
            self._since, self._first = time.monotonic(), now.steps
        self._now = now
        return changed

    def end(self) -> None:
        self._began, self._now = time.monotonic(), Doing("")

    @property
    def is_long(self) -> bool:
        return time.monotonic() - self._began >= 1.0

    def words(self) -> str:
        what, steps, of = self._now
        if not of:
            return what
        seconds = time.monotonic() - self._since
        rate = self._seeds * (steps - self._first) / seconds if seconds > 0 else 0.0
        return f"{what} {steps:,} of {of:,}" + (f", {rate:,.0f} steps/s" if rate else "")


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


def _values(rows: list[Row], column: str) -> list[float]:
    found = [float(row[column]) for row in rows if row.get(column) is not None]
    return [value for value in found if math.isfinite(value)]


def _mean(rows: list[Row], column: str) -> float | None:
    values = _values(rows, column)
    return sum(values) / len(values) if values else None


def _has(rows: list[Row], column: str) -> bool:
    return any(row.get(column) is not None for row in rows)


def _kl(rows: list[Row]) -> str:
    """KL to two digits beyond the first of its limit, so that columns line up."""
    kl, limit = _mean(rows, "kl"), _mean(rows, "kl_limit")
    decimals = 2 - math.floor(math.log10(limit)) if limit and 1e-8 < limit < 1 else 4
    return number(kl, decimals) + (f"/{limit:g}" if limit is not None else "")


def _mode(rows: list[Row]) -> str:
    """The mode that all rows share, else how many are in another one than normal."""
    counts = Counter(str(row["mode"]) for row in rows if row.get("mode") is not None)
    if len(counts) < 2:
        return next(iter(counts), NONE)
    return ", ".join(f"{count}/{len(rows)} {mode}" for mode, count in sorted(counts.items()) if mode != "normal")


def _count(how_many: int, noun: str) -> str:
    return f"{how_many} {noun}" if how_many == 1 else f"{how_many} {noun}s"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
