"""Where a tokenizer comes from, and the first token that differs between two prompts. Knows no file format."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import msgspec

from cachedoctor.knowledge.texts import common_prefix
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.tokenizers.base import Tokenizer, Tokens
from cachedoctor.prompts.tokenizers.pretokens import PIECES, Cutter


class Difference(msgspec.Struct):
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

    def encode(self, text: str) -> Tokens:
        pieces = self._cut(text)
        return Tokens(pieces, list(accumulate(map(len, pieces[:-1]), initial=0)) if pieces else [])

    def leading(self, text: str) -> int:
        return 0


def pieces() -> Tokenizer:
    """The tokenizer for when there is none: word pieces as GPT-4 and Qwen cut them before merging."""
    return _Pieces()


def load(spec: str) -> Tokenizer:
    """Load a ``tokenizer.json``, the vocabulary of a ``.gguf``, or ask the llama-server at ``http://host:port``.

    A directory stands for the ``tokenizer.json`` in it. Raises ``CacheDoctorError`` with a hint when it cannot be used.
    """
    if spec.startswith(("http://", "https://")):
        from cachedoctor.prompts.tokenizers.remote import ServerTokenizer

        return ServerTokenizer(spec)
    path = Path(spec)
    path = path / "tokenizer.json" if path.is_dir() else path
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        hint = "give a tokenizer.json, a .gguf, or http://host:port of a running llama-server"
        raise CacheDoctorError(f"cannot read the tokenizer {spec}: {error.strerror or error}", hint) from None
    if magic == b"GGUF" or path.suffix == ".gguf":
        from cachedoctor.prompts.tokenizers.from_gguf import from_gguf

        return from_gguf(path)
    from cachedoctor.prompts.tokenizers.from_json import from_json

    return from_json(path)


def first_difference(tokenizer: Tokenizer, a: str, b: str) -> Difference | None:
    """Find the first differing token; None when the tokens are the same.

    The result is that of comparing both full encodings. Where the tokenizer is ``local`` only the common part is
    encoded, once, up to a border behind which nothing can change it, and from there each text up to the next border.
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
    return Difference(common + same, char, min(*starts, char))


def _same(a: list[int] | list[str], b: list[int] | list[str]) -> int:
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
    """First blank between two ASCII letters behind ``start``; the end of the text when there is none."""
    at = text.find(" ", start + 1)
    while at >= 0 and not _is_border(text, at):
        at = text.find(" ", at + 1)
    return len(text) if at < 0 else at
