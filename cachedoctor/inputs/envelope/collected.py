"""Records of log collectors: which field is the line, and whether one log mixes several shapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec

from cachedoctor.inputs.envelope import labels
from cachedoctor.inputs.envelope.prefixes import Prefixes
from cachedoctor.inputs.envelope.records import RecordMessage, RecordPiece, read_record, rewritten
from cachedoctor.inputs.envelope.shapes import first_written, is_time, is_written, strip_controls
from cachedoctor.knowledge.texts import sound_json

_PATHS_MAX = 8
_TRIES = 4096
"""Records without a server line before the first server line; other programs of the cluster may have started first."""
BEGIN = 50
"""Lines before the first record that are not records: what a shell or a person wrote above them."""
_LINES = 4
"""Lines of a text that are checked."""
_DEPTH = 4
"""Wrappers inside a text."""
_SPLIT = 16_384
"""Bytes at which docker cuts a line; only its last part ends with a newline."""

_TIME_MAX = 10**20
"""Nanoseconds of three thousand years; a larger number is not a time."""
_NO_VALUE = msgspec.UNSET


class Collected:
    """Reads the records of one log at one depth of its wrappers.

    What this log's collector is, is decided here and nowhere else: by the first records, never by one after a line
    that came without. So a prompt that holds a record does not make the log a collected one.
    """

    def __init__(self) -> None:
        self._paths: list[labels.Path] = []
        self._tries = _TRIES
        self._begin = BEGIN
        self._ended: set[labels.Path] = set()
        """Keys whose texts end with a newline."""

    @cached_property
    def _labels(self) -> labels.Labels:
        return labels.Labels()

    @property
    def known(self) -> bool:
        """Whether it is decided that the log was collected."""
        return bool(self._paths)

    def came_without(self, line: bytes) -> None:
        """Take a line that is in no record."""
        if self._tries and not self._paths:
            self._begin -= 1
            if not self._begin or is_written(line):
                self._tries = 0

    @property
    def undecided(self) -> bool:
        """Whether the next record may decide it."""
        return bool(self._tries) and not self._paths

    def read(self, line: bytes) -> RecordPiece | None:
        """Read a record of the collector; None for any other line."""
        if not self._paths and not self._tries:
            return None
        record = _decoded(line)
        found = None if record is None else self.line_of(record)
        if record is None or found is None:
            return None
        path, text = found
        if text.endswith("\n"):
            self._ended.add(path)
        return _piece(text, self._labels.of(record), path in self._ended)

    def rewritten(self, line: bytes, text: bytes, name: Callable[[str, bytes], bytes]) -> bytes:
        """Return the record ``line`` with another text; of all else what ``read`` needs, names and keys by ``name``."""
        record = _decoded(line) or {}
        found = self.line_of(record)
        out: dict[str, Any] = {}
        named = labels.record_labels(record)
        origins = {label.path for label in labels.origin_labels(named)}
        for label in named.values():
            if label.path in origins:
                kept: Any = name("host", str(label.value).encode("utf-8", "replace")).decode()
            else:
                kept = _harmless(label)
            if kept is not _NO_VALUE:
                labels.put(out, labels.with_known_keys(label.path, name), kept)
        if found is not None:
            path, before = found
            end = "\n" if before.endswith("\n") else ""
            labels.put(out, labels.with_known_keys(path, name), text.decode("utf-8", "replace") + end)
        return msgspec.json.encode(out)

    def frame(self, line: bytes, name: Callable[[str, bytes], bytes]) -> bytes | None:
        """Return the record ``line`` with its time alone; None if it has none."""
        named = labels.record_labels(_decoded(line) or {})
        time = _harmless(named["time"]) if "time" in named else _NO_VALUE
        if time is _NO_VALUE:
            return None
        out: dict[str, Any] = {}
        labels.put(out, labels.with_known_keys(named["time"].path, name), time)
        return msgspec.json.encode(out)

    def line_of(self, record: dict[str, Any]) -> tuple[labels.Path, str] | None:
        """Find the text of a decoded record that is the line, and its keys."""
        for path in self._paths:
            text = labels.text_of(labels.at(record, path))
            if text is not None:
                return path, text
        if not self._tries or len(self._paths) >= _PATHS_MAX:
            return None
        self._tries -= 1
        for path, text in labels.strings(record):
            if holds_line(text):
                self._paths.append(path)
                return path, text
        return None


class Key(msgspec.Struct, frozen=True):
    """Where the text of a line is in the records of a log."""

    path: labels.Path
    ends: bool
    """Whether these texts end with a newline."""


def first(line: bytes) -> tuple[Key, RecordPiece] | None:
    """Read a record without knowledge of earlier ones; None if it does not show which text is the line, or all of
    it."""
    found = Collected().line_of(record) if (record := _decoded(line)) is not None else None
    if record is None or found is None:
        return None
    path, text = found
    named = labels.record_labels(record)
    if not text.endswith("\n") and len(text) >= _SPLIT and not labels.goes_on(named):
        return None
    key = Key(path, text.endswith("\n"))
    return key, _piece(text, named, key.ends)


def read_at(line: bytes, key: Key) -> RecordPiece | None:
    """Read a record whose text is at the same place as another one's; None for any other line."""
    record = _decoded(line)
    text = None if record is None else labels.text_of(labels.at(record, key.path))
    return None if record is None or text is None else _piece(text, labels.record_labels(record), key.ends)


