"""Runs that this user started on this machine, so that their names need no vouching again.

Training notes a run whose settings name code of others in the user's state folder (``$XDG_STATE_HOME/cppo/runs``, else
``~/.local/state/cppo/runs``): the hash of its ``config.json`` but for the number of steps, and the folder that it was
started in, where its modules are found from then on, wherever it is resumed from. Nothing in a run's folder can say so
itself. The run's path is no part of the hash, so a run may be moved or copied: whoever has the same settings names the
same code in the same place, which is the code that this user ran.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cppo import files

log = logging.getLogger("cppo.runs")


def note(config: Mapping[str, Any], place: str) -> None:
    """Remember a run by its saved settings. Where that cannot be, training goes on: resuming then takes --trust."""
    try:
        path = _entry(config)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_text(path, json.dumps({"place": os.path.abspath(place)}) + "\n")
    except (OSError, RuntimeError) as error:
        log.warning("this run could not be noted as yours (%s): resuming it will take --trust", error)


def place_of(config: Mapping[str, Any]) -> str | None:
    """Where this user started the run with these settings; None where he did not."""
    try:
        place = json.loads(_entry(config).read_text())["place"]
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return None
    return place if isinstance(place, str) and os.path.isabs(place) else None


def _entry(config: Mapping[str, Any]) -> Path:
    content = {name: value for name, value in config.items() if name != "steps"}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return _folder() / f"{digest}.json"


def _folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "cppo" / "runs"
