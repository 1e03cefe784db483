"""Byte pair merging and the steps around it: special tokens, words, offsets. Knows a vocabulary; knows no file format.

One engine serves the three kinds in use: byte-level BPE (merges by rank over bytes written as letters), BPE over
characters with byte fallback, and SentencePiece BPE (merges by score). Results are kept per word.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from cachedoctor.diff.tokens import Tokens

SPACE = "\u2581"
"""Stands for a blank in vocabularies of the SentencePiece kind."""

Rank = Callable[[str, str], float | None]
"""Urgency of merging two neighbours, smallest first; None when they never merge."""
Pieces = tuple[list[int], list[int]]
"""Token ids of a word, and the code point at which each begins, counted in the word."""
Normal = Callable[[str, bool], tuple[str, list[int] | None]]
"""(text, it begins the prompt) -> (changed text, offset in the text for each of its characters; None when equal)."""

_CACHE_LIMIT = 300_000
"""Words kept; a prompt of 1 MB has some 20,000 different ones."""


def _byte_letters() -> str:
    """The 256 letters of byte-level BPE: printable bytes stand for themselves, the others for U+0100 and up."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in shown else next(hidden)) for byte in range(256))


BYTE_LETTERS = _byte_letters()
_TO_LETTERS = dict(enumerate(BYTE_LETTERS))


def merge(symbols: list[str], rank: Rank) -> list[str]:
    """Merge neighbours, the most urgent pair first and the leftmost of equals, until nothing merges."""
    after = [*range(1, len(symbols)), -1]
    before = list(range(-1, len(symbols) - 1))
    parts = list(symbols)
    heap: list[tuple[float, int, int, str]] = []

    def offer(left: int, right: int) -> None:
        if left >= 0 and right >= 0:
            urgency = rank(parts[left], parts[right])
            if urgency is not None:
                heapq.heappush(heap, (urgency, left, right, parts[left] + parts[right]))

    for left in range(len(parts) - 1):
        offer(left, left + 1)
    while heap:
        _, left, right, both = heapq.heappop(heap)
        # an entry is stale when either side was merged meanwhile: a swallowed part is empty
        if not parts[left] or not parts[right] or parts[left] + parts[right] != both:
            continue
        parts[left], parts[right] = both, ""
        after[left] = after[right]
        if after[right] >= 0:
            before[after[right]] = left
        offer(before[left], left)
        offer(left, after[left])
    return [part for part in parts if part]


class Words:
    """Turns one word into tokens, and remembers it."""

    def __init__(self, vocab: Mapping[str, int], rank: Rank, *, bytelevel: bool, whole: bool, unknown: int | None) -> None:
        """``whole``: a word that is a token is taken at once (``ignore_merges``); ``unknown``: for what has no bytes."""
        self._vocab, self._rank, self._bytelevel, self._whole, self._unknown = vocab, rank, bytelevel, whole, unknown
        self._known: dict[str, Pieces] = {}

    def __call__(self, word: str) -> Pieces:
        """Tokens of the word."""
        found = self._known.get(word)
        if found is None:
            if len(self._known) >= _CACHE_LIMIT:
                self._known.clear()
            found = self._known[word] = self._byte_word(word) if self._bytelevel else self._char_word(word)
        return found

    def _parts(self, text: str) -> list[str]:
        return [text] if self._whole and text in self._vocab else merge(list(text), self._rank)

    def _byte_word(self, word: str) -> Pieces:
        # a lone surrogate has no UTF-8; what matters is that equal text gives equal tokens
        raw = word.encode("utf-8", "surrogatepass")
        owner = None if len(raw) == len(word) else _owners(word)
        ids, starts, at = [], [], 0
        for part in self._parts(raw.decode("latin-1").translate(_TO_LETTERS)):
            known = part if part in self._vocab else None
            for letters in (part,) if known else part:
                token = self._vocab.get(letters, self._unknown)
                if token is not None:
                    ids.append(token)
                    starts.append(at if owner is None else owner[at])
                at += len(letters)
        return ids, starts

    def _char_word(self, word: str) -> Pieces:
        ids, starts, at = [], [], 0
        for part in self._parts(word):
            token = self._vocab.get(part)
            for found in self._fallback(part) if token is None else (token,):
                ids.append(found)
                starts.append(at)
            at += len(part)
        return ids, starts

    def _fallback(self, part: str) -> list[int]:
        tokens = [self._vocab.get(f"<0x{byte:02X}>") for byte in part.encode("utf-8", "surrogatepass")]
        known = [token for token in tokens if token is not None]
        if len(known) == len(tokens):
            return known
        return [] if self._unknown is None else [self._unknown]


def _owners(word: str) -> list[int]:
    """Code point that each byte belongs to."""
    return [at for at, char in enumerate(word) for _ in char.encode("utf-8", "surrogatepass")]


