"""``metrics.jsonl`` as it is read: its rows in their order, and what is wrong with it.

Every seed has a row for each iteration from the first on, until its end; lines say by their check whether they are as
they were written. So a line that was changed, lost, moved or written twice has a name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cppo import files
from cppo.runs.sealed import Damaged, read_sealed, row_in

Row = dict[str, Any]
Lost = tuple[int, int, int]  # seed, first and last iteration of rows that a repair could not bring back

METRICS = "metrics.jsonl"
LONGEST = 1 << 20  # bytes of a line; a file of anybody may be a single one
REPAIRED = "repaired.json"  # what ``cppo check --repair`` had to give up


class Line(NamedTuple):
    """A line of the file, which has a row or a problem, or a row that stands in the wrong place."""

    number: int
    text: bytes
    row: Row | None
    problem: str | None


def lines(path: Path, through: int | None = None, lost: Collection[Lost] = ()) -> Iterator[Line]:
    """The lines of a file but for empty ones; rows beyond iteration ``through`` are left out."""
    last: dict[int, int] = {}
    checked = False
    with files.open_read(path) as file:
        for number, text in enumerate(iter(partial(file.readline, LONGEST), b""), start=1):
            if len(text) == LONGEST:
                yield Line(number, b"", None, "is longer than any row")
                return  # the rest may have no end
            text = text.rstrip(b"\n")
            if not text:
                continue
            row, has_check = row_in(text)
            place = None if row is None else _place(row)
            if row is None or place is None or (checked and not has_check):
                yield Line(number, text, None, "is damaged")
                continue
            checked = has_check
            if through is None or place[1] <= through:
                problem = _out_of_order(place, last, lost)
                last[place[0]] = max(place[1], last.get(place[0], 0))
                yield Line(number, text, row, problem)


def rows(path: Path, through: int | None = None) -> Iterator[Line]:
    """The lines with a row, of which nothing may be wrong.

    What cannot be read after the last of them is the tail of an interrupted write; anything else is ``Damaged``.
    """
    unreadable: Line | None = None
    for one in lines(path, through, lost_in(path.parent)):
        wrong = unreadable or (one if one.problem else None)
        if one.row is None:
            unreadable = wrong
        elif wrong is not None:
            raise Damaged(f"{path}: line {wrong.number} {wrong.problem}. {advice(path.parent)}")
        else:
            yield one


def ends_at(path: Path, last: Mapping[int, int], iteration: int, seeds: Collection[int] | None) -> None:
    """Refuse rows, of which each seed has its ``last``, that do not reach ``iteration`` for each of ``seeds`` (None:
    any): the run has been there."""
    lost = lost_in(path.parent)
    for seed in sorted(last, key=lambda seed: -last[seed])[:1] or [0] if seeds is None else seeds:
        end = beyond(seed, last.get(seed, 0), lost)
        if end < iteration:
            raise Damaged(
                f"{path} ends at iteration {end} of seed {seed}, but a checkpoint is of iteration {iteration}: rows "
                f"are missing, or the run was taken back just now. {advice(path.parent)}"
            )


def beyond(seed: int, end: int, lost: Collection[Lost]) -> int:
    """The iteration that a seed's rows reach when those are counted that a repair gave up."""
    return max([last for one, first, last in lost if (one, first) == (seed, end + 1)], default=end)


def lost_in(folder: Path) -> frozenset[Lost]:
    """The rows that an earlier repair gave up, and that need not be told of again."""
    path = folder / REPAIRED
    if not path.is_file():
        return frozenset()
    content = read_sealed(path, "Restore it, or move it away.")
    try:
        return frozenset((int(seed), int(first), int(last)) for seed, first, last in content["lost"])
    except (KeyError, TypeError, ValueError):
        raise Damaged(f"{path} is damaged; restore it, or move it away.") from None


def advice(run: Path) -> str:
    return f"How much is good says: cppo check {run} (with --repair it goes back to that)"


def _place(row: Row) -> tuple[int, int] | None:
    """Seed and iteration."""
    numbers = [row.get(name) for name in ("seed", "iteration", "steps")]
    if not all(type(number) is int for number in numbers):
        return None
    return row["seed"], row["iteration"]


def _out_of_order(place: tuple[int, int], last: dict[int, int], lost: Collection[Lost]) -> str | None:
    seed, iteration = place
    before = last.get(seed, 0)
    if iteration <= before:
        return f"is out of place: iteration {iteration} of seed {seed} was there before"
    if iteration > before + 1 and (seed, before + 1, iteration - 1) not in lost:
        missing = f"{before + 1}" if iteration == before + 2 else f"{before + 1} to {iteration - 1}"
        return f"comes after lines that are missing: iterations {missing} of seed {seed}"
    return None
