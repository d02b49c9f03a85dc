"""One process at a time in a run's folder.

Two processes that train one run would append to the same metrics and remove each other's checkpoints. Whoever trains
holds the operating system's lock on the folder itself, which a killed process loses at once and nobody can delete
apart from the run. Network file systems lock files only, some of them on one machine only, some nothing at all. So the
owner also holds, locked, a file in the folder, ``.owner``: it says who trains, with a number that grows as long as the
process lives. Where a lock can prove nothing, a newcomer watches that number for a while.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from cppo import files
from cppo.errors import Unsaved, UsageError, shown

try:
    import fcntl
except ImportError:  # Windows: signs of life alone
    fcntl = None

OWNER = ".owner"
BEAT = 5.0  # seconds between two signs of life
PATIENCE = 3  # beats without one, after which an owner counts as dead

_tokens: set[str] = set()  # of the claims that this process holds
_told: set[str] = set()  # what was said once


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileNotFoundError, NotADirectoryError, FileExistsError) as error:  # a place that never holds a folder
        raise UsageError(f"{folder}: {error.strerror}, so no run can be there. Choose another --out.") from None


@contextmanager
def claim(folder: Path) -> Iterator[bool]:
    """Whether ``folder``, made where it is missing, is this process's until the end; False where another has it."""
    made = not folder.exists()
    try:
        _make(folder)
        mine = _claimed(folder)
    except OSError as error:
        raise Unsaved(
            f"no run can be trained in {folder} ({error.strerror or error}): make it a folder that can be written, "
            "make space, or choose another --out."
        ) from None
    try:
        yield mine is not None
    finally:
        if mine is not None:
            mine.release()
        if made:
            with suppress(OSError):  # something was begun in it
                folder.rmdir()


def is_claimed(folder: Path) -> bool:
    """Whether another process has ``folder`` now."""
    if not folder.is_dir():
        return False
    with claim(folder) as mine:
        return not mine


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """``folder`` for this process alone, or a ``UsageError``."""
    with claim(folder) as mine:
        if not mine:
            who = _read(folder / OWNER)
            named = f" (process {who['pid']} on {who['host']})" if who else ""
            raise UsageError(f"another process is training in {folder}{named}; wait for it, or choose another folder.")
        yield


def taken_over(folder: Path) -> str | None:
    """Who has ``folder``, where it is no longer this process: it was suspended for long, or locks proved nothing."""
    who = _read(folder / OWNER)
    return None if who is None or who["token"] in _tokens else f"process {who['pid']} on {who['host']}"


class _Claim:
    """A folder held: its descriptors, whose closing ends the locks, and the thread that gives signs of life."""

    def __init__(self, folder: Path, opened: ExitStack, where: int | None, file: int):
        self.folder, self._opened, self._where, self._file = folder, opened, where, file
        self._who = {"token": uuid.uuid4().hex, "pid": os.getpid(), "host": socket.gethostname(), "boot": _boot()}
        self._beats, self._end = 0, threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        _tokens.add(self._who["token"])

    def begin(self) -> None:
        self._tell()
        self._thread.start()

    def holds(self) -> bool:
        who = _read(self.folder / OWNER)
        return who is not None and who["token"] == self._who["token"]

    def release(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(OSError):  # a disk that failed; the next owner finds that this one is dead
            self._remove()
        _tokens.discard(self._who["token"])
        self._opened.close()

    def _remove(self) -> None:
        """Also from a folder that was moved; not what another process has made its own."""
        os.lseek(self._file, 0, os.SEEK_SET)
        if self._who["token"].encode() not in os.read(self._file, 1000):
            return
        if self._where is not None:
            os.unlink(OWNER, dir_fd=self._where)
        elif self.holds():
            (self.folder / OWNER).unlink()

    def _live(self) -> None:
        while not self._end.wait(BEAT):
            with suppress(OSError):  # a disk that fails for a while
                if not (self.folder / OWNER).exists() and _same(self._where, self.folder):
                    self._file = _open(self._opened, self.folder / OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL)
                    _lock(self._file)
                    self._tell()
                elif self.holds():
                    self._tell()

    def _tell(self) -> None:
        """In place and always as long, so that it needs no space on a full disk; forced out for other machines."""
        self._beats += 1
        os.lseek(self._file, 0, os.SEEK_SET)
        os.write(self._file, f"{json.dumps({**self._who, 'beats': self._beats})}".ljust(400).encode())
        os.fsync(self._file)


def _claimed(folder: Path) -> _Claim | None:
    """The claim on ``folder``; None where another process, or another claim of this one, has it."""
    with ExitStack() as opened:
        where = _open(opened, folder, os.O_RDONLY) if fcntl is not None else None
        by_folder = _lock(where)
        if by_folder is False:
            return None
        file = _open(opened, folder / OWNER, os.O_RDWR | os.O_CREAT)
        by_file = _lock(file)
        if by_file is False:
            return None
        if not (_same(where, folder) and _same(file, folder / OWNER)):
            return _claimed(folder)  # its last owner removed them in between
        proven, who = bool(by_folder or by_file), _read(folder / OWNER)
        if not proven:
            _say(f"The file system of {folder} has no locks: a sign of life in {OWNER} stands in for them.")
        ours = who is not None and (who["host"], who["boot"]) == (socket.gethostname(), _boot())
        if who is not None and (who["token"] in _tokens or (not (proven and ours) and _lives(folder, who))):
            return None
        mine = _Claim(folder, opened.pop_all(), where, file)
        try:
            mine.begin()
            if not proven:
                time.sleep(BEAT / 5)  # two newcomers at once: the one who wrote last has it
            won = mine.holds()
        except BaseException:
            mine.release()
            raise
        if not won:
            mine.release()
        return mine if won else None


def _lives(folder: Path, who: dict[str, Any]) -> bool:
    """Whether the owner gives a sign within its time; opened anew each time, for the sake of network file systems."""
    _say(f"{folder} was left by process {who['pid']} on {who['host']}: watching for {PATIENCE * BEAT:g} s if it lives.")
    until = time.monotonic() + PATIENCE * BEAT
    while time.monotonic() < until:
        time.sleep(BEAT / 10)
        now = _read(folder / OWNER)
        if now is not None and now != who:
            return True
    return False


def _open(opened: ExitStack, path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | (getattr(os, "O_NOFOLLOW", 0) if path.name == OWNER else 0), 0o666)
    descriptor = files.only_file(descriptor, path) if path.name == OWNER else descriptor
    opened.callback(os.close, descriptor)
    return descriptor


def _lock(descriptor: int | None) -> bool | None:
    """True: locked. False: another process has it. None: it cannot be locked here."""
    if fcntl is None or descriptor is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


def _same(descriptor: int | None, path: Path) -> bool:
    try:
        return descriptor is None or os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _read(path: Path) -> dict[str, Any] | None:
    try:
        who = json.loads(files.read(path, most=4096))
        found = {name: who[name] for name in ("token", "pid", "host", "boot", "beats")}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None  # nobody has been there, or it is being written
    words = all(isinstance(found[name], str) for name in ("token", "host", "boot"))
    return found if words and type(found["pid"]) is int and type(found["beats"]) is int else None


def _boot() -> str:
    """Tells machines of one name apart, and a machine from itself before it was started anew."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _say(text: str) -> None:
    if text not in _told:
        _told.add(text)
        print(shown(text), file=sys.stderr, flush=True)
