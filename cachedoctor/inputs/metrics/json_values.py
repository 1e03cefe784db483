"""Cuts a file of responses into JSON objects: JSONL, an array, objects in a row, lines of event streams.

A line is taken as it comes; only what spans lines, and arrays, are held as a whole. Knows no key of a response.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from cachedoctor.inputs.metrics.prometheus import whole_lines
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheDoctorError

MAX_HELD = 64 * 1024 * 1024
"""Bytes of one line, or of all that is not JSONL."""
MAX_DEPTH = 64
"""Levels of what spans lines; responses have about ten."""

_TOKEN = late(rb'"(?:[^"\\\n]|\\.)*+"?|[{}\[\]]')
"""A string that does not end on its line is one up to there: nothing is looked at twice."""
_FIELD = late(rb"(?:event|id|retry)?:")
"""What an event stream has besides data."""
_DATA = b"data:"
_HINT = "give what the server answered: one response a line, an array of them, or the lines of a stream"


class Value(NamedTuple):
    """One JSON object and where it begins."""

    text: bytes
    line: int
    streamed: bool = False
    """A stream sent it."""


def values(chunks: Iterable[bytes], path: str) -> Iterator[Value]:
    """Yield the objects in a file; one that is cut off by the end of the file is left out.

    Raises:
        CacheDoctorError: it is not JSON, or too much of it is one value.
    """
    held, first = bytearray(), 0
    for number, line in enumerate(whole_lines(chunks, lambda size: _refuse_large(size, path)), 1):
        text = line.strip()
        if held and _is_next(line, held, path):
            raise CacheDoctorError(f"{path}: the JSON of line {first} does not end", "take it out if it was cut off")
        if held or _spans_lines(text, path):
            first = first or number
            held += line
            held += b"\n"
            _refuse_large(len(held), path)
        elif text.startswith(_DATA):
            yield Value(text.removeprefix(_DATA), number, streamed=True)
        elif text.startswith(b"{"):
            yield Value(text, number)
        elif text and not _FIELD.match(text):
            raise CacheDoctorError(f"{path}: line {number} is not JSON", _HINT)
    yield from _document(bytes(held), first, path)


def _refuse_large(size: int, path: str) -> None:
    if size > MAX_HELD:
        raise CacheDoctorError(
            f"{path}: more than {MAX_HELD >> 20} MiB of it are one value", "give one response a line"
        )


def _spans_lines(text: bytes, path: str) -> bool:
    """Whether a line is an array, or begins with an object that does not end with it."""
    if not text.startswith((b"{", b"[")):
        return False
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError:
        return True
    except RecursionError as error:
        raise _too_deep(path) from error
    return text.startswith(b"[")


def _is_next(line: bytes, held: bytearray, path: str) -> bool:
    """Whether a line is an object behind one that does not end: nothing that is laid out over lines looks like it."""
    return line.startswith(b'{"') and held.startswith(b"{") and not _spans_lines(line.strip(), path)


def _document(text: bytes, line: int, path: str) -> Iterator[Value]:
    """Objects that lie in no other object. A file of JSON has no more than one that does not end: its last."""
    depth = start = at = 0
    inside = 0
    """Depth of the object that is open, 0 when there is none."""
    for token in _TOKEN.finditer(text):
        found = token[0]
        if found in b"{[":
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(path)
            if not inside and found == b"{":
                inside, start = depth, token.start()
        elif found in b"}]":
            if inside == depth:
                line, at, inside = line + text.count(b"\n", at, start), start, 0
                yield Value(text[start : token.end()], line)
            depth = max(0, depth - 1)


def _too_deep(path: str) -> CacheDoctorError:
    return CacheDoctorError(f"{path}: JSON is nested too deeply", f"more than {MAX_DEPTH} levels are no response")
