"""What a rule is: what it decides on a request, how it proves that, the words it finds for all that it match.

The questions are the same for each: where does the common prefix end; was there a checkpoint at or below it; if not,
why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeGuard

import msgspec

from cachedoctor.diagnosis.rules.names import PAGES, path
from cachedoctor.diagnosis.rules.replaying import Replay, agrees, replay, would_reuse
from cachedoctor.diagnosis.rules.setup import Setup
from cachedoctor.model import (
    Confidence,
    First,
    Incident,
    IncidentName,
    Judged,
    Mark,
    MarkName,
    Options,
    PromptDiff,
    Remedy,
    Request,
    RuledOut,
    Server,
    Session,
    Setting,
    Severity,
)
from cachedoctor.model.options import DEFAULTS

LONG = 1000
"""Tokens: a common prefix of this length is long, whatever the prompt."""
MIN_LOST = 17
"""Tokens: the last 16 may differ by re-tokenisation alone."""
RAM_LEAST = 0.25
"""Share of a prompt in the RAM cache that must be kept for it to be given back (b6751 and newer)."""
RETURNED = 0.5
"""Share of a prompt: a slot that was chosen by its age holds less of it, whatever similarity is asked for."""
LRU_MOST = 0.1
"""Share of a prompt that any slot holds at most when one is chosen for its age: the default threshold (b6628 and newer)."""
SHORT = 0.25
"""Share of a conversation's length that a side request has at most."""
FRAME = 24
"""Tokens: the opening of the next message, which stands behind the end of any turn."""
EARLY = 0.5
"""Share: a common prefix below this share of reference and prompt ends early."""


Trigger = Literal[
    "loss",  # tokens were lost
    "symptom",  # nothing was reused, or a long prompt is under way, and the lines that would say why are missing
    "text",  # and the prompts' text is known: ``old:`` / ``new:`` lines, or prompts given beside the log
    "changed",  # and the client changed more than the last tokens
    "early",  # and the common prefix ends early
    "taken",  # and the slot held another conversation
    "slot_erased",  # and its slot had been emptied over the API
    "stuck",  # and the common prefix was long, and the server did not reuse it
    "dropped",  # and a checkpoint that was dropped would have helped
    "looked",  # and the server looked at checkpoints, or had some and forced
    "failed",  # and it failed to cut its memory
    "bar",  # the log does not tell what was lost, but has the text where the prompts diverge
    "error",
    "shift",  # of this request or the one before it
    "partial",
    "restarted",  # the session followed another one
    "together",  # by their texts, another request computed the same beginning at the same time
    "lora", "idle_cleared", "ram_taken",  # tokens were lost, and the request has this mark
    "checkpoint_failed", "ram_failed", "slept", "stale", "slot_file",  # the request has this mark
]  # fmt: skip
"""What a request shows at first sight (triggers.py)."""


Line = tuple[Mark, str]
"""A line of the log, and what it shows."""


class Remembered(Protocol):
    """What else the server did of late."""

    def beside(self, request: Request) -> list[Request]:
        """Give what other slots served while this request was at work."""

    def ended_at(self, length: int, slack: int, before: int) -> bool:
        """Whether a request with a number below ``before`` left a slot at this length, or up to ``slack`` below it."""


