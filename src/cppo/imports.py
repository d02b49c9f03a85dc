"""Objects named by import path, ``module:name``, and who may name them.

A name that the user gives with a command is followed. A name that only a file gives (``config.json`` of a run) is
followed where the user has vouched for it: by ``--trust``, or because he started that very run on this machine
(``cppo.runs.own``). Every name that becomes an object, and every program that a run names, passes ``Trust.ask``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from operator import attrgetter
from typing import Any

from cppo.errors import UsageError, blame, meant

SHOWN = 200  # letters of a name that are shown


@dataclass(frozen=True)
class Trust:
    """Whether the names of a run may be followed, and where its modules lie."""

    names: tuple[tuple[str, str], ...] = ()  # what cppo does not bring, with its kind: ("environment", "mine:World")
    vouched: bool = True
    place: str | None = ""  # the folder with the user's modules; "": the working directory, None: installed ones only
    lasting: bool = True  # False: vouched for by --trust, which holds for one command
    whose: str = field(default="", compare=False)  # the run's folder, for people

    def ask(self) -> None:
        """Go on where the user vouched for the names; else say what would run."""
        if not self.vouched:
            listed = ", ".join(f"{kind} {_shown(name)}" for kind, name in self.names)
            raise UsageError(
                f"{self.whose} names code that is not part of cppo, and nobody but its files asks for it: {listed}. "
                "It would run with all your rights. If you trust it, add --trust (Python: trust=True)."
            )


USER = Trust()  # the user named it, with this command


def is_path(name: str) -> bool:
    """Whether a name is an import path, not something of cppo's or of a library's own registry."""
    return ":" in name


def resolve(path: str, what: str, trust: Trust = USER) -> Any:
    """The object at ``path``; ``what`` names the option in errors."""
    trust.ask()
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise UsageError(f"{what} is {path!r}; write the import path of an object as module:name.")
    try:
        with _searching(trust.place):
            found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise blame(f"{what} {path!r} cannot be imported", error, "Install what it needs.") from error
        raise UsageError(
            f"{what} {path!r} cannot be imported: there is no module {error.name!r}; install it, or go to the folder "
            f"with {error.name}.py."
        ) from None
    except (Exception, SystemExit) as error:
        raise blame(f"{what} {path!r} cannot be imported", error, "Mend that module.") from error
    try:
        return attrgetter(name)(found)
    except AttributeError as error:
        missing = f"{module} has no {error.name!r}.{meant(error.name or '', dir(error.obj))}"
        raise UsageError(f"{what} {path!r} cannot be imported: {missing}") from None


def search_path(place: str | None) -> list[str]:
    """Where the modules of a run are looked for. The working directory is among it only where it is ``place``."""
    here = os.getcwd()
    by_user = {os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    kept = [entry for entry in sys.path if entry and (os.path.abspath(entry) != here or here in by_user)]
    return kept if place is None else [place or here, *kept]


@contextmanager
def _searching(place: str | None) -> Iterator[None]:
    """Look for modules there alone; afterwards ``place`` stays known, for what they import later."""
    before, searched = list(sys.path), search_path(place)
    sys.path[:] = searched
    try:
        yield
    finally:
        added = [entry for entry in sys.path if entry not in searched]  # by the module itself
        mine = [] if place is None or place in before else [place]
        sys.path[:] = [*added, *mine, *before]


def _shown(name: str) -> str:
    """A name as it can be shown on one line, and where its module would come from."""
    short = name if len(name) <= SHOWN else f"{name[:SHOWN]}…"
    module = name.partition(":")[0].partition(".")[0]
    found = PathFinder.find_spec(module, search_path("")) if is_path(name) and module.isidentifier() else None
    return f"{short!r}" + (f" (from {found.origin})" if found is not None and found.origin else "")
