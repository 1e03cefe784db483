"""Decides by proof whether request bodies are of the log that they were given with.

What the log prints of a text must be in the body; what it says two prompts share, their bodies must share; a token
has about as many characters in one body as in the next. That there is a next body for every request proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import median
from typing import Literal, NamedTuple

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import common_prefix
from cachedoctor.model import Request
from cachedoctor.prompts import client_habits
from cachedoctor.prompts.prompt import Prompt

Proof = Literal["exact", "counted", "order"]
"""What made a body a request's: its exact length, the length that its answer says, or the order alone."""
_MORE_REUSED = 0.1
"""Share of a prompt by which its reuse may exceed what its body shares with the one in the slot."""
_LESS_SHARED = 0.3
"""Share of a prompt that a template may change in what the bodies share: it drops reasoning, or writes the time."""
_TELLING = 0.05
"""Share of a prompt that any two begin with: what a template writes."""
_UNEVEN = 0.25
"""By how much characters per token may differ from those of most bodies: a title differs from a tool's result."""
_UNSTEADY = 0.35
"""The same for the text by which a conversation grew."""
_WILD = 2.2
"""The same as a factor: no text is this many times denser than another of its conversation."""
_STEADY = 0.15
"""The same if more bodies were given than requests were logged, so that their order does not join them."""
_CLOSE = 2
"""Turns that must have grown so evenly in that case."""
_BY_CHANCE = 2
"""Bodies that have the length of a request by chance, among all those that could be joined."""
_EVEN = 0.02
"""The same for whole bodies, if more bodies were given than requests logged and they share what the log shows."""
_FEW_WRONG = 4
"""One pair in this many may contradict what the log shows of shared text."""
_LOOKED = 64
"""Bodies that are checked, the first ones."""
_MOST_OF = 3
"""Two of this many bodies must match."""
_SAME = 0.8
"""Share of a body that one of the same conversation begins with."""
_GREW = 40
"""Tokens: a conversation that grew by fewer is little evidence."""
_LONG = 300
"""Tokens: the template is a large part of a shorter prompt."""
_LEAST_TEXT, _LONG_TEXT = 3, 16
"""Characters of printed text that are searched for: of a piece with a digit, and of any other. Fewer occur anywhere."""
_MARKUP = late(r"<\|?[^<>|\n]{1,40}\|?>|\[/?[A-Z_]{2,30}\]|[\r\n]+| \| |^\.\.\. ")
_BY_THE_SERVER = ("slots", "prompt-dump")
"""Kinds of prompts that the server itself writes: they contain the numbers of a reply, which have short tokens."""
_DIGIT = late(r"\d")
_HEADER = late(r"x-anthropic-billing-header: [^\n]*\n?")


class Joined(NamedTuple):
    """A request and the body that would be its own."""

    request: Request
    prompt: Prompt
    """The body without the reply that a /slots dump holds after it."""
    by: Proof
    given: Prompt
    """The body as it was given."""
    texts: tuple[str, ...] = ()
    """Its text in every order that its parts may have in the prompt."""

    def with_body(self, other: Joined) -> Joined:
        """The same request with the body of another one."""
        return self._replace(prompt=other.prompt, given=other.given)


class Fit(NamedTuple):
    """How bodies go with a log."""

    matched: int
    """Requests with no evidence against their body."""
    of: int
    """Requests that could have a body."""
    is_theirs: bool
    words: str
    """Why they belong to another log."""


def judge(found: Sequence[Joined], requests: int, bodies: int, *, ended: bool) -> Fit:
    """Say whether bodies are of a log.

    Args:
        found: what would be joined, in the order of the requests.
        requests: those that may have a body.
        bodies: all that were given.
        ended: no more requests come.
    """
    known = sum(one.request.prompt_tokens is not None for one in found)
    of = min(requests, bodies) if ended else len(found)
    lengths = [one for one in found if one.by != "order"]
    if lengths and 2 * len(lengths) > min(of, known):
        return _fit(len(lengths), of, is_theirs=len(lengths) > _BY_CHANCE or 2 * len(lengths) > min(requests, bodies))
    if not known:
        return _fit(0, of, is_theirs=False)
    looked, of = [one._replace(texts=_texts(one.prompt)) for one in found[:_LOOKED]], min(of, _LOOKED)
    usual = median(_each(one) for one in looked if one.request.prompt_tokens)
    checks = [_checked(looked, at, usual) for at in range(len(looked))]
    told = [check.told for check in checks if check.told is not None]
    grown = [check.is_wild for check in checks if check.is_wild is not None]
    quoted = [check.quoted for check in checks if check.quoted is not None]
    against = sum(check.quoted is False or check.against > check.speaking for check in checks)
    matched = len(looked) - against
    if any(check.is_impossible for check in checks) or _FEW_WRONG * told.count(False) > len(told):
        return _fit(min(matched, told.count(True)), of, is_theirs=False)
    if _FEW_WRONG * sum(grown) > len(grown):
        return _fit(min(matched, len(looked) - sum(grown)), of, is_theirs=False)
    if quoted:
        return _fit(min(matched, sum(quoted)), of, is_theirs=2 * sum(quoted) > len(quoted))
    if not ended or requests == bodies:
        return _fit(matched, of, is_theirs=_MOST_OF * matched > 2 * of)
    is_uneven = any(check.is_wild is not None and not check.close for check in checks) or len(looked) <= _CLOSE
    is_even = not is_uneven and told.count(True) >= _CLOSE and all(_is_even(one, usual) for one in looked)
    is_close = sum(check.close for check in checks) >= _CLOSE
    is_theirs = bodies > requests and not against and len(looked) == of and (is_close or is_even)
    return Fit(
        matched,
        of,
        is_theirs,
        f"{bodies} for {requests} requests, and nothing shows which body belongs to which request",
    )


