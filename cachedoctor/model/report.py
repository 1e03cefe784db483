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
    """One input and how much of it was understood."""

    path: str
    """Path as given; - is the standard input."""
    engine: str | None = None
    """The one that wrote most of it, ``llama.cpp``, ``vllm``, ``sglang`` ...; None if nothing was recognised."""
    bytes: Long = 0
    """Bytes, unpacked."""
    lines: Long = 0
    recognised: Long = 0
    """Lines that are known messages."""
    error: str | None = None
    """Why it could not be read to its end."""
    counted: Literal["newest first", "records"] | None = None
    """How its lines are numbered, if not from the top: ``newest first`` from the end, as ``tac`` gives them,
    ``records`` the records of its JSON documents, as ``jq -c`` gives them, in the order of time."""
    imitations: Long = 0
    """Lines inside a printed prompt that looked like the server's. They are not read where its lines have a clock."""
    launcher: Launcher | None = None
    """What started the servers that wrote it, as far as the wrappers around its lines show. Added after the first
    release of v1: may be missing."""


class Totals(msgspec.Struct):
    """Sums over all requests with known accounting; children of ``n > 1`` requests are left out."""

    requests: Long = 0
    """All requests, those with unknown accounting included."""
    prompt_tokens: Long = 0
    """Tokens: cached + processed + unknown."""
    cached_tokens: Long = 0
    """Tokens that were reused."""
    processed_tokens: Long = 0
    """Tokens that were computed."""
    reuse: Share | None = None
    """Reused share of the prompt tokens, from 0 to 1; None without prompt tokens."""
    prompt_ms: LongMs = 0.0
    """Milliseconds in which prompts were computed."""
    avoidable_tokens: Long = 0
    """Tokens that the fixes would have saved, each counted once however many causes it has."""
    avoidable_ms: LongMs | None = None
    """Milliseconds that the fixes would have saved."""
    unknown_tokens: Long = 0
    """Tokens not reused in requests for which the log does not show how many were computed."""
    unknown_requests: Long = 0
    """These requests; prompt tokens are cached + processed + unknown."""
    judged_requests: Long | None = None
    """Requests of which the log shows what they could have reused and what they did. Added after the first release of
    v1: may be missing."""
    open_requests: Long | None = None
    """Requests that computed enough to matter, for which the log does not show what they could have reused, because it
    lacks what came before or after them. Added after the first release of v1: may be missing."""
    short_requests: Long | None = None
    """Requests that lost tokens, but are not reported because their prompt is shorter than ``short_below``. Added after
    the first release of v1: may be missing."""
    short_below: Long | None = None
    """Tokens, the threshold ``min-prompt-tokens``. Added after the first release of v1: may be missing."""
    checked_requests: Long | None = None
    """Those of ``judged_requests`` whose prompt has at least ``short_below`` tokens. Added after the first release of
    v1: may be missing."""


class SlotReuse(msgspec.Struct):
    """How much of its prompts a slot reused, along its requests; children of ``n > 1`` requests are left out."""

    session: Count
    """The session with the most requests."""
    slot: _Slot | None
    """None for all slots from 8 on together."""
    requests: Positive
    step: _FromOne
    """Requests of each cell, a power of two; the last one may hold fewer."""
    cells: Annotated[list[tuple[_Prompt, _Reused] | None], msgspec.Meta(extra_json_schema=_CELLS)]
    """Prompt tokens and how many of them were reused, at most 64 times, in the order in which the requests ended; None
    if the log does not show them."""


class Filtered(msgspec.Struct):
    """Which requests of a log are shown; sums, and counts and costs of findings, are of the whole log."""

    tasks: list[Long]
    """Empty for any task."""
    slots: list[Long]
    """Empty for any slot."""
    since: str | None
    """Start of the shown time range, as requested, by the log's own clock."""
    until: str | None
    requests: Long
    """Requests that are shown."""
    all_requests: Long
    findings: Long
    """Findings that one of these requests belongs to."""
    all_findings: Long
    without_time: Long = 0
    """Requests that are left out because the log does not show their time."""


class UnknownShape(msgspec.Struct):
    """Lines of a log that are not recognised and have the same shape."""

    shape: str
    """The line as ``redact`` writes it, with numbers as ``N`` and unrecognised text as ``<line>``."""
    count: Long
    path: str
    """Input of the first one."""
    line: Long
    """Line number of the first one in that input."""


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
    """In the order in which they started."""
    findings: list[Finding]
    """The costliest first."""
    not_evaluated: list[NotEvaluated]
    rules: list[RuleInfo]
    interrupted: bool = False
    """The report covers what was read before Ctrl-C."""
    samples: Rows | None = None
    """Statistics lines of vLLM logs, in the order of the log; empty for other engines. Each is about the seconds before
    it, but hit_rate."""
    batches: Rows | None = None
    """Prefill batches of SGLang logs, in the order of the log; empty for other engines. A batch is neither a request
    nor a prompt."""
    undecided: list[RequestRow] = msgspec.field(default_factory=list)
    """The first requests of which the log does not show what they could have reused: of all that matter, or of all.
    Not in JSON."""
    restart: Restart | None = None
    """None if nothing is left to check, or if no option of this build helps."""
    slots: Annotated[list[SlotReuse], msgspec.Meta(extra_json_schema=_SLOTS)] = msgspec.field(default_factory=list)
    """Reuse along the requests of each slot, for the session with the most requests."""
    ignored: list[Code] = msgspec.field(default_factory=list)
    """Codes of the rules that were switched off with --select, --ignore or a file of settings: the rest of the report
    does not mention them. Added after the first release of v1: may be missing."""
    accounts: list[Account] = msgspec.field(default_factory=list)
    """Where the prompt tokens of llama-server's requests went, the whole log first, then servers, conversations and
    clients (64 of each at most). Added after the first release of v1: may be missing."""
    filtered: Filtered | None = None
    """Which requests and findings are shown, if not all: sums are of the whole log. Added after the first release of
    v1: may be missing."""
    slowest: list[SlowTurn] = msgspec.field(default_factory=list)
    """The requests that took longest, at most three, the slowest first. Added after the first release of v1: may be
    missing."""
    fix: list[Fix] = msgspec.field(default_factory=list)
    """What to change, one for each server with findings that something fixes, the costliest first. Added after the
    first release of v1: may be missing."""
    clients: list[ClientAccount] = msgspec.field(default_factory=list)
    """Where the prompt tokens went by who sent the requests: 64 clients, then all others together, then requests of
    unknown clients. Added after the first release of v1: may be missing."""
    agents: list[AgentVerdict] = msgspec.field(default_factory=list)
    """Why less was reused according to agents and providers, if recordings given with the log contain it, and how often
    the log shows the same. Findings do not depend on it. Added after the first release of v1: may be missing."""
    unknown: list[UnknownShape] | None = None
    """Unrecognised lines by their shape, if --unknown was given, at most 512, the most frequent first. Added after the
    first release of v1: may be missing."""


_FIELDS = Report.__struct_fields__
DECLARED = _FIELDS[_FIELDS.index("undecided") + 1 :]
"""Fields that JSON has as they are declared, in their order."""


class Tool(Struct):
    """What wrote the report."""

    name: Literal["cachedoctor"]
    version: str