class RuleContext:
    """A finished request, its server, what came before it, and the numbers that every rule asks for."""

    __slots__ = (
        "_history", "_remembered", "_replayed", "before", "client_lost", "difference", "early", "facts", "first", "known", "late",
        "lcp", "lcp_at_most", "lost", "min_prompt", "own_slot", "pinned", "request", "rough", "server_lost", "setup",
        "slot_before", "slot_taken", "steals", "text_alone", "threads", "whole",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        setup: Setup,
        before: Sequence[Judged],
        slot_before: Request | None,
        threads: int,
        steals: int,
        options: Options = DEFAULTS,
        difference: PromptDiff | None = None,
        remembered: Remembered | None = None,
    ) -> None:
        """Work out the numbers.

        Args:
            request: the one that the rules are asked about.
            setup: of its server, when it ended.
            before: earlier requests of the same thread, oldest first, at most 8.
            slot_before: the request that the slot served before this one.
            threads: threads of the session so far.
            steals: requests of the session so far whose slot held another thread's prompt and that lost by it.
            options: thresholds.
            difference: what changed from the thread's previous prompt, when both were given beside the log.
            remembered: what else the server did.
        """
        r = request
        self.request = r
        self.setup = setup
        self.facts: Server = setup.facts
        self.before = before
        self.slot_before = slot_before
        self._remembered = remembered
        self.threads = threads
        self.steals = steals
        self.difference = difference
        self.first = None if difference is None else difference.first
        """Where the prompts diverge that were given beside the log, or None."""
        self.known = difference is not None and (self.first is None or self.first.kind != "other")
        """The prompts themselves were given: no guess from numbers is needed."""
        self._history: list[Request] | None = None
        self._replayed: Replay | None = None
        self.min_prompt = options.min_prompt_tokens
        """Tokens: a request with a shorter prompt costs too little to matter."""
        prompt, lcp, reference = r.prompt_tokens, r.common_prefix_tokens, r.reference_tokens or 0
        if r.cut:
            worth = (_longest(r) if prompt is None else prompt) >= self.min_prompt
        else:
            worth = prompt is not None and prompt >= self.min_prompt and r.outcome in ("partial", "reprocessed")
        self.lost: int = (r.lost_tokens or 0) if worth else 0
        """Reference - cached in tokens; 0 when unknown or not worth a word."""
        self.lcp = lcp
        """Longest common prefix in tokens, or None."""
        self.lcp_at_most = lcp if lcp is not None else _lcp_at_most(r)
        """Upper bound of the common prefix, or None."""
        self.pinned = r.lcp_exact or (r.prefix_between is not None and r.prefix_between[1] - r.prefix_between[0] <= 1)
        """The common prefix is known but for one token."""
        self.rough = bool(self.lost) and not self.pinned and _rough(r)
        """A number that decides is known within wide bounds only."""
        self.whole = min(reference, _prompt_at_most(r, reference))
        """Tokens that could have been common: the shorter of reference and prompt."""
        self.own_slot: bool | None = None
        """Whether the slot held this thread's previous turn; None when unknown."""
        if r.thread is not None and r.held_thread is not None:
            self.own_slot = r.thread == r.held_thread and r.thread_turn > 0
        # where it is not known whose prompt the slot held, a long prefix speaks for its own
        long = self.own_slot is None and self.pinned and lcp is not None and lcp >= LONG
        self.early = not long and self.lcp_at_most is not None and self.lcp_at_most < EARLY * self.whole
        """The common prefix is known to end early."""
        half = prompt is not None and lcp is not None and 2 * lcp >= prompt
        self.late = lcp is not None and lcp > 16 and (lcp >= LONG or half)
        """The common prefix is known to be long: 1,000 tokens or half of the prompt."""
        repeats = lcp is None or (prompt is None and not r.cut) or (prompt is not None and lcp >= prompt - 4)
        self.client_lost: int = 0 if repeats else r.lost_client or 0
        """Tokens that the client changed; 0 when the prompt only repeats or extends what the slot held."""
        self.server_lost: int = (r.lost_server or 0) if self.lost else 0
        """Tokens of the common prefix that the server did not reuse."""
        back = r.restored_from_ram or _came_back(r)
        self.slot_taken = bool(self.lost and self.own_slot is False and r.thread_turn and not back and not self.forked)
        """A known thread came back to a slot with another's content, nothing from RAM helped, and it lost by it."""

        self.text_alone = (
            r.outcome == "unknown" and bool(r.seen.old_text and r.seen.new_text) and not self.known and not r.seen.error
        )
        """The log does not tell what was lost, but has the text where the prompts diverge."""

    def beside(self, request: Request) -> list[Request]:
        """Give what other slots served while an earlier request was at work."""
        return [] if self._remembered is None else self._remembered.beside(request)

    @property
    def forked(self) -> bool:
        """Whether it may go on from where several prompts of one length, which were computed at once, had parted: drafts of
        one message. What those had behind that place is no history of its own."""
        if self.lcp is None or not self.before or self._remembered is None or self.known:
            return False
        last = self.before[-1].request
        length = last.prompt_tokens or 0
        alike = (
            one for one in self.beside(last) if one.parent is None and abs((one.prompt_tokens or 0) - length) < MIN_LOST
        )
        return any(alike) and self._remembered.ended_at(self.lcp, FRAME, last.index)

    @property
    def history(self) -> list[Request]:
        """Earlier requests of the same thread, oldest first, at most 8."""
        if self._history is None:
            self._history = [judged.request for judged in self.before]
        return self._history

    @property
    def earlier(self) -> int | None:
        """Least tokens that an earlier turn left which this one may go on from, where it cannot be the last one: an idle
        slot still held that when another was chosen. None where it may, or the texts tell, 0 where no other turn is known.

        Conversations that grow in turn, and whose slots are emptied, are told from one by nothing else.
        """
        r = self.request
        if r.text_lcp is not None or r.thread is None or r.thread not in r.seen.passed_over:
            return None
        return min((turn.seen.released_tokens or 0 for turn in self.history[:-1]), default=0)

    def said_before(self, code: str) -> list[bool]:
        """Whether a rule, which asks about itself, fired on each request of the history."""
        return [code in judged.verdict.codes for judged in self.before]

    @property
    def replayed(self) -> Replay:
        """What the server's build had to reuse, given what the slot held; names the numbers that are missing."""
        if self._replayed is None:
            self._replayed = replay(self.request, self.setup)
        return self._replayed

    @property
    def by_the_book(self) -> bool | None:
        """Whether the server did what its build does; None when the log lacks a number."""
        found, cached = self.replayed, self.request.cached_tokens
        if found.least is None or found.most is None or cached is None:
            return None
        whole = found.decision is None or agrees(found.decision, self.request, self.setup)
        return whole and found.least <= cached <= found.most

    def reused_by(self, build: int) -> int | None:
        """Tokens that a server of another build would have reused; None when the log does not tell."""
        return would_reuse(self.request, self.setup, build)

    @property
    def symptom(self) -> bool:
        """Nothing was reused, or a long prompt goes to a slot that shares little; without a loss that is known."""
        r = self.request
        if r.seen.error is not None or r.parent is not None or self._small:
            return False
        long = r.between.get("prompt_tokens", (0, None))[0] >= self.min_prompt
        return (
            r.seen.forced
            or r.seen.kept == 0
            or (long and r.seen.choice.selected_by == "lru" and r.seen.choice.t_last != -1)
        )

    @property
    def too_small(self) -> bool:
        """An excerpt shows that nothing was reused of a request that is below the threshold: it is what people ask about."""
        r = self.request
        return (
            self._small
            and not (self.lost or self.facts.starts_cold or r.seen.error or r.parent is not None)
            and r.seen.forced
        )

    @property
    def _small(self) -> bool:
        """The prompt, or what its slot held, is known to be shorter than what is judged."""
        r = self.request
        return any(0 < (length or 0) < self.min_prompt for length in (r.prompt_tokens, r.held_tokens))

    @property
    def changed_tokens(self) -> tuple[int, int]:
        """Lower and upper bound of what the client's change made the server compute."""
        r, reference = self.request, self.request.reference_tokens or 0
        lcp_least, lcp_most = (
            (0, self.lcp_at_most or 0) if self.lcp is None else r.prefix_between or (self.lcp, self.lcp)
        )
        low, high = r.between.get("prompt_tokens", (r.prompt_tokens or 0, r.prompt_tokens))
        if r.between.get("held_tokens") == (reference, None):  # it may have been any number more
            most = high if high is not None else max(reference, r.processed_tokens or 0)
        else:
            most = reference if high is None else min(reference, high)
        return max(0, min(reference, low) - lcp_most), max(0, most - lcp_least)

    def changed(self, *kinds: str) -> First | None:
        """Return the first difference of the prompts given beside the log, if it is of one of these kinds."""
        return self.first if self.first is not None and self.first.kind in kinds else None


