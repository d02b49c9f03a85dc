"""Signals that ask a process to end: Ctrl-C, a scheduler's SIGTERM, the SIGHUP of a terminal that closes.

While training is at work the first one is a request: what is complete is saved, then the process ends with the status
that shells and schedulers expect, 128 and the signal's number. The second one ends at once. A batch may be one compiled
program, which nothing interrupts. So the command line also watches from a thread (``ends_within``): when the time is
up it ends the process. Nothing is lost by that, since a batch that takes so long was saved at its end (``session``).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
PATIENCE = 8.0  # seconds from a signal to the end of the process


class Heeded:
    """Signals as requests (``asked``) while ``busy``; at other times they raise where the program stands."""

    def __init__(self, busy: bool = False):
        self.busy = busy
        self.number: int | None = None  # of the signal that came
        self._before: dict[int, Any] = {}

    def asked(self) -> bool:
        return self.number is not None

    def __enter__(self) -> Heeded:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heed) for number in SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if not self.busy or self.asked():
            raise ending(number)
        self.number = number


def ending(number: int) -> BaseException:
    """What a process ends with that a signal asked to end."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


@contextmanager
def ends_within(seconds: float = PATIENCE) -> Iterator[None]:
    """Within this block, a first signal ends the process in so many seconds, whatever it is at; a second one at once.

    Python's own handlers wait for a compiled program to return. The thread here does not: the system tells it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, told = socket.socketpair()
    told.setblocking(False)
    threading.Thread(target=_watch, args=(ours, seconds), daemon=True).start()
    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        told.close()


def _watch(ours: socket.socket, seconds: float) -> None:
    with ours:
        first = _next(ours)
        if first is None:
            return
        ours.settimeout(seconds)
        try:
            number = _next(ours)
        except TimeoutError:
            number = first
    if number is not None:
        if sys.stdout.isatty():
            os.write(1, b"\x1b[?25h\n")  # the display hides the cursor
        os._exit(128 + number)


def _next(ours: socket.socket) -> int | None:
    """The next of the signals; None where there are to be no more."""
    while came := ours.recv(1):
        if came[0] in SIGNALS:
            return came[0]
    return None
