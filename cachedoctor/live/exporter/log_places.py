"""Which logs there are: those that were named, those in folders, those of pods."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cachedoctor.doctor.scratch import printable
from cachedoctor.doctor.tables.tables import is_log
from cachedoctor.inputs.sources.generations import is_rotation, rotations
from cachedoctor.knowledge.late_patterns import late

_POD = late(r"([^_]+)_([^_]+)_[^_]+")
"""``NAMESPACE_POD_UID`` below /var/log/pods."""
_CONTAINER_LOG = late(r"\d+\.log")
"""``N.log``: one for each start of a container."""
_HEAD = 1 << 15
"""First bytes that decide that a file is not a server log, however it continues."""


class FollowedPath(NamedTuple):
    """A log to follow."""

    path: str
    name: str
    """Value of the label ``server``."""
    is_named: bool
    """The user named it: it is kept even while the file is missing."""

    @property
    def key(self) -> str:
        """Path in the state file, which is UTF-8; a name on a disk need not be."""
        return printable(self.path)


class Places:
    """Finds the logs to follow, each time it is called."""

    def __init__(self, logs: list[str], folders: list[str], complain: Callable[[str, str], None]) -> None:
        """``logs`` may be folders as well; ``complain`` takes message and hint if a folder cannot be listed."""
        absolute = [os.path.abspath(path) for path in logs]
        self._named = _without_rotations([path for path in absolute if not os.path.isdir(path)])
        self._folders = list(dict.fromkeys([*filter(os.path.isdir, absolute), *map(os.path.abspath, folders)]))
        self._complain = complain
        self._told: set[str] = set()
        self.followed: set[str] = set()
        """Logs, whatever their first bytes are now; set by the code that follows them."""
        self._others: dict[str, tuple[int, int]] = {}
        """Inode and size of files that are not logs, so far."""

    def found(self) -> Iterator[FollowedPath]:
        """Yield every log that exists, and those that were named."""
        self._others = {path: mark for path, mark in self._others.items() if os.path.exists(path)}
        for path in self._named:
            yield FollowedPath(path, printable(path), True)
        for folder in self._folders:
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as fault:
                if folder not in self._told:
                    self._told.add(folder)
                    self._complain(f"{printable(folder)}: cannot be listed ({fault.strerror})", "check the folder")
                continue
            self._told.discard(folder)
            for entry in entries:
                pod = _POD.fullmatch(entry.name)
                if pod is not None and entry.is_dir():
                    yield from self._of_pod(entry.path, f"{pod[1]}/{pod[2]}")
                elif entry.name[0] != "." and not is_rotation(entry.path) and self._is_log(entry.path):
                    yield FollowedPath(entry.path, printable(entry.path), False)

    def _of_pod(self, folder: str, pod: str) -> Iterator[FollowedPath]:
        for container in _listed(folder):
            for log in _listed(container.path):
                # Docker has links there: its rotations lie beside the file itself.
                path = os.path.realpath(log.path)
                if _CONTAINER_LOG.fullmatch(log.name) and self._is_log(path):
                    yield FollowedPath(path, printable(f"{pod}/{container.name}"), False)

    def _is_log(self, path: str) -> bool:
        """Whether a file begins with lines of a server; it is not checked again until it has grown."""
        try:
            status = os.stat(path)
        except OSError:
            return False
        before = self._others.get(path)
        if not stat.S_ISREG(status.st_mode) or (
            before is not None and before[0] == status.st_ino and min(before[1], _HEAD) == min(status.st_size, _HEAD)
        ):
            return False
        if path in self.followed or is_log(path):
            self._others.pop(path, None)
            return True
        self._others[path] = status.st_ino, status.st_size
        return False


def before(path: str) -> list[tuple[str, tuple[int, int]]]:
    """Return the rotations of a log and itself, the oldest first, compressed ones as well, with device and inode."""
    found = []
    for name in rotations(path, [entry.name for entry in _listed(os.path.dirname(path))], packed=True):
        try:
            status = os.stat(name)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):  # to open a named pipe would wait for a writer
            found.append((name, (status.st_dev, status.st_ino)))
    return found


def _listed(folder: str) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []


def _without_rotations(paths: list[str]) -> list[str]:
    """Leave out logs that are earlier rotations of another one: they are read with that one."""
    old = {
        name
        for path in paths
        for name in rotations(
            path, [os.path.basename(p) for p in paths if os.path.dirname(p) == os.path.dirname(path)], packed=True
        )
        if name != path
    }
    return list(dict.fromkeys(path for path in paths if path not in old))
