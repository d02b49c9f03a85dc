"""Objects that a user names by import path, ``module:name``."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from cppo.types import UsageError


def resolve(path: str, what: str) -> Any:
    """The object at ``path``; modules in the working directory are found, too. ``what`` names the option in errors."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise UsageError(f"{what} is {path!r}; write the import path of an object as module:name.")
    if "" not in sys.path:
        sys.path.insert(0, "")  # an installed command does not look where it is run
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{what} {path!r} cannot be imported: {error}.") from None
    return found
