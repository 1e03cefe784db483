"""What a rule is: the situation it looks at, the hit it reports, the words it finds for a group of hits.

Knows the three questions every rule asks (where does the common prefix end; was there a checkpoint at or below it; if
not, why). Knows no single cause.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import msgspec

from cachedoctor.model import (
    Confidence,
    First,
    Mark,
    Options,
    PromptDiff,
    Remedy,
    Request,
    RuledOut,
    Session,
    Setting,
    Severity,
)
from cachedoctor.model.options import DEFAULTS
from cachedoctor.rules.names import PAGES
from cachedoctor.rules.replaying import Replay, agrees, replay, would_reuse

LONG = 1000
"""Tokens: a common prefix of this length is long, whatever the prompt."""
MIN_LOST = 17
"""Tokens: the last 16 may differ by re-tokenisation alone."""
RAM_LEAST = 0.25
"""Share of a prompt in the RAM cache that must be kept for it to be given back (b6751 and newer)."""
LRU_MOST = 0.1
"""Share of a prompt that any slot holds at most when one is chosen for its age: the default threshold (b6628 and newer)."""
EARLY = 0.5
"""Share: a common prefix below this share of reference and prompt ends early."""


Sign = Literal[
    "loss",  # tokens were lost
    "text",  # and the prompts' text is known: ``old:`` / ``new:`` lines, or prompts given beside the log
    "changed",  # and the client changed more than the last tokens
    "early",  # and the common prefix ends early
    "taken",  # and the slot held another conversation
    "stuck",  # and the common prefix was long, and the server did not reuse it
    "dropped",  # and a checkpoint that was dropped would have helped
    "looked",  # and the server looked at checkpoints, or had some and forced
    "failed",  # and it failed to cut its memory
    "error",
    "shift",  # of this request or the one before it
    "partial",
    "restarted",  # the session followed another one
    "lora", "idle_cleared",  # tokens were lost, and the request has this mark
    "ram_failed", "slept", "stale", "slot_file",  # the request has this mark
]  # fmt: skip
"""What a request shows at first sight (signs.py)."""


class Situation:
    """A finished request, its session, what came before it, and the numbers that every rule asks for."""

    def __init__(
        self,
        request: Request,
        session: Session,
        history: list[Request],
        slot_before: Request | None,
        threads: int,
        steals: int,
        options: Options = DEFAULTS,
    ) -> None:
        r = request
        self.request = r
        self.session = session
        self.history = history
        """Earlier requests of the same thread, oldest first, at most 8."""
        self.slot_before = slot_before
        """The request that the slot served before this one."""
        self.threads = threads
        """Threads of the session so far."""
        self.steals = steals
        """Requests of the session so far whose slot held another thread's prompt and that lost by it."""
        self.min_prompt = options.min_prompt_tokens
        """Tokens: a request with a shorter prompt costs too little to matter."""
        self.fired: set[str] = set()
        """Codes that earlier rules attached to this request."""
        prompt, lcp, reference = r.prompt_tokens, r.common_prefix_tokens, r.reference_tokens or 0
        worth = prompt is not None and prompt >= self.min_prompt and r.outcome in ("partial", "reprocessed")
        self.lost: int = (r.lost_tokens or 0) if worth else 0
        """Reference - cached in tokens; 0 when unknown or not worth a word."""
        self.lcp = lcp
        """Longest common prefix in tokens, or None."""
        self.lcp_at_most = _lcp_at_most(r)
        """Upper bound of the common prefix, or None."""
        self.whole = min(reference, prompt or 0)
        """Tokens that could have been common: the shorter of reference and prompt."""
        self.own_slot: bool | None = None
        """Whether the slot held this thread's previous turn; None when unknown."""
        if r.thread is not None and r.held_thread is not None:
            self.own_slot = r.thread == r.held_thread and r.thread_turn > 0
        self.early = self.lcp_at_most is not None and self.lcp_at_most < EARLY * self.whole
        """The common prefix is known to end early."""
        self.late = lcp is not None and lcp > 16 and (lcp >= LONG or 2 * lcp >= (prompt or 0))
        """The common prefix is known to be long: 1,000 tokens or half of the prompt."""
        repeats = lcp is None or prompt is None or lcp >= prompt - 4
        self.client_lost: int = 0 if repeats else r.lost_client or 0
        """Tokens that the client changed; 0 when the prompt only repeats or extends what the slot held."""
        self.server_lost: int = (r.lost_server or 0) if self.lost else 0
        """Tokens of the common prefix that the server did not reuse."""

    @cached_property
    def replayed(self) -> Replay:
        """What the server's build had to reuse, given what the slot held; names the numbers that are missing."""
        return replay(self.request, self.session)

    @property
    def by_the_book(self) -> bool | None:
        """Whether the server did what its build does; None when the log lacks a number."""
        found, cached = self.replayed, self.request.cached_tokens
        if found.least is None or found.most is None or cached is None:
            return None
        whole = found.decision is None or agrees(found.decision, self.request, self.session)
        return whole and found.least <= cached <= found.most

    def reused_by(self, build: int) -> int | None:
        """Tokens that a server of another build would have reused; None when the log does not tell."""
        return would_reuse(self.request, self.session, build)

    def changed(self, *kinds: str) -> First | None:
        """Return the first difference of the prompts given beside the log, if it is of one of these kinds."""
        found = self.request.difference.first if self.request.difference is not None else None
        return found if found is not None and found.kind in kinds else None

    @property
    def slot_taken(self) -> bool:
        """A known thread came back to a slot with another's content, nothing from RAM helped, and it lost by it."""
        r = self.request
        return bool(self.lost and self.own_slot is False and r.thread_turn and not r.restored_from_ram)

    @property
    def known(self) -> bool:
        """The prompts themselves were given: no guess from numbers is needed."""
        difference = self.request.difference
        return difference is not None and (difference.first is None or difference.first.kind != "other")

    @property
    def rewinds_badly(self) -> bool | None:
        """Whether the memory needs checkpoints to go back (SWA, hybrid, recurrent); None when unknown."""
        s = self.session
        if s.memory is not None:
            return s.memory != "attention" and not (s.memory == "swa" and s.setting("swa_full") is True)
        if s.seen & {"ckpt_created", "ckpt_restored", "ckpt_check", "ckpt_created_swa", "force_full", "ckpt_erase_old"}:
            return True
        return None


