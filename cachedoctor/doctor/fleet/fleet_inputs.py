"""Which files a fleet consists of: paths, folders, patterns and addresses become logs with their rotations."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator

import msgspec

from cachedoctor.doctor.analysis.run import chains
from cachedoctor.doctor.scratch import printable
from cachedoctor.inputs.sources.object_store import StoredFile, is_remote, listed, stored_at
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import base_name
from cachedoctor.model import CacheDoctorError

_UNFIT = late(r"[^A-Za-z0-9.-]+")
_SHOWN = 40
"""Characters of a log's name in the names of files about it."""


class Log(msgspec.Struct, frozen=True):
    """The files that one log was written to, the oldest first."""

    name: str
    """Name of the log, without what a rotation adds."""
    files: list[StoredFile]

    @property
    def part(self) -> str:
        """Name of the files about it: a person recognises it, and no two logs have the same."""
        return part_of(self.name)

    @property
    def size(self) -> int:
        """Bytes of it, as they are stored."""
        return sum(file.size for file in self.files)


class Unfound(msgspec.Struct, frozen=True):
    """A path that leads to no file."""

    path: str
    reason: str


def part_of(name: str) -> str:
    """Return what files about the log ``name`` are called, without their endings."""
    digest = hashlib.blake2b(printable(name).encode(), digest_size=8).hexdigest()
    shown = _UNFIT.sub("-", name.partition("://")[2] or name).strip("-.")[-_SHOWN:].strip("-.")
    return f"{shown or 'log'}-{digest}"


def logs_at(paths: Iterable[str], spared: str) -> tuple[list[Log], list[Unfound]]:
    """Return the logs at ``paths``, and what could not be found; nothing below the folder ``spared`` is an input."""
    files: dict[str, StoredFile] = {}
    unfound = []
    for path in paths:
        try:
            files |= {file.path: file for file in _files(path, os.path.realpath(spared))}
        except CacheDoctorError as error:
            unfound.append(Unfound(path, error.message))
    found = [[files[path] for path in chain] for chain in chains(list(files))]
    return [Log(base_name(chain[0].path), chain) for chain in found], unfound


def now_at(path: str) -> StoredFile:
    """Return what a file is now.

    Raises ``CacheDoctorError``.
    """
    if is_remote(path):
        return stored_at(path)
    try:
        status = os.stat(path)
    except OSError as error:
        raise CacheDoctorError(f"{path}: {error.strerror}") from error
    return StoredFile(path, status.st_size, str(status.st_mtime_ns))


def _files(path: str, spared: str) -> list[StoredFile]:
    if is_remote(path):
        return listed(path)
    found = [path] if os.path.lexists(path) else sorted(glob.glob(path, recursive=True))
    if not found:
        raise CacheDoctorError(f"{path}: no such file")
    named = [name for name in found if not os.path.isdir(name)]
    below = [name for name in found if os.path.isdir(name) for name in _below(name, spared)]
    if not named and not below:
        raise CacheDoctorError(f"{path}: contains no files")
    return [_regular(name) for name in dict.fromkeys([*named, *below])]


def _regular(path: str) -> StoredFile:
    """One that cannot be checked is a file: whoever reads it says what is wrong."""
    try:
        return now_at(path)
    except CacheDoctorError:
        return StoredFile(path, 0, "")


def _below(folder: str, spared: str) -> Iterator[str]:
    """Yield the files below a folder; nobody waits for what a pipe or a device may give."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name[0] != "." and os.path.realpath(os.path.join(place, name)) != spared
        )
        for name in sorted(names):
            path = os.path.join(place, name)
            if name[0] != "." and is_regular(path):
                yield path


def is_regular(path: str) -> bool:
    """Whether a path leads to a file, or to nothing."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True
