"""JSON files that can tell whether they are as they were written.

A file that holds an object has the SHA-256 of the rest as its last entry; a line of metrics has a CRC-32 as its last.
Tools that know nothing of this read one entry more. Files of earlier versions have none, and are taken as they are.
This finds damage and edits; it is no signature, and a stranger can make it anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import zlib
from pathlib import Path
from typing import Any

from cppo import files
from cppo.errors import UsageError, shown

SEAL, CHECK = "sha256", "check"
DIGITS = 18  # of a whole number: no count here has more, and more do not fit 64 bits
_BEFORE = b', "check": "'
_END = len(_BEFORE) + 8 + 2  # bytes of a line after its row


class Damaged(UsageError):
    """A file is not as it was written; the message says which, and what to do."""


def parse(text: str | bytes, strict: bool = True) -> Any:
    """JSON from a file that anybody may have written: a ``ValueError`` where it is none, or, where it is to be
    ``strict``, has numbers that are no use."""
    numbers: Any = dict(parse_constant=_refuse, parse_int=_whole, parse_float=_number) if strict else {}
    try:
        return json.loads(text, **numbers)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _whole(text: str) -> int:
    if len(text) > DIGITS + 1:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large")
    return value


def harmless(value: Any) -> Any:
    """``value`` without letters that a terminal would obey: texts of a file are shown to people."""
    if isinstance(value, str):
        return shown(value, kept="\n\t")
    if isinstance(value, list):
        return [harmless(item) for item in value]
    return {shown(name): harmless(item) for name, item in value.items()} if isinstance(value, dict) else value


def read_json(path: Path) -> dict[str, Any]:
    """An object that a person may have had their hands on, without its seal where that is sound."""
    return read_sealed(path, "Restore the file.")


def read_sealed(path: Path, advice: str) -> dict[str, Any]:
    """The object in a file; ``Damaged`` where it is not as it was written, with what to do about it."""
    try:
        content = parse(files.read(path))
        shown_to_people = harmless(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
    except RecursionError:
        raise Damaged(f"{path} is damaged: it is nested too deeply. {advice}") from None
    except ValueError as error:
        raise Damaged(f"{path} is damaged: {error}. {advice}") from None
    if not isinstance(content, dict):
        raise Damaged(f"{path} is damaged: it holds no JSON object. {advice}")
    seal, _ = content.pop(SEAL, None), shown_to_people.pop(SEAL, None)
    last = content[list(content)[-1]] if content else None  # a seal whose name is damaged
    torn = isinstance(last, str) and re.fullmatch("[0-9a-f]{64}", last)
    if (seal is None and torn) or (seal is not None and seal != _digest(content)):
        raise Damaged(f"{path} was changed since it was written: it does not match its checksum. {advice}")
    return shown_to_people


def write_json(path: Path, data: Any, compact: bool = False) -> None:
    """Write ``data`` as JSON, atomically, readable or ``compact``; NumPy values become plain ones, NaN and infinity
    null."""
    how: dict[str, Any] = {"separators": (",", ":")} if compact else {"indent": 2}
    text = json.dumps(plain(data), allow_nan=False, **how) + "\n"
    files.write_atomically(Path(path), text.encode())


def write_sealed(path: Path, data: dict[str, Any]) -> None:
    """The same, with its seal."""
    content = plain(data)
    write_json(path, content | {SEAL: _digest(content)})


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def line(row: dict[str, Any]) -> bytes:
    """A row of plain values as a line, with its check.

    >>> line({"iteration": 1})
    b'{"iteration": 1, "check": "e0c1f6fc"}\\n'
    """
    text = json.dumps(row, allow_nan=False).encode()
    return b'%s%s%08x"}\n' % (text[:-1], _BEFORE, zlib.crc32(text))


def row_in(text: bytes) -> tuple[dict[str, Any] | None, bool]:
    """The row in a line (without its end), and whether it has a check; None where the line is damaged.

    >>> row_in(b'{"iteration": 1, "check": "e0c1f6fc"}'), row_in(b'{"iteration": 2, "check": "e0c1f6fc"}')
    (({'iteration': 1}, True), (None, True))
    """
    if text[-_END:-10] == _BEFORE:
        row = text[:-_END] + b"}"
        try:
            found = json.loads(row) if text[-10:] == b'%08x"}' % zlib.crc32(row) else None
        except (ValueError, RecursionError):  # sound by its check: somebody made it so
            return None, True
        return (found if isinstance(found, dict) else None), True
    try:
        found = parse(text)
    except ValueError:
        return None, False
    return (found if isinstance(found, dict) and _is_row(found) else None), False


def _is_row(found: dict[str, Any]) -> bool:
    """Whether a line without a check can be a row: plain values, a place in the run."""
    return CHECK not in found and all(
        isinstance(value, str) if name == "mode" else value is None or isinstance(value, int | float)
        for name, value in found.items()
    )


def plain(value: Any) -> Any:
    """``value`` in terms of what JSON has."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # NumPy and JAX arrays and scalars
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
