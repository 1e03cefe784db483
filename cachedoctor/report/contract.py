"""The JSON documents of ``analyze`` as structs, if they differ from those of the model: the schemas are made from them.

Those of the report and of the last line of a stream are derived from ``Report``.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta, Struct, field

from cachedoctor.model import (
    Answers,
    BatchPeriod,
    CacheSample,
    Cause,
    Counters,
    Finding,
    InputInfo,
    KvEvents,
    Memory,
    NotEvaluated,
    PrefillBatch,
    Report,
    RequestRow,
    Restart,
    RuleInfo,
    SamplePeriod,
    Totals,
)
from cachedoctor.model.bounds import Count, LineNumber, Long, Positive
from cachedoctor.model.report import DECLARED, Tool

_IDENTIFIER = {"contract": {"pattern": "^[a-z][a-z0-9_]*$"}}
_SOURCES = {"contract": {"enum": ["line", "option", "wording", "source", "paste"]}}
_PERIODS = {"contract": {"maxItems": 64}}
_Identifier = Annotated[str, Meta(extra_json_schema=_IDENTIFIER)]


class SettingRow(Struct):
    """A fact about the server, and the line that shows the fact. The line is None if the given command line or the
    whole log shows the fact."""

    value: str | float | bool | None
    line: LineNumber | None


class SessionRow(Struct):
    """One run of a server process."""

    index: Count
    """Number by which requests and evidence refer to this session; some numbers may be missing."""
    path: str
    origin: str | None
    """Router port or compose service; None if the log shows neither."""
    engine: str
    """Engine: llama.cpp, vllm, sglang."""
    build: Positive | None
    """Build number, if it is known exactly."""
    build_min: Positive | None
    """Oldest build that can have written all messages of the log."""
    build_max: Positive | None
    """Newest build that prints every message form in the log."""
    build_source: Annotated[str, Meta(extra_json_schema=_SOURCES)] | None
    """Source of the build: a line of the log, --build, the wording of the messages, or (vLLM) the source line that a
    log line names."""
    model: str | None
    memory: Memory | None
    n_slots: Positive | None
    n_ctx_slot: Positive | None
    """Context of one slot in tokens."""
    settings: dict[_Identifier, SettingRow]
    """Settings by name. Which settings exist depends on the log."""
    first_line: LineNumber
    last_line: LineNumber
    n_requests: Count = 0
    """Requests of this session, including requests with unknown reuse."""
    version: str | None = None
    """Version, if it is known exactly, of an engine that has versions instead of builds. Added after the first release
    of v1: may be missing."""
    version_min: str | None = None
    """Oldest version that prints every message form in the log. Added after the first release of v1: may be missing."""
    version_max: str | None = None
    """Newest version that prints every message form in the log. Added after the first release of v1: may be missing."""
    program: str | None = None
    """Name of a program around llama-server that logs per-request numbers; missing for all others."""
    counters: list[Counters] = field(default_factory=list)
    """Counters from dumps of /metrics that were given with the log. Added after the first release of v1: may be
    missing."""
    answers: list[Answers] = field(default_factory=list)
    """Token counts from responses of the server. Added after the first release of v1: may be missing."""
    periods: Annotated[list[SamplePeriod | BatchPeriod], Meta(extra_json_schema=_PERIODS)] = field(default_factory=list)
    """For vLLM and SGLang: measurements of each engine from one start or cache reset to the next. Added after the first
    release of v1: may be missing."""
    kv_events: list[KvEvents] = field(default_factory=list)
    """Facts from recordings of KV events that were given with the log; missing if no recording was given."""


def _declared(without: Container[str], causes_before: str) -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of the fields that JSON has as ``Report`` declares them, and of the causes."""
    hints = get_type_hints(Report, include_extras=True)
    defaults = {one.name: one for one in msgspec.structs.fields(Report)}
    for name in DECLARED:
        if name == causes_before:
            yield "causes", list[Cause], field(default_factory=list)
        if name not in without:
            found = defaults[name]
            given = found.default is not msgspec.NODEFAULT
            yield name, hints[name], field(default=found.default) if given else field(default_factory=list)


