"""Files that grow by a record at a time, and wait with what a full disk does not take."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from cppo import files


class Appended:
    """What is written goes on exactly where a failed write stopped: nothing is missing, nothing there twice."""

    def __init__(self, path: Path, anew: bool = False):
        self._path, self._waiting = path, bytearray()
        self._file: int | None = files.open_new(path) if anew else files.open_end(path)

    def write(self, data: bytes) -> None:
        """One write for all of ``data``, so that a kill leaves half a record at most; what fails waits for the next."""
        self._waiting += data
        with suppress(OSError):
            self._drain()

    def sync(self) -> None:
        """Force everything to disk, or raise why that cannot be."""
        if self._file is not None:
            self._drain()
            os.fsync(self._file)

    def is_in_place(self) -> bool:
        """Whether the path still leads to this file: the folder was not moved or deleted, nor the file."""
        try:
            return self._file is not None and os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """What still waits is lost, as with a kill; who needs it calls ``sync`` before."""
        if self._file is not None:
            with suppress(OSError):
                self.sync()
            file, self._file = self._file, None
            with suppress(OSError):
                os.close(file)

    def _drain(self) -> None:
        assert self._file is not None
        while self._waiting:
            del self._waiting[: os.write(self._file, self._waiting)]
