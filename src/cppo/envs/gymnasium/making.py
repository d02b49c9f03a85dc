"""How a world is made from the names that a user gave, what it may return, and what is said where that is not so.

Standard library and NumPy only, Python 3.8 or newer, like ``world.py``, which loads it.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import re
import sys
from types import ModuleType
from typing import Any, Callable  # noqa: UP035 (Python 3.8 knows no other)

import numpy as np

_VERSIONED = re.compile(r"-v\d+$")


_NUMBERS = (float, int, np.floating, np.integer, np.bool_)


class Mistake(Exception):
    """Something that the user can mend; the message says how."""


class Mismatch(Mistake):
    """What the environment returned does not fit the spaces that it declares."""


def imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = getattr(error, "name", None)
        if not isinstance(error, ModuleNotFoundError) or not f"{name}.".startswith(f"{missing}."):
            raise
        message = f"there is no module {missing!r}; install it, or go to the folder with {missing}.py."
        raise Mistake(message) from None


def part_of(found: Any, module: str, name: str) -> Any:
    for part in name.split("."):
        if not hasattr(found, part):
            close = difflib.get_close_matches(part, dir(found), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise Mistake(f"{module} has no {part!r}.{hint}")
        found = getattr(found, part)
    return found


def resolve(path: str) -> Callable[..., Any]:
    """The function that ``module:name`` names."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise Mistake(f"cost is {path!r}; write module:function.")
    found = part_of(imported(module), module, name)
    if not callable(found):
        kind = type(found).__name__
        raise Mistake(f"{path} is of type {kind}; it must be a function of (obs, action, next_obs, info).")
    return found


def maker(name: str) -> Callable[..., Any]:
    """A function that makes the environment ``Id-v0``, ``module:Id-v0`` or ``module:Class``."""
    module_name, _, ident = name.rpartition(":")
    module = imported(module_name) if module_name else None
    if module is not None and "." not in ident and hasattr(module, ident):
        if not callable(getattr(module, ident)):
            raise Mistake(f"{name} is no class and no function that makes an environment.")
        return getattr(module, ident)
    if module is not None and callable(getattr(module, "make", None)):  # safety_gymnasium has wrappers of its own
        return lambda **options: module.make(ident, **options)
    if module is not None and not _VERSIONED.search(ident):
        part_of(module, module_name, ident)  # refuses it, with a hint
    package = gymnasium()

    def make(**options: Any) -> Any:
        try:
            # The checker warns about style, costs time, and knows nothing of a sixth value.
            return package.make(name, disable_env_checker=True, **options)
        except package.error.Error as error:
            hint = (
                f" Those of safety-gymnasium are called safety_gymnasium:{name}." if name.startswith("Safety") else ""
            )
            raise Mistake(f"{error}{hint}") from None

    return make


def made(make: Callable[..., Any]) -> Any:
    """An environment in which MuJoCo keeps no log: that would go to the working directory, through any link there."""
    env = make()
    mujoco: Any = sys.modules.get("mujoco")
    if hasattr(mujoco, "set_mju_user_warning") and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(lambda warning: None)
    return env


def drawing(make: Callable[..., Any]) -> Callable[..., Any]:
    """``make`` so that the environment draws pictures, where it can be told to."""
    for name, value in (("MUJOCO_GL", "egl"), ("SDL_VIDEODRIVER", "dummy")):
        if not os.environ.get("DISPLAY"):
            os.environ.setdefault(name, value)
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        parameters = {}
    told = "render_mode" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return (lambda: make(render_mode="rgb_array")) if told else make


def gymnasium() -> ModuleType:
    try:
        return importlib.import_module("gymnasium")
    except ImportError:
        pass
    try:
        return importlib.import_module("gym")
    except ImportError:
        raise Mistake("Gymnasium is not installed there: pip install gymnasium") from None


def fits(space: Any, value: Any, what: str) -> None:
    """Refuse a value of another shape or kind than its space declares. Bounds are the environment's own business."""
    kind = type(space).__name__
    if kind == "Dict":
        if not hasattr(value, "keys") or set(value) != set(space.spaces):
            keys = ", ".join(map(str, space.spaces))
            raise Mismatch(f"{what} is {_brief(value)}; its space declares the keys {keys}")
        for key, part in space.spaces.items():
            fits(part, value[key], f"{what}[{key!r}]")
    elif kind == "Tuple":
        if not isinstance(value, (tuple, list)) or len(value) != len(space.spaces):
            raise Mismatch(f"{what} is {_brief(value)}; its space declares a tuple of {len(space.spaces)}")
        for i, part in enumerate(space.spaces):
            fits(part, value[i], f"{what}[{i}]")
    elif kind == "Box":
        array = np.asarray(value)
        if array.shape != tuple(space.shape):
            raise Mismatch(f"{what} has shape {array.shape}; its space declares {tuple(space.shape)}")
        if array.dtype.kind not in ("biuf" if space.dtype.kind == "f" else "biu"):
            raise Mismatch(f"{what} has dtype {array.dtype}; its space declares {space.dtype}")
    elif not space.contains(value):
        raise Mismatch(f"{what} is {_brief(value)}, which is not in its space {space}")


def number(value: Any, what: str, count: int | None = None) -> None:
    """Refuse what is not ``count`` numbers (None: a number, or a row of them)."""
    if isinstance(value, _NUMBERS) and count in (1, None):
        return
    try:
        if value is not None and not isinstance(value, (str, bytes)):
            array = np.asarray(value, np.float32)
            if array.ndim <= 1 and count in (array.size, None):
                return
    except (TypeError, ValueError):
        pass
    wanted = (
        "a number" if count == 1 else f"{count} numbers" if count else "a number (costs: or one for each constraint)"
    )
    raise Mismatch(f"{what} {value!r}; it must be {wanted}.")


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return f"a dict with the keys {', '.join(map(str, value)) or '(none)'}"
    shape = np.shape(value) if isinstance(value, (np.ndarray, list, tuple)) else ()
    return f"{type(value).__name__} of shape {shape}" if shape else f"{type(value).__name__} {str(value)[:60]}"
