"""What every tokenizer offers, the approximation used without one, and a wrapper that remembers."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import msgspec

from cachedoctor.knowledge.texts import common_prefix
from cachedoctor.prompts.tokenizers.pretokens import PIECES, Cutter


class TokenArrays(msgspec.Struct):
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

    def encode(self, text: str) -> TokenArrays:
        """Tokenise; the text of a special token becomes that token, and none is added."""

    def leading(self, text: str) -> int:
        """Tokens that the server puts before this prompt (BOS)."""


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
        self._last: dict[str, TokenArrays] = {}
        self._leading: dict[str, int] = {}
        self.name, self.exact, self.local = cutter.name, cutter.exact, cutter.local
        self.chat_template = cutter.chat_template

    def encode(self, text: str) -> TokenArrays:
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


class TokenDifference(msgspec.Struct):
    """Where two texts part. Token indexes count the tokens of the text alone (see ``Tokenizer.leading``)."""

    token: int
    """Index of the first differing token, which is also the length of the common prefix in tokens."""
    char: int
    """Offset of the first differing code point, equal in both texts."""
    start: int
    """Offset at which the differing token begins, at or before ``char``: the text before it is equal in both."""


class _Pieces:
    """Word pieces by a pattern: no vocabulary, so counts are approximate (near four characters each)."""

    name = "pieces"
    exact = False
    local = True
    chat_template = None

    def __init__(self) -> None:
        self._cut = Cutter((PIECES,))

    def encode(self, text: str) -> TokenArrays:
        pieces = self._cut(text)
        starts = accumulate(map(len, pieces[:-1]), initial=0) if pieces else ()
        return TokenArrays(pieces, array("i", starts))

    def leading(self, text: str) -> int:
        return 0


def pieces() -> Tokenizer:
    """The tokenizer for when there is none: word pieces as GPT-4 and Qwen cut them before merging."""
    return _Pieces()


def first_difference(tokenizer: Tokenizer, a: str, b: str) -> TokenDifference | None:
    """Find the first differing token; None when the tokens are the same.

    The result is that of comparing both full encodings. Where the tokenizer is ``local`` only the common part is
    encoded, once, up to a border after which nothing can change it, and from there each text up to the next border.
    """
    char = common_prefix(a, b)
    if char == len(a) == len(b):
        return None
    border = _border_before(a, char) if tokenizer.local else 0
    common = len(tokenizer.encode(a[:border])) if border else 0
    near = (_border_after(a, char), _border_after(b, char)) if tokenizer.local else (len(a), len(b))
    for end_a, end_b in (near, (len(a), len(b))):
        ours, theirs = tokenizer.encode(a[border:end_a]), tokenizer.encode(b[border:end_b])
        same = _same(ours.ids, theirs.ids)
        # only where one side ran out (its last characters changed nothing) does the rest of the text decide
        if same < min(len(ours), len(theirs)):
            break
    if same == len(ours) == len(theirs):
        return None
    starts = [border + tokens.starts[same] for tokens in (ours, theirs) if same < len(tokens)]
    return TokenDifference(common + same, char, min(*starts, char))


def _same(a: Sequence[object], b: Sequence[object]) -> int:
    for at, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return at
    return min(len(a), len(b))


def _is_border(text: str, at: int) -> bool:
    left, right = text[at - 1 : at], text[at + 1 : at + 2]
    return text[at : at + 1] == " " and left.isascii() and left.isalpha() and right.isascii() and right.isalpha()


def _border_before(text: str, end: int) -> int:
    """Last blank between two ASCII letters that lies, letters included, before ``end``; 0 when there is none."""
    at = text.rfind(" ", 0, max(0, end - 1))
    while at > 0 and not _is_border(text, at):
        at = text.rfind(" ", 0, at)
    return max(at, 0)


def _border_after(text: str, start: int) -> int:
    """First blank between two ASCII letters after ``start``; the end of the text when there is none."""
    at = text.find(" ", start + 1)
    while at >= 0 and not _is_border(text, at):
        at = text.find(" ", at + 1)
    return len(text) if at < 0 else at
