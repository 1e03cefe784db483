"""What the counters were, and how far each log was read: kept in a small file from one run to the next.

A file is known by the digest of what was read of it: it may be renamed, copied or compressed meanwhile.
"""

from __future__ import annotations

import hashlib

import msgspec

from cachedoctor.doctor.exporter.request_counts import Series
from cachedoctor.model import CacheDoctorError

_VERSION = 1
_DIGEST = 16
"""Bytes: two files do not begin alike by chance."""


class ReadFile(msgspec.Struct, frozen=True):
    """The beginning of a file, up to where it was read."""

    size: int
    """Bytes, unpacked, as UTF-8."""
    digest: str


class SavedLog(msgspec.Struct, frozen=True):
    """A log at a moment."""

    path: str
    """As ``Place.key`` writes it."""
    files: list[ReadFile] = []
    """It and its rotations, as far as they were read; the last one is the one that was read at that moment."""
    quiet: bool = False
    """It had fallen silent there."""
    counts: list[tuple[Series, int, int]] = []
    """What was counted, and what was shown of it: a counter that was shown never falls."""
    gone: bool = False
    """It was away for so long that its counters are no longer shown; should it come back, they go on here."""


class SavedState(msgspec.Struct, frozen=True):
    """All that a run leaves to the next."""

    version: int = _VERSION
    labels: dict[str, list[str]] = {}
    """Values of labels, which are bounded in number."""
    logs: list[SavedLog] = []


class Prefix:
    """Bytes of one file as they come."""

    def __init__(self) -> None:
        self.size = 0
        self._digest = hashlib.blake2b(digest_size=_DIGEST)

    def add(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self.size += len(chunk)
        self._digest.update(chunk)

    def read(self) -> ReadFile:
        """Return what was read so far."""
        return ReadFile(self.size, self._digest.hexdigest())


def encoded(state: SavedState) -> bytes:
    """Return the bytes of the file."""
    return msgspec.json.encode(state)


def decoded(path: str, content: bytes) -> SavedState:
    """Read such a file; raises ``CacheDoctorError`` where it is none."""
    try:
        state = msgspec.json.decode(content, type=SavedState)
    except msgspec.MsgspecError as fault:
        raise CacheDoctorError(
            f"{path}: is no state of the exporter ({fault})", "delete it, or give another file"
        ) from fault
    if state.version != _VERSION:
        what = f"{path}: is the state of another version of the exporter ({state.version})"
        raise CacheDoctorError(what, "delete it, or give another file")
    return state