def _fit(matched: int, of: int, *, is_theirs: bool) -> Fit:
    return Fit(matched, of, is_theirs, f"from another log, {matched} of {of} match")


def _texts(prompt: Prompt) -> tuple[str, ...]:
    texts = [prompt.text] if prompt.rendered else [prompt.text, _system_first(prompt)]
    if prompt.kind == "anthropic-messages":  # servers may take its value out
        texts += [_HEADER.sub("", text) for text in texts]
    return tuple(texts)


def by_length(found: Sequence[Joined]) -> list[Joined]:
    """Exchange the bodies of neighbours on two slots where the longer request has the shorter text.

    Of clients that ask at the same time the log has the order in which the server took their requests.
    """
    mended = list(found)
    for _ in found[:_LOOKED]:
        gain, at = max(((_gain(mended, at), at) for at in range(len(mended) - 1)), default=(0.0, 0))
        if gain <= 0:
            break
        one, other = mended[at : at + 2]
        mended[at : at + 2] = one.with_body(other), other.with_body(one)
    return mended


def _gain(found: Sequence[Joined], at: int) -> float:
    """By how much nearer two bodies come to one number of characters per token where they are exchanged."""
    one, other = found[at : at + 2]
    lengths = one.request.prompt_tokens, other.request.prompt_tokens
    if None in lengths or (one.by, other.by) != ("order", "order") or one.request.slot == other.request.slot:
        return 0.0
    return abs(log(_each(one) / _each(other))) - abs(log(_each(one.with_body(other)) / _each(other.with_body(one))))


class _Checked(NamedTuple):
    """What speaks for and against one body."""

    quoted: bool | None
    """Whether what the log printed is in it; None if nothing was printed that decides."""
    told: bool | None
    """Whether it shares with those before what the log shows; None where the log shows nothing."""
    speaking: int
    against: int
    is_impossible: bool
    """More was reused than any body before it begins with, or than its own asks for; or its text is that of one with
    fewer tokens."""
    is_wild: bool | None
    """It grew by a number of characters that cannot be so many tokens; None if its growth is not known."""
    close: bool
    """It grew by as many characters per token as the bodies have."""


def _checked(found: Sequence[Joined], at: int, usual: float) -> _Checked:
    one, request = found[at], found[at].request
    if not request.prompt_tokens or request.shifted or request.seen.truncated or request.seen.cut_prompt:
        return _Checked(None, None, 0, 0, is_impossible=False, is_wild=None, close=False)
    before = _before(found, at)
    told = _shares(found[:at], before, one)
    uneven = _has_length(one) and request.prompt_tokens >= _LONG and abs(_each(one) / usual - 1) > _UNEVEN
    grew = _growth(found[:at], one, usual)
    unsteady = grew is not None and abs(grew / usual - 1) > _UNSTEADY
    close = grew is not None and abs(grew / usual - 1) <= _STEADY
    speaking = int(told is True) + int(grew is not None and not unsteady)
    weight = 1 if one.prompt.kind in _BY_THE_SERVER else 2
    is_wild = None if grew is None else not 1 / _WILD < grew / usual < _WILD
    against = int(told is False) * 3 + int(uneven) + int(unsteady) * weight + int(is_wild or False)
    is_more = any(o.prompt.text == one.prompt.text and _is_longer(o, one) for o in found[:at])
    is_uncached = (one.prompt.body or {}).get("cache_prompt") is False and bool(request.cached_tokens)
    is_impossible = is_more or is_uncached or (told is False and _is_impossible(found[:at], one))
    return _Checked(_quoted(one), told, speaking, against, is_impossible, is_wild, close)


def _is_even(one: Joined, usual: float) -> bool:
    """Whether its tokens are as long as those of the others, to a fiftieth."""
    return abs(_each(one) / usual - 1) <= _EVEN


def _each(one: Joined) -> float:
    """Characters per token."""
    return len(one.prompt.text) / max(1, one.request.prompt_tokens or 0)


