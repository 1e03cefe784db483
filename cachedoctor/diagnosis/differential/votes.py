"""Ranks the causes that a log does not decide between: its requests vote, weighted by tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple

from cachedoctor.diagnosis.differential.kinds import BY_NAME, RULE_OF, Candidate, Kind
from cachedoctor.diagnosis.rules.lengths import typed
from cachedoctor.model import Request

LEAST = 200
"""Lost tokens of a request below which it is not evidence."""
NOTABLE = 1000
"""Tokens of all requests together, below which there is nothing to rank."""
_SHORT = 350
"""Tokens up to which a common prefix may be only a template and a system prompt."""
NEAR = 24
"""Tokens by which positions and lengths that count as equal may differ."""
EXTENDS = range(12, 901)
"""Tokens by which the next turn of a chat is longer than what the last one left: a question, or a long tool result."""
_HEAD = 0.25
"""Share of the last turn up to which a common prefix is only its beginning."""
_SIMILAR, _KEPT = 0.3, 0.95
_ONE_LENGTH, _ALL_LENGTHS = 0.1, 0.3
"""Share by which the lengths of prompts truncated to the same length may differ: two in turn, and all of them."""
_REGULAR = 0.75
"""Share of the growth steps in a slot that must agree with the usual step."""
_ALL = 0.9
"""Share of a slot's prompts that are one turn longer if the slot has one chat, however much each turn adds."""
ROUNDS = 3
"""Turns that each chat has to have: two may agree by chance."""
_MOST = 0.5
"""Reused share of a prompt from which on nothing much was lost."""


class Vote(NamedTuple):
    """The evidence of one request."""

    kind: Kind
    tokens: int
    """Tokens that it may have lost."""


def votes(requests: Sequence[Request], rotating: frozenset[int] = frozenset()) -> list[Vote]:
    """Return the votes of one run, in the order of its requests.

    Args:
        requests: of one run, in the order in which they started.
        rotating: indexes in ``requests`` of requests whose lengths rotate over all slots.
    """
    run = _Run(requests, rotating)
    at_stake = [(at, tokens) for at in range(len(requests)) if (tokens := run.at_stake(at)) >= LEAST]
    found = [Vote(BY_NAME[run.kind(at)], tokens) for at, tokens in at_stake]
    if sum(vote.tokens for vote in found) < NOTABLE:
        return []
    telling = [vote for vote in found if vote.kind is not BY_NAME["empty slot"]]
    # the first prompts of a run say little beside other evidence that is worth anything
    return telling if sum(vote.tokens for vote in telling) >= NOTABLE else found


def excluded(requests: Sequence[Request], rotating: frozenset[int] = frozenset()) -> frozenset[Candidate]:
    """Candidates that the run excludes.

    Where one chat runs alone, no other one took its slot or shares its head. Where the texts of all that was lost were
    sent again, no client changed them, and nothing is new.
    """
    alone: frozenset[Candidate] = frozenset({"slots", "steal"}) if _is_alone(requests, rotating) else frozenset()
    return alone | _CLIENTS if _are_kept(requests) else alone


_CLIENTS: frozenset[Candidate] = frozenset({"head", "body", "none"})


def _are_kept(requests: Sequence[Request]) -> bool:
    """Whether all prompts that lost tokens are known to begin with what their conversations had sent before."""
    lost = [one for one in requests if (one.lost_tokens or 0) >= LEAST]
    kept = (one.text_lcp is not None and one.text_lcp >= (one.reference_tokens or 0) - NEAR for one in lost)
    return bool(lost) and all(kept)


def _is_alone(requests: Sequence[Request], rotating: frozenset[int]) -> bool:
    """Whether all requests are turns of one chat, by the even growth of their lengths."""
    if rotating:
        return False
    known = _lengths(requests)
    growths = [new[0] - old[1] for old, new in pairwise(known)]
    if len(growths) < ROUNDS or len(known) < len(requests):
        return False
    usual = median_low(growths)
    return usual in EXTENDS and sum(abs(growth - usual) <= NEAR for growth in growths) >= _REGULAR * len(growths)


