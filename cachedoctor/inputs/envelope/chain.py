"""The wrappers around one line, the same ones around the next, and what they say started the server."""

from __future__ import annotations

import msgspec

from cachedoctor.inputs.envelope import collected
from cachedoctor.inputs.envelope.prefixes import HEADER, Prefixes, WrapperPrefix, origin_of, row_of
from cachedoctor.inputs.envelope.records import RecordMessage, RecordPiece, read_record, rewritten
from cachedoctor.inputs.envelope.shapes import drop_progress, is_written, strip_controls
from cachedoctor.inputs.envelope.unwrapper import DEPTH_MAX
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Launcher

_ONCE = frozenset({"date", "level"})
"""Written once for a message, however many lines it has; all other wrappers stand before each line."""
_WRITERS = ("host", "process", "pid")
"""Groups of a prefix that tell writers apart."""


class _Step(msgspec.Struct, frozen=True):
    """One wrapper."""

    row: WrapperPrefix | None
    """None for a record."""
    names: tuple[object, ...]
    """What tells its writer from others."""
    key: collected.Key | None = None
    """Where the text stands in a record of a collector."""


class Chain(msgspec.Struct):
    """Wrappers from the outside in."""

    steps: list[_Step]
    whole: bool = False
    """The innermost one is a record of the server's own, which holds its message from the first line to the last."""
    goes_on: bool = False
    """The line goes on in the next record: it was cut by its length."""

    def __bool__(self) -> bool:
        return bool(self.steps)

    def body(self, line: bytes) -> bytes | None:
        """Return what stands behind these wrappers; None for a line that somebody else wrote.

        A line without a wrapper that stands once before a message belongs to the message: it is given as it is.
        """
        return self.read(line)[0]

    def read(self, line: bytes) -> tuple[bytes | None, bool]:
        """Return the body, as ``body`` does, and whether the line goes on in the next record."""
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


def first_line_only(line: bytes, text: bytes) -> bytes:
    """Write the record ``line``, whose text is ``text``, with the first line of it."""
    return rewritten(line, text.partition(b"\n")[0], lambda _, part: part)


_BEGIN = 512
"""Bytes of a line that are looked at for the lines of a program between wrappers."""
_LINES = 64
"""Lines that are looked at."""
_ROWS: tuple[tuple[str, Launcher], ...] = (
    ("docker compose", "compose"),
    ("compose, one space", "compose"),
    ("journald", "systemd"),
    ("kubectl --prefix", "kubernetes"),
    ("stern", "kubernetes"),
    ("Jan", "jan"),
)
"""Begins of the names of prefixes, and what they tell. ``docker logs -t`` and kubectl write the same dates."""
_CRI = late(rb"\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ")
_DOCKER = late(rb'\{"log":".*"stream":"(?:stdout|stderr)"')
_COLLECTED = late(
    rb'"(?:kubernetes|kubernetes\.pod_name|kubernetes\.pod\.name|k8s\.pod\.name|podName)": ?["{]|"k8s_container"'
)
"""What collectors add to the record of a pod: Fluent Bit, Filebeat, Vector, OpenTelemetry, stern, Google Cloud."""
_SWAP = late(rb"(?:\S+ )?\[(?:INFO|DEBUG)\] <[^>]{1,200}> Executing start command: ")
_OLLAMA = late(rb"(?:^|: )time=\S+ level=[A-Z]+ source=(?:llama_server|routes|runner|sched|server|types)\.go:\d+ msg=")
"""Its own lines, between those of the llama-server that it starts; it may run in a unit or a container itself."""


def delivered_by(head: bytes) -> Launcher | None:
    """What started the server whose log begins so; None where the lines do not tell, or tell different things."""
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