def _before(found: Sequence[Joined], at: int) -> Joined | None:
    """The request whose text the slot still held when this one took it; None where another's was put there."""
    request = found[at].request
    before = next(
        (o for o in reversed(found[:at]) if o.request.slot == request.slot and not o.request.seen.error), None
    )
    if before is None or before.request.session != request.session or request.restored_from_ram:
        return None
    if before.request.shifted or before.request.seen.truncated or before.request.seen.cancelled:
        return None
    held, left = request.held_tokens, before.request.seen.released_tokens
    is_held = held is None or left is None or held == left
    return before if is_held and before.request.last_line < request.marks["start"].line else None


def _shares(earlier: Sequence[Joined], before: Joined | None, one: Joined) -> bool | None:
    """Whether a body shares what the log shows; None where it says nothing.

    Nothing is reused that no prompt before it began with, and what its slot held is as like it as the log shows.
    """
    request, tokens = one.request, one.request.prompt_tokens or 1
    if request.seen.reused_chunks:
        return None
    reused = (request.cached_tokens or 0) / tokens
    most = None if before is None or _may_be_cut(one) else _most_shared(request)
    held = [] if before is None else _common(before, one)
    if max(reused, most or 0, *held) < _TELLING:
        return None
    if _is_impossible(earlier if request.facts.starts_cold else [before] if before is not None else [], one):
        return False
    least = (request.prefix_between or (0, 0))[0] / tokens
    if held and (least > max(held) + _MORE_REUSED or (most is not None and min(held) > most + _LESS_SHARED)):
        return False
    return bool(held) or None


def _is_impossible(earlier: Sequence[Joined], one: Joined) -> bool:
    """Whether more was reused than any of them begins with."""
    reused = (one.request.cached_tokens or 0) / (one.request.prompt_tokens or 1)
    sent = [max(_common(other, one)) for other in earlier]
    return bool(sent) and reused > max(sent) + _MORE_REUSED


def _common(before: Joined, one: Joined) -> list[float]:
    """Share of a body that another one begins with, in every order of their parts."""
    return [common_prefix(a, b) / max(1, len(b)) for a, b in zip(before.texts, one.texts, strict=False)]


def _system_first(prompt: Prompt) -> str:
    """The text with the tools after the system prompt, where some templates write them."""
    tools, *system = client_habits.head_places(prompt)
    if prompt.body is None or not prompt.body.get(tools):
        return prompt.text
    parts: list[list[str]] = [[], [], []]
    for span in prompt.spans:
        place = 0 if span.place.startswith(tuple(system)) else 1 if span.place.startswith(tools) else 2
        parts[place].append(prompt.text[span.start : span.end])
    return "".join(text for part in parts for text in part)


def _most_shared(request: Request) -> float | None:
    """Upper bound of what it shares with what its slot held; None where the log has none."""
    tokens = request.prompt_tokens or 1
    if request.prefix_between is not None:
        return request.prefix_between[1] / tokens
    if request.lcp_exact and request.common_prefix_tokens is not None:
        return request.common_prefix_tokens / tokens
    return request.similarity


def _growth(earlier: Sequence[Joined], one: Joined, usual: float) -> float | None:
    """Characters per token of what it has more than the one before that it is most like; None where neither grew."""
    own, length = one.request, len(one.prompt.text)
    known = [other for other in earlier if other.request.session == own.session and _has_length(other)]
    if not known or one.prompt.images or _may_be_cut(one):
        return None
    before = max(known, key=lambda other: max(_common(other, one)))
    tokens = (own.prompt_tokens or 0) - (before.request.prompt_tokens or 0)
    more = length - len(before.prompt.text)
    if max(_common(before, one)) < _SAME or max(abs(tokens), abs(more) / usual / _WILD) < _GREW:
        return None
    return more / tokens if tokens else usual * _WILD


def _is_longer(before: Joined, one: Joined) -> bool:
    """Whether it has so many tokens more that no template makes them of the same text."""
    return _has_length(before) and (one.request.prompt_tokens or 0) >= (before.request.prompt_tokens or 0) + _GREW


def _has_length(one: Joined) -> bool:
    """Whether its tokens are those of its text."""
    request = one.request
    is_cut = request.shifted or request.seen.truncated or request.seen.cut_prompt
    return bool(request.prompt_tokens) and not is_cut and not one.prompt.images and not _may_be_cut(one)


def _may_be_cut(one: Joined) -> bool:
    """Whether a server takes no more of its text than fits into a batch: what is nearest to the cursor."""
    return one.prompt.kind == "llama-infill"


def _quoted(one: Joined) -> bool | None:
    """Whether its body has what the log printed; None if nothing was printed, or only a part is in it.

    Two clients may send one system prompt after different first lines, and a template writes lines of its own.
    """
    printed = one.request.seen.new_text
    if printed is None or (one.prompt.kind == "anthropic-messages" and ("cc" in printed or "x-" in printed)):
        return None
    pieces = [piece.strip() for piece in _MARKUP.split(printed)]
    pieces = [piece for piece in pieces if len(piece) >= (_LEAST_TEXT if _DIGIT.search(piece) else _LONG_TEXT)]
    found = {piece in one.prompt.text for piece in pieces}
    return found.pop() if len(found) == 1 else None
