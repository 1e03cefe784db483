"""The input of a rule: a finished request, and the numbers that every rule needs of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cachedoctor.diagnosis.rules.replaying import Replay, Setup, agrees, replay, would_reuse
from cachedoctor.knowledge.decision import FRAME, SIMILAR
from cachedoctor.model import AnalysisOptions, Facts, First, Judged, PromptDiff, Request
from cachedoctor.model.terms import DEFAULTS

LONG = 1000
"""Tokens: a common prefix of this length is long, whatever the prompt."""
MIN_LOST = 17
"""Tokens: the last 16 may differ by re-tokenisation alone."""
RAM_LEAST = 0.25
"""Share of a prompt in the RAM cache that must be kept for it to be given back (b6751 and newer)."""
RETURNED = 0.5
"""Share of a prompt: a slot chosen by its age (LRU) holds less of it, whatever similarity is required."""
MOVED = 0.75
"""Share of a prompt that is reused at least where the server moved it to another place."""
SAVED = 0.5
"""Share of a slot's content: if a prompt keeps less of it, it is saved to the RAM cache first (b6751 and newer)."""
SHORT = 0.25
"""Longest side request, as a share of the conversation's length."""
EVEN = 0.25
"""Share by which a single prompt is longer than the longest one before it at most."""
EARLY = 0.5
"""Share: a common prefix below this share of reference and prompt ends early."""


class Remembered(Protocol):
    """Recent events of the server besides the request."""

    returns: bool
    """Whether the RAM cache restored what another conversation had displaced: it is on, and it works."""

    strict: bool
    """A slot was chosen by its age although it held more than half of a prompt, without a RAM cache: the similarity that
    the server requires is high."""
    in_turn: bool
    """A conversation continued, or may have continued after a longer prompt of another conversation in its slot. So the
    prompts are not merely ordered by length."""
    files: bool
    """Slots were filled from files."""
    emptied: bool
    """By the texts, a slot that only one conversation used lost its content before the next turn; no line shows why."""

    @property
    def doubts(self) -> bool:
        """Whether changed prompts lost more tokens than belong to conversations that came back."""

    def beside(self, request: Request) -> list[Request]:
        """Return the requests that other slots processed during this request."""

    def taker(self, turn: Request) -> Request | None:
        """Return the next request on the slot of an earlier request; None if it is unknown."""

    def ended_at(self, length: int, slack: int, before: int) -> bool:
        """Whether a request with a number below ``before`` left a slot at this length, or up to ``slack`` below it."""

    def longest_single(self, thread: int | None) -> int:
        """Tokens of the longest single prompt of another thread, where most that never went on are one; else 0."""

    def first_prompt(self, thread: int | None) -> int:
        """Tokens of the first prompt of a thread; 0 if it is not known."""

    def is_settled(self, thread: int | None, code: str) -> bool:
        """Whether a rule has decided what it left open in a conversation."""


