"""What every tokenizer offers, and a wrapper that remembers what it has just tokenized."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import msgspec


class Tokens(msgspec.Struct):
    """A tokenised text, as two arrays of the same length."""

    ids: Sequence[int] | Sequence[str]
    """Ids in the model's vocabulary; the pieces themselves when there is no vocabulary."""
    starts: Sequence[int]
    """Code point offset at which each token begins; for one that begins inside a code point, that code point's."""

    def __len__(self) -> int:
        return len(self.starts)


class Tokenizer(Protocol):
    """Anything that cuts text into tokens."""

    @property
    def name(self) -> str:
        """What to call it in a report."""

    @property
    def exact(self) -> bool:
        """The ids are the model's own; otherwise every count is approximate."""

    @property
    def local(self) -> bool:
        """``encode(x + y) == encode(x) + encode(y)`` wherever y begins with a blank between two ASCII letters."""

    @property
    def chat_template(self) -> str | None:
        """The model's chat template, where the tokenizer's source holds one."""

    def encode(self, text: str) -> Tokens:
        """Tokenise; the text of a special token becomes that token, and none is added."""

    def leading(self, text: str) -> int:
        """Tokens that the server puts in front of this prompt (BOS)."""


def char_offsets(text: str) -> list[int] | None:
    """Byte offset of each code point in UTF-8; None when the text is ASCII and both are the same."""
    if text.isascii():
        return None
    return list(accumulate((len(char.encode("utf-8", "surrogatepass")) for char in text), initial=0))


def char_at(offsets: list[int] | None, byte: int) -> int:
    """Code point that holds the byte, by what ``char_offsets`` returned."""
    return byte if offsets is None else bisect_right(offsets, byte) - 1


class Remembering:
    """A tokenizer that remembers the last texts: each prompt is asked for as the later one, then as the earlier one."""

    _MOST = 4

    def __init__(self, cutter: Tokenizer) -> None:
        self._cutter = cutter
        self._last: dict[str, Tokens] = {}
        self._leading: dict[str, int] = {}
        self.name, self.exact, self.local = cutter.name, cutter.exact, cutter.local
        self.chat_template = cutter.chat_template

    def encode(self, text: str) -> Tokens:
        """Tokenise; see ``Tokenizer``."""
        found = self._last.pop(text, None) or self._cutter.encode(text)
        self._last[text] = found
        while len(self._last) > self._MOST:
            del self._last[next(iter(self._last))]
        return found

    def leading(self, text: str) -> int:
        """Tokens that the server puts in front, which its beginning decides."""
        head = text[:256]
        if head not in self._leading:
            self._leading = {head: self._cutter.leading(text)}
        return self._leading[head]
