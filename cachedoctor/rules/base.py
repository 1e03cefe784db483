"""What a rule is: the situation it looks at, the hit it reports, the words it finds for a group of hits.

Knows the three questions every rule asks (where does the common prefix end; was there a checkpoint at or below it; if
not, why). Knows no single cause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from cachedoctor.model import Confidence, Mark, Remedy, Request, RuledOut, Session, Severity

DOCS = "https://github.com/cachedoctor/cachedoctor/blob/main/docs/rules"

MIN_PROMPT = 1000
"""Tokens: a shorter prompt costs too little to matter."""
MIN_LOST = 17
"""Tokens: the last 16 may differ by re-tokenisation alone."""
WARN_TOKENS = 1000
"""Tokens: a cause that cost this much in all is a warning."""
EARLY = 0.5
"""Share: a common prefix below this share of reference and prompt ends early."""


class Situation(msgspec.Struct):
    """A finished request, its session, and what came before it."""

    request: Request
    session: Session
    history: list[Request]
    """Earlier requests of the same thread, oldest first, at most 8."""
    slot_before: Request | None
    """The request that the slot served before this one."""
    threads: int
    """Threads of the session so far."""
    steals: int = 0
    """Requests of the session so far whose slot held another thread's prompt and that lost by it."""
    fired: set[str] = msgspec.field(default_factory=set)
    """Codes that earlier rules attached to this request."""

    @property
    def lost(self) -> int:
        """Reference - cached in tokens; 0 when unknown or not worth a word."""
        r = self.request
        small = r.prompt_tokens is None or r.prompt_tokens < MIN_PROMPT
        return 0 if small or r.outcome not in ("partial", "reprocessed") else r.lost_tokens or 0

    @property
    def lcp(self) -> int | None:
        """Longest common prefix in tokens, or None."""
        return self.request.common_prefix_tokens

    @property
    def lcp_at_most(self) -> int | None:
        """Upper bound of the common prefix: exact, or what an LRU choice leaves (similarity below the threshold)."""
        r = self.request
        if r.common_prefix_tokens is not None:
            return r.common_prefix_tokens
        if r.selected_by == "lru" and r.held_tokens and r.prompt_tokens:
            return int(r.prompt_tokens * 0.1)
        return None

    @property
    def whole(self) -> int:
        """Tokens that could have been common: the shorter of reference and prompt."""
        r = self.request
        return min(r.reference_tokens or 0, r.prompt_tokens or 0)

    @property
    def own_slot(self) -> bool | None:
        """Whether the slot held this thread's previous turn; None when unknown."""
        r = self.request
        if r.thread is None or r.held_thread is None:
            return None
        return r.thread == r.held_thread and r.thread_turn > 0

    @property
    def early(self) -> bool:
        """The common prefix is known to end early."""
        most = self.lcp_at_most
        return most is not None and most < EARLY * self.whole

    @property
    def late(self) -> bool:
        """The common prefix is known to be long: 1,000 tokens or half of the prompt."""
        lcp = self.lcp
        return lcp is not None and (lcp >= MIN_PROMPT or 2 * lcp >= (self.request.prompt_tokens or 0)) and lcp > 16

    @property
    def client_lost(self) -> int:
        """Tokens that the client changed; 0 when the prompt only repeats or extends what the slot held."""
        r, lcp = self.request, self.lcp
        if lcp is None or r.prompt_tokens is None or lcp >= r.prompt_tokens - 4:
            return 0
        return r.lost_client or 0

    @property
    def server_lost(self) -> int:
        """Tokens of the common prefix that the server did not reuse."""
        return (self.request.lost_server or 0) if self.lost else 0

    @property
    def rewinds_badly(self) -> bool | None:
        """Whether the memory needs checkpoints to go back (SWA, hybrid, recurrent); None when unknown."""
        s = self.session
        if s.memory is not None:
            return s.memory != "attention" and not (s.memory == "swa" and s.setting("swa_full") is True)
        if s.seen & {"ckpt_created", "ckpt_restored", "ckpt_check", "ckpt_created_swa", "force_full"}:
            return True
        return None


class Hit(msgspec.Struct):
    """A rule fired on one request."""

    tokens: int
    """Tokens that the fix would have saved."""
    confidence: Confidence
    primary: tuple[Mark, str]
    """The line that proves it, and what it shows."""
    related: list[tuple[Mark, str]] = msgspec.field(default_factory=list)
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    """Numbers for the claim."""
    key: str = ""
    """Hits with the same key are one finding."""


class Group(msgspec.Struct):
    """The hits of one rule with one key: what a finding is made of."""

    session: Session
    worst: Hit
    worst_request: Request
    count: int = 0
    tokens: int = 0
    ms: float = 0.0
    first: list[int] = msgspec.field(default_factory=list)
    top: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(tokens, request) of the worst 5."""


class Words(msgspec.Struct):
    """The text of a finding."""

    claim: str
    why: str
    remedies: list[Remedy]
    ruled_out: list[RuledOut] = msgspec.field(default_factory=list)
    references: list[str] = msgspec.field(default_factory=list)


class Rule(msgspec.Struct):
    """A cause: how to see it, how to say it."""

    code: str
    name: str
    summary: str
    check: Callable[[Situation], Hit | None]
    words: Callable[[Group], Words]
    needs: Callable[[Session], tuple[str, str] | None] = lambda _: None
    """(reason, what would enable it) when this log could not have shown it."""
    severity: Literal["by-cost"] | Severity = "by-cost"
    after: tuple[str, ...] = ()
    """Codes of the causes that are asked first: where one fired, this rule may stay silent."""

    @property
    def url(self) -> str:
        """Address of the rule's page."""
        return f"{DOCS}/{self.code}.md"


def proof(request: Request, *wanted: tuple[str, str]) -> list[tuple[Mark, str]]:
    """Marks of ``request`` by name with their labels; names it does not have are left out."""
    return [(request.marks[name], label) for name, label in wanted if name in request.marks]


def n(value: float | None) -> str:
    """Write a number with thousands separators."""
    return "an unknown number of" if value is None else f"{value:,.0f}"


def times(count: int) -> str:
    """Words for a count of requests."""
    return "1 request" if count == 1 else f"{count:,} requests"
