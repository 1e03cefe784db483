"""A tokenizer that is not asked twice for what it has just cut. Knows no vocabulary."""

from __future__ import annotations

from cachedoctor.prompts.tokenizers.base import Tokenizer, Tokens


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
