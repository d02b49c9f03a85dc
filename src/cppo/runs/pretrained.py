"""Where a run is found that is named rather than pointed to: policies that come with cppo, and the Hub's.

``pretrained:PointGoal1`` is a folder of this package with one trained policy: its config, its weights and the record of
how it was made and what it does. ``scripts/make_pretrained.py`` makes them.
"""

from __future__ import annotations

import re
from pathlib import Path

from cppo.errors import UsageError
from cppo.runs import hub

SCHEME = "pretrained:"
HOME = Path(__file__).parents[1] / "policies" / "pretrained"


def names() -> list[str]:
    """What there is to start from, as it is typed.

    >>> "pretrained:PointCircle" in names()
    True
    """
    return sorted(f"{SCHEME}{path.name}" for path in HOME.iterdir() if path.is_dir())


def is_remote(name: str | Path) -> bool:
    """Whether a name leads to the Hub, and so over the network."""
    return str(name).startswith("hf:/")


def located(name: str | Path) -> Path:
    """The folder of a run that is named ``pretrained:…`` or ``hf://…``, or is a folder already."""
    text = str(name)
    if found := re.match(r"hf:/+(.+)", text):  # a path has one slash left
        return hub.pull(found[1])
    if not text.startswith(SCHEME):
        return Path(name)
    if text not in names():
        raise UsageError(f"there is no {text}. There are: {', '.join(names())}.")
    return HOME / text.removeprefix(SCHEME)


def is_ours(folder: Path) -> bool:
    """Whether a folder is one of this package, which nothing is written into."""
    return folder.parent == HOME
