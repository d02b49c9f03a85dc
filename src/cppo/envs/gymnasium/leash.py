"""Ends a process of a pool when its parent is gone, however that died; run there before anything else.

Standard library only, Python 3.8 or newer, like ``world.py``. Two ways, because each alone has a gap. Linux kills the
process when the thread that started it ends; this also reaches a process that hangs in compiled code. A thread notices
that nobody can write commands any more, on every system and behind a wrapper script; it needs Python to run.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading

PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def end_with_parent(by_kernel: bool) -> None:
    """``by_kernel``: the thread that started this process lives as long as the parent does."""
    if by_kernel and sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # A descriptor of our own: the standard input is about to be closed to the environment.
    threading.Thread(target=_end_with, args=(os.dup(0),), daemon=True).start()


def _end_with(pipe: int) -> None:
    """Wait until the other end of ``pipe`` is closed, whatever else arrives, and end."""
    closed = select.poll()
    closed.register(pipe, 0)  # no event but the hang-up, which is always told
    closed.poll()
    os._exit(1)


if __name__ == "__main__":
    end_with_parent(sys.argv[-1] == "kernel")
