"""The errors that a user can cause. Little is imported here, so that the command line starts at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar


class UsageError(ValueError):
    """The user asked for something that cannot be; the message says what to type instead. Exit code 2.

    Its notes (``add_note``) are what is shown below that line: the traceback lines of the user's own code.
    """


class TrainingError(RuntimeError):
    """A run cannot go on (for example NaN rewards); everything saved before stays valid. Exit code 1."""


class Unsaved(TrainingError):
    """A run could not be written. It has not failed: given space or permission, the same command goes on."""


E = TypeVar("E", UsageError, TrainingError)

_FRAME = re.compile(r'  File "(?P<path>.*)", line (?P<line>\d+)')
_OTHERS = re.compile(r"[/\\](site-packages|dist-packages|lib(64)?[/\\]python\d(\.\d+)?t?)[/\\]|^<")
_HERE = str(Path(__file__).parent)
# Control characters, ends of lines, halves of letters that nothing can print, and what turns the direction of writing.
_OBEYED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def blame(
    what: str, error: BaseException | str, advice: str = "", kind: type[E] = UsageError, reason: str | None = None
) -> E:
    """An error that says in one line what failed and where, with the user's own traceback lines as its note.

    ``error`` is an exception, or the text of a traceback from another process; ``reason`` stands for what it says.
    """
    text = error if isinstance(error, str) else _formatted(error)
    own = own_lines(text)
    reason = reason or (_reason(text) if isinstance(error, str) else reason_of(error))
    frames = list(_FRAME.finditer(own))
    place = f" ({Path(frames[-1]['path']).name}, line {frames[-1]['line']})" if frames else ""
    place = "" if place in reason else place  # a SyntaxError says it itself
    found = kind(f"{what}: {reason.rstrip('.')}{place}.{' ' if advice else ''}{advice}")
    if own:
        found.add_note(own)
    return found


def meant(name: str, known: Iterable[str]) -> str:
    """What to say to a person who typed a name that there is not: the nearest of ``known``, or nothing.

    >>> meant("PointGaol1", ["PointGoal1", "CarPush1"]), meant("x", ["PointGoal1"])
    (" Did you mean 'PointGoal1'?", '')
    """
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def shown(text: str, kept: str = "") -> str:
    """``text`` as a terminal shows it: what it would obey instead is spelt out, but for letters that are ``kept``.

    >>> print(shown("a\\x1b[2J"))
    a\\x1b[2J
    """
    return _OBEYED.sub(lambda found: found[0] if found[0] in kept else ascii(found[0])[1:-1], text)


def own_lines(traceback: str) -> str:
    """The frames of a traceback's last part that lie in the user's files: not in Python's, a package's or cppo's."""
    kept, mine = [], False
    for line in traceback.rpartition("Traceback (most recent call last):")[2].splitlines():
        frame = _FRAME.match(line)
        if frame:
            mine = not _OTHERS.search(frame["path"]) and not frame["path"].startswith(_HERE)
        elif not line.startswith("    "):
            mine = False
        if mine:
            kept.append(line)
    return "\n".join(kept)


def reason_of(error: BaseException) -> str:
    """What an exception says, in one line."""
    said = " ".join(str(error).split())
    name = type(error).__name__
    return f"{name}: {_short(said)}" if said else name


def _reason(traceback: str) -> str:
    """The exception in a traceback's text: its first unindented line after the frames, and what follows in one line."""
    lines = traceback.rpartition("Traceback (most recent call last):")[2].splitlines()
    said = " ".join(" ".join(line for line in lines if line[:1].strip()).split())
    return _short(re.sub(r"^(\w+\.)+(?=\w+)", "", said)) or "it ended without a word"


def _short(text: str, most: int = 300) -> str:
    text = text.rstrip(".")
    return text if len(text) <= most else text[:most] + " …"


def _formatted(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(type(error), error, error.__traceback__, chain=False))
