"""Turns lines as they were stored into bodies by origin: the wrappers around one are those around the next."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cachedoctor.inputs.envelope import collected
from cachedoctor.inputs.envelope.collected import LogRecords
from cachedoctor.inputs.envelope.prefixes import HEADER, Prefixes, WrapperPrefix, origin_of, row_of, within
from cachedoctor.inputs.envelope.records import RecordMessage, RecordPiece, read_record, rewritten
from cachedoctor.inputs.envelope.shapes import candidates, drop_progress, ends, is_plain, is_written, strip_controls
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Launcher, Segment

_ONCE = frozenset({"date", "level"})
"""Written once for a message, however many lines it has; all other wrappers come before each line."""
_WRITERS = ("host", "process", "pid")
"""Groups of a prefix that distinguish writers."""


class _Step(msgspec.Struct, frozen=True):
    """One wrapper."""

    row: WrapperPrefix | None
    """None for a record."""
    names: tuple[object, ...]
    """Names that distinguish its writer from others."""
    key: collected.Key | None = None
    """Where the text is in a record of a collector."""


class Chain(msgspec.Struct):
    """Wrappers from the outside in."""

    steps: list[_Step]
    whole: bool = False
    """The innermost one is a record of the server's own, which holds its message from the first line to the last."""
    goes_on: bool = False
    """The line continues in the next record: it was split because it is too long."""

    def __bool__(self) -> bool:
        return bool(self.steps)

    def body(self, line: bytes) -> bytes | None:
        """Return what comes after these wrappers; None for a line of another writer.

        For wrappers that occur once per message, a line without one belongs to the message and is returned as it is.
        """
        return self.read(line)[0]

    def read(self, line: bytes) -> tuple[bytes | None, bool]:
        """Return the body, as ``body`` does, and whether the line continues in the next record."""
        goes_on = False
        for step in self.steps:
            if step.row is None:
                record = read_record(line) if step.key is None else collected.read_at(line, step.key)
                if record is None or _writer(record) != step.names:
                    return None, False
                goes_on |= isinstance(record, RecordPiece) and not record.complete
                line = record.text
                continue
            match = (step.row.loose or step.row.strict).match(line)
            if match is None:
                return line if step.row.name in _ONCE else None, goes_on
            if _names(match) != step.names:
                return None, False
            line = line[match.end() :]
        return drop_progress(strip_controls(line) if self.steps else line), goes_on  # text in JSON may have colours


def _writer(record: RecordPiece | RecordMessage) -> tuple[object, ...]:
    return (
        ("piece", record.stream, record.origin)
        if isinstance(record, RecordPiece)
        else ("message", record.nested, record.origin)
    )


def _names(match: object) -> tuple[object, ...]:
    groups = match.re.groupindex  # type: ignore[attr-defined]
    return (origin_of(match), *(match[name] for name in _WRITERS if name in groups))  # type: ignore


def unwrapped(line: bytes) -> tuple[Chain, bytes]:
    """Return the wrappers of a line that a server wrote, and its body: of a record with several lines all of them."""
    steps: list[_Step] = []
    goes_on = False
    for _ in range(DEPTH_MAX):
        record, key = read_record(line), None
        if record is None and line.startswith(b"{") and (found := collected.first(line)) is not None:
            key, record = found
        if record is not None:
            steps.append(_Step(None, _writer(record), key))
            goes_on |= isinstance(record, RecordPiece) and not record.complete
            line = record.text
            if isinstance(record, RecordMessage) and not record.nested:
                return Chain(steps, True), line
            continue
        match = Prefixes().find(line)
        if match is None:
            break
        steps.append(_Step(row_of(match), _names(match)))
        line = line[match.end() :]
    return Chain(steps, goes_on=goes_on), drop_progress(strip_controls(line) if steps else line)


def with_text(line: bytes, text: bytes) -> bytes:
    """Write the record ``line`` with another text, of one line."""
    return rewritten(line, text, lambda _, part: part)


