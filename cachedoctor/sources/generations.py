"""The files that a log was before its rotations, and is now. Knows names, inodes and bytes; knows no line."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from io import FileIO
from itertools import zip_longest
from typing import NamedTuple

from cachedoctor.sources import codec
from cachedoctor.sources.file import open_log
from cachedoctor.sources.order import rotations

Key = tuple[int, int]
"""Device and inode."""

_HEAD = 4096
"""Bytes that tell a file from the one that had its inode before, and a copy from another file."""
_ATTEMPTS = 100
"""Looks at the folder while names change under our hands."""


class Generation(NamedTuple):
    """One of these files, opened while it had bytes."""

    file: FileIO
    key: Key
    size: int
    head: bytes

    def holds(self, text: bytes, end: int) -> bool:
        """Whether ``text`` stands right before byte ``end`` of the file, as far as the file has these bytes."""
        begin, stop = end - len(text), min(end, self.size)
        return begin < stop and read_at(self.file, begin, stop - begin) == text[: stop - begin]


class Generations:
    """What was at ``path`` and at its rotated names when we last knew all of it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[Key, bytes] = {}

    def opened(self) -> list[Generation] | None:
        """Open all of them, oldest first; empty and compressed files are left out, and copies that are half made.

        Gives None when they are renamed faster than they can be opened. Raises ``SourceError`` when there is a file
        at the path and it cannot be opened.
        """
        for _ in range(_ATTEMPTS):
            names = self._names()
            found = [self._open(name) for name in names]
            if names == self._names() and all(
                g is None or g.key == key for g, key in zip(found, names.values(), strict=True)
            ):
                return _finished([g for g in found if g is not None and g.head])
            close(g.file for g in found if g is not None)
        return None

    def begin(self, ours: Key) -> None:
        """Take note of all that are older than the file with this key: nobody asks for them."""
        found = self.opened() or []
        at = next((i for i, generation in enumerate(found) if generation.key == ours), len(found))
        self.learn(found[:at])
        close(generation.file for generation in found)

    def learn(self, found: list[Generation]) -> None:
        """Take note that these are read, or about to be."""
        self._known = {g.key: g.head for g in found}

    def unseen(self, generation: Generation) -> bool:
        """Whether it was not there when we last knew all of them."""
        head = self._known.get(generation.key)
        return head is None or not generation.head.startswith(head)  # an inode can be given to another file

    def _names(self) -> dict[str, Key]:
        found: dict[str, Key] = {}
        try:
            listed = os.listdir(os.path.dirname(self._path) or ".")
        except OSError:
            listed = []
        for name in rotations(self._path, listed):
            try:
                status = os.stat(name)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):  # opening a named pipe would wait for a writer
                found[name] = key_of(status)
        return found

    def _open(self, name: str) -> Generation | None:
        try:
            file = FileIO(name, "r")
        except FileNotFoundError:
            return None
        except OSError:
            if name != self._path:
                return None
            file = open_log(name)  # says why not
        status = os.fstat(file.fileno())
        head = read_at(file, 0, _HEAD)
        if name != self._path and codec.format_of(head):
            file.close()
            return None
        return Generation(file, key_of(status), status.st_size, head)


def key_of(status: os.stat_result) -> Key:
    """What tells a file from all others that exist."""
    return status.st_dev, status.st_ino


def read_at(file: FileIO, begin: int, size: int) -> bytes:
    """Read at most ``size`` bytes from ``begin`` on; none when the system refuses."""
    try:
        file.seek(begin)
        return file.read(size)
    except OSError:
        return b""


def close(files: Iterable[FileIO]) -> None:
    """Close them all."""
    for file in files:
        file.close()


def _finished(found: list[Generation]) -> list[Generation]:
    """Leave out what the next file holds as well: a copy of it that is being made, before it is cut."""
    kept = []
    for generation, after in zip_longest(found, found[1:]):
        end = generation.size
        if after is not None and end <= after.size and after.head.startswith(generation.head[:_HEAD]):
            text = read_at(generation.file, max(0, end - _HEAD), min(end, _HEAD))
            if after.holds(text, end):
                generation.file.close()
                continue
        kept.append(generation)
    return kept
