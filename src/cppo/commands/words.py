"""What a person typed, before and after it is read: numbers, files of settings, misspelt options, one-line errors."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cppo.errors import UsageError

REPEATED = ("--set", "--set-space")
NUMBERS = ("--steps", "--episodes", "--eval-every")
FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}
KINDS = {"INT": "a whole number", "FLOAT": "a number", "PATH": "a path"}


def spelt_out(words: list[str]) -> list[str]:
    """The words as tyro reads them: ``--set a=1 b=2`` as two, ``--steps 1e5`` in digits, ``--ray`` with an address."""
    return _numbers(_local_ray(_repeat_set(words)))


def given(words: list[str]) -> frozenset[str]:
    """Names of the fields whose options are among the words; ``--no-x`` gives ``x``."""
    names = (word[2:].partition("=")[0].replace("-", "_") for word in words if word.startswith("--"))
    return frozenset(name.removeprefix("no_") for name in names)


def names(text: str | None) -> list[str]:
    """What is separated by commas.

    >>> names(" a,b, "), names(None)
    (['a', 'b'], [])
    """
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def without(flag: str, words: list[str]) -> list[str]:
    """The words but for ``flag`` and its value."""
    return [
        word
        for before, word in zip(["", *words], words, strict=False)
        if flag not in (before, word) and not word.startswith(f"{flag}=")
    ]


def options(command: type) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a command that are options, those of its groups included."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for field in dataclasses.fields(command):
        group = field.default_factory
        if isinstance(group, type) and dataclasses.is_dataclass(group):
            found |= options(group)
        elif field.init and "Positional[" not in str(field.type):
            found[field.name] = field
    return found


def check(words: list[str], commands: Mapping[str, Callable[..., Any]]) -> None:
    """Refuse commands and options that there are not, naming those that are meant."""
    if not words:
        raise UsageError(f"name a command: {', '.join(commands)}. What each does: cppo --help")
    name = words[0]
    if name.startswith("-"):
        if name not in ("-h", "--help"):
            raise UsageError(f"{name} comes before any command; write cppo COMMAND {name} … (commands: cppo --help).")
        return
    if name not in commands:
        raise UsageError(f"there is no command {name!r}.{_meant(name, commands)} Commands: {', '.join(commands)}.")
    command = commands[name]
    assert isinstance(command, type)
    known = options(command)
    flags = {f"--{field.replace('_', '-')}": field for field in known}
    for word in words[1:]:
        flag = word.partition("=")[0].replace("_", "-")
        if not word.startswith("--") or flag == "--help" or flag in flags:
            continue
        positive = "--" + flag.removeprefix("--no-")
        if positive not in flags or str(known[flags[positive]].type) != "bool":
            raise UsageError(f"cppo {name} has no {flag}.{_hint(flag, flags, known)} All options: cppo {name} --help")


def _hint(flag: str, flags: Mapping[str, str], known: Mapping[str, Any]) -> str:
    setting = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
    if "set" in known:
        from cppo.algos import TABLE  # a person who is wrong can wait a second

        if any(setting in {field.name for field in dataclasses.fields(row.settings)} for row in TABLE.values()):
            return f" It is a setting: --set {setting}=VALUE."
    return _meant(flag, flags)


def _meant(word: str, known: Mapping[str, Any]) -> str:
    dashes = "--" if word.startswith("--") else ""
    close = difflib.get_close_matches(word.removeprefix(dashes), [name.removeprefix(dashes) for name in known], n=1)
    return f" Did you mean {dashes}{close[0]}?" if close else ""


@contextlib.contextmanager
def in_one_line(words: list[str]) -> Iterator[None]:
    """What tyro says in a box when it cannot read the words, as one line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            yield
    except SystemExit as stop:
        if stop.code != 2:
            raise
        raise UsageError(_line(said.getvalue(), words)) from None


def _line(box: str, words: list[str]) -> str:
    rows = [row for row in (row.strip("│╭╮╰╯ ") for row in box.splitlines()) if row]
    rules = [number for number, row in enumerate(rows) if number > 1 and set(row) <= {"─", "-"}]
    rule = rules[0] if rules else len(rows)
    text, rest = " ".join(row for row in rows[1:rule] if row.strip("─-")), " ".join(rows[rule:])
    see = f"See: cppo {words[0]} --help"
    wrong = re.match(r"Error parsing (\S+):", text)
    if wrong:
        kind = re.search(r"\b(INT|FLOAT|PATH)\b", rest)
        flag = wrong[1].split("/")[0]
        return f"{flag} {value_of(flag, words)!r}: write {KINDS[kind[1]] if kind else 'another value'}. {see}"
    extra = re.match(r"Unrecognized options: (.*)", text)
    if extra:
        return f"cppo {words[0]} cannot use {extra[1]!r}; options begin with --. {see}"
    return f"{text.rstrip('.')}. {see}"


def value_of(flag: str, words: list[str]) -> str | None:
    """The last word that follows ``flag`` or its ``=``; None where it is not among the words."""
    found = None
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == flag:
            found = following
        elif word.startswith(f"{flag}="):
            found = word.partition("=")[2]
    return found


def _repeat_set(arguments: list[str]) -> list[str]:
    """Let ``--set a=1 b=2`` mean ``--set a=1 --set b=2``, and the same for ``--set-space``."""
    result, inside = [], ""
    for word in arguments:
        if word.startswith("--"):
            inside = word if word in REPEATED else ""
            if not inside:
                result.append(word)
        elif inside and "=" in word:
            result += [inside, word]
        else:
            if inside:
                result.append(inside)
            inside = ""
            result.append(word)
    return result


def _local_ray(arguments: list[str]) -> list[str]:
    """Let ``--ray`` without an address mean ``--ray local``."""
    result = list(arguments)
    for index in reversed(range(len(result))):
        if result[index] == "--ray" and (index + 1 == len(result) or result[index + 1].startswith("-")):
            result.insert(index + 1, "local")
    return result


def _numbers(arguments: list[str]) -> list[str]:
    """Let ``--steps 1e5``, ``--steps 200,000``, ``--steps 2k`` and ``--steps 10m`` be whole numbers."""
    result: list[str] = []
    for word in arguments:
        flag, equals, value = word.partition("=")
        if result and result[-1] in NUMBERS and not word.startswith("--"):
            result.append(str(whole(word, result[-1])))
        elif equals and flag in NUMBERS:
            result.append(f"{flag}={whole(value, flag)}")
        else:
            result.append(word)
    return result


def whole(text: str, flag: str) -> int:
    """
    >>> whole("2.5k", "--steps"), whole("1e5", "--steps"), whole("200,000", "--steps"), whole("-1", "--steps")
    (2500, 100000, 200000, -1)
    """
    found = re.fullmatch(r"(-?\d+\.?\d*(?:e\d{1,2})?)([km]?)", re.sub(r"[,_]", "", text.strip().lower()))
    value = float(found[1]) * FACTORS[found[2]] if found else 0.5
    if not value.is_integer():
        raise UsageError(f"{flag} {text!r}: write a whole number, for example {flag} 200000, 2e5, 200k or 10m.")
    return int(value)