_BEGIN = 512
"""Bytes at the start of a line that are searched for ollama's own lines."""
_LINES = 64
"""Lines that are checked."""
_ROWS: tuple[tuple[str, Launcher], ...] = (
    ("docker compose", "compose"),
    ("compose, one space", "compose"),
    ("journald", "systemd"),
    ("kubectl --prefix", "kubernetes"),
    ("stern", "kubernetes"),
    ("Jan", "jan"),
)
"""Starts of the names of prefixes, and the launchers that they show. ``docker logs -t`` and kubectl write the same
dates."""
_CRI = late(rb"\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ")
_DOCKER = late(rb'\{"log":".*"stream":"(?:stdout|stderr)"')
_COLLECTED = late(
    rb'"(?:kubernetes|kubernetes\.pod_name|kubernetes\.pod\.name|k8s\.pod\.name|podName)": ?["{]|"k8s_container"'
)
"""What collectors add to the record of a pod: Fluent Bit, Filebeat, Vector, OpenTelemetry, stern, Google Cloud."""
_SWAP = late(rb"(?:\S+ )?\[(?:INFO|DEBUG)\] <[^>]{1,200}> Executing start command: ")
_OLLAMA = late(
    rb"(?:^|: )time=\S+ level=[A-Z]+ source=(?:llama_server|routes|runner|sched|server|types)\.go:\d+ msg="
    rb"|(?:^|: )\[GIN\] [^\n\"]{20,120}\"/api/(?:chat|generate|embed|embeddings|show|tags|ps)\""
    rb"|^[A-Z][a-z]{2} {1,2}\d{1,2} [\d:]{8} \S{0,64} {1,2}ollama\[\d*\]: "
)
"""Its own lines, between those of the llama-server that it starts, or its name in the journal."""


def delivered_by(head: bytes) -> Launcher | None:
    """The launcher of the server whose log begins so; None if the lines do not show it, or show different ones."""
    found: set[Launcher] = set()
    for line in strip_controls(head).split(b"\n")[:_LINES]:
        if HEADER.fullmatch(line.strip()):
            found.add("lm-studio")
        elif _SWAP.match(line):
            return "llama-swap"
        elif _OLLAMA.search(line[:_BEGIN]):
            return "ollama"
        elif _CRI.match(line) or (line.startswith(b"{") and _COLLECTED.search(line)):
            found.add("kubernetes")
        elif _DOCKER.match(line):
            found.add("docker")
        else:
            found |= _by_prefix(line)
    return found.pop() if len(found) == 1 else None


def _by_prefix(line: bytes) -> set[Launcher]:
    chain, body = unwrapped(line)
    names = [step.row.name for step in chain.steps if step.row is not None]
    if not names or not is_written(body):
        return set()
    return {launcher for name in names for begin, launcher in _ROWS if name.startswith(begin)}


DEPTH_MAX = 4
"""Wrappers around one line: docker around a router's JSON line around its child's JSON line makes four."""
_HELD_MAX = 4 << 20
"""Bytes of unfinished lines; a log that never ends a line must not fill the memory."""
_HELD_LINES_MAX = 256
_ORIGINS_MAX = 256
"""Maximum servers that are distinguished; each has its own state. Lines of further ones are grouped; no router has so
many."""


class _PartialLine(msgspec.Struct):
    """A line of which some records are still to come."""

    number: int
    depth: int
    text: bytearray
    clock: bytes
    """The part of its first stored record that may contain the time."""


class _Demux:
    """Collects bodies by origin."""

    def __init__(self) -> None:
        self._bodies: dict[bytes | None, tuple[list[bytes], list[int]]] = {}

    def add(self, origin: bytes | None, data: bytes, numbers: Iterable[int]) -> None:
        found = self._bodies.get(origin)
        if found is None:
            found = self._bodies[origin] = ([], [])
        found[0].append(data)
        found[1].extend(numbers)

    def segments(self, stored: dict[int, bytes]) -> list[Segment]:
        made = []
        for origin, (parts, counted) in self._bodies.items():
            first = counted[0]
            consecutive = counted == list(range(first, first + len(counted)))
            name = None if origin is None else origin.decode("utf-8", "backslashreplace")
            made.append(Segment(name, b"".join(parts), first, None if consecutive else counted, stored))
        return made