class Special(NamedTuple):
    """A token whose text is recognised before anything else."""

    text: str
    id: int
    lstrip: bool = False
    rstrip: bool = False
    """Swallows the blanks before or behind it."""
    alone: bool = False
    """Counts only where no letter, digit or underscore touches it."""


Cut = tuple[int, int, int | None]
"""A stretch of the text: start, end, and the special token that it is, or None."""


class Specials:
    """Finds special tokens: at each place the longest, or (llama.cpp) the longest ones everywhere first."""

    def __init__(self, tokens: Sequence[Special], *, longest_first: bool) -> None:
        self._tokens = {token.text: token for token in tokens if token.text}
        self._longest_first = longest_first
        texts = sorted(self._tokens, key=len, reverse=True)
        self._order = texts
        self._any = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._first = re.compile("[" + re.escape("".join(sorted({text[0] for text in texts}))) + "]") if texts else None

    @property
    def local(self) -> bool:
        """None of them can lie across, or reach over, a blank between two letters."""
        return not any(
            re.search("[A-Za-z] ", t.text) or t.alone or (t.lstrip and t.text[0].isalnum()) or t.text[0] == " "
            for t in self._tokens.values()
        )

    def cut(self, text: str) -> Iterator[Cut]:
        """Stretches in the order of the text; what a special token swallowed beside itself is in none of them."""
        if self._any is None or not text:
            return iter([(0, len(text), None)] if text else [])
        return iter(self._by_length(text)) if self._longest_first else self._leftmost(text)

    def _leftmost(self, text: str) -> Iterator[Cut]:
        assert self._any is not None  # noqa: S101 - cut() saw to it
        at = 0
        for match in self._any.finditer(text):
            token = self._tokens[match[0]]
            start, end = match.span()
            if start < at or (token.alone and _touched(text, start, end)):
                continue
            left = max(at, len(text[:start].rstrip())) if token.lstrip else start
            if left > at:
                yield at, left, None
            yield start, end, token.id
            at = len(text) - len(text[end:].lstrip()) if token.rstrip else end
        if at < len(text):
            yield at, len(text), None

    def _by_length(self, text: str) -> list[Cut]:
        cuts: list[Cut] = [(0, len(text), None)]
        for special in self._present(text):
            token = self._tokens[special]
            cuts = [
                part
                for start, end, found in cuts
                for part in ([(start, end, found)] if found is not None else _split(text, start, end, token))
            ]
        return cuts

    def _present(self, text: str) -> list[str]:
        assert self._any is not None and self._first is not None  # noqa: S101, PT018 - cut() saw to it
        longest = set()
        for match in self._first.finditer(text):
            hit = self._any.match(text, match.start())
            if hit:
                longest.add(hit[0])
        # a shorter one at the same place begins the longer one
        return [special for special in self._order if any(found.startswith(special) for found in longest)]


def _split(text: str, start: int, end: int, token: Special) -> Iterator[Cut]:
    blank = " \t\n\v\f\r"
    while (at := text.find(token.text, start, end)) >= 0:
        left = start + len(text[start:at].rstrip(blank)) if token.lstrip else at
        if left > start:
            yield start, left, None
        start = at + len(token.text)
        yield at, start, token.id
        if token.rstrip:
            start = end - len(text[start:end].lstrip(blank))
    if start < end:
        yield start, end, None


def _touched(text: str, start: int, end: int) -> bool:
    sides = text[max(0, start - 1) : start] + text[end : end + 1]
    return any(char.isalnum() or char == "_" for char in sides)


def unit_cutter(vocab: Mapping[str, int]) -> Callable[[str], list[str]]:
    """Cut at blanks where no token of this vocabulary reaches over one: merges on the two sides cannot meet there."""
    joined = {token[at - 1] for token in vocab for at in _positions(token) if at}
    joined.add(SPACE)
    border = re.compile(f"(?<=[^{re.escape(''.join(sorted(joined)))}])(?={SPACE})")
    return border.split


def _positions(token: str) -> list[int]:
    return [at for at, char in enumerate(token) if char == SPACE]


class Pipeline:
    """A tokenizer that gives the model's own ids."""

    exact = True

    def __init__(
        self, name: str, specials: Sequence[Specials], normal: Normal | None, cut: Callable[[str], list[str]], words: Words
    ) -> None:
        """``specials``: looked for in the text; a second one, in what the normalizer made of the stretches between."""
        self.name = name
        self._specials, self._normal, self._cut, self._words = specials, normal, cut, words
        self.bos: str | None = None
        self.chat_template: str | None = None

    def leading(self, text: str) -> int:
        """Tokens that the server puts in front of this prompt (BOS): 1 or 0."""
        return int(self.bos is not None and not text.startswith(self.bos))