def _piece(text: str, named: dict[labels.Role, labels.Label], ends: bool) -> RecordPiece:
    """``ends``: texts of this log end with a newline."""
    data = text.encode("utf-8", "replace")
    whole = not labels.goes_on(named)
    if data.endswith(b"\n"):
        data = data[:-1].removesuffix(b"\r")
    elif ends and len(data) >= _SPLIT:
        whole = False
    return RecordPiece(data, whole, labels.stream(named), labels.origin(named))


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        record = msgspec.json.decode(sound_json(line))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _harmless(label: labels.Label) -> Any:
    """Return the value of a label that does not identify anyone, or nothing."""
    value = label.value
    if label.role == "time":
        known = is_time(value) if isinstance(value, str) else 0 <= value < _TIME_MAX
        return value if known else _NO_VALUE
    if label.role in ("part", "last"):
        return value if str(value).lower() in ("p", "f", "true", "false") else _NO_VALUE
    return value if label.role == "stream" and value in ("stdout", "stderr") else _NO_VALUE


def holds_line(text: str, depth: int = 0) -> bool:
    """Whether a server wrote one of the first lines of a text, whatever is wrapped around it."""
    lines = text.encode("utf-8", "replace").split(b"\n", _LINES)
    return any(_is_line(strip_controls(line + b"\n")[:-1], depth) for line in lines[:_LINES] if line.strip())


def _is_line(line: bytes, depth: int) -> bool:
    while depth < _DEPTH and not is_written(line):
        depth += 1
        record = read_record(line)
        if record is not None:
            return holds_line(record.text.decode("utf-8", "replace"), depth)
        if line.startswith(b"{"):
            values = _decoded(line) or {}
            return any(holds_line(text, depth) for _, text in labels.strings(values))
        peeled = Prefixes().peel(line)
        if peeled is None:
            return False
        line = peeled[0]
    return is_written(line)


class LogRecords:
    """Reads records; what collector a log has, at each depth, is known once a record of it held a server's line."""

    def __init__(self) -> None:
        self._collected: defaultdict[int, Collected] = defaultdict(Collected)
        self.decided = 0
        """Depth of nesting down to which a server line showed its wrappers."""
        self.plain = 0
        """Depth down to which it showed that there is no collector."""

    @property
    def known(self) -> bool:
        """Whether the log came through a collector."""
        return any(one.known for one in self._collected.values())

    def read(self, line: bytes, depth: int) -> RecordPiece | RecordMessage | None:
        """Read a record; None for a line that is none in this log."""
        if line[:1] != b"{":
            return read_record(line)
        collected = self._collected[depth]
        if collected.known:
            return collected.read(line) or read_record(line)
        record = read_record(line) or collected.read(line)
        if record is None and not collected.undecided and not self.known:
            self.plain = max(self.plain, depth)
        return record

    def frame(self, line: bytes, depth: int, name: Callable[[str, bytes], bytes]) -> bytes | None:
        """Return the time of a record that may be the collector's and contains no line; None if it is unknown."""
        collected = self._collected[depth]
        return collected.frame(line, name) if collected.known or collected.undecided else None

    def came_without(self, line: bytes, depth: int) -> None:
        """Take a line without a wrapper at this depth: no collector wrapped it further out either."""
        if depth <= self.decided or line.startswith(b"{"):
            return
        written = is_written(line)
        if written:
            self.decided = depth
            self.plain = 0 if self.known else depth
        for at in range(1, depth + 1) if written else (depth,):
            self._collected[at].came_without(line)

    def came_bare(self, lines: bytes) -> None:
        """Take whole lines that come before any wrapper."""
        if self.decided:
            return
        written = first_written(lines)
        for line in [written] if written is not None else lines.split(b"\n", BEGIN)[:-1]:
            self.came_without(line, 1)

    def rewritten(self, line: bytes, text: bytes, depth: int, name: Callable[[str, bytes], bytes]) -> bytes:
        """Return the record ``line`` with another text, and with names by ``name(kind, part)`` in its wrapper."""
        collected = self._collected[depth] if line.startswith(b"{") else None
        if collected is not None and collected.known and collected.read(line) is not None:
            return collected.rewritten(line, text, name)
        return rewritten(line, text, name)
