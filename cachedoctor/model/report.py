"""The report of an analysis: everything that a format needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Annotated, Literal, Protocol

import msgspec
from msgspec import Struct

from cachedoctor.model.account import Account, ClientAccount
from cachedoctor.model.bounds import MOST, Code, Count, Long, LongMs, Positive, Share
from cachedoctor.model.finding import Finding, NotEvaluated, Restart, RuleInfo
from cachedoctor.model.fix import Fix, Launcher
from cachedoctor.model.measured import AgentVerdict
from cachedoctor.model.row import RequestRow, SlowTurn
from cachedoctor.model.session import Session

_FromOne = Annotated[int, msgspec.Meta(ge=1, le=MOST, extra_json_schema={"contract": {"minimum": 1}})]
_Prompt = Annotated[int, msgspec.Meta(ge=1, le=MOST, extra_json_schema={"contract": {"minimum": 0}})]
_Reused = Annotated[int, msgspec.Meta(ge=0, le=MOST, extra_json_schema={"contract": {"minimum": 0}})]
_Slot = Annotated[int, msgspec.Meta(ge=-MOST, le=MOST, extra_json_schema={"contract": {"minimum": 0, "maximum": 7}})]
_SLOTS = {"contract": {"maxItems": 9}}
_CELLS = {"contract": {"minItems": 1, "maxItems": 64}}


class InputInfo(msgspec.Struct):
    """One input, and how much of the input was understood."""

    path: str
    """Path as given; - is the standard input."""
    engine: str | None = None
    """Engine that wrote most of the lines: ``llama.cpp``, ``vllm``, ``sglang`` ...; None if nothing was recognised."""
    bytes: Long = 0
    """Size in bytes after decompression."""
    lines: Long = 0
    recognised: Long = 0
    """Number of lines that are known messages."""
    error: str | None = None
    """Why the input could not be read to the end."""
    counted: Literal["newest first", "records"] | None = None
    """How lines are numbered, if not from the top. ``newest first``: from the end, in the order of ``tac``.
    ``records``: the records of JSON documents in the order of time, as ``jq -c`` prints them."""
    imitations: Long = 0
    """Lines inside a printed prompt that looked like log lines of the server. If the server's lines have a clock, these
    lines are ignored."""
    launcher: Launcher | None = None
    """Launcher of the servers that wrote the log, as far as the wrappers around the lines show the launcher. Added
    after the first release of v1: may be missing."""


class Totals(msgspec.Struct):
    """Sums over all requests with known token counts; children of ``n > 1`` requests are left out."""

    requests: Long = 0
    """All requests, including requests with unknown token counts."""
    prompt_tokens: Long = 0
    """Prompt tokens: cached + processed + unknown."""
    cached_tokens: Long = 0
    """Tokens that were reused."""
    processed_tokens: Long = 0
    """Tokens that were computed."""
    reuse: Share | None = None
    """Reused share of the prompt tokens, from 0 to 1; None if there are no prompt tokens."""
    prompt_ms: LongMs = 0.0
    """Milliseconds in which prompts were computed."""
    avoidable_tokens: Long = 0
    """Tokens that the fixes would have saved; a token with several causes is counted once."""
    avoidable_ms: LongMs | None = None
    """Milliseconds that the fixes would have saved."""
    unknown_tokens: Long = 0
    """Tokens not reused in requests for which the log does not show how many were computed."""
    unknown_requests: Long = 0
    """Number of requests for which the log does not show how many tokens were computed."""
    judged_requests: Long | None = None
    """Requests for which the log shows both the possible and the actual reuse. Added after the first release of v1: may
    be missing."""
    open_requests: Long | None = None
    """Requests that computed many tokens, and for which the log does not show the possible reuse, because earlier or
    later lines are missing. Added after the first release of v1: may be missing."""
    short_requests: Long | None = None
    """Requests that lost tokens, but were not checked, because their prompt is shorter than ``short_below``. Added
    after the first release of v1: may be missing."""
    short_below: Long | None = None
    """The setting ``min-prompt-tokens``, in tokens. Added after the first release of v1: may be missing."""
    checked_requests: Long | None = None
    """Number of ``judged_requests`` whose prompt has at least ``short_below`` tokens. Added after the first release of
    v1: may be missing."""


class SlotReuse(msgspec.Struct):
    """Reuse of a slot over its requests; children of ``n > 1`` requests are left out."""

    session: Count
    """The session with the most requests."""
    slot: _Slot | None
    """Number of the slot; None for slot 8 and all higher slots together."""
    requests: Positive
    step: _FromOne
    """Requests in each cell, a power of two; the last cell may have fewer requests."""
    cells: Annotated[list[tuple[_Prompt, _Reused] | None], msgspec.Meta(extra_json_schema=_CELLS)]
    """Prompt tokens and reused tokens of each cell, in the order in which the requests ended; at most 64 cells. None if
    the log does not show the tokens."""


class Filtered(msgspec.Struct):
    """The filter of the shown requests. Sums, and counts and costs of findings, cover the whole log."""

    tasks: list[Long]
    """Shown tasks; empty for all tasks."""
    slots: list[Long]
    """Shown slots; empty for all slots."""
    since: str | None
    """Start of the shown time range, as requested, by the log's own clock."""
    until: str | None
    requests: Long
    """Requests that are shown."""
    all_requests: Long
    findings: Long
    """Number of findings that affect a shown request."""
    all_findings: Long
    without_time: Long = 0
    """Requests that are left out because the log does not show their time."""


