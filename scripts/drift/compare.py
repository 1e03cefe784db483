"""Holds the texts of a program against the table: what the table does not know, and what it knows that is gone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cachedoctor.engines.catalogue.base import HOLE
from scripts.drift.artefact import Artefact
from scripts.drift.catalogue import Row
from scripts.drift.texts import Text

_WORD = re.compile(r"[A-Za-z_]{3,}")
_ALIKE = 0.5
"""Share of words in common from which on a text may be another wording of a message."""
_WITHOUT_LEVEL = frozenset("OP")
"""Letters of rows that are printed at any level, or inside of another message."""

Readings = dict[int, list[Text]]
"""By place of a row in the table: the texts that it reads."""


class Unknown(NamedTuple):
    """A message that no row reads."""

    text: Text
    like: Row | None
    """The row with most words in common, where these are half of all."""
    share: float


class Drift(NamedTuple):
    """Where a program and the table differ."""

    found: int
    """Rows of this release that read a text."""
    expected: int
    gone: list[Row]
    """Rows of this release, or of the newest, that read none."""
    outside: list[tuple[Row, Text]]
    """Rows of other releases whose text is there."""
    levels: list[tuple[Row, Text]]
    """Rows that are printed at another level than the table says."""
    unknown: list[Unknown]


class Changes(NamedTuple):
    """What differs between two releases of a program."""

    came: list[Row]
    went: list[Row]
    unknown: list[Unknown]
    """Messages that came, and that no row reads."""
    unknown_went: list[Text]
    not_seen: list[tuple[str, Row]]
    """What ``came`` or ``went`` by the table alone."""
    not_told: list[tuple[str, Row]]
    """What ``came`` or ``went`` here, and not by the table."""


def readings(rows: Sequence[Row], texts: Sequence[Text]) -> Readings:
    """Find what each row reads; a text is only tried where all literals of the row stand in it."""
    plain = [" ".join(text.text.split()) for text in texts]
    found: Readings = {}
    for place, row in enumerate(rows):
        likely = range(len(texts))
        for literal in row.literals:
            likely = [at for at in likely if literal in plain[at]]  # type: ignore[assignment]
        found[place] = [texts[at] for at in likely if row.reads(texts[at])]
    return found


def drift(rows: Sequence[Row], program: Artefact) -> Drift:
    """Compare a release with the table; one that is not known is taken for the newest."""
    read = readings(rows, program.texts)
    newest = max(row.message.last for row in rows)
    release = newest if program.release is None else min(program.release, newest)
    of_release = [place for place, row in enumerate(rows) if row.is_known_at(release)]
    known = {text for place in of_release for text in read[place]}
    printed = _there(rows, read, program._replace(release=release))
    there = [place for place in of_release if read[place]]
    assembled = _assembled(program)
    missing = [rows[place] for place in of_release if place not in printed]
    others = [rows[place] for place in there]
    gone = [row for row in missing if not assembled(row) and not _inside_another(row, others)]
    outside = [
        (rows[place], fresh[0])
        for place, texts in read.items()
        if place not in of_release and (fresh := [text for text in texts if text not in known])
    ]
    first = [(rows[place], read[place][0]) for place in there]
    levels = [(row, text) for row, text in first if _level_differs(row, text, release)]
    unknown = _unknown(rows, read, program.texts)
    return Drift(len(of_release) - len(gone), len(of_release), gone, outside, levels, unknown)


def changes(rows: Sequence[Row], old: Artefact, new: Artefact) -> Changes:
    """Compare two releases: what came, and what went."""
    before, after = readings(rows, old.texts), readings(rows, new.texts)
    had_rows, has_rows = _there(rows, before, old), _there(rows, after, new)
    came = _without_quotes([row for place, row in enumerate(rows) if place in has_rows - had_rows])
    went = _without_quotes([row for place, row in enumerate(rows) if place in had_rows - has_rows])
    had, has = ({(t.component, t.text) for t in one.texts} for one in (old, new))
    unknown = [one for one in _unknown(rows, after, new.texts) if (one.text.component, one.text.text) not in had]
    lost = [one.text for one in _unknown(rows, before, old.texts) if (one.text.component, one.text.text) not in has]
    told = _told(rows, old.release, new.release)
    seen = [*(("came", row) for row in came), *(("went", row) for row in went)]
    not_seen = [one for one in told or () if one not in seen]
    not_told = [one for one in seen if told is not None and one not in told]
    return Changes(came, went, unknown, lost, not_seen, not_told)


def _there(rows: Sequence[Row], read: Readings, program: Artefact) -> set[int]:
    """Places of the rows that a program prints: their text is there, or, of its release, is joined while it runs."""
    release, there = program.release, {place for place, texts in read.items() if texts}
    texts = {text.text for text in program.texts}
    for place, row in enumerate(rows):
        if place not in there and release is not None and row.is_known_at(release):
            there.update({place} if any(row.is_joined_of(text, texts) for text in program.texts) else ())
    return there


def _told(rows: Sequence[Row], old: int | None, new: int | None) -> list[tuple[str, Row]] | None:
    """What came and went by the table; None where a release is not known."""
    if old is None or new is None:
        return None
    came = [row for row in rows if row.is_known_at(new) and not row.is_known_at(old)]
    went = [row for row in rows if row.is_known_at(old) and not row.is_known_at(new)]
    return [*(("came", row) for row in _without_quotes(came)), *(("went", row) for row in _without_quotes(went))]


def _without_quotes(rows: list[Row]) -> list[Row]:
    """Leave out how others print a message that is among them itself: that is no message of its own."""
    return [row for row in rows if not any(_quotes(row, other) for other in rows)]


def _quotes(row: Row, other: Row) -> bool:
    level = row.message.levels[0]
    if row is other or row.message.id != other.message.id or level not in _WITHOUT_LEVEL:
        return False
    return other.skeleton in row.skeleton and (level == "O" or len(row.skeleton) > len(other.skeleton))


def _unknown(rows: Sequence[Row], read: Readings, texts: Iterable[Text]) -> list[Unknown]:
    """Messages that no row reads, those with the most words of some row first."""
    known = {(text.component, text.text) for found in read.values() for text in found}
    words = [_words(row.message.template) for row in rows]
    holders: dict[str, list[int]] = defaultdict(list)
    for place, own in enumerate(words):
        for word in own:
            holders[word].append(place)
    found: dict[tuple[str, str], Unknown] = {}
    for text in texts:
        key = text.component, text.text
        if text.logged and key not in known and key not in found:
            found[key] = _likest(text, rows, words, holders)
    return sorted(found.values(), key=lambda one: (-one.share, one.text.component, one.text.text))


def _likest(text: Text, rows: Sequence[Row], words: list[set[str]], holders: dict[str, list[int]]) -> Unknown:
    own = _words(text.text)
    places = sorted({place for word in own for place in holders.get(word, ())})
    share, place = max(
        ((len(own & words[place]) / len(own | words[place]), place) for place in places), default=(0.0, -1)
    )
    return Unknown(text, rows[place] if share >= _ALIKE else None, share)


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(HOLE.sub(" ", text))}


def _inside_another(row: Row, there: Iterable[Row]) -> bool:
    """Whether another wording of the message that is there holds all of this one, or the other way round.

    What a client prints of an error holds the server's own words, and a line that was cut is a part of it.
    """
    wordings = (other.skeleton for other in there if other.message.id == row.message.id)
    return any(row.skeleton in other or other in row.skeleton for other in wordings)


def _assembled(program: Artefact) -> Callable[[Row], bool]:
    """Whether a program can put a message together of what it holds, or, where it is Python, of several strings."""
    whole = "\n".join(" ".join(text.text.split()) for text in program.texts) if program.engine != "llama.cpp" else ""
    return lambda row: (
        (bool(whole) and all(literal in whole for literal in row.literals))
        or any(row.is_made_of(text) for text in program.texts)
    )


def _level_differs(row: Row, text: Text, release: int) -> bool:
    level = row.message.level_at(release)
    return bool(text.level) and level not in _WITHOUT_LEVEL and level != text.level
