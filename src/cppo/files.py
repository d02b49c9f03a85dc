"""Files and folders as cppo makes them: whole or absent, where they are named, never through a link.

A run's folder may come from a stranger, and a link in it may lead anywhere. So everything that is written into a run,
a study or a report is made here: under a name of its own that must be new (``O_EXCL``, ``O_NOFOLLOW``), and then
renamed. A link that stood in the file's place is replaced; what it led to stays as it was. The folder that the user
names may be a link, a folder inside of it may not.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from cppo.errors import UsageError, shown

PARTIAL = ".partial"  # suffix of a file that is still being written
TEXT = 1 << 26  # bytes that a file of settings or records may have; ours have less than one in fifty of them

# O_NONBLOCK: a pipe of a file's name would keep whoever opens it waiting for ever.
_ALL = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | _ALL


def write_atomically(path: Path, data: bytes | bytearray) -> None:
    """Replace ``path`` by ``data`` such that a reader, or a crash, sees the old content or the new, never a mixture."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        with open(open_new(partial), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def write_text(path: Path, text: str) -> Path:
    write_atomically(path, text.encode())
    return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The same for those who write to a file by its name: it takes the place of ``path`` at the end of the block."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        os.close(open_new(partial))
        yield partial
        _sync(partial)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def open_new(path: Path) -> int:
    """An empty file in place of whatever is called ``path``: what a kill left there, or a link."""
    path.unlink(missing_ok=True)
    return os.open(path, _WRITE | os.O_EXCL, 0o666)


def open_end(path: Path) -> int:
    """The file ``path``, made where it is missing, to write at its end."""
    try:
        return only_file(os.open(path, _WRITE | os.O_APPEND, 0o666), path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):  # EMLINK: FreeBSD's word for the same
            raise _a_link(path) from None
        raise


def only_file(descriptor: int, path: Path) -> int:
    """``descriptor``, open to be written in place: of a file that has no other name, which may lie anywhere."""
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode) and about.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise _a_link(path) if stat.S_ISREG(about.st_mode) else _no_file(path)


def open_read(path: Path) -> BufferedReader:
    """A file to be read, which may come from anybody: no pipe and no device, which never end."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | _ALL)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_file(path)
    return open(descriptor, "rb")


def read(path: Path, most: int = TEXT) -> bytes:
    """What is in a file of at most so many bytes; a hole of a terabyte costs its sender nothing."""
    with open_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, of which {most:,} are believed", str(path))
        return file.read(most)


def also_called(path: Path, other: Path) -> None:
    """Give a file a second, new name. Where a disk has one name for a file, it is copied, in pieces: a hole of a
    terabyte costs its sender nothing."""
    try:
        os.link(path, other, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        with open_read(path) as file, replacing(other) as partial, open(partial, "r+b") as copy:
            shutil.copyfileobj(file, copy)
    _sync(other.parent)


def unlinked(path: Path) -> Path:
    """``path``, which must not be a link."""
    if path.is_symlink():
        raise _a_link(path)
    return path


def subfolder(folder: Path, name: str) -> Path:
    """A folder inside of ``folder``, made where it is missing."""
    path = unlinked(inside(folder, name))
    path.mkdir(exist_ok=True)  # but not the folder that holds it, which may have been moved
    return path


def inside(folder: Path, name: object) -> Path:
    """What is called ``name`` in ``folder``, for a name that was read from a file: it must not lead elsewhere."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\\" in name or name != shown(name):
        raise UsageError(f"{str(name)!r} is no name of something in {folder}; it must be plain and lead nowhere else.")
    return folder / name


def _sync(path: Path) -> None:
    """Force a file, or a rename in a folder, to disk; systems that cannot open a folder (Windows) order renames."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _no_file(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is no file but a folder, a pipe or a device", str(path))


def _a_link(path: Path) -> UsageError:
    return UsageError(f"{path} is a link, and may lead out of its folder; put what it leads to in its place.")
