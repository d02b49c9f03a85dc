"""A compact copy of a long ``metrics.jsonl``, so that a million lines are drawn in seconds.

The lines are text, and reading them takes longer than drawing them. So who reads a long file whole keeps its columns
beside it, with the CRC-32 of what was read: as long as the file is the same, the next reader takes them from there. The
lines stay the record; a copy that is damaged, old or missing is made anew.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from cppo import files
from cppo.errors import shown
from cppo.runs import checkpoint

COPY = ".metrics.safetensors"
WORTH = 1 << 24  # bytes of lines from which on it pays
CHUNK = 20_000  # rows that are dicts at a time: a million would fill the memory
WORDS = "mode"  # the column of words; all others are of numbers
Column = np.ndarray | pd.Categorical


def read(path: Path, rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """The columns of a long file: from its copy, else from ``rows``, which then leave one."""
    size, crc = _mark(path)
    found = _copy(path, size, crc)
    if found is None:
        found = _columns(rows)
        if _mark(path) == (size, crc):  # nobody wrote meanwhile
            _keep(path, found, size, crc)
    return pd.DataFrame(found, copy=False)


def _columns(rows: Iterable[dict[str, Any]]) -> dict[str, Column]:
    chunks: list[tuple[int, dict[str, Column]]] = []
    waiting: list[dict[str, Any]] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == CHUNK:
            chunks.append(_packed(waiting))
            waiting = []
    if waiting:
        chunks.append(_packed(waiting))
    names = dict.fromkeys(name for _, chunk in chunks for name in chunk)
    return {
        name: _joined([chunk.pop(name) if name in chunk else _small(name, [None] * size) for size, chunk in chunks])
        for name in names
    }


def _joined(parts: list[Any]) -> Column:
    words = isinstance(parts[0], pd.Categorical)
    return union_categoricals(parts, sort_categories=True) if words else np.concatenate(parts)


def _packed(rows: list[dict[str, Any]]) -> tuple[int, dict[str, Column]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return len(rows), {name: _small(name, [row.get(name) for row in rows]) for name in names}


def _small(name: str, values: list[Any]) -> Column:
    """An array as small as it can be without losing anything."""
    if name == WORDS:
        return pd.Categorical([value or "" for value in values])
    if all(type(value) is int and abs(value) < 2**62 for value in values):
        small = name != "steps" and max(map(abs, values)) < 2**31
        return np.array(values, np.int32 if small else np.int64)
    if not all(isinstance(value, int | float | None) for value in values):
        raise TypeError(f"{shown(name)} is not a number in every line")
    wide = np.array([np.nan if value is None else value for value in values], float)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    return narrow if np.array_equal(narrow, wide, equal_nan=True) else wide


def _copy(path: Path, size: int, crc: int) -> dict[str, Column] | None:
    """The columns that were kept, where they are of the bytes that stand there now."""
    try:
        arrays, about = checkpoint.read_verified(path.with_name(COPY))
        if (about["bytes"], about["crc"]) != (size, crc):
            return None
        whole = {array.shape for array in arrays.values()} == {(len(arrays["seed"]),)}
        if not whole or any(arrays[name].dtype.kind != "i" for name in ("seed", "iteration", "steps")):
            return None  # sound by its checksum: somebody made it so
        words = {WORDS: pd.Categorical.from_codes(arrays[WORDS], about["words"])} if WORDS in arrays else {}
        return {name: words.get(name, arrays[name]) for name in about["columns"]}
    except (checkpoint.Unusable, KeyError, TypeError, ValueError, IndexError):
        return None


def _keep(path: Path, found: dict[str, Any], size: int, crc: int) -> None:
    """Leave a copy, where the folder can be written."""
    words = found.get(WORDS, pd.Categorical([]))
    arrays = found | ({WORDS: words.codes} if WORDS in found else {})
    about = {"bytes": size, "crc": crc, "words": words.categories.tolist(), "columns": list(found)}
    with suppress(OSError):
        files.write_atomically(path.with_name(COPY), checkpoint.encode(arrays, 0, about)[0])


def _mark(path: Path) -> tuple[int, int]:
    """Length and CRC-32 of a file."""
    size = crc = 0
    with files.open_read(path) as file:
        while part := file.read(1 << 22):
            size, crc = size + len(part), zlib.crc32(part, crc)
    return size, crc