def _lcp_at_most(r: Request) -> int | None:
    """Upper bound of the common prefix: exact, what a choice by age leaves, or what a refused copy in RAM does."""
    if r.common_prefix_tokens is not None:
        return r.common_prefix_tokens
    if r.selected_by == "lru" and r.held_tokens and r.prompt_tokens:
        return int(r.prompt_tokens * LRU_MOST)
    if not r.ram_refused:
        return None
    if r.reference_lcp is not None:
        return r.reference_lcp
    return int((r.reference_tokens or 0) * RAM_LEAST) if (r.f_keep or 0) < RAM_LEAST else None


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
    difference: PromptDiff | None = None
    """The prompts themselves, when they were given."""


class Group(msgspec.Struct):
    """The hits of one rule with one key: what a finding is made of."""

    session: Session
    worst: Hit
    worst_request: Request
    count: int = 0
    tokens: int = 0
    ns: int = 0
    """Nanoseconds that the fix would have saved."""
    at_depth: bool = False
    """The time was taken from the speed at that depth, not from a request's mean speed."""
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


class Note(msgspec.Struct):
    """What a rule says of a whole session, whether a request lost by it or not."""

    words: Words
    key: str
    """Notes with the same key are said once per input."""
    evidence: list[tuple[Mark, str]] = msgspec.field(default_factory=list)
    """Lines that prove it, the first of them first of all; none where the command line alone does."""
    severity: Severity = "note"
    confidence: Confidence = "high"
    difference: PromptDiff | None = None
    """The prompts themselves, when they were given and prove it."""


class Rule(msgspec.Struct):
    """A cause: how to see it, how to say it."""

    code: str
    name: str
    summary: str
    check: Callable[[Situation], Hit | None] = lambda _: None
    words: Callable[[Any], Words] = lambda _: Words("", "", [])
    """Takes the Group of a finding; None for the rule that is about a whole input."""
    needs: Callable[[Session], tuple[str, str] | None] = lambda _: None
    """(reason, what would enable it) when this log could not have shown it."""
    severity: Literal["by-cost"] | Severity = "by-cost"
    on: tuple[Sign, ...] = ("loss",)
    """Asked about requests with one of these signs; none: only about whole sessions."""
    inspect: Callable[[Session, set[str]], list[Note]] | None = None
    """Asked once about every session of its engine at the end, with the codes that fired in its input."""
    after: tuple[str, ...] = ()
    """Codes of the causes that are asked first: where one fired, this rule may stay silent."""
    engine: str = "llama.cpp"
    """Whose sessions it is about."""

    @property
    def url(self) -> str:
        """Address of the rule's page, relative to the root of the repository."""
        return f"{PAGES}/{self.code.lower()}_{self.name.replace('-', '_')}.md"


def proof(request: Request, *wanted: tuple[str, str]) -> list[tuple[Mark, str]]:
    """Marks of ``request`` by name with their labels; names it does not have are left out.

    Never empty: where a torn log kept none of them, the first line of the request stands for all.
    """
    found = [(request.marks[name], label) for name, label in wanted if name in request.marks]
    return found or [(request.marks["start"], "the request")]


def said_by(setting: Setting | None, label: str) -> list[tuple[Mark, str]]:
    """Return the line that says how the server is set, where the log has it."""
    if setting is None or setting.line is None or not setting.text:
        return []
    return [(Mark(setting.line, setting.text), label)]


def n(value: float | str | None) -> str:
    """Write a number with thousands separators; text stays as it is."""
    if isinstance(value, str):
        return value
    return "an unknown number of" if value is None else f"{value:,.0f}"


def times(count: int) -> str:
    """Words for a count of requests."""
    return "1 request" if count == 1 else f"{count:,} requests"
