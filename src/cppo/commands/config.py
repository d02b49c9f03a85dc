"""``--config FILE``: options of ``cppo train`` from a TOML file, or from the ``config.json`` of a run.

The file's entries become words before those that were typed, so that what is typed wins. A file is not its reader's
word: one that names code to run (an import path, another interpreter), or that leads out of the folder, is refused
unless ``--trust`` is typed, be it TOML or the config of a run, and it can neither trust itself nor remove a run.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cppo import files
from cppo.commands.words import given, options, value_of
from cppo.errors import UsageError, meant
from cppo.runs.pretrained import is_remote
from cppo.runs.sealed import parse

FLAG = "--config"
TYPED_ONLY = ("config", "trust", "overwrite", "resume", "checkpoint")
TABLES = ("set", "settings", "gymnasium")
OF_THE_PAIR = ("set", "cost_limit")  # chosen for an algorithm on an environment; another one has its own presets
OF_THE_ENV = ("cost_keys", "cost", "env_python", "episode_length", "env_workers", "env_timeout", "measures")
LEADS_OUT: dict[str, Callable[[str], bool]] = {  # to the network, or to other places on the disk
    "init_from": is_remote,
    "logger": lambda names: "wandb" in names,
    "out": lambda name: Path(name).is_absolute() or ".." in Path(name).parts,
}
Values = dict[str, Any]


def expanded(words: list[str], command: type) -> list[str]:
    """The words with those of the file in place of ``--config FILE``, which stays for the command to know of."""
    path = _file(words)
    if path is None:
        return words
    typed, known = given(words), options(command)
    values = _of_run(path, words) if path.suffix == ".json" else _of_toml(path, known)
    values = {name: value for name, value in values.items() if name == "set" or name not in typed}
    if "trust" not in typed:
        _refuse_code(path, values)
    found: list[str] = []
    for name, value in values.items():
        found += _words(path, name, value, str(known[name].type))
    return [words[0], *found, *words[1:]]


def _file(words: list[str]) -> Path | None:
    named = value_of(FLAG, words)
    if named is None:
        return None
    path = Path(named) / "config.json" if Path(named).is_dir() else Path(named)
    if not path.is_file():
        raise UsageError(f"there is no file {path}; --config takes a .toml file or the config.json of a run.")
    return path


def _of_toml(path: Path, known: Mapping[str, Any]) -> Values:
    try:
        read = tomllib.loads(files.read(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no TOML file ({error}); write lines such as env = 'PointCircle'.") from None
    flat: Values = {"set": {}}
    for key, value in read.items():
        name = key.replace("-", "_")
        if name in ("set", "settings") and isinstance(value, dict):
            flat["set"] |= value
        elif name == "gymnasium" and isinstance(value, dict):
            flat |= {key.replace("-", "_"): item for key, item in value.items()}
        else:
            flat[name] = value
    for name, value in flat.items():
        if name in TYPED_ONLY:
            raise UsageError(f"{path}: {name} cannot stand in a file; type --{name}.")
        if name not in known:
            hint = meant(name, [*known, "settings"])
            raise UsageError(f"{path}: unknown entry {name!r}.{hint} Settings of the algorithm stand below [set].")
        if isinstance(value, dict) and name != "set":
            raise UsageError(f"{path}: {name} is a table; write {name} = … (tables: {', '.join(TABLES)}).")
    return flat


def _of_run(path: Path, words: list[str]) -> Values:
    """What makes the same run again. Settings and limits are those of its algorithm on its environment."""
    try:
        saved = parse(files.read(path))  # its seal aside: here a person may change it
        seeds, settings = saved["seeds"], dict(saved["settings"])
        values = {
            "algo": saved["algo"],
            "env": saved["env"],
            "backend": saved["backend"],
            "steps": saved["steps"],
            "seeds": len(seeds),
            "seed": seeds[0],
            "cost_limit": list(saved["cost_limits"].values()),
            "init_from": saved["init_from"],
        }
        values |= {name: saved[name] for name in ("eval_every", "eval_episodes") if name in saved}
        values |= _of_gymnasium(path, saved["gymnasium"]) if "gymnasium" in saved else {}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UsageError(f"{path} is no config.json of a run ({type(error).__name__}: {error}).") from None
    settings.pop("cost_limit", None)
    values["set"] = _upgraded(values["algo"], settings)
    other = {name for name in ("algo", "env") if value_of(f"--{name}", words) not in (None, values[name])}
    dropped = (*(OF_THE_PAIR if other else ()), *(OF_THE_ENV if "env" in other else ()))
    return {name: value for name, value in values.items() if name not in dropped}


def _of_gymnasium(path: Path, source: Values) -> Values:
    if source["make"] is None:
        raise UsageError(f"{path}: this environment was made by a Python function without an import path; use Python.")
    names = {"episode_length": "episode_length", "workers": "env_workers", "timeout": "env_timeout"}
    values = {"env": source["make"], "cost": source["cost"], "env_python": source["python"]}
    lists = {name: ",".join(source.get(name, ())) or None for name in ("cost_keys", "measures")}
    return values | lists | {ours: source[theirs] for theirs, ours in names.items()}


def _upgraded(algo: str, settings: Values) -> Values:
    """Settings that an earlier version saved; an algorithm of somebody's own is not imported for it."""
    from cppo.algos import TABLE

    return dict(TABLE[algo].upgraded(settings)) if algo in TABLE else settings


def _refuse_code(path: Path, values: Values) -> None:
    """An import path is a program in a file that looks like data."""
    settings = values.get("set", {})
    items = settings.items() if isinstance(settings, dict) else [str(item).partition("=")[::2] for item in settings]
    named = {name: values.get(name) for name in ("algo", "env") if ":" in str(values.get(name))}
    named |= {name: values[name] for name in ("cost", "env_python") if values.get(name)}
    named |= {name: value for name, value in items if name.strip() == "encoder" and ":" in str(value)}
    if named:
        said = ", ".join(f"{name} {value!r}" for name, value in named.items())
        raise UsageError(f"{path} names code to run: {said}. If you trust it, add --trust; or type these yourself.")
    for name, leads_out in LEADS_OUT.items():
        if leads_out(str(values.get(name, ""))):
            reason = f"{name} is {str(values[name])!r}, and leads out of this folder"
            raise UsageError(f"{path}: {reason}. If you trust it, add --trust; or type --{name.replace('_', '-')}.")


def _words(path: Path, name: str, value: Any, kind: str) -> list[str]:
    """An entry as it would be typed. It is a value: read as an option it would be one that nobody looked at."""
    flag = f"--{name.replace('_', '-')}"
    if value is None:
        return []
    if kind == "bool" and isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if isinstance(value, dict):
        found = [f"{key}={item}" for key, item in value.items()]
    else:
        found = [str(item) for item in value] if isinstance(value, list) else [str(value)]
    for word in found:
        if re.match(r"-(?!\d|\.\d|inf$)", word):
            raise UsageError(f"{path}: {name} is {word!r}, which would be an option; type options yourself.")
    if name == "set":
        return [word for pair in found for word in (flag, pair)]
    return [flag, *found] if found else []
