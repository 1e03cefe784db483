"""Places in the head of requests that are likely to change: clocks, ids, tools in an order of chance.

The head is what stands in front of all the rest: tools and system prompt. What changes there costs the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cachedoctor.model import Advice, LintError, LintHint
from cachedoctor.model.lint import HintKind
from cachedoctor.prompts import client_habits, mode_switches
from cachedoctor.prompts.compare_prompts import hashed_place
from cachedoctor.prompts.difference_advice import advise
from cachedoctor.prompts.digest import digest
from cachedoctor.prompts.prompt import CHAT, Prompt
from cachedoctor.prompts.recognisers import generated_values, stamps
from cachedoctor.report.secrets import hidden

MAX_SHOWN = 80
"""Code points of a value that are shown."""
_LOOK = 200_000
"""Code points of a head that are looked at."""
_MOST = 50
"""Places that are listed."""
_HEADER = "x-anthropic-billing-header:"
_TIMED = re.compile(r"\d[:h][0-5]\d|\d\s?[AaPp]\.?[Mm]\b")
_NOW = re.compile(r"\b(?:today|current(?:ly)?|now|date|time|timestamp|as of|epoch)\b[^\n]{0,24}\Z", re.I)
_BEFORE = 60
"""Code points in front of a value that say what it is."""
_DIGITS = 3
"""Digits from which an id with a known prefix is no name of somebody's own."""
_WORDS: dict[HintKind, tuple[str, str]] = {
    "billing-header": ("a billing header stands in the head: its cch is new in every request", "billing-header"),
    "clock": ("the head names a time: it breaks every conversation as soon as it moves", "timestamp"),
    "uuid": ("a UUID stands in the head: one that is new for each request or session breaks it", "uuid"),
    "random-id": ("an id stands in the head: one that is new for each request or session breaks it", "random-id"),
    "unsorted-tools": (
        "the tools are in no order of their names: lists that come from a set or from several servers move",
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
    names = mode_switches.tool_names(prompt)
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