def _longest(r: Request) -> int:
    """The longest length that is known of a request whose prompt's is not."""
    return max(r.common_prefix_tokens or 0, r.held_tokens or 0, r.between.get("prompt_tokens", (0, None))[0])


def _prompt_at_most(r: Request, reference: int) -> int:
    """The prompt's length, or its upper bound; ``reference`` where nothing is known of it."""
    if r.prompt_tokens is not None:
        return r.prompt_tokens
    high = r.between.get("prompt_tokens", (0, None))[1]
    return high if high is not None else reference if r.cut else 0


def _came_back(r: Request) -> bool:
    """More was reused than a slot that was chosen by its age can have held: RAM brought it back, in a log that hides that."""
    return r.seen.choice.selected_by == "lru" and (r.cached_tokens or 0) > RETURNED * (r.prompt_tokens or 0)


def _rough(r: Request) -> bool:
    """The bounds of the common prefix lie more than 10 % apart."""
    between = r.prefix_between
    return between is not None and between[1] - between[0] > max(MIN_LOST, 0.1 * between[1])


def _lcp_at_most(r: Request) -> int | None:
    """Upper bound of a common prefix that is not known: what a choice by age leaves, or what a refused copy in RAM."""
    if r.seen.choice.selected_by == "lru" and r.held_tokens and r.prompt_tokens:
        most = int(r.prompt_tokens * LRU_MOST)
        return most if (r.cached_tokens or 0) <= most else None  # else the RAM cache brought back another beginning
    if r.prefix_between is not None and r.seen.checks:
        return r.prefix_between[1]
    if not r.ram_refused:
        return None
    if r.reference_lcp is not None:
        return r.reference_lcp
    return int((r.reference_tokens or 0) * RAM_LEAST) if (r.f_keep or 0) < RAM_LEAST else None


