"""The JSON documents of ``analyze`` as structs, where they are not those of the model: what the schemas are made from.

A report is written as a stream (wire/report_v1.py), so that these are filled by nobody; a test holds every key that is
written against them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from cachedoctor.model import (
    Account,
    Answers,
    BatchPeriod,
    CacheSample,
    Cause,
    ClientAccount,
    Counters,
    Filtered,
    Finding,
    Fix,
    InputInfo,
    KvEvents,
    Memory,
    NotEvaluated,
    PrefillBatch,
    RequestRow,
    Restart,
    RuleInfo,
    SamplePeriod,
    SlotReuse,
    SlowTurn,
    Totals,
    UnknownShape,
)
from cachedoctor.model.bounds import Code, Count, LineNumber, Long, Positive
from cachedoctor.model.report import Tool

_IDENTIFIER = {"contract": {"pattern": "^[a-z][a-z0-9_]*$"}}
_SOURCES = {"contract": {"enum": ["line", "option", "wording", "source", "paste"]}}
_PERIODS = {"contract": {"maxItems": 64}}
_SLOTS = {"contract": {"maxItems": 9}}
_Slots = Annotated[list[SlotReuse], Meta(extra_json_schema=_SLOTS)]
_Identifier = Annotated[str, Meta(extra_json_schema=_IDENTIFIER)]


class SettingRow(Struct):
    """A fact about the server and the line that says so; None: the command line given beside the log does, or it
    follows from the whole."""

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
    """By name; names depend on what the log says."""
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
    """What a program around llama-server that logs numbers of each request calls itself; missing of all others."""
    counters: list[Counters] = field(default_factory=list)
    """What dumps of /metrics say that were given beside the log. Added after the first release of v1: may be
    missing."""
    answers: list[Answers] = field(default_factory=list)
    """What responses say of their requests. Added after the first release of v1: may be missing."""
    periods: Annotated[list[SamplePeriod | BatchPeriod], Meta(extra_json_schema=_PERIODS)] = field(default_factory=list)
    """Of vLLM and SGLang: what was seen from one start or reset of the cache to the next, by engine. Added after the
    first release of v1: may be missing."""
    kv_events: list[KvEvents] = field(default_factory=list)
    """What recordings of KV events say that were given beside the log; missing where none was."""


class ReportDocument(Struct):
    """Report of `cachedoctor analyze --format json`."""

    schema: Literal["cachedoctor.report/1"]
    tool: Tool
    interrupted: bool
    """The report covers what was read before Ctrl-C."""
    inputs: list[InputInfo]
    sessions: list[SessionRow]
    totals: Totals
    requests: list[RequestRow]
    """In the order in which they started."""
    samples: list[CacheSample]
    """Statistics lines of vLLM logs, in the order of the log; empty for other engines. Each is about the seconds before
    it, but hit_rate."""
    batches: list[PrefillBatch]
    """Prefill batches of SGLang logs, in the order of the log; empty for other engines. A batch is neither a request
    nor a prompt."""
    findings: list[Finding]
    """The costliest first."""
    not_evaluated: list[NotEvaluated]
    rules: list[RuleInfo]
    restart: Restart | None = None
    """None: nothing is left, or no option of this build helps."""
    slots: _Slots = field(default_factory=list)
    """Reuse along the requests of each slot, of the session with the most requests."""
    ignored: list[Code] = field(default_factory=list)
    """Codes of the rules that were switched off with --select, --ignore or a file of settings: nothing else in the
    report speaks of them. Added after the first release of v1: may be missing."""
    accounts: list[Account] = field(default_factory=list)
    """Where the prompt tokens of llama-server's requests went, the whole log first, then servers, conversations and
    clients (64 of each at most). Added after the first release of v1: may be missing."""
    filtered: Filtered | None = None
    """Which requests and findings are shown, where that is not all: sums are of the whole log. Added after the first
    release of v1: may be missing."""
    causes: list[Cause] = field(default_factory=list)
    """Findings of one cause over all servers together. Added after the first release of v1: may be missing."""
    slowest: list[SlowTurn] = field(default_factory=list)
    """The requests that took longest, at most three, the slowest first. Added after the first release of v1: may be
    missing."""
    fix: list[Fix] = field(default_factory=list)
    """What to change, one for each server with findings that something mends, the costliest first. Added after the
    first release of v1: may be missing."""
    clients: list[ClientAccount] = field(default_factory=list)
    """Where the prompt tokens went by who sent the requests: 64 clients, then all others together, then requests of
    which nothing tells. Added after the first release of v1: may be missing."""
    unknown: list[UnknownShape] | None = None
    """Lines that are no known message by their shape, where --unknown asked for them, at most 512, the most frequent
    first. Added after the first release of v1: may be missing."""


class StartLine(Struct, tag_field="type", tag="start"):
    """The first line."""

    schema: Literal["cachedoctor.stream/1"]
    tool: Tool


class InputLine(InputInfo, tag_field="type", tag="input", kw_only=True):
    """An input, when it begins and once more in the end; the last line of an index holds."""

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
    """None: before any line that tells of a server."""
    slot: Count | None
    """None: the line names none."""
    task: Long | None
    """None: the line names none."""
    message: _Identifier
    """Id in the catalogue of messages, the same over all wordings; `cachedoctor explain --line` explains it."""
    fields: dict[str, int | float | str | dict[str, int | float | str | None] | None]
    """What stands in the line, by the names of the catalogue; None: printed as no number (nan, inf). Of a text that may
    be a prompt no more than 64 characters on each side of the place where it changed. An object: the parts of a line
    that lists names with values."""


class RequestLine(RequestRow, tag_field="type", tag="request", kw_only=True):
    """A request behind the event that ended it, and again when it is seen otherwise; the last line of an index
    holds."""


class SampleLine(CacheSample, tag_field="type", tag="sample", kw_only=True):
    """A statistics line of vLLM, behind the event of its line."""


class BatchLine(PrefillBatch, tag_field="type", tag="batch", kw_only=True):
    """A prefill batch of SGLang, behind the event of its line or of a later one: the next batch says whether it was
    whole."""


class FindingLine(Finding, tag_field="type", tag="finding", kw_only=True):
    """A finding behind the request with which it appeared, with the numbers so far; in the end all of them with their
    final numbers."""

    final: bool


class NotEvaluatedLine(NotEvaluated, tag_field="type", tag="not_evaluated", kw_only=True):
    """A rule that the log could not have shown."""


class SummaryLine(Struct, tag_field="type", tag="summary"):
    """The last line."""

    interrupted: bool
    """Ctrl-C came before the end of the input."""
    totals: Totals
    inputs: Count
    sessions: Count
    requests: Count
    """All of them, also children of n > 1 requests, which the totals leave out."""
    findings: Count
    not_evaluated: Count
    restart: Restart | None
    slots: _Slots = field(default_factory=list)
    ignored: list[Code] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)
    slowest: list[SlowTurn] = field(default_factory=list)
    """Added after the first release of v1: may be missing."""
    fix: list[Fix] = field(default_factory=list)
    """Added after the first release of v1: may be missing."""
    causes: list[Cause] = field(default_factory=list)
    """Added after the first release of v1: may be missing."""
    clients: list[ClientAccount] = field(default_factory=list)
    """Added after the first release of v1: may be missing."""


StreamLine = (
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
