"""Logs in object storage (``s3://``), read through fsspec, which is optional. The only importer of fsspec.

Whatever a library of a cloud raises becomes one line with a hint.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

from cachedoctor.inputs.sources.base import READ_SIZE, SourceError, Told, unheard
from cachedoctor.inputs.sources.unpack import MAX_BYTES, unpacked, utf8
from cachedoctor.knowledge.libraries import install
from cachedoctor.model import CacheDoctorError

SCHEMES = {"s3": "s3"}
"""Package extra that adds support for each scheme of addresses."""
_READERS = {"s3": "s3fs"}
"""Library after fsspec."""
_CREDENTIALS = {"s3": "set the cloud's credentials: AWS_PROFILE, AWS_ACCESS_KEY_ID"}
_BLOCK = 8 << 20
"""Bytes of one request: an object is read from its beginning to its end."""
_SAID = 200
"""Maximum characters quoted from a library's message."""
_VERSION = ("ETag", "VersionId")
_TIME = ("LastModified", "mtime")


class StoredFile(NamedTuple):
    """A file, and what shows whether it is still the same."""

    path: str
    size: int
    """Bytes as they are stored."""
    stamp: str
    """Time of its last change, or what the object store calls this content."""


def is_remote(path: str) -> bool:
    """Whether a path is an address in object storage."""
    scheme, mark, _ = path.partition("://")
    return bool(mark) and scheme in SCHEMES


def listed(path: str) -> list[StoredFile]:
    """Return the object at an address, those below it where it is a folder, or those that a pattern names.

    Raises:
        SourceError: nothing is there, or it cannot be listed.
        CacheDoctorError: the extra for this scheme is not installed.
    """
    system = _system(path)
    try:
        if any(mark in path for mark in "*?["):
            found = system.glob(path, detail=True)
        else:
            found = system.find(path, detail=True)
    except Exception as fault:
        raise _wrong(path, fault) from fault
    scheme = path.partition("://")[0]
    files = [_stored(f"{scheme}://{name}", info) for name, info in sorted(found.items()) if info.get("type") == "file"]
    if not files:
        raise SourceError(f"{path}: no such object", "check the address; a pattern needs quotes in a shell")
    return files


def stored_at(path: str) -> StoredFile:
    """Return what an object is now.

    Raises ``SourceError``.
    """
    system = _system(path)
    try:
        system.invalidate_cache()
        return _stored(path, system.info(path))
    except Exception as fault:
        raise _wrong(path, fault) from fault


class RemoteSource:
    """The object at ``path``; packed ones are known by content, as files are."""

    def __init__(self, path: str, max_bytes: int = MAX_BYTES, told: Told = unheard) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._told = told

    def chunks(self) -> Iterator[bytes]:
        """Yield the unpacked UTF-8 bytes.

        Raises ``SourceError`` when it cannot be opened, read or unpacked.
        """
        yield from utf8(unpacked(self.path, self._reads(), self._max_bytes))

    def _reads(self) -> Iterator[bytes]:
        system = _system(self.path)
        try:
            with system.open(self.path, "rb", block_size=_BLOCK, cache_type="readahead") as file:
                while data := file.read(READ_SIZE):
                    self._told(len(data))
                    yield data
        except Exception as fault:
            raise _wrong(self.path, fault) from fault


def _system(path: str) -> Any:
    scheme = path.partition("://")[0]
    try:
        import fsspec

        # What it would print of its attempts stands among our own words, which tell of what came of them.
        logging.getLogger(_READERS[scheme]).setLevel(logging.CRITICAL)
        return fsspec.filesystem(scheme)
    except ImportError:
        raise SourceError(f"{path}: the library for {scheme}:// is not installed", install(SCHEMES[scheme])) from None
    except Exception as fault:
        raise _wrong(path, fault) from fault


def _stored(path: str, info: dict[str, Any]) -> StoredFile:
    marks = [str(info[key]) for key in (*_VERSION, *_TIME) if info.get(key) is not None]
    return StoredFile(path, int(info.get("size") or 0), " ".join(marks))


def _wrong(path: str, fault: Exception) -> CacheDoctorError:
    if isinstance(fault, CacheDoctorError):
        return fault
    if isinstance(fault, FileNotFoundError):
        return SourceError(f"{path}: no such object", "check the address")
    kind, said = type(fault).__name__, " ".join(str(fault).split())[:_SAID]
    if isinstance(fault, PermissionError):
        return SourceError(f"{path}: access denied", "check the credentials and their permissions")
    if "redential" in kind or "redential" in said:
        return SourceError(f"{path}: no credentials ({kind})", _CREDENTIALS[path.partition("://")[0]])
    return SourceError(f"{path}: cannot be read ({kind}: {said})", "check the address, the network and the credentials")
