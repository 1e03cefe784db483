"""Hides the secrets of two texts with a common prefix, if parts of both are shown.

A secret that lies across the end of what is shown, or across the place where the texts diverge, is hidden in both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.redaction.decoding import is_word
from cachedoctor.redaction.secrets import Region, merged, regions

_PART = 8
"""Characters of a secret that are hidden wherever they occur."""
_GOES_ON = late(r"[\w+/=.~:$%!@-]{0,4096}", re.ASCII)
"""The rest of a key that also occurs in the other text, up to the first difference."""
_INSTEAD = "<key>"
Span = tuple[int, int]


class MaskedPair(msgspec.Struct, frozen=True):
    """What may be shown of two texts."""

    a: list[str]
    b: list[str]
    parts: frozenset[str]
    """Every part of their secrets with at least ``_PART`` characters."""

    def without_parts(self, text: str) -> str:
        """Hide parts of the secrets in a text that quotes the two."""
        hits = [at for at in range(len(text) - _PART + 1) if text[at : at + _PART] in self.parts]
        out, end = list[str](), 0
        for start, stop in _joined([(at, at + _PART) for at in hits]):
            out += text[end:start], _INSTEAD
            end = stop
        return "".join([*out, text[end:]])


def in_both(a: str, b: str, common: int, spans_a: Sequence[Span], spans_b: Sequence[Span]) -> MaskedPair:
    """Give the spans of two texts as they may be shown.

    Args:
        a: the first text.
        b: the second one.
        common: characters that both have in common at the start.
        spans_a: what is shown of the first text.
        spans_b: what is shown of the second one.
    """
    found_a, found_b = _found(a, spans_a), _found(b, spans_b)
    every_a = merged([*found_a, *(_of_other(region, common, a, b) for region in found_b if region.start < common)])
    every_b = merged([*found_b, *(_of_other(region, common, b, a) for region in found_a if region.start < common)])
    parts = frozenset(_parts(a, found_a)) | frozenset(_parts(b, found_b))
    pair = MaskedPair([], [], parts)
    return msgspec.structs.replace(
        pair,
        a=[pair.without_parts(_shown(a, every_a, span)) for span in spans_a],
        b=[pair.without_parts(_shown(b, every_b, span)) for span in spans_b],
    )


def _found(text: str, spans: Sequence[Span]) -> list[Region]:
    """The secrets of a text; a part that is shown also begins and ends a word."""
    found = list(regions(text))
    for start, end in spans:
        found += [region.moved(start) for region in regions(text[start:end])]
    return merged(found)


def _of_other(region: Region, common: int, own: str, other: str) -> Region:
    """The part of this text that equals a secret of the other one up to the divergence, and the rest of the word.

    Of a secret of several words, as much as the other text has.
    """
    if region.end < common:
        return region
    has_words = any(char.isspace() for char in other[region.start : region.end])
    at = min(len(own), region.end if has_words else common)
    rest = _GOES_ON.match(own, at)
    return msgspec.structs.replace(region, end=max(at, rest.end() if rest is not None else 0))


def _shown(text: str, found: Sequence[Region], span: Span) -> str:
    start, stop = span
    out, end = list[str](), start
    for region in found:
        if region.start < stop and region.end > start:
            out += text[end : max(region.start, start)], region.shown if region.start >= start else region.rest
            end = min(region.end, stop)
    return "".join([*out, text[end:stop]])


def _parts(text: str, found: Sequence[Region]) -> list[str]:
    """Parts of secrets, without those that are words."""
    out = []
    for region in found:
        secret = text[region.start : region.end].removeprefix(region.shown.removesuffix(region.rest))
        every = (secret[at : at + _PART] for at in range(min(len(secret), 1 << 14) - _PART + 1))
        out += [part for part in every if not (part.isalpha() and is_word(part))]
    return out


def _joined(spans: list[Span]) -> list[Span]:
    out: list[Span] = []
    for start, end in spans:
        if out and start <= out[-1][1]:
            out[-1] = out[-1][0], end
        else:
            out.append((start, end))
    return out
