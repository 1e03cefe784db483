"""The texts that the server prints around the place where two prompts diverge (``old: ... text | text``).

Writes another text of which the analysis makes the same. What it makes of a text it is told by a function. Must not
know rules.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import product

from cachedoctor.redact.tokens import Tokens

BAR = " | "
OTHER_FIELD = "cc_field"
FIELDS = ("cch", "cc_version", "cc_entrypoint", OTHER_FIELD)
"""Fields of a billing header that are named; any other is called ``cc_field``."""
_READ_MAX = 2000
"""Characters of a text that the analysis reads; a bar behind them is none to it."""
_BEFORE = (
    "", *(f" {field}=" for field in FIELDS), " x-anthropic-billing-header:", " cc_version=0; behind it", " cch= 0",
)  # fmt: skip
_AFTER = (
    "", "a ", "0 ", "0:00 ", "a date ", "0a0a0a0a-0a0a ", "a0a0a0a0-a0a0 ", "0a0a0a ", "a0a0a0 ",
)  # fmt: skip
"""Beginnings of a value: none, a letter or a digit that a number may begin with, a time, UUIDs, random ids."""


class Printed:
    """Writes such texts anew."""

    def __init__(self, facts: Callable[[str], Hashable]) -> None:
        """``facts``: all that the analysis reads in such a text; texts with equal facts are the same to it."""
        self._facts = facts
        self._shapes: dict[Hashable, tuple[str, str, bool]] = {}
        for before, after, lead in product(_BEFORE, _AFTER, (True, False)):
            if lead or not before:
                sample = self._written(before, after, "<text-1>" if lead else "", "<text-2>")
                self._shapes.setdefault(facts(sample), (before, after, lead))

    def rewrite(self, text: str, tokens: Tokens) -> str:
        """Return a text with the same facts that holds nothing of ``text`` but the bar."""
        text = text[:_READ_MAX]
        before, bar, after = text.partition(BAR)
        if not bar:
            return f" {self._token(text, tokens)}"
        tail, head, lead = self._shapes.get(self._facts(text), ("", "", bool(before.strip(" ."))))
        return self._written(
            tail, head, self._token(before, tokens) if lead else "", self._token(after, tokens) or "<text>"
        )

    @staticmethod
    def _written(tail: str, head: str, before: str, after: str) -> str:
        return f" {before}{tail}{BAR}{head}{after}"

    @staticmethod
    def _token(text: str, tokens: Tokens) -> str:
        return tokens.give("text", text.encode("utf-8", "surrogateescape")).decode()
