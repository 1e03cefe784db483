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
    """A fact about the server and the line that shows it; None if the command line given with the log shows it, or if
    it follows from the whole log."""

    value: str | float | bool | None
    line: LineNumber | None


class SessionRow(Struct):
    """One run of a server process."""

    index: Count
    """What requests and evidence refer to; numbers may be missing."""
    path: str
    origin: str | None
    """Router port, compose service, or None."""
    engine: str
    """llama.cpp, vllm, sglang."""
    build: Positive | None
    """Build number, when it is known exactly."""
    build_min: Positive | None
    """Oldest build that writes what was seen."""
    build_max: Positive | None
    """Newest build that writes what was seen."""
    build_source: Annotated[str, Meta(extra_json_schema=_SOURCES)] | None
    """A line of the log, --build, the wording of the log, or (vLLM) the place in its source that a line names."""
    model: str | None
    memory: Memory | None
    n_slots: Positive | None
    n_ctx_slot: Positive | None
    """Context of one slot in tokens."""
    settings: dict[_Identifier, SettingRow]
    """Settings by name; names depend on what the log shows."""
    first_line: LineNumber
    last_line: LineNumber
    n_requests: Count = 0
    """Requests of this session, those with unknown accounting included."""
    version: str | None = None
    """Version, of an engine that has versions and no builds, when it is known exactly. Added after the first release of
    v1: may be missing."""
    version_min: str | None = None
    """Oldest version that writes what was seen. Added after the first release of v1: may be missing."""
    version_max: str | None = None
    """Newest version that writes what was seen. Added after the first release of v1: may be missing."""
    program: str | None = None
    """Name of a program around llama-server that logs per-request numbers; missing for all others."""
    counters: list[Counters] = field(default_factory=list)
    """What dumps of /metrics show that were given with the log. Added after the first release of v1: may be missing."""
    answers: list[Answers] = field(default_factory=list)
    """What responses show of their requests. Added after the first release of v1: may be missing."""
    periods: Annotated[list[SamplePeriod | BatchPeriod], Meta(extra_json_schema=_PERIODS)] = field(default_factory=list)
    """For vLLM and SGLang: what was seen from one start or reset of the cache to the next, by engine. Added after the
    first release of v1: may be missing."""
    kv_events: list[KvEvents] = field(default_factory=list)
    """Facts from recordings of KV events given with the log; missing if there were none."""


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
    """An input, when it begins and again at the end; the last line of an index holds."""

    index: Count


class SessionLine(SessionRow, tag_field="type", tag="session", kw_only=True):
    """A session with its first event, before a request of it when more is known by then, and in the end; the last line
    of an index holds. Until then last_line and n_requests are those so far."""


class EventLine(Struct, tag_field="type", tag="event"):
    """A line of the log that the analysis reads, in the order of the lines."""

    path: str
    line: LineNumber
    origin: str | None
    """Router port, compose service, or None."""
    session: Count | None
    """None before any line that shows a server."""
    slot: Count | None
    """None if the line names none."""
    task: Long | None
    """None if the line names none."""
    message: _Identifier
    """Id in the catalogue of messages, the same over all wordings; `cachedoctor explain --line` explains it."""
    fields: dict[str, int | float | str | dict[str, int | float | str | None] | None]
    """What is in the line, by the names of the catalogue; None: printed as no number (nan, inf). Of a text that may
    be a prompt no more than 64 characters on each side of the place where it changed. An object: the parts of a line
    that lists names with values."""


class RequestLine(RequestRow, tag_field="type", tag="request", kw_only=True):
    """A request after the event that ended it, and again if it is judged differently; the last line of an index
    holds."""


class SampleLine(CacheSample, tag_field="type", tag="sample", kw_only=True):
    """A statistics line of vLLM, after the event of its line."""


class BatchLine(PrefillBatch, tag_field="type", tag="batch", kw_only=True):
    """A prefill batch of SGLang, after the event of its line or of a later one: the next batch shows whether it was
    complete."""


class FindingLine(Finding, tag_field="type", tag="finding", kw_only=True):
    """A finding after the request with which it appeared, with the numbers so far; in the end all of them with their
    final numbers."""

    final: bool


class NotEvaluatedLine(NotEvaluated, tag_field="type", tag="not_evaluated", kw_only=True):
    """A rule that the log could not have shown."""


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
    "ReportDocument": (Report, {"causes": f"Findings of one cause over all servers together. {_LATER}"}),
    "SummaryLine": (
        Struct,
        {
            "interrupted": "Ctrl-C came before the end of the input.",
            "requests": "All of them, also children of n > 1 requests, which the totals leave out.",
        }
        | {name: _LATER for name, _, _ in _SUMMARY if name not in _FIRST},
    ),
}
"""Structs without a class body: each with the struct whose docstrings describe its fields, and descriptions of further
ones."""