class Unwrapper:
    """Incremental: complete lines in, Segments of bodies out.

    What a line means depends on the lines before it, never on how the input was split into blocks.
    """

    def __init__(self) -> None:
        self._prefixes = Prefixes()
        self._records = LogRecords()
        self._held: dict[tuple[bytes | None, str], _PartialLine] = {}
        self._held_size = 0
        self._below_header = False
        self._origins: set[bytes] = set()
        self._out = _Demux()
        self._stored: dict[int, bytes] = {}

    def feed(self, block: bytes, first: int, *, stripped: bool = False) -> list[Segment]:
        """Return the bodies of the complete lines in ``block``.

        Args:
            block: the lines.
            first: 1-based number of the first one.
            stripped: they hold nothing that ``strip_controls`` removes.
        """
        if not block:
            return []
        if not stripped:
            block = strip_controls(block)
        plain = is_plain(block)
        starts = [] if plain else candidates(block)
        if not starts:
            self._below_header = False
            self._records.came_bare(block)
            return [Segment(None, drop_progress(block), first, is_plain=plain)]
        number, position = first, 0
        for start in starts:
            if start > position:
                number = self._pass_on(block[position:start], number)
            position = block.find(b"\n", start) + 1 or len(block)
            self._stored_line(block[start:position].removesuffix(b"\n"), number)
            number += 1
        if position < len(block):
            self._pass_on(block[position:], number)
        return self._taken()

    @property
    def settled(self) -> bool:
        """True if no earlier line affects the meaning of the next one."""
        return not (self._below_header or self._held or self._prefixes.known or self._records.known or self._origins)

    def flush(self) -> list[Segment]:
        """Return the lines that were waiting for their last part."""
        for origin, stream in list(self._held):
            self._release(origin, stream)
        return self._taken()

    def _taken(self) -> list[Segment]:
        out, self._out = self._out, _Demux()
        stored, self._stored = self._stored, {}
        return out.segments(stored)

    def _pass_on(self, lines: bytes, number: int) -> int:
        after = number + lines.count(b"\n")
        self._records.came_bare(lines)
        self._out.add(None, drop_progress(lines), range(number, after))
        self._below_header = False
        return after

    def _stored_line(self, line: bytes, number: int) -> None:
        if self._below_header and line.startswith(b" "):
            line = line[1:]  # LM Studio indents the text below its header by one space
        self._below_header = HEADER.fullmatch(line) is not None
        if not self._below_header:
            self._stored[number] = line
            self._line(line, number, None, 0)

    def _line(self, line: bytes, number: int, origin: bytes | None, depth: int) -> None:
        while depth < DEPTH_MAX:
            depth += 1
            record = read_record(line) if depth <= self._records.plain else self._records.read(line, depth)
            if isinstance(record, RecordPiece):
                inner = record.origin
                self._join(record, number, origin if inner is None else within(origin, inner), depth)
                return
            if record:
                inner = within(origin, record.origin)
                self._text(record.text, number, inner, depth if record.nested else DEPTH_MAX)
                return
            peeled = self._prefixes.peel(line)
            if not peeled:
                if depth > self._records.decided:
                    self._records.came_without(line, depth)
                break
            line, inner = peeled
            if inner:
                origin = within(origin, inner)
        if origin is not None and origin not in self._origins:
            if len(self._origins) < _ORIGINS_MAX:
                self._origins.add(origin)
            else:
                origin = None
        self._out.add(origin, drop_progress(line) + b"\n", (number,))

    def _text(self, text: bytes, number: int, origin: bytes | None, depth: int) -> None:
        """Take decoded text, which may hold escapes and several lines that the stored line could not."""
        for line in strip_controls(text + b"\n").split(b"\n")[:-1]:
            self._line(line, number, origin, depth)

    def _join(self, piece: RecordPiece, number: int, origin: bytes | None, depth: int) -> None:
        key = (origin, piece.stream)
        held = self._held.get(key)
        if held is None:
            if piece.complete:
                self._text(piece.text, number, origin, depth)
                return
            held = self._held[key] = _PartialLine(number, depth, bytearray(), ends(self._stored[number]))
        held.text += piece.text
        self._held_size += len(piece.text)
        if piece.complete or self._held_size > _HELD_MAX or len(self._held) > _HELD_LINES_MAX:
            self._release(*key)

    def _release(self, origin: bytes | None, stream: str) -> None:
        held = self._held.pop((origin, stream))
        self._held_size -= len(held.text)
        self._stored.setdefault(held.number, held.clock)
        self._text(bytes(held.text), held.number, origin, held.depth)
