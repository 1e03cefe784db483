"""The file of records: JSON lines, request bodies as digests unless texts are kept."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import zlib
from bisect import bisect_left
from itertools import groupby
from typing import Any

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.tokenizers.base import pieces
from cachedoctor.redaction import harmless_words

MOST = 64 << 20
"""Bytes that a body may unpack to."""
_ANY = 32 + zlib.MAX_WBITS
"""gzip or zlib, whichever the header shows."""


def unpacked(data: bytes, coding: str) -> bytes | None:
    """Give the bytes after a coding; None if it is not known here, broken, or unpacks to too much."""
    match coding.strip().lower():
        case "" | "identity":
            return data
        case "gzip" | "x-gzip":
            return _inflated(data, _ANY)
        case "deflate":  # zlib by the standard, bare by what some servers send
            found = _inflated(data, _ANY)
            return _inflated(data, -zlib.MAX_WBITS) if found is None else found
        case _:
            return None


def _inflated(data: bytes, window: int) -> bytes | None:
    """Decompress; of a truncated stream, return what is there."""
    decoder = zlib.decompressobj(window)
    try:
        out = decoder.decompress(data, MOST)
    except zlib.error:
        return None
    return None if decoder.unconsumed_tail else out


PIECE = 256
"""Code points per hash."""
_TOKENS = 16
"""Token ids per hash."""
_MEDIA = frozenset({"data", "url", "image_url", "file_data"})
"""Keys whose strings are files or addresses: not read as text."""
_FREE = frozenset(
    {"parameters", "input_schema", "input", "arguments", "metadata", "json_schema", "schema", "extra_body"}
)
"""Keys under which all nested keys and numbers are user data."""
_API_KEYS = frozenset(
    {"type", "text", "role", "content", "name", "id", "properties", "required", "items", "description", "enum"}
    | {"tool_calls", "function", "call_id", "output", "summary", "source", "data", "media_type", "image_url", "url"}
)  # fmt: skip
_MOST_DEPTH = 200


class _Digester:
    def __init__(self) -> None:
        self._cutter = pieces()

    def value(self, value: Any, key: str = "", free: bool = False, depth: int = 0) -> Any:
        if depth > _MOST_DEPTH:
            return None
        if isinstance(value, dict):
            return {
                # The input of a whole request is its messages; that of a tool's call is the user's.
                self._key(name, free): self.value(item, name, free or (name in _FREE and depth > 0), depth + 1)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return self._list(value, key, free, depth)
        if isinstance(value, str):
            return self._string(value, key, free)
        if free and isinstance(value, int | float) and not isinstance(value, bool):
            return _short(json.dumps(value))
        return value

    def _list(self, values: list[Any], key: str, free: bool, depth: int) -> list[Any]:
        """Numbers in a list are token ids, also between texts."""
        found: list[Any] = []
        for is_id, run in groupby(values, lambda item: type(item) is int):
            part = list(run)
            found += _ids(part) if is_id else [self.value(item, key, free, depth + 1) for item in part]
        return found

    def _key(self, name: str, free: bool) -> str:
        if name in _API_KEYS:
            return name
        return harmless_words.hashed(name) if free else harmless_words.field(name)

    def _string(self, text: str, key: str, free: bool) -> str:
        if key == "model" and not free:
            return harmless_words.model(text)
        if key in harmless_words.PLACES and (not free or key == "type"):
            return harmless_words.word(text, key)
        if key in _MEDIA:
            return f"sha256:{_short(text)}"
        return self._text(text)

    def _text(self, text: str) -> str:
        """A stand-in with as many tokens, counted without a vocabulary."""
        starts = self._cutter.encode(text).starts
        out, state = [], b""
        for start in range(0, len(text), PIECE):
            piece = text[start : start + PIECE]
            state = _sha(state + piece.encode("utf-8", "surrogatepass"))
            count = bisect_left(starts, start + PIECE) - bisect_left(starts, start)
            out.append(" " + _letters(state) + " -" * max(0, count - 1))
        return "".join(out).removeprefix(" ")


def without_texts(body: dict[str, Any]) -> dict[str, Any]:
    """Give the body with a stand-in for every text, every number of a tool call, and every key that is not an API's."""
    found: dict[str, Any] = _Digester().value(body)
    return found


