"""The nouns that flow through cachedoctor. Knows no engine, no rule, no file; imports nothing of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Protocol

import msgspec

Severity = Literal["error", "warning", "note"]
Confidence = Literal["high", "medium", "low"]
Memory = Literal["attention", "swa", "hybrid", "recurrent"]
Outcome = Literal["cold", "reused", "partial", "reprocessed", "failed", "cancelled", "unknown"]

SEVERITY_ORDER: dict[str, int] = {"note": 0, "warning": 1, "error": 2}


class CacheDoctorError(Exception):
    """A fault that the user can mend: one line, a hint, and the exit status of the command."""

    def __init__(self, message: str, hint: str = "", exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


class Segment(msgspec.Struct):
    """Consecutive lines of one origin, their wrappers removed."""

    origin: str | None
    """Router port, compose service, or None."""
    data: bytes
    """The bodies, each ended by a newline."""
    first: int
    """1-based number of the first line in its input."""
    numbers: list[int] | None = None
    """Line number of each body; None when they are consecutive from ``first``."""

    def number(self, index: int) -> int:
        """Line number in the input of the body with the 0-based ``index``."""
        return self.first + index if self.numbers is None else self.numbers[index]


class Mark(msgspec.Struct, gc=False):
    """A log line kept as evidence."""

    line: int
    """1-based line number in the input."""
    text: bytes
    """The line without its wrapper."""


class Setting(msgspec.Struct):
    """A fact about the server and the line that says so."""

    value: Any
    line: int | None


class Session(msgspec.Struct):
    """One life of a server process. Unknown is None."""

    index: int
    path: str
    origin: str | None = None
    """Router port, compose service, or None."""
    engine: str = "llama.cpp"
    build: int | None = None
    build_min: int | None = None
    """Oldest build that writes all the wordings seen."""
    build_max: int | None = None
    build_source: str | None = None
    """"line", "option", "wording", or None."""
    model: str | None = None
    memory: Memory | None = None
    n_slots: int | None = None
    n_ctx_slot: int | None = None
    """Context of one slot in tokens."""
    settings: dict[str, Setting] = msgspec.field(default_factory=dict)
    first_line: int = 1
    last_line: int = 1
    seen: set[str] = msgspec.field(default_factory=set)
    """Ids of the messages that occurred: what this log is able to show."""
    n_requests: int = 0
    starts_cold: bool = False
    """The start of the process is in the log, so that its slots were empty."""

    def setting(self, name: str) -> Any:
        """Value of a setting, or None when unknown."""
        found = self.settings.get(name)
        return None if found is None else found.value

    def at_least(self, build: int) -> bool | None:
        """Whether the server is of ``build`` or newer; None when the log leaves it open."""
        if self.build is not None:
            return self.build >= build
        if self.build_min is not None and self.build_min >= build:
            return True
        if self.build_max is not None and self.build_max < build:
            return False
        return None


class Check(msgspec.Struct, gc=False):
    """A checkpoint that the server looked at: positions it covers, and the threshold it had to lie below."""

    pos_min: int
    pos_max: int
    threshold: int
    line: int


class Request(msgspec.Struct):
    """What llama-server calls a task. Token counts in tokens, times in milliseconds; unknown is None, never 0."""

    index: int
    session: int
    path: str
    slot: int
    task: int
    first_line: int
    last_line: int
    parent: int | None = None
    """Task of which this is one of the ``n > 1`` choices."""
    thread: int | None = None
    """Conversation, numbered in the session."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    processed_tokens: int | None = None
    generated_tokens: int | None = None
    derived: list[str] = msgspec.field(default_factory=list)
    """Names of the fields that were computed from other numbers."""
    prompt_ms: float | None = None
    selected_by: Literal["lcp", "lru", "id"] | None = None
    similarity: float | None = None
    """Share of the new prompt that the slot already held."""
    f_keep: float | None = None
    """Share of the slot's content that the new prompt kept."""
    common_prefix_tokens: int | None = None
    """Longest common prefix with what the slot held when processing began."""
    lcp_exact: bool = False
    """The common prefix was printed, not estimated from rounded shares."""
    restored_from_ram: bool | None = None
    tried: int | None = None
    restored: int | None = None
    created: int | None = None
    erased: int | None = None
    """Context checkpoints: looked at, restored, created, erased. None where this build hides them at this level."""
    lost_tokens: int | None = None
    lost_client: int | None = None
    """Reference - LCP: what the client changed."""
    lost_server: int | None = None
    """LCP - cached: what the server could not reuse."""
    reference_tokens: int | None = None
    """Prompt + reply of the thread's previous request, else what the slot held."""
    held_tokens: int | None = None
    """Length of the slot's content when the request took it (before a swap from RAM)."""
    held_thread: int | None = None
    thread_turn: int = 0
    """0 for the first request of its thread."""
    other_candidates: int = 0
    """Threads beside its own that this prompt could have extended."""
    outcome: Outcome = "unknown"
    partial: bool = False
    codes: list[str] = msgspec.field(default_factory=list)
    released_tokens: int | None = None
    """Length of the slot after the reply."""
    forced: bool = False
    """The server printed that it forces full re-processing."""
    truncate_failed_at: int | None = None
    shifted: bool = False
    cut_prompt: bool = False
    """The prompt did not fit, and the server cut it (up to b6628)."""
    cancelled: bool = False
    error: str | None = None
    error_tokens: int | None = None
    """Prompt tokens that an over-long request had, from its error."""
    error_limit: int | None = None
    images: bool = False
    t_last: int | None = None
    """Clock of the slot's last use as printed in an LRU choice, microseconds; -1 for a slot never used."""
    checks: list[Check] = msgspec.field(default_factory=list)
    restored_tokens: int | None = None
    """Tokens covered by the checkpoint that was restored."""
    held_checkpoints: int | None = None
    """Checkpoints the slot held when the request came; None when the log hides them."""
    held_positions: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(pos_min, pos_max) of those whose creation was printed; meant for builds that print no checks (up to b8156)."""
    ram_looked: bool = False
    """The RAM prompt cache was searched for a better prompt."""
    ram_saved: bool = False
    """What the slot held was saved to the RAM prompt cache before."""
    ram_best_lcp: int | None = None
    """Longest common prefix with any prompt of the RAM cache, where the log lists them."""
    reused_chunks: int = 0
    """Tokens moved by --cache-reuse."""
    old_text: str | None = None
    new_text: str | None = None
    """Text around the divergence as printed by LLAMA_SERVER_SLOTS_DEBUG=1, the bar included."""
    marks: dict[str, Mark] = msgspec.field(default_factory=dict)


class Evidence(msgspec.Struct):
    """A line that proves a finding."""

    path: str
    session: int
    line: int
    text: str
    role: Literal["primary", "related"]
    label: str


class Cost(msgspec.Struct):
    """What the fix would have saved."""

    tokens: int
    ms: float | None


class Remedy(msgspec.Struct):
    """What to do, and commands that can be copied."""

    text: str
    commands: list[str] = msgspec.field(default_factory=list)


class RuledOut(msgspec.Struct):
    """A look-alike, and the line of thought that excludes it."""

    name: str
    why: str


class Finding(msgspec.Struct):
    """A cause, grouped over all requests that it hit."""

    code: str
    name: str
    severity: Severity
    confidence: Confidence
    claim: str
    requests: list[int]
    """Indexes of the first 20 requests and the worst 5."""
    count: int
    evidence: list[Evidence]
    cost: Cost
    why: str
    ruled_out: list[RuledOut]
    diff: Any
    """The difference of two prompts that proves it, or None."""
    remedies: list[Remedy]
    references: list[str]


class NotEvaluated(msgspec.Struct):
    """A rule that the log could not have shown."""

    code: str
    name: str
    reason: str
    enable: str
    """What would make it possible, for this build."""


class InputInfo(msgspec.Struct):
    """One input and how much of it was understood."""

    path: str
    engine: str | None = None
    bytes: int = 0
    lines: int = 0
    recognised: int = 0
    error: str | None = None


class Totals(msgspec.Struct):
    """Sums over all requests with known accounting; children of ``n > 1`` requests are left out."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    processed_tokens: int = 0
    reuse: float | None = None
    prompt_ms: float = 0.0
    avoidable_tokens: int = 0
    avoidable_ms: float | None = None


class RuleInfo(msgspec.Struct):
    """A rule as a report names it."""

    code: str
    name: str
    summary: str
    url: str


class RequestLines(Protocol):
    """Finished requests as JSON objects, in the order in which they started."""

    def lines(self) -> Iterator[bytes]:
        """Yield one JSON object per request, without newline."""


class Report(msgspec.Struct):
    """Everything a renderer needs; the requests stream from a spool."""

    tool_version: str
    inputs: list[InputInfo]
    sessions: list[Session]
    totals: Totals
    requests: RequestLines
    findings: list[Finding]
    not_evaluated: list[NotEvaluated]
    rules: list[RuleInfo]
    interrupted: bool = False
