"""How runs are trained, as opposed to what is trained (``plan``): nothing here changes a result."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cppo.errors import UsageError
from cppo.runs.loggers import check_loggers
from cppo.runs.metrics import Row
from cppo.runs.stopping import parse

Callback = Callable[[list[Row]], Any]  # sees the rows of each iteration, one for each seed; True: stop


@dataclass(frozen=True)
class Options:
    """What ``train``, ``resume``, ``training`` and ``resuming`` all take.

    ``checkpoint_seconds`` lie between two checkpoints at most (0: one after every iteration). ``loggers`` (csv, wandb)
    see every row beside ``metrics.jsonl``, and so does ``callback``, a function of the rows of an iteration, one dict
    for each seed; where it returns True, training stops. ``show``: True for the live display, False for silence, None
    for the display on a terminal and plain lines elsewhere.

    ``stop_after`` is a number of seconds from now: no iteration is begun that would end later, and the run goes on with
    ``resume``. ``stop_when`` is a rule, or several, such as ``feasible,return=20`` (``cppo.runs.stopping``).
    """

    checkpoint_seconds: float = 30.0
    tensorboard: bool = True
    loggers: Sequence[str] = ()
    show: bool | None = None
    callback: Callback | None = None
    stop_after: float | None = None
    stop_when: str | Sequence[str] = ()
    deadline: float | None = field(init=False, default=None)  # by the clock on the wall

    def __post_init__(self) -> None:
        check_loggers(self.loggers)
        for rule in self.rules:
            parse(rule)
        if self.stop_after is not None:
            object.__setattr__(self, "deadline", time.time() + self.stop_after)

    @property
    def rules(self) -> Sequence[str]:
        return [self.stop_when] if isinstance(self.stop_when, str) else self.stop_when

    def late(self, needed: float = 0.0) -> bool:
        """Whether less than the ``needed`` seconds are left."""
        return self.deadline is not None and time.time() + needed >= self.deadline


def seconds_of(text: str, flag: str = "--stop-after") -> float:
    """``25m``, ``1h30m``, ``90s`` or ``90`` in seconds.

    >>> seconds_of("1h30m")
    5400.0
    """
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if not match or not any(match.groups()):
        raise UsageError(f"{flag} {text!r}: write for example 25m, 1h30m or 90s.")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + seconds
