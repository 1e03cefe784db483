"""Reads the Prometheus text format (0.0.4) and OpenMetrics, as far as counters need it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheDoctorError


def whole_lines(chunks: Iterable[bytes], refuse_large: Callable[[int], None]) -> Iterator[bytes]:
    """Yield lines without their newlines; what comes after the last one, too.

    ``refuse_large``: is told how many bytes of a line are held that has not ended, and raises if they are too many.
    """
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*parts, line])
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        refuse_large(size)
    yield b"".join(parts)


MAX_LINE = 64 * 1024
"""Bytes; a line of vLLM's with all facts of its cache has about 1,200."""
MAX_KEPT = 16 * 1024 * 1024
"""Bytes of the lines that are wanted."""
_DOUBTED = 1_000
"""Unparsable lines after which a text with fewer valid lines than these is not a dump."""

_FENCE = b"```"
"""Code fence around pasted text."""
_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_QUOTED = rb'"(?:[^"\\]|\\.)*+"'
_NUMBER = rb"[+-]?(?:(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,4})?|(?i:NaN|Inf(?:inity)?))"
_SAMPLE = late(
    rb"[ \t]*+(" + _NAME + rb")[ \t]*+"
    rb"(?:\{((?:[^\"{}]|" + _QUOTED + rb")*+)\})?[ \t]*+"
    rb"(?<=[ \t}])(" + _NUMBER + rb")"
    rb"(?:[ \t]++(-?\d{1,20}(?:\.\d{0,20})?))?"
    rb"[ \t]*+(?:#.*+)?"
)  # fmt: skip
"""Name, labels, value, timestamp; an exemplar after them does not affect the value."""
_LABEL = late(rb"[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+(" + _QUOTED + rb")[ \t]*+(?:,|$)")
_META = late(rb"[ \t]*+#[ \t]++(HELP|TYPE)[ \t]++(" + _NAME + rb")(?:[ \t]++(.*+))?")
_ESCAPE = late(r"\\(.)")
_ESCAPED = {"n": "\n", "\\": "\\", '"': '"'}
_SECONDS = 1e11
"""A timestamp above is in milliseconds (0.0.4), below in seconds (OpenMetrics): 1e11 ms were in 1973."""


class Sample(msgspec.Struct, frozen=True):
    """One value of a series."""

    name: str
    labels: dict[str, str]
    value: float
    """May be NaN or infinite."""
    time: float | None
    """Seconds since 1970, where the line shows it."""


class Exposition(msgspec.Struct):
    """Content of a dump for the requested series."""

    samples: list[Sample] = msgspec.field(default_factory=list)
    types: dict[str, str] = msgspec.field(default_factory=dict)
    helps: dict[str, str] = msgspec.field(default_factory=dict)
    good: int = 0
    """Samples, wanted or not."""
    bad: int = 0
    """Lines that break the grammar, or are longer than any dump's."""

    def type_of(self, name: str) -> str | None:
        """Type of a series; OpenMetrics names the family of a counter without its ``_total``."""
        return self.types.get(name) or self.types.get(name.removesuffix("_total"))

    def help_of(self, name: str) -> str:
        """Help text of a series, empty if there is none."""
        return self.helps.get(name) or self.helps.get(name.removesuffix("_total")) or ""


def read(chunks: Iterable[bytes], path: str, wanted: Callable[[str], bool]) -> Exposition | None:
    """Read a dump; None if it is something else.

    Args:
        chunks: its bytes, cut anywhere.
        path: its name.
        wanted: whether a series is kept, by its name.

    Raises:
        CacheDoctorError: more than ``MAX_KEPT`` is wanted.
    """
    found, kept = Exposition(), 0
    for line in _lines(chunks):
        if line is None:
            found.bad += 1
        elif line.lstrip(b" \t").startswith(b"#"):
            kept += _note(found, line, wanted)
        elif line.strip() and not line.lstrip().startswith(_FENCE):
            kept += _take(found, line, wanted)
        if found.bad > _DOUBTED and found.bad > found.good:
            return None
        if kept > MAX_KEPT:
            raise CacheDoctorError(f"{path}: contains more series than any server has", "give the dump of one server")
    return found if found.good > found.bad else None


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes | None]:
    """Lines without their ends; None in the place of one that is too long."""
    rest, dropped = b"", False
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield None if dropped or len(line) > MAX_LINE else line.removesuffix(b"\r")
            dropped = False
        if len(rest) > MAX_LINE:
            rest, dropped = b"", True
    if dropped:
        yield None
    elif rest:
        yield rest.removesuffix(b"\r")


def _note(found: Exposition, line: bytes, wanted: Callable[[str], bool]) -> int:
    """Take a comment; gives the bytes that were kept. Other comments, ``# EOF`` and ``# UNIT`` are ignored."""
    meta = _META.fullmatch(line)
    if meta is None:
        return 0
    name = meta[2].decode()
    if not (wanted(name) or wanted(f"{name}_total")):
        return 0
    kept = found.types if meta[1] == b"TYPE" else found.helps
    kept[name] = (meta[3] or b"").decode("utf-8", "replace").strip()
    return len(line)


def _take(found: Exposition, line: bytes, wanted: Callable[[str], bool]) -> int:
    """Take a sample; gives the bytes that were kept."""
    parts = _SAMPLE.fullmatch(line)
    if parts is None:
        found.bad += 1
        return 0
    name = parts[1].decode()
    if not wanted(name):
        found.good += 1
        return 0
    labels = _labels(parts[2] or b"")
    if labels is None:
        found.bad += 1
        return 0
    found.good += 1
    found.samples.append(Sample(name, labels, float(parts[3]), _time(parts[4])))
    return len(line)


def _labels(text: bytes) -> dict[str, str] | None:
    """Labels between the braces; None when they break the grammar or one comes twice."""
    labels: dict[str, str] = {}
    at, text = 0, text.rstrip(b" \t")
    while at < len(text):
        label = _LABEL.match(text, at)
        if label is None or (name := label[1].decode()) in labels:
            return None
        labels[name] = _ESCAPE.sub(_plain, label[2][1:-1].decode("utf-8", "replace"))
        at = label.end()
    return labels


def _plain(escape: re.Match[str]) -> str:
    return _ESCAPED.get(escape[1], escape[0])


def _time(text: bytes | None) -> float | None:
    if text is None:
        return None
    time = float(text)
    return time / 1000 if abs(time) > _SECONDS else time
