"""Reads a JSON report back, so that it can be written in another format without its log.

Covers the contract ``cachedoctor.report/1``: keys that were added later may be missing, unknown ones are passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import IO, Any, get_type_hints

import msgspec

from cachedoctor.knowledge.texts import sound_json
from cachedoctor.model import (
    CacheDoctorError,
    CacheSample,
    Finding,
    First,
    PrefillBatch,
    Report,
    RequestRow,
    Session,
    Side,
    read_rows,
)
from cachedoctor.report.wire.report_v1 import SCHEMA, encode_row

_FAMILY = SCHEMA.partition("/")[0] + "/"


class _Head(msgspec.Struct):
    schema: str


class _Tool(msgspec.Struct):
    version: str = ""


_STREAMED = {
    "tool_version": None,
    "undecided": None,
    "sessions": list[Session],
    "requests": list[msgspec.Raw],
    "samples": list[CacheSample],
    "batches": list[PrefillBatch],
}
"""Report fields whose JSON type differs from the declaration: their JSON types."""


@cache
def document() -> type[msgspec.Struct]:
    """The report in its JSON form, including what may be missing."""
    hints = get_type_hints(Report, include_extras=True)
    fields: list[Any] = []
    for one in msgspec.structs.fields(Report):
        kind = _STREAMED.get(one.name, hints[one.name])
        if kind is None:
            continue
        if one.name in ("requests", "samples", "batches") or one.default_factory is not msgspec.NODEFAULT:
            fields.append((one.name, kind, msgspec.field(default_factory=list)))
        else:
            fields.append((one.name, kind) if one.required else (one.name, kind, one.default))
    return msgspec.defstruct("_Document", [("tool", _Tool), *fields], kw_only=True)


class _Difference(msgspec.Struct):
    a: Side
    b: Side
    first: First | None


class StoredRequests:
    """The requests of a report that was read back: JSON objects, held in memory as they are."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines

    def check(self) -> None:
        """Nothing to do: none can be lost."""

    def __iter__(self) -> Iterator[RequestRow]:
        """Yield every request."""
        return read_rows(self._lines)

    def lines(self) -> Iterator[bytes]:
        """Yield one JSON object per request, without newline."""
        yield from self._lines

    def copy_to(self, out: IO[bytes]) -> None:
        """Write them all, one a line, with a comma between them as in a JSON array."""
        out.write(b",\n".join(self._lines))


class StoredRows:
    """Samples or batches of a report that was read back."""

    def __init__(self, rows: Sequence[CacheSample | PrefillBatch]) -> None:
        self._rows = rows

    def check(self) -> None:
        """Nothing to do: none can be lost."""

    def lines(self) -> Iterator[bytes]:
        """Yield one JSON object each, without newline."""
        yield from map(encode_row, self._rows)


def read(data: bytes, name: str) -> Report:
    """Return the report that ``data`` holds.

    Args:
        name: of the file, for errors.

    Raises:
        CacheDoctorError: it is not a report of cachedoctor, or one of a schema that this version does not know.
    """
    data = sound_json(data)
    try:
        schema = msgspec.json.decode(data, type=_Head).schema
        if schema != SCHEMA and schema.startswith(_FAMILY):
            what = f"{name}: is a report with another schema, {schema[:40]}; this version reads {SCHEMA}"
            raise CacheDoctorError(what, "use the cachedoctor version that wrote the report, or analyze the log again")
        rest: Any = msgspec.json.decode(data, type=document())
        requests = StoredRequests([bytes(raw) for raw in rest.requests])
        counts = Counter(request.session for request in requests)
        findings = [_finding(f) for f in rest.findings]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = "give a report written by cachedoctor analyze --format json"
        raise CacheDoctorError(f"{name}: is not a JSON report written by cachedoctor ({error})", hint) from error
    for session in rest.sessions if rest.filtered is None else ():
        session.n_requests = counts[session.index]
    streamed = {"requests": requests, "samples": StoredRows(rest.samples), "batches": StoredRows(rest.batches)}
    fields = msgspec.structs.asdict(rest) | streamed | {"findings": findings, "tool_version": rest.tool.version}
    del fields["tool"]
    return Report(**fields)


def _finding(stored: Finding) -> Finding:
    """The difference of two prompts, as the model has it."""
    if stored.diff is None:
        return stored
    found = msgspec.convert(stored.diff, _Difference)
    return msgspec.structs.replace(stored, diff={**stored.diff, "a": found.a, "b": found.b, "first": found.first})
