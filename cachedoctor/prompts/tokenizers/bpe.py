"""Byte pair merging and the order of the steps around it.

One engine serves the three kinds in use: byte-level BPE (merges by rank over bytes written as letters), BPE over
characters with byte fallback, and SentencePiece BPE (merges by score). Results are kept per word.
"""

from __future__ import annotations

import heapq
import re
import string
from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from typing import Literal

from cachedoctor.prompts.tokenizers.base import TokenArrays
from cachedoctor.prompts.tokenizers.pretokens import Specials

SPACE = "\u2581"
"""Represents a space in vocabularies of the SentencePiece kind."""

Rank = Callable[[str, str], float | None]
"""Urgency of merging two neighbours, smallest first; None when they never merge."""
Pieces = tuple[list[int], list[int]]
"""Token ids of a word, and the code point at which each begins, counted in the word."""
Change = Callable[[str, bool], tuple[str, list[int] | None]]
"""Maps (text, whether it begins the prompt) to (changed text, original offset of each character, None if unchanged)."""

Whole = Literal["never", "always", "newlines"]
"""Words that are used without applying merges if they are tokens; ``newlines``: only words of newlines."""

_CACHE_LIMIT = 50_000
"""Words kept; a prompt of 1 MB has some 20,000 different ones."""


def _byte_letters() -> str:
    """The 256 letters of byte-level BPE: printable bytes represent themselves, the others U+0100 and up."""
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


class WordEncoder:
    """Turns one word into tokens, and remembers it."""

    def __init__(
        self,
        vocab: Mapping[str, int],
        rank: Rank,
        *,
        bytelevel: bool,
        whole: Whole = "never",
        unknown: int | None = None,
    ) -> None:
        """``whole``: which words become one token if they are one; ``unknown``: replaces what has no token."""
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
        at_once = self._whole == "always" or (self._whole == "newlines" and not text.strip("\n"))
        return [text] if at_once and text in self._vocab else merge(list(text), self._rank)

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


def split_units(vocab: Mapping[str, int]) -> Callable[[str], list[str]]:
    """Split at spaces that no token of this vocabulary crosses: merges on the two sides cannot meet there."""
    joined = {SPACE}
    for token in vocab:
        if SPACE in token:
            joined.update(before for before, char in pairwise(token) if char == SPACE)
    border = re.compile(f"(?<=[^{re.escape(''.join(sorted(joined)))}])(?={SPACE})")
    return border.split


class Pipeline:
    """A tokenizer that gives the model's own ids."""

    exact = True

    def __init__(
        self,
        name: str,
        specials: tuple[Specials, Specials | None],
        changes: tuple[Change | None, Change | None],
        cut: Callable[[str], list[str]],
        words: WordEncoder,
        *,
        bos: str | None = None,
    ) -> None:
        """Put the steps together: special tokens, change, special tokens of the changed text, change, words, tokens.

        ``bos``: text of the token that the server puts before a prompt.
        """
        self.name = name
        self._specials, self._late = specials
        self._normal, self._shape = changes
        self._cut, self._words = cut, words
        self.bos = bos
        self.chat_template: str | None = None

    @property
    def local(self) -> bool:
        """Text can be encoded in parts that are split before a space between two ASCII letters (see ``splice``)."""
        if not self._specials.local or (self._late and not self._late.local):
            return False
        probe = " ".join(f"{char}b{char}" for char in string.ascii_letters)
        changed = probe
        for change in (self._normal, self._shape):
            if change:
                changed = change(changed, True)[0]
        borders = set(accumulate(map(len, self._cut(changed))))
        return len(changed) == len(probe) and all(at in borders for at, char in enumerate(probe) if char == " ")

    def leading(self, text: str) -> int:
        """Tokens that the server puts before this prompt: 1 for a BOS that is not in the text, else 0."""
        return int(self.bos is not None and not text.startswith(self.bos))

    def encode(self, text: str) -> TokenArrays:
        """Tokenise; the text of a special token becomes that token (``parse_special``), and no BOS is added."""
        ids: list[int] = []
        starts: list[int] = []
        for start, end, special in self._specials.cut(text):
            if special is None:
                self._stretch(text[start:end], start, ids, starts)
            else:
                ids.append(special)
                starts.append(start)
        return TokenArrays(ids, starts)

    def _stretch(self, text: str, base: int, ids: list[int], starts: list[int]) -> None:
        text, source = self._normal(text, base == 0) if self._normal else (text, None)
        for start, end, special in self._late.cut(text) if self._late else ((0, len(text), None),):
            if special is not None:
                ids.append(special)
                starts.append(base + (source[start] if source else start))
                continue
            part, inner = text[start:end], None
            if self._shape:
                part, inner = self._shape(part, base + start == 0)
            if source is not None:
                inner = source[start:end] if inner is None else [source[start + at] for at in inner]
                self._emit(part, base, inner, ids, starts)
            else:
                self._emit(part, base + start, inner, ids, starts)

    def _emit(self, text: str, base: int, source: list[int] | None, ids: list[int], starts: list[int]) -> None:
        at, words = 0, self._words
        for word in self._cut(text):
            found, offsets = words(word)
            ids += found
            if source is None:
                starts += [base + at + offset for offset in offsets]
            else:
                starts += [base + source[at + offset] for offset in offsets]
            at += len(word)
