"""Places in the head of requests that are likely to change, and changes that are expected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Advice, LintError, LintHint, PromptDiff
from cachedoctor.model.lint import HintKind
from cachedoctor.prompts import client_habits, conversations
from cachedoctor.prompts.compare_prompts import hashed_place
from cachedoctor.prompts.difference_advice import advise
from cachedoctor.prompts.prompt import CHAT, Prompt, digest
from cachedoctor.prompts.recognisers import generated_values
from cachedoctor.prompts.recognisers import generated_values as stamps
from cachedoctor.redaction.secrets import hidden

_DEPENDS = Advice(
    "Hybrid and recurrent models need a checkpoint before the change; sliding-window models may need one too."
)
_OF_BRANCHES = ("message-edited", "message-removed", "message-inserted")


def hint_of(a: Prompt, b: Prompt, found: PromptDiff, cost: int) -> LintHint | None:
    """Give the hint for a change that no client can or need avoid; None for any other."""
    first = found.first
    assert first is not None  # noqa: S101 - the caller looked
    about = "" if found.exact else "about "
    if _is_reply_opening(a, b, first.char):
        words = (
            f"the chat template starts a reply with {about}{cost:,} tokens that it later renders differently, "
            "so these tokens and the reply are recomputed"
        )
        advice = [_DEPENDS, Advice("cachedoctor lint --template shows other changes by the template.")]
        return LintHint("reply-opening", b.path, None, words, first.a, advice)
    if _is_rewritten(a, b, first.place):
        words = "the last message was rewritten: everything before it can be reused"
        return LintHint("last-message-rewritten", b.path, first.place, words, "", [_DEPENDS])
    if first.kind == "compacted":
        words = f"{found.explanation}: {about}{cost:,} tokens are recomputed, once"
        return LintHint("compacted", b.path, first.place, words, "", first.advice)
    return None


def _is_rewritten(a: Prompt, b: Prompt, place: str | None) -> bool:
    """Whether the later request differs in its last message only, which the user of a client wrote again."""
    for name in ("messages", "input"):
        old, new = ((prompt.body or {}).get(name) for prompt in (a, b))
        if isinstance(old, list) and isinstance(new, list) and len(old) == len(new) > 1:
            last = f"{name}[{len(new) - 1}]"
            users = all(isinstance(items[-1], dict) and items[-1].get("role") == "user" for items in (old, new))
            return users and place is not None and place.startswith(last)
    return False


def _is_reply_opening(a: Prompt, b: Prompt, char: int) -> bool:
    """Whether the earlier prompt differs only after all that its request said."""
    if not a.rendered or not a.spans or char < a.spans[-1].end:
        return False
    return b.place_at(char) != a.spans[-1].place


def is_branch(found: PromptDiff) -> bool:
    """Whether a conversation may continue in two ways, where another request extends the earlier one as well.

    An edit looks the same, but nothing continues what was edited away.
    """
    return found.first is not None and found.first.kind in _OF_BRANCHES


MAX_SHOWN = 80
"""Code points of a value that are shown."""
_LOOK = 200_000
"""Code points that are checked before the conversation."""
_MOST = 50
"""Places that are listed."""
_HEADER = "x-anthropic-billing-header:"
_TIMED = late(r"\d[:h][0-5]\d|\d\s?[AaPp]\.?[Mm]\b")
_NOW = late(r"\b(?:today|current(?:ly)?|now|date|time|timestamp|as of|epoch)\b[^\n]{0,24}\Z", re.I)
_BEFORE = 60
"""Code points before a value that say what it is."""
_DIGITS = 3
"""Digits from which on an id with a known prefix is not a name that a user chose."""
_WORDS: dict[HintKind, tuple[str, str]] = {
    "billing-header": (
        "the prompt starts with a billing header, whose cch changes with every request",
        "billing-header",
    ),
    "clock": ("the prompt starts with a time; when it changes, every conversation is recomputed", "timestamp"),
    "uuid": ("the prompt starts with a UUID; if it changes per request or session, nothing is reused", "uuid"),
    "random-id": (
        "the prompt starts with an id; if it changes per request or session, nothing is reused",
        "random-id",
    ),
    "unsorted-tools": (
        "the tools are not sorted by name; a list that comes from a set or from several servers can change its order",
        "tools-reordered",
    ),
}


class Fragile(NamedTuple):
    """One such place."""

    kind: HintKind
    place: str
    text: str


def hints(prompts: Iterable[Prompt], errors: list[LintError], hash_text: bool = False) -> list[LintHint]:
    """List the places in the heads of all requests, each once; what an error says already is left out."""
    said = {(error.kind, error.place) for error in errors}
    said |= {(error.kind, "tools") for error in errors if error.kind == "tools-reordered"}
    known: dict[str, list[Fragile]] = {}
    found: dict[tuple[str, str], LintHint] = {}
    for prompt in prompts:
        for spot in _of_head(prompt, known):
            place = hashed_place(spot.place) if hash_text else spot.place
            key = (spot.kind, place)
            words, kind = _WORDS[spot.kind]
            if key in found:
                found[key].requests += 1
            elif (kind, place) not in said and len(found) < _MOST:
                shown = digest(spot.text) if hash_text else hidden(spot.text)[:MAX_SHOWN]
                advice: list[Advice] = advise(kind, "cch" if kind == "billing-header" else None)
                found[key] = LintHint(spot.kind, prompt.path, place, words, shown, advice)
    return list(found.values())


def _of_head(prompt: Prompt, known: dict[str, list[Fragile]]) -> list[Fragile]:
    """Places in the head of a request; heads that were seen before are not searched again."""
    if prompt.kind not in CHAT or prompt.body is None:
        return []
    texts = _texts(prompt)
    names = conversations.tool_names(prompt)
    key = repr((texts, names))
    if key not in known:
        known.clear()  # requests of a conversation follow each other: the last head is the one that comes again
        spots = {(spot.kind, spot.place): spot for place, text in texts for spot in _of_text(place, text)}
        known[key] = [*spots.values(), *_of_tools(names)]
    return known[key]


def _texts(prompt: Prompt) -> list[tuple[str, str]]:
    """Texts of the head with their places, up to a length."""
    places = client_habits.head_places(prompt)
    found, left = [], _LOOK
    for span in prompt.spans:
        if left > 0 and span.place.startswith(places):
            found.append((span.place, prompt.text[span.start : min(span.end, span.start + left)]))
            left -= span.end - span.start
    return found


def _of_text(place: str, text: str) -> Iterator[Fragile]:
    at = text.find(_HEADER)
    if at >= 0:
        yield Fragile("billing-header", place, text[at:].partition("\n")[0])
    for match in stamps.STAMP.finditer(text):
        before = text[max(0, match.start() - _BEFORE) : match.start()]
        if _NOW.search(before) or (_TIMED.search(match.group()) and stamps.HAS_DATE.search(match.group())):
            yield Fragile("clock", place, match.group())
            break
    ids = generated_values.UUID.search(text)
    if ids is not None:
        yield Fragile("uuid", place, ids.group())
    for match in generated_values.PREFIXED.finditer(text):
        if sum(char.isdigit() for char in match.group()) >= _DIGITS and not place.endswith(".name"):
            yield Fragile("random-id", place, match.group())
            break


def _of_tools(names: tuple[str, ...]) -> list[Fragile]:
    if list(names) == sorted(names) or len(set(names)) < 2:
        return []
    return [Fragile("unsorted-tools", "tools", ", ".join(names))]