ReportDocument = msgspec.defstruct(
    "ReportDocument",
    [
        ("schema", Literal["cachedoctor.report/1"]),
        ("tool", Tool),
        ("interrupted", bool),
        ("inputs", list[InputInfo]),
        ("sessions", list[SessionRow]),
        ("totals", Totals),
        ("requests", list[RequestRow]),
        ("samples", list[CacheSample]),
        ("batches", list[PrefillBatch]),
        ("findings", list[Finding]),
        ("not_evaluated", list[NotEvaluated]),
        ("rules", list[RuleInfo]),
        *_declared((), "slowest"),
    ],
    namespace={"__doc__": "Report of `cachedoctor analyze --format json`."},
)


class StartLine(Struct, tag_field="type", tag="start"):
    """The first line."""

    schema: Literal["cachedoctor.stream/1"]
    tool: Tool


class InputLine(InputInfo, tag_field="type", tag="input", kw_only=True):
    """An input, written when it begins and again at the end. For each index, the last line is valid."""

    index: Count


class SessionLine(SessionRow, tag_field="type", tag="session", kw_only=True):
    """A session, written at its first event, again before a request if more is known, and at the end. For each index,
    the last line is valid. In earlier lines last_line and n_requests are the values so far."""


class EventLine(Struct, tag_field="type", tag="event"):
    """A log line that the analysis uses, in the order of the lines."""

    path: str
    line: LineNumber
    origin: str | None
    """Router port or compose service; None if the log shows neither."""
    session: Count | None
    """Index of the session; None before the first line that shows a server."""
    slot: Count | None
    """Number of the slot; None if the line names no slot."""
    task: Long | None
    """Number of the task; None if the line names no task."""
    message: _Identifier
    """Id of the message, the same for all wordings; ``cachedoctor explain --line`` explains the message."""
    fields: dict[str, int | float | str | dict[str, int | float | str | None] | None]
    """Values in the line, by their names in the catalogue. None: the printed value is not a number (nan, inf). A text
    that may be a prompt has at most 64 characters on each side of the change. An object has the parts of a line that
    lists names with values."""


class RequestLine(RequestRow, tag_field="type", tag="request", kw_only=True):
    """A request, written after the event that ended it, and again if its findings change. For each index, the last line
    is valid."""


class SampleLine(CacheSample, tag_field="type", tag="sample", kw_only=True):
    """A statistics line of vLLM, written after the event of its line."""


class BatchLine(PrefillBatch, tag_field="type", tag="batch", kw_only=True):
    """A prefill batch of SGLang, written after the event of its line or of a later line, because the next batch shows
    whether a request was complete."""


class FindingLine(Finding, tag_field="type", tag="finding", kw_only=True):
    """A finding with the numbers so far, written after the request with which it appeared. At the end, all findings are
    written with their final numbers."""

    final: bool


class NotEvaluatedLine(NotEvaluated, tag_field="type", tag="not_evaluated", kw_only=True):
    """A rule that this log has no data for."""


_SUMMARY = list(_declared(("restart", "filtered", "unknown"), "clients"))
SummaryLine = msgspec.defstruct(
    "SummaryLine",
    [
        ("interrupted", bool),
        ("totals", Totals),
        *((name, Count) for name in ("inputs", "sessions", "requests", "findings", "not_evaluated")),
        ("restart", Restart | None),
        *_SUMMARY,
    ],
    namespace={"__doc__": "The last line."},
    tag_field="type",
    tag="summary",
)


StreamLine: Any = (
    StartLine
    | InputLine
    | SessionLine
    | EventLine
    | RequestLine
    | SampleLine
    | BatchLine
    | FindingLine
    | NotEvaluatedLine
    | SummaryLine
)
"""One line of `cachedoctor analyze --format jsonl`."""

_LATER = "Added after the first release of v1: may be missing."
_FIRST = ("slots", "ignored", "accounts")
DERIVED: dict[str, tuple[type[Struct], dict[str, str]]] = {
    "ReportDocument": (Report, {"causes": f"Findings grouped by cause, over all servers. {_LATER}"}),
    "SummaryLine": (
        Struct,
        {
            "interrupted": "True if Ctrl-C came before the end of the input.",
            "requests": "Number of all requests, including children of n > 1 requests, which the totals leave out.",
        }
        | {name: _LATER for name, _, _ in _SUMMARY if name not in _FIRST},
    ),
}
"""Structs without a class body: each with the struct whose docstrings describe its fields, and descriptions of further
ones."""
