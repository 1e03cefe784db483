"""Reads files that a user names, up to a size: a device has no end, and a pipe may never begin."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from cachedoctor.model import CacheDoctorError

MIB = 1 << 20


def open_file(path: str | os.PathLike[str], hint: str, *, pipes: bool = False) -> BinaryIO:
    """Open a file without waiting for anybody.

    Args:
        hint: what to give instead.
        pipes: a pipe is as good, such as that of ``<(command)``; one that nobody writes to is at its end at once.

    Raises:
        CacheDoctorError: it is a device, or a pipe where none is wanted.
        OSError: it cannot be opened.
    """
    # Without O_NONBLOCK a named pipe is waited for before it can be seen that it is one.
    number = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    kind = os.fstat(number).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or (pipes and stat.S_ISFIFO(kind))):
        os.close(number)
        what = "a pipe" if stat.S_ISFIFO(kind) else "a device"
        raise CacheDoctorError(f"{os.fspath(path)}: is {what}, not a file", hint)
    if stat.S_ISFIFO(kind):
        os.set_blocking(number, True)
    return os.fdopen(number, "rb")  # which refuses a directory


def read_file(path: str | os.PathLike[str], most: int, hint: str, *, pipes: bool = False) -> bytes:
    """Read all of a file of at most ``most`` bytes; see ``open_file`` for the rest.

    Raises:
        CacheDoctorError: it is larger, or no file.
        OSError: it cannot be read.
    """
    with open_file(path, hint, pipes=pipes) as file:
        return read_all(file, str(os.fspath(path)), most, hint)


def read_all(file: BinaryIO, name: str, most: int, hint: str) -> bytes:
    """Read an open file to its end; raises ``CacheDoctorError`` if it is larger than ``most`` bytes.

    Memory is asked for by the size that the file has. Pipes and files of ``/proc`` have none, and a log may grow: what
    comes after that size is read in pieces.
    """
    size = _size_of(file)
    if size > most:  # nothing of it has to be read
        raise _too_large(name, most, hint)
    parts, done = [], 0
    while data := file.read(min(size + 1 - done if done < size else MIB, most + 1 - done)):
        parts.append(data)
        done += len(data)
        if done > most:
            raise _too_large(name, most, hint)
    return b"".join(parts)


def _size_of(file: BinaryIO) -> int:
    """Return the size of a file in bytes, 0 if it has none: a pipe, or a stream without a descriptor."""
    try:
        return os.fstat(file.fileno()).st_size
    except OSError:
        return 0


def _too_large(name: str, most: int, hint: str) -> CacheDoctorError:
    return CacheDoctorError(f"{name}: is larger than {most // MIB:,} MiB", hint)