def _ids(ids: list[int]) -> list[int]:
    """Stand-ins for as many token ids."""
    out: list[int] = []
    state = b""
    for start in range(0, len(ids), _TOKENS):
        part = ids[start : start + _TOKENS]
        state = _sha(state + json.dumps(part).encode())
        out += [int.from_bytes(_sha(state + bytes([n]))[:3], "big") for n in range(len(part))]
    return out


def _sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _short(text: str) -> str:
    return _sha(text.encode("utf-8", "surrogatepass")).hex()[:24]


def _letters(state: bytes) -> str:
    """A hash as one word of letters, which every tokenizer without a vocabulary takes for one piece."""
    return "".join(chr(ord("a") + (byte & 15)) for byte in state[:12])


MARK = b'{"recorder":"cachedoctor proxy"'
"""Start of every record."""
_NEW = "give a new file to --record"


class RecordFile:
    """Appends records to a file that only its owner may read; rotates it to ``FILE.1`` when it is too long."""

    def __init__(self, path: str, most: int) -> None:
        """Open it; the content of an earlier run stays. Raises CacheDoctorError if it cannot be used."""
        self._path, self._most = path, most
        self._failed = False
        try:
            self._file = _opened(path)
            self._mend()
            self._spare_aside()
            os.fchmod(self._file, 0o600)
        except OSError as error:
            raise CacheDoctorError(
                f"{path}: cannot be written: {error.strerror}", "give another file to --record"
            ) from error

    def add(self, record: bytes) -> str:
        """Append a record, without its line end; gives a description of any problem, empty if there is none.

        A record that does not fit on the disk is not there at all; the next one is tried again.
        """
        line = record + b"\n"
        if len(line) > self._most:
            return f"a record of {len(line):,} bytes is longer than --record-size and was not written"
        try:
            if os.fstat(self._file).st_size + len(line) > self._most:
                self._turn()
            self._append(line)
        except OSError as error:
            word = (
                ""
                if self._failed
                else f"{self._path}: cannot be written: {error.strerror}; requests are still forwarded"
            )
            self._failed = True
            return word
        back, self._failed = self._failed, False
        return f"{self._path}: can be written again; records in between are missing" if back else ""

    def close(self) -> None:
        """Close it."""
        with contextlib.suppress(OSError):
            os.close(self._file)

    def _append(self, line: bytes) -> None:
        before = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            while written < len(line):
                written += os.write(self._file, line[written:])
        except BaseException:
            os.ftruncate(self._file, before)
            raise

    def _turn(self) -> None:
        os.replace(self._path, f"{self._path}.1")
        old, self._file = self._file, _opened(self._path)  # a number that is closed may soon name another file
        os.close(old)

    def _spare_aside(self) -> None:
        """Refuse if the file that would be replaced one day belongs to another program."""
        aside = f"{self._path}.1"
        if not os.path.isfile(aside):
            return
        with open(aside, "rb") as file:
            if file.read(len(MARK)) not in (MARK, b""):
                raise CacheDoctorError(f"{aside}: contains no proxy records and would be replaced", _NEW)

    def _mend(self) -> None:
        """Refuse a file that is not a record; drop half a line at the end of one, as a crash leaves it."""
        size = os.fstat(self._file).st_size
        if not size:
            return
        if os.pread(self._file, len(MARK), 0) != MARK:
            raise CacheDoctorError(f"{self._path}: contains data that is not a proxy record", _NEW)
        end = size
        while end:
            start = max(0, end - (1 << 16))
            at = os.pread(self._file, end - start, start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._file, end)


def _opened(path: str) -> int:
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(0, "it is not a file")
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        raise OSError(0, "another proxy writes to it") from error
    except OSError:
        os.close(file)
        raise
    return file