class _Run:
    """One run of a server, and what its requests have in common."""

    def __init__(self, requests: Sequence[Request], rotating: frozenset[int]) -> None:
        self.requests, self.rotating, self.is_alone = requests, rotating, _is_alone(requests, rotating)
        facts = requests[-1].facts if requests else None
        ram = None if facts is None else facts.setting("cache_ram_mib")
        silent = facts is not None and "accounting" in facts.shows and "ram_cache" not in facts.shows and ram is None
        self.is_ram_off = ram == 0 or silent
        self.is_ram_small = facts is not None and bool(facts.setting("ram_evictions"))
        self.changes = _changes(requests)
        self.returns = sum(one.restored_from_ram is True for one in requests)
        self.places = Counter(place // (2 * NEAR) for one in requests if (place := _place(one)) is not None)
        slots = {one.slot for one in requests}
        self.periods = {slot: _period([one for one in requests if one.slot == slot]) for slot in slots}
        self.period = _period([one for one in requests if not _is_extended(one)])
        self.longer = _longer(requests)
        self.typed = _typed(requests)
        self.level = _level(requests)

    def at_stake(self, at: int) -> int:
        """Tokens that a request may have lost."""
        request = self.requests[at]
        if request.lost_tokens is not None:
            return request.lost_tokens
        prompt, cached = request.prompt_tokens, request.cached_tokens or 0
        if prompt is None or cached >= _MOST * prompt or request.seen.cancelled or request.seen.error is not None:
            return 0
        earlier = max((one.seen.released_tokens or 0 for one in self.requests[:at]), default=0)
        return max(0, min(prompt, earlier) - cached)

    def kind(self, at: int) -> str:
        """Name of the kind of evidence that a request shows."""
        request = self.requests[at]
        if _is_uncached(request):
            return "same prompt, nothing reused"
        if _is_kept(request):
            return "less than kept"
        if (place := _place(request)) is not None:
            return self._of_place(request, place)
        if self.is_alone and request.held_tokens and not self.returns:
            return "its own slot"
        if at in self.rotating:
            return "in turn"
        held = bool(request.held_tokens)
        if held and (self.is_ram_off or (self.is_ram_small and not self.returns)):
            return "its own slot" if self.changes else "lost with its slot"
        if (part := _shared_part(request)) is not None:
            return self._differs(request, part)
        if not held and request.seen.fresh:
            return "empty slot"
        if self.returns:
            return "RAM kept others" if request.thread_turn else "first prompt, RAM on"
        if self.is_ram_small:
            return "evicted"
        if request.seen.choice.looked:
            return "not in RAM"
        if request.thread_turn and request.held_thread is not None and request.held_thread != request.thread:
            return "another in its slot"
        period = self.periods[request.slot] or self.period
        if period == 1:
            return "its own slot"
        return "in turn, RAM cache on" if period else "nothing similar"

    def _of_place(self, request: Request, place: int) -> str:
        """Which kind a prompt shows that differs from what its slot held behind a common head."""
        if (part := _shared_part(request)) is not None and request.thread_turn:
            return self._differs(request, part)
        if self.places[place // (2 * NEAR)] < max(2, sum(self.places.values()) // 2):
            return "moving place"
        return "one place, one length" if request.slot in self.level else "one place"

    def _differs(self, request: Request, part: float) -> str:
        """Which kind a prompt shows that shares a part of its last turn."""
        if request.thread in self.typed:
            return "moving place"
        if part < _HEAD:
            return "head differs"
        return "rest differs, longer" if request.thread in self.longer else "rest differs"


def _changes(requests: Sequence[Request]) -> bool:
    """Whether more is lost of turns whose last prompt was in their slot than belongs to conversations that return."""
    own = back = 0
    for one in requests:
        if one.thread_turn and one.outcome == "reused":
            back += one.cached_tokens or 0
        elif one.thread_turn and one.lost_tokens:
            kept = (one.common_prefix_tokens or one.cached_tokens or 0) >= _MOST * (one.reference_tokens or 0)
            is_own = (one.thread == one.held_thread or "slot_copy" in one.marks) and not kept
            own, back = (own + one.lost_tokens, back) if is_own else (own, back + one.lost_tokens)
    return own > back


def _longer(requests: Sequence[Request]) -> frozenset[int]:
    """Threads whose prompts, where they differ from the turn before, are longer than it by a turn each time."""
    growths: dict[int, list[int]] = {}
    for one in requests:
        part = _shared_part(one)
        if one.thread is not None and part is not None and part < _KEPT:
            growths.setdefault(one.thread, []).append((one.prompt_tokens or 0) - (one.reference_tokens or 0))
    return frozenset(
        thread for thread, found in growths.items() if sum(n > NEAR for n in found) >= _REGULAR * len(found)
    )


def _typed(requests: Sequence[Request]) -> frozenset[int]:
    """Threads of an editor: what follows the place where its prompts part gets shorter, as after a cursor."""
    turns: dict[int, list[Request]] = {}
    for one in requests:
        if one.thread is not None and one.thread_turn:
            turns.setdefault(one.thread, []).append(one)
    return frozenset(thread for thread, found in turns.items() if typed(found))


def _level(requests: Sequence[Request]) -> frozenset[int]:
    """Slots whose prompts, where they differ from what the slot held, are nearly as long as that."""
    parted: dict[int, list[Request]] = {}
    for one in requests:
        if _place(one) is not None:
            parted.setdefault(one.slot, []).append(one)
    return frozenset(slot for slot, found in parted.items() if len(found) >= ROUNDS and _are_level(found))


def _are_level(requests: Sequence[Request]) -> bool:
    """Whether most prompts are as long as what was there before, and all of about one length.

    Those that come in the order of their lengths are not.
    """
    pairs = [(one.prompt_tokens or 0, one.held_tokens or 0) for one in requests]
    level = sum(abs(prompt - held) <= max(NEAR, _ONE_LENGTH * held) for prompt, held in pairs)
    lengths = [prompt for prompt, _ in pairs]
    return level >= _REGULAR * len(pairs) and max(lengths) <= (1 + _ALL_LENGTHS) * min(lengths) + NEAR


def _lengths(requests: Sequence[Request]) -> list[tuple[int, int]]:
    """(tokens of the prompt, tokens that it left in its slot) of the requests of which both are known."""
    lengths = [(one.prompt_tokens, one.seen.released_tokens or one.prompt_tokens) for one in requests]
    return [(length, left) for length, left in lengths if length is not None and left is not None]


def _period(requests: Sequence[Request]) -> int:
    """After how many prompts in one slot the lengths go on: 1 is one chat, 2 two in turn ...; 0 where they do not.

    A chat may also send the same prompt again and again.
    """
    known = _lengths(requests)
    best, share = 0, 0.0
    if len(known) >= ROUNDS and sum(new[0] - old[1] in EXTENDS for old, new in pairwise(known)) >= _ALL * (
        len(known) - 1
    ):
        return 1
    for period in range(1, len(known) // ROUNDS + 1):
        agree, grows = 0, False
        for first in range(period):
            chat = known[first::period]
            growths = [new[0] - old[1] for old, new in pairwise(chat)]
            usual = median_low(growths)
            if -NEAR <= usual < EXTENDS.stop:
                agree += sum(abs(growth - usual) <= NEAR for growth in growths)
                grows |= usual in EXTENDS
        part = agree / (len(known) - period)
        if grows and part >= _REGULAR and part > share:
            best, share = period, part
    return best


def _is_uncached(request: Request) -> bool:
    choice = request.seen.choice
    similarity = max(request.similarity or 0.0, choice.found_sim or 0.0)
    kept = max(request.f_keep or 0.0, choice.found_keep or 0.0)
    return similarity >= _SIMILAR and kept >= _KEPT and not request.cached_tokens and not request.seen.forced


def _is_kept(request: Request) -> bool:
    """Whether the slot held much more of the prompt than was reused."""
    lcp, reference = request.common_prefix_tokens, request.reference_tokens or 0
    return lcp is not None and lcp >= max(_SHORT, _MOST * reference) and (request.cached_tokens or 0) < _MOST * lcp


def _shared_part(request: Request) -> float | None:
    """Share of its last turn that the prompt begins with; None where the log does not show."""
    reference = request.reference_tokens
    lcp = request.reference_lcp if request.text_lcp is None else request.text_lcp
    if lcp is None and request.held_thread is not None and request.held_thread == request.thread:
        lcp = request.common_prefix_tokens
    if lcp is None or not reference or request.thread_turn == 0:
        return None
    return lcp / reference


def _place(request: Request) -> int | None:
    """Where the prompt differs from what its slot held, if they share more than a head."""
    lcp, held = request.common_prefix_tokens, request.held_tokens
    if lcp is None or not held or request.seen.choice.selected_by != "lcp" or lcp >= _KEPT * held:
        return None
    return lcp


def _is_extended(request: Request) -> bool:
    return (request.f_keep or 0.0) >= _KEPT and bool(request.cached_tokens)


# ---- the ranking


class Weight(NamedTuple):
    """One kind of evidence in a log."""

    words: str
    requests: int
    tokens: int


class Ranked(NamedTuple):
    """One candidate."""

    candidate: Candidate
    likelihood: float
    """0 to 1; those of all candidates add up to 1."""
    speaks_for: list[Weight]
    """The most tokens first."""
    speaks_against: list[Weight]


_SHARPER = 2.0
"""Exponent for several kinds of evidence combined: their mean understates them."""
SUREST = 0.9
"""Likelihood above which none is stated: what is not decided was right no more often, however clear its counts."""
FOR, AGAINST = 0.3, 0.1
"""Likelihood by one kind of evidence from which it supports a candidate, and up to which it contradicts it."""


def rank(votes: Iterable[Vote], excluded: frozenset[Candidate] = frozenset()) -> list[Ranked]:
    """Return all candidates that are not excluded, by likelihood; empty without votes."""
    tokens: Counter[str] = Counter()
    requests: Counter[str] = Counter()
    kinds = {}
    for vote in votes:
        kinds[vote.kind.name] = vote.kind
        tokens[vote.kind.name] += vote.tokens
        requests[vote.kind.name] += 1
    found = []
    for candidate in RULE_OF if tokens else ():
        if candidate in excluded:
            continue
        mean = sum(kinds[name].share(candidate) * count for name, count in tokens.items()) / tokens.total()
        sides: tuple[list[Weight], list[Weight]] = ([], [])
        for name, count in tokens.most_common():
            share = kinds[name].share(candidate)
            if share >= FOR or share <= AGAINST:
                sides[share < FOR].append(Weight(kinds[name].words, requests[name], count))
        found.append(Ranked(candidate, mean**_SHARPER, *sides))
    return _capped(sorted(found, key=lambda one: -one.likelihood))


def _capped(ordered: Sequence[Ranked]) -> list[Ranked]:
    """Likelihoods that add up to 1, of which none is above ``SUREST``."""
    whole = sum(one.likelihood for one in ordered)
    rest = sum(one.likelihood for one in ordered[1:])
    if not rest or ordered[0].likelihood <= SUREST * whole:
        return [one._replace(likelihood=one.likelihood / whole) for one in ordered]
    others = (one._replace(likelihood=(1 - SUREST) * one.likelihood / rest) for one in ordered[1:])
    return [ordered[0]._replace(likelihood=SUREST), *others]