class Match(msgspec.Struct):
    """A rule fired on one request."""

    tokens: int
    """Tokens that the fix would have saved."""
    confidence: Confidence
    key: str = ""
    """Matches with the same key are one finding."""
    found: Any = None
    """What the decision came upon, for the proof."""
    weak: bool = False
    """It gives way to more causes than other matches of its rule: ``RequestRule.weak_unless``."""
    at_most: int | None = None
    """Upper bound of ``tokens`` where the log leaves it open, as it lacks the length of the prompt."""
    severity: Severity | None = None
    """Where it is not that of its rule."""
    undecided: bool = False
    """Something else may be at work, or nothing be wrong: the tokens are not summed as avoidable."""


class Proof(msgspec.Struct):
    """What proves a match: asked for where a request may become the worst of its finding."""

    primary: Line
    """The line that proves it. No finding is without one."""
    related: list[Line] = msgspec.field(default_factory=list)
    numbers: dict[str, Any] = msgspec.field(default_factory=dict)
    """For the words."""
    difference: PromptDiff | None = None
    """The prompts themselves, when they were given."""


class Group(msgspec.Struct):
    """The matches of one rule with one key: what a finding is made of."""

    session: Session
    worst: Match
    worst_request: Request
    proof: Proof | None = None
    """Of the worst; None where its rule failed to prove it."""
    count: int = 0
    tokens: int = 0
    at_most: int = 0
    """Upper bound of them, where it is above them."""
    ns: int = 0
    """Time that the fix would have saved, nanoseconds."""
    at_depth: bool = False
    """The time was taken from the speed at that depth, not from a request's mean speed."""
    first: list[int] = msgspec.field(default_factory=list)
    top: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(tokens, request) of the worst 5."""

    @property
    def numbers(self) -> dict[str, Any]:
        """Of the worst match, for the words."""
        return self.proof.numbers if self.proof is not None else {}


class FindingText(msgspec.Struct):
    """The text of a finding."""

    claim: str
    why: str
    remedies: list[Remedy]
    ruled_out: list[RuledOut] = msgspec.field(default_factory=list)
    references: list[str] = msgspec.field(default_factory=list)


class SessionFinding(msgspec.Struct):
    """What a rule says of a whole session, whether a request lost by it or not."""

    words: FindingText
    key: str
    """Findings with the same key are said once per input."""
    evidence: list[Line] = msgspec.field(default_factory=list)
    """Lines that prove it, the first of them first of all."""
    severity: Severity = "note"
    confidence: Confidence = "high"
    difference: PromptDiff | None = None
    """The prompts themselves, when they were given and prove it."""
    unless: tuple[str, ...] = ()
    """Codes that say better what this would: where one of them fired in the input, it is left out."""
    of_cmdline: bool = False
    """The command line proves it, so that no line of the log has to."""

    def proven_in(self, session: Session) -> bool:
        """Whether a line proves it, the command line, or what was given beside the log of this session."""
        beside = bool(session.counters or session.kv_events) or any(
            answers.source == "responses" for answers in session.answers
        )
        return bool(self.evidence) or self.of_cmdline or beside


Needs = Callable[[Session], tuple[str, str] | None]
"""(reason, what would enable it) when a log could not have shown a cause."""


def _needs_nothing(_: Session) -> None:
    return None


def _states_nothing(_: Session) -> list[SessionFinding]:
    return []


class Rule(msgspec.Struct):
    """A cause: how to see it, how to say it."""

    code: str
    name: str
    summary: str

    @property
    def url(self) -> str:
        """Address of the rule's page, relative to the root of the repository."""
        return f"{PAGES}/{path(f'{self.code.lower()}_{self.name}'.replace('-', '_'))}.md"