class UnknownShape(msgspec.Struct):
    """Unrecognised lines of a log with the same pattern."""

    shape: str
    """The line as ``redact`` writes it, with numbers as ``N`` and unrecognised text as ``<line>``."""
    count: Long
    path: str
    """Input of the first line with this pattern."""
    line: Long
    """Number of the first line with this pattern in that input."""


class RequestLines(Protocol):
    """Finished requests in the order in which they started, as rows or as JSON; a new pass at each call."""

    def check(self) -> None:
        """Raise ``CacheDoctorError`` when some of them were lost."""

    def __iter__(self) -> Iterator[RequestRow]:
        """Yield every request."""

    def lines(self) -> Iterator[bytes]:
        """Yield one JSON object per request, without newline."""

    def copy_to(self, out: IO[bytes]) -> None:
        """Write them all, one a line, with a comma between them as in a JSON array."""


class Rows(Protocol):
    """Samples or batches in the order of the log, as JSON; a new pass at each call."""

    def check(self) -> None:
        """Raise ``CacheDoctorError`` when some of them were lost."""

    def lines(self) -> Iterator[bytes]:
        """Yield one JSON object each, without newline."""


class Report(msgspec.Struct):
    """Everything a renderer needs; the requests stream from a spool.

    It is the JSON document as well: what is below ``undecided`` is written, read and described as it is declared.
    """

    tool_version: str
    """Version of cachedoctor that made it."""
    inputs: list[InputInfo]
    sessions: Sequence[Session]
    totals: Totals
    requests: RequestLines
    """The requests, in the order in which they started."""
    findings: list[Finding]
    """The findings, the costliest first."""
    not_evaluated: list[NotEvaluated]
    rules: list[RuleInfo]
    interrupted: bool = False
    """True if the report covers only the part that was read before Ctrl-C."""
    samples: Rows | None = None
    """Statistics lines of vLLM logs, in the order of the log; empty for other engines. All values except hit_rate are
    about the seconds before the line."""
    batches: Rows | None = None
    """Prefill batches of SGLang logs, in the order of the log; empty for other engines. A batch is neither a request
    nor a prompt."""
    undecided: list[RequestRow] = msgspec.field(default_factory=list)
    """The first requests of which the log does not show what they could have reused: of all that matter, or of all.
    Not in JSON."""
    restart: Restart | None = None
    """Restart that would enable more checks; None if all rules were checked, or if no option of this build helps."""
    slots: Annotated[list[SlotReuse], msgspec.Meta(extra_json_schema=_SLOTS)] = msgspec.field(default_factory=list)
    """Reuse along the requests of each slot, for the session with the most requests."""
    ignored: list[Code] = msgspec.field(default_factory=list)
    """Codes of the rules that were switched off with --select, --ignore or a settings file; the rest of the report does
    not mention these rules. Added after the first release of v1: may be missing."""
    accounts: list[Account] = msgspec.field(default_factory=list)
    """What became of the prompt tokens of llama-server's requests: first for the whole log, then for servers,
    conversations and clients (at most 64 of each). Added after the first release of v1: may be missing."""
    filtered: Filtered | None = None
    """The filter, if the report shows only some requests and findings; sums cover the whole log. Added after the first
    release of v1: may be missing."""
    slowest: list[SlowTurn] = msgspec.field(default_factory=list)
    """The slowest requests, at most three, the slowest first. Added after the first release of v1: may be missing."""
    fix: list[Fix] = msgspec.field(default_factory=list)
    """What to change: one entry for each server with findings that have a fix, the costliest server first. Added after
    the first release of v1: may be missing."""
    clients: list[ClientAccount] = msgspec.field(default_factory=list)
    """What became of the prompt tokens of each client: 64 clients, then all other clients together, then requests of
    unknown clients. Added after the first release of v1: may be missing."""
    agents: list[AgentVerdict] = msgspec.field(default_factory=list)
    """Reasons for less reuse that agents and providers give in recordings, and how often the log shows the same reason.
    Findings do not depend on these reasons. Added after the first release of v1: may be missing."""
    unknown: list[UnknownShape] | None = None
    """Unrecognised lines with --unknown, grouped by pattern; at most 512 patterns, the most frequent first. Added after
    the first release of v1: may be missing."""


_FIELDS = Report.__struct_fields__
DECLARED = _FIELDS[_FIELDS.index("undecided") + 1 :]
"""Fields that JSON has as they are declared, in their order."""


class Tool(Struct):
    """Program that wrote the report."""

    name: Literal["cachedoctor"]
    version: str