class RuleContext:
    """A finished request, its server, the events before it, and the numbers that every rule needs."""

    __slots__ = (
        "_remembered", "_replayed", "before", "client_lost", "difference", "early", "elsewhere", "facts", "first", "history", "known", "late",
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
        options: AnalysisOptions = DEFAULTS,
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
        self.facts: Facts = setup.facts
        self.before = before
        self.history = [judged.request for judged in before]
        """Earlier requests of the same thread, oldest first, at most 8."""
        self.slot_before = slot_before
        self._remembered = remembered
        self.threads = threads
        self.steals = steals
        self.difference = difference
        self.first = None if difference is None else difference.first
        """Where the prompts given with the log diverge, or None."""
        self.known = difference is not None and (self.first is None or self.first.kind != "other")
        """The prompts themselves were given: no guess from numbers is needed."""
        self._replayed: Replay | None = None
        self.min_prompt = options.min_prompt_tokens
        """Tokens: a request with a shorter prompt costs too little to matter."""
        prompt, lcp, reference = r.prompt_tokens, r.common_prefix_tokens, r.reference_tokens or 0
        if r.outcome == "unknown":
            worth = (_longest(r) if prompt is None else prompt) >= self.min_prompt
        else:
            worth = prompt is not None and prompt >= self.min_prompt and r.outcome in ("partial", "reprocessed")
            worth = worth and not _moved(r)
        lost = self.lost = (r.lost_tokens or 0) if worth else 0
        """Reference - cached in tokens; 0 if unknown or negligible."""
        self.lcp = lcp
        """Longest common prefix in tokens, or None."""
        at_most = self.lcp_at_most = lcp if lcp is not None else _lcp_at_most(r)
        """Upper bound of the common prefix, or None."""
        between = r.prefix_between
        low, high = between or (0, 0)
        pinned = self.pinned = r.lcp_exact or (between is not None and high - low <= 1)
        """The common prefix is known to within one token."""
        self.rough = bool(lost) and not pinned and high - low > MIN_LOST and high - low > 0.1 * high
        """A number that decides is known only within wide bounds, which are more than 10 % apart."""
        most = prompt if prompt is not None else _prompt_at_most(r, reference)
        whole = self.whole = reference if reference < most else most
        """Tokens that could have been common: the shorter of reference and prompt."""
        own: bool | None = None
        if r.thread is not None and r.held_thread is not None:
            own = r.thread == r.held_thread and r.thread_turn > 0
        self.own_slot = own
        """Whether the slot held this thread's previous turn; None when unknown."""
        # where it is not known whose prompt the slot held, a long prefix speaks for its own
        long = own is None and pinned and lcp is not None and lcp >= LONG
        self.early = not long and at_most is not None and at_most < EARLY * whole
        """The common prefix is known to end early."""
        if lcp is None:
            repeats, late = not r.seen.parted or (prompt is None and not r.cut), False
        elif prompt is None:
            repeats, late = not r.cut, lcp >= LONG
        else:
            repeats, late = lcp >= prompt - 4, lcp > 16 and (lcp >= LONG or 2 * lcp >= prompt)
        self.late = late
        """The common prefix is known to be long: 1,000 tokens or half of the prompt."""
        self.client_lost: int = 0 if repeats else r.lost_client or 0
        """Tokens that the client changed; 0 when the prompt only repeats or extends what the slot held."""
        self.server_lost: int = (r.lost_server or 0) if lost else 0
        """Tokens of the common prefix that the server did not reuse."""
        kept = "slot_copy" in r.marks
        elsewhere = self.elsewhere = kept and bool(lost) and r.reference_lcp == r.reference_tokens
        """Another slot held the whole last turn of this conversation, and was not chosen."""
        # some builds empty the slot of a further answer at its end
        other = own is False or (own is None and bool(lost) and self.by_answer)
        taken = bool(lost) and other and r.thread_turn > 0 and not (kept or _returned(r) or self.forked)
        self.slot_taken = (taken or elsewhere) and not r.uncached
        """A known thread came back to a slot with another's content, nothing from RAM helped, and it lost by it: by its
        text, where that is known, its beginning was still the same."""

        self.text_alone = (
            r.outcome == "unknown" and bool(r.seen.old_text and r.seen.new_text) and not self.known and not r.seen.error
        )
        """The log does not show what was lost, but has the text where the prompts diverge."""

    def beside(self, request: Request) -> list[Request]:
        """Return the requests that other slots processed during an earlier request."""
        return [] if self._remembered is None else self._remembered.beside(request)

    @property
    def is_behind_first(self) -> bool:
        """Whether the prompt diverges from its last turn behind the whole first prompt of its conversation.

        A template writes some tokens after that prompt, which do not count.
        """
        first = 0 if self._remembered is None else self._remembered.first_prompt(self.request.thread)
        return self.own_slot is True and 0 < first < (self.lcp or 0) - FRAME

    @property
    def taker(self) -> Request | None:
        """The request that took the slot of this conversation's last turn; the one before this one if that is not known."""
        found = None if self._remembered is None or not self.history else self._remembered.taker(self.history[-1])
        return self.slot_before if found is None or found.index >= self.request.index else found

    @property
    def by_answer(self) -> bool:
        """Whether a further answer to one request (n > 1) took the slot: what that overwrites is not saved to RAM."""
        return bool(self.history) and self.taker is not None and self.taker.parent is not None

    @property
    def returns(self) -> bool:
        """Whether the RAM cache restored a conversation that had lost its slot."""
        return self._remembered is not None and self._remembered.returns

    @property
    def has_own_changed(self) -> bool:
        """Whether a slot still had its last prompt, by the lengths, and nearly all of that prompt was lost."""
        if self.known or self.request.text_lcp is not None or not self.early:
            return False
        return bool(self.lost) and (self.own_slot is True or "slot_copy" in self.request.marks)

    @property
    def is_strict(self) -> bool:
        """Whether the server is known to skip slots with most of a prompt, so one conversation is in several."""
        return self._remembered is not None and self._remembered.strict

    @property
    def is_emptied(self) -> bool:
        """Whether slots of this server are known to lose what they hold, and none of it was reused here: not even the few
        tokens that prompts of one template have in common, which another conversation in the slot leaves."""
        return self._remembered is not None and self._remembered.emptied and not self.request.cached_tokens

    @property
    def is_one_off(self) -> bool:
        """Whether only lengths make it a turn of a conversation that never went on, on a server of single prompts.

        A single prompt is longer than an earlier one by chance.
        """
        past = self._remembered
        if past is None or self.known or self.request.text_lcp is not None:
            return False
        if any(turn.outcome == "reused" for turn in self.history):
            return False
        return (self.request.prompt_tokens or 0) <= (1 + EVEN) * past.longest_single(self.request.thread)

    @property
    def is_doubtful(self) -> bool:
        """Whether only lengths assign the request to a conversation, in a log where lengths show little.

        Prompts rarely continue, or come in the order of their lengths after one beginning, or files keep conversations.
        """
        past = self._remembered
        if past is None or self.known or self.request.text_lcp is not None:
            return False
        if self.request.seen.choice.selected_by == "lru" and (past.doubts or past.files):
            return True
        return not past.in_turn and (self.lcp or 0) > FRAME

    @property
    def is_infill(self) -> bool:
        """Whether the request, or an earlier turn by its lengths, took a slot as code completions do.

        The slot's content was not saved to RAM, as it would be for any other prompt. Completions do not continue each
        other.
        """
        if self.known or self.request.text_lcp is not None or not self.setup.ram_keeps_all:
            return False
        if "ram_saves" not in self.facts.shows:
            return False
        turns = [*self.history, self.request]
        # one by age, or with less than that share, overwrites what there was: most of a conversation are neither
        over = [r for r in turns if r.seen.choice.selected_by == "lru" or (r.f_keep is not None and r.f_keep < SAVED)]
        return any(map(_leaves_no_copy, over))

    @property
    def forked(self) -> bool:
        """Whether it may continue from where several prompts of one length, computed at the same time, diverged.

        These are drafts of one message. Their text after that place is not a history of its own.
        """
        if self.lcp is None or not self.before or self._remembered is None or self.known:
            return False
        last = self.before[-1].request
        length = last.prompt_tokens or 0
        alike = (
            one for one in self.beside(last) if one.parent is None and abs((one.prompt_tokens or 0) - length) < MIN_LOST
        )
        return any(alike) and self._remembered.ended_at(self.lcp, FRAME, last.index)

    @property
    def earlier(self) -> int | None:
        """Fewest tokens that an earlier turn left from which this request may continue, if it cannot be the last turn.

        An idle slot still had the last turn when another slot was chosen. None if it may continue that turn, or if
        texts show it; 0 if no other turn is known.

        Nothing else distinguishes one conversation from several that alternate and whose slots are emptied.
        """
        r = self.request
        if r.text_lcp is not None or r.thread is None or r.thread not in r.seen.passed_over:
            return None
        return min((turn.seen.released_tokens or 0 for turn in self.history[:-1]), default=0)

    def said_before(self, code: str) -> list[bool]:
        """Whether the rule ``code``, which asks about itself, fired on each request of the history."""
        return [code in judged.verdict.codes for judged in self.before]

    def is_settled(self, code: str) -> bool:
        """Whether the rule ``code``, which asks about itself, decided an open question of the conversation."""
        return self._remembered is not None and self._remembered.is_settled(self.request.thread, code)

    def said_last(self, code: str) -> bool:
        """Whether the rule ``code``, which asks about itself, fired on the last request of the history."""
        return bool(self.before) and code in self.before[-1].verdict.codes

    @property
    def replayed(self) -> Replay:
        """The tokens that the server's build had to reuse of the slot's content; names the numbers that are missing."""
        if self._replayed is None:
            self._replayed = replay(self.request, self.setup)
        return self._replayed

    @property
    def by_the_book(self) -> bool | None:
        """Whether the server did what its build does; None if the log lacks a number."""
        found, cached = self.replayed, self.request.cached_tokens
        if found.least is None or found.most is None or cached is None:
            return None
        whole = found.decision is None or agrees(found.decision, self.request, self.setup)
        return whole and found.least <= cached <= found.most

    def reused_by(self, build: int) -> int | None:
        """Tokens that a server of another build would have reused; None if the log does not show it."""
        return would_reuse(self.request, self.setup, build)

    @property
    def symptom(self) -> bool:
        """Nothing was reused, or a long prompt goes to a slot that shares little; the loss is unknown."""
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
        """An excerpt shows that a request below the threshold reused nothing: users ask about such requests."""
        r = self.request
        return (
            r.seen.forced
            and not (self.lost or self.facts.starts_cold or r.seen.error or r.parent is not None)
            and self._small
        )

    @property
    def _small(self) -> bool:
        """The prompt, or what its slot held, is known to be shorter than what is judged."""
        r, least = self.request, self.min_prompt
        return 0 < (r.prompt_tokens or 0) < least or 0 < (r.held_tokens or 0) < least

    @property
    def changed_tokens(self) -> tuple[int, int]:
        """Lower and upper bound of the tokens that the server computed because of the client's change."""
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


def _returned(r: Request) -> bool:
    """Whether the RAM cache brought its prompt back, or its own text says that its beginning was another one."""
    kept = r.text_lcp is None or r.text_lcp - (r.cached_tokens or 0) >= MIN_LOST
    return bool(r.restored_from_ram) or not kept or came_back(r)


def _moved(r: Request) -> bool:
    """Whether the server moved what is left of a history whose beginning was dropped (--cache-reuse): it reused most of the
    prompt, and much more than the slot's content begins with. What follows may all be new."""
    prompt, cached = r.prompt_tokens or 0, r.cached_tokens or 0
    if r.similarity is None or r.restored_from_ram or r.seen.choice.found_keep is not None:
        return False
    return cached >= MOVED * prompt and (r.similarity + 0.001) * prompt + FRAME < cached


def came_back(r: Request) -> bool:
    """More was reused than a slot chosen by its age can contain: RAM restored it, in a log that hides this."""
    return r.seen.choice.selected_by == "lru" and (r.cached_tokens or 0) > RETURNED * (r.prompt_tokens or 0)


def was_emptied(r: Request) -> bool:
    """Whether a slot was chosen by its age, and nothing of it reused, though by the texts it had served this conversation
    last and the prompt begins with all that it held: such a slot is chosen for its content, whatever the memory.

    Where slots share one cache, the server itself empties those that are idle.
    """
    if r.text_lcp is None or r.text_lcp != r.reference_tokens:
        return False
    own = r.thread_turn > 0 and r.held_thread == r.thread and r.facts.setting("kv_unified") is False
    missed = r.outcome == "reprocessed" and r.seen.choice.selected_by == "lru"
    return own and missed and not (r.cached_tokens or r.uncached)


def passed_over(r: Request) -> bool:
    """Whether an idle slot had this conversation's last prompt, and the server chose an empty slot.

    The slot with the prompt is not similar enough, and the RAM cache, which lost nothing, had nothing better.
    """
    return r.thread in r.seen.passed_over and r.seen.choice.selected_by == "lru" and not r.held_tokens


def _lcp_at_most(r: Request) -> int | None:
    """Upper bound of a common prefix that is not known: what a choice by age leaves, or what a refused copy in RAM.

    A slot that was compared and not chosen shares less than the threshold of similarity, where no line shows how much.
    """
    if "slot_copy" in r.marks:
        return r.reference_lcp
    if passed_over(r):
        return int((r.prompt_tokens or 0) * SIMILAR)
    if r.seen.choice.selected_by == "lru" and r.held_tokens and r.prompt_tokens:
        most = int(r.prompt_tokens * SIMILAR)
        return most if (r.cached_tokens or 0) <= most else None  # else the RAM cache brought back another beginning
    if r.prefix_between is not None and r.seen.checks:
        return r.prefix_between[1]
    if not r.ram_refused:
        return None
    if r.reference_lcp is not None:
        return r.reference_lcp
    return int((r.reference_tokens or 0) * RAM_LEAST) if (r.f_keep or 0) < RAM_LEAST else None


def _leaves_no_copy(r: Request) -> bool:
    """Whether nothing was saved of a slot of which it overwrote most.

    Where the RAM cache was searched, the slot was saved before: a line about that is missing.
    """
    return not (r.ram_saved or "ram" in r.marks or r.slot_named or not r.held_tokens or r.processed_tokens is None)
