"""One process at a time in a run's folder.

Two processes that train one run would append to the same metrics and remove each other's checkpoints. Each holds the
operating system's lock on a file beside the folder; a killed process loses it, so that nothing is left to clean up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cppo.types import UsageError

try:
    import fcntl
except ImportError:  # Windows: no such locks, no protection
    fcntl = None


@contextmanager
def claim(folder: Path) -> Iterator[bool]:
    """Whether ``folder`` is this process's until the end of the block; False where another one has it."""
    path = folder.resolve().parent / f".{folder.resolve().name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = _locked(path)
    if file is None:
        yield False
        return
    try:
        yield True
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def is_claimed(folder: Path) -> bool:
    """Whether another process has ``folder`` now."""
    with claim(folder) as mine:
        return not mine


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """``folder`` for this process alone, or a ``UsageError``."""
    with claim(folder) as mine:
        if not mine:
            raise UsageError(f"another process is training in {folder}; wait for it, or choose another folder.")
        yield


def _locked(path: Path) -> int | None:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        except OSError:
            return file  # a file system without locks
        if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
            return file
        os.close(file)  # its last owner removed it in between
