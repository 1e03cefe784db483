"""Rotated log files: their order in time, and the files a log was before its rotations."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from io import FileIO
from itertools import zip_longest

import msgspec

from cachedoctor.inputs.sources import unpack
from cachedoctor.inputs.sources.file import open_log
from cachedoctor.knowledge.late_patterns import late

_COMPRESSED = late(r"\.(?:gz|xz|bz2|zst)$")
# logrotate's dateext (-20260101, -2026010113, -1767225600) and the dotted dates of other rotators.
_DATE = late(r"[.-](\d{4}-?\d\d-?\d\d(?:[T_-]?\d\d(?:[:-]?\d\d){0,2})?)$")
# Three digits at most: a longer number is rather a port or a process id.
_NUMBER = late(r"\.(\d{1,3})$")

_DATED, _NUMBERED, _CURRENT = range(3)


def in_time_order(paths: list[str]) -> list[str]:
    """Sort the rotations of each log from the oldest to the newest.

    Rotations share folder and base name: ``server.log.2.gz``, ``server.log.1``, ``server.log``. A higher number is
    older, a date suffix (``server.log-20260101``) sorts ascending and before numbers, the bare name comes last. A
    group stands where its first member was given; files that are not rotations of each other keep their order.
    """
    groups: dict[str, list[tuple[tuple[int, int, str], str]]] = {}
    for path in paths:
        base, age = _dissected(path)
        groups.setdefault(base, []).append((age, path))
    return [path for group in groups.values() for _, path in sorted(group, key=lambda member: member[0])]


def rotations(path: str, names: list[str], *, packed: bool = False) -> list[str]:
    """Return those of ``names`` in the folder of ``path`` that may be earlier files of this log, oldest first, ``path``
    itself last.

    Compressed ones are left out unless ``packed``; then one that is being compressed counts once. A path that is
    itself a rotation (``server.log.1``) never had another name.
    """
    folder, base = os.path.split(path)
    (ours, (kind, *_)) = _dissected(path)
    plain = {name for name in names if not _COMPRESSED.search(name)}
    wanted = [name for name in names if name in plain or (packed and _COMPRESSED.sub("", name) not in plain)]
    before = [os.path.join(folder, name) for name in wanted if name != base]
    same = [other for other in before if kind == _CURRENT and _dissected(other)[0] == ours]
    return [*in_time_order(same), path]


def is_rotation(path: str) -> bool:
    """Whether a file is called like what a log was before: by a number, a date, or compressed."""
    return bool(_COMPRESSED.search(path)) or _dissected(path)[1][0] != _CURRENT


def _dissected(path: str) -> tuple[str, tuple[int, int, str]]:
    name = _COMPRESSED.sub("", os.path.normpath(path))
    if found := _DATE.search(name):
        return name[: found.start()], (_DATED, 0, re.sub(r"\D", "", found[1]))
    if found := _NUMBER.search(name):
        return name[: found.start()], (_NUMBERED, -int(found[1]), "")
    return name, (_CURRENT, 0, "")


Key = tuple[int, int]
"""Device and inode."""

_HEAD = 4096
"""Bytes that distinguish a file from the one that had its inode before, and a copy from another file."""
_ATTEMPTS = 100
"""Attempts to list the folder while names change during the listing."""


class Generation(msgspec.Struct, frozen=True):
    """One of these files, opened while it had bytes."""

    file: FileIO
    key: Key
    size: int
    head: bytes

    def holds(self, text: bytes, end: int) -> bool:
        """Whether ``text`` comes right before byte ``end`` of the file, as far as the file has these bytes."""
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
        """Remember all that are older than the file with this key: they were not requested."""
        found = self.opened() or []
        at = next((i for i, generation in enumerate(found) if generation.key == ours), len(found))
        self.learn(found[:at])
        close(generation.file for generation in found)

    def learn(self, found: list[Generation]) -> None:
        """Remember that these are read, or about to be."""
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
        if name != self._path and unpack.format_of(head):
            file.close()
            return None
        return Generation(file, key_of(status), status.st_size, head)


def key_of(status: os.stat_result) -> Key:
    """What distinguishes a file from all others that exist."""
    return status.st_dev, status.st_ino


def read_at(file: FileIO, begin: int, size: int) -> bytes:
    """Read at most ``size`` bytes from ``begin`` on; none if the system refuses."""
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
    """Leave out what the next file contains as well: a copy that is being made before the file is truncated."""
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