class RequestRule(Rule):
    """A cause that single requests of llama-server show."""

    decide: Callable[[RuleContext], Match | None]
    """Cheap: asked about every request with one of the triggers."""
    prove: Callable[[RuleContext, Match], Proof]
    """Lines and numbers; asked where the match may become the worst of its finding."""
    say: Callable[[Group], FindingText]
    """Asked when a report is made."""
    on: tuple[Trigger, ...] = ("loss",)
    """Asked about requests with one of these triggers."""
    unless: tuple[str, ...] = ()
    """Codes of causes that say better why: they are asked first, and where one fired, this rule is silent."""
    weak_unless: tuple[str, ...] = ()
    """Codes of more causes that are asked first; where one fired, a weak match of this rule does not count."""
    only_with: tuple[str, ...] = ()
    """Codes of causes one of which must have fired; none: whatever else did."""
    needs: Needs = _needs_nothing
    severity: Literal["by-cost"] | Severity = "by-cost"
    engine: str = "llama.cpp"
    """Whose requests it is about."""
    alone: Callable[[Session], list[SessionFinding]] = _states_nothing
    """What lines of a session state by themselves, where no request of its input shows the cause."""


class SessionRule(Rule):
    """A cause that a whole session shows: asked once about every session of its engine at the end."""

    inspect: Callable[[Session], list[SessionFinding]]
    unless: tuple[str, ...] = ()
    """Codes that say better why: where one of them fired in the input, this rule is silent."""
    needs: Needs = _needs_nothing
    severity: Literal["by-cost"] | Severity = "note"
    """As lists of rules name it; each finding has its own."""
    engine: str = "llama.cpp"
    """Whose sessions it is about."""


class InputRule(Rule):
    """What is said of an input in which nothing was recognised."""

    say: Callable[[], FindingText]
    unless: tuple[str, ...] = ()
    needs: Needs = _needs_nothing
    severity: Literal["by-cost"] | Severity = "note"
    engine: str = "llama.cpp"


AnyRule = RequestRule | SessionRule | InputRule


def marked(request: Request, *wanted: tuple[MarkName, str]) -> list[Line]:
    """Marks of ``request`` by name with their labels; names it does not have are left out.

    Never empty: where a torn log kept none of them, the first line of the request stands for all.
    """
    found = [(request.marks[name], label) for name, label in wanted if name in request.marks]
    return found or [(request.marks["start"], "the request")]


def stated(session: Session, name: IncidentName) -> Incident | None:
    """Return the first line of this kind that states something by itself."""
    return session.incidents.get(name)


def unfinished(session: Session) -> bool:
    """No request stands in the log from its start to its end: its lines have to speak for themselves."""
    return session.n_whole == 0


def said_by(setting: Setting | None, label: str) -> list[Line]:
    """Return the line that says how the server is set, where the log has it."""
    if setting is None or setting.line is None or not setting.text:
        return []
    return [(Mark(setting.line, setting.text), label)]


def n(value: float | str | None) -> str:
    """Write a number with thousands separators; text stays as it is."""
    if isinstance(value, str):
        return value
    return "an unknown number of" if value is None else f"{value:,.0f}"


def token(place: float | str | None) -> str:
    """Name a place in a prompt: ``token 58``, and ``about token 58`` for ``~58``, which is known from its text alone."""
    return f"about token {place[1:]}" if _is_about(place) else f"token {n(place)}"


def first_tokens(place: float | str | None) -> str:
    """Write how many tokens stand before a place: ``the first 58``, ``about the first 58``."""
    return f"about the first {place[1:]}" if _is_about(place) else f"the first {n(place)}"


def _is_about(place: float | str | None) -> TypeGuard[str]:
    return isinstance(place, str) and place.startswith("~")


def length(request: Request, field: str) -> str:
    """Write a length of a request with what is known of it: ``2,104``, ``at least 2,104``, ``about 2,100``."""
    low, high = request.between.get(field, (None, None))
    found: int | None = getattr(request, field)
    if low is None:
        return n(found)
    if high is None:
        return f"at least {n(low)}"
    return n(low) if low == high else f"about {n((low + high) / 2)}"


def recomputed(group: Group) -> str:
    """Write the tokens of a finding, or the bounds that the log leaves them."""
    if group.at_most <= group.tokens:
        return f"{n(group.tokens)} tokens recomputed"
    if not group.tokens:
        return f"at most {n(group.at_most)} tokens recomputed"
    return f"{n(group.tokens)} to {n(group.at_most)} tokens recomputed"


def times(count: int) -> str:
    """Words for a count of requests."""
    return "1 request" if count == 1 else f"{count:,} requests"
