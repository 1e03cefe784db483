"""What a catalogue knows of the texts of a program: its rows, and no list beside them."""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cached_property

from cachedoctor.engines.catalogue.base import HOLE as HOLE_OF_ROW
from cachedoctor.engines.catalogue.base import Message, group_of
from cachedoctor.engines.catalogue.heads import literal_pattern
from cachedoctor.engines.llamacpp import messages as llamacpp
from cachedoctor.engines.sglang import messages as sglang
from cachedoctor.engines.vllm import messages as vllm
from scripts.drift.texts import HOLE, STRAY, Text

_LONG = 16
"""Characters of which one part of a text has to stand in a row."""
_JOINED = 2 * HOLE
"""Values without anything between them, at the end of a text: what is put there are texts."""


class Row:
    """A row of a catalogue, and the texts that it reads."""

    def __init__(self, message: Message) -> None:
        """Take a row as it stands in the table."""
        self.message = message
        self._group = group_of(message)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        out = [
            f"{literal_pattern(literal).decode()}(?:{HOLE}|{pattern.decode()})"
            for literal, _, pattern in self.message.pieces()
        ]
        return re.compile("".join(out) + literal_pattern(self.message.words).decode() + r"[ \t]*")

    def reads(self, text: Text) -> bool:
        """Whether a line with this text is this message."""
        if text.component and (text.component == "slot") != (self._group == "slot"):
            return False
        if self._pattern.fullmatch(text.text):
            # without its function only an assertion, which has its place put before it elsewhere
            return not self.message.has_func or self.message.levels.startswith("O")
        function = f"{HOLE}: +" if self.message.has_func else ""
        stray = "" if text.logged else STRAY
        return re.fullmatch(stray + function + self._pattern.pattern, text.text) is not None

    def is_made_of(self, text: Text) -> bool:
        """Whether this wording comes out of a text when something is put for its values: half of it stands there."""
        parts = [" ".join(part.split()) for part in text.text.split(HOLE)]
        own = self.skeleton
        if max(map(len, parts)) < _LONG or 2 * sum(map(len, parts)) < len(own):
            return False
        pattern = ".*?".join(literal_pattern(part).decode() for part in text.text.split(HOLE))
        return all(part in own for part in parts) and re.fullmatch(pattern, own) is not None

    def is_joined_of(self, text: Text, program: Container[str]) -> bool:
        """Whether this wording is a text that ends in values, with other texts of the program for these values.

        ``(◊ cells, ◊ layers)◊◊`` with ``, K (◊): ◊ MiB`` and ``, V (◊): ◊ MiB``.
        """
        begin = text.text.rstrip(HOLE).removeprefix(f"{HOLE}: " if self.message.has_func else "")
        if not text.text.endswith(_JOINED):
            return False
        found = re.match(literal_pattern(begin).decode(), self.skeleton)
        return found is not None and _is_put_together(self.skeleton[found.end() :], program)

    @property
    def skeleton(self) -> str:
        """Its words with the sign of a value for every value."""
        template = self.message.template
        return HOLE_OF_ROW.sub(HOLE, template.split("}: ", 1)[1] if self.message.has_func else template)

    @cached_property
    def literals(self) -> list[str]:
        """What is printed between its values, where that is more than a sign."""
        found = [literal for literal, _, _ in self.message.pieces()] + [self.message.words]
        return [plain for literal in found if len(plain := " ".join(literal.split()).strip(" ,.;:()[]{}='\"")) > 2]

    def is_known_at(self, release: int) -> bool:
        """Whether the table says that this release prints it."""
        return self.message.first <= release <= self.message.last


def _is_put_together(words: str, program: Container[str]) -> bool:
    """Whether texts of a program, one behind the other, give these words."""
    ends = {0}
    for end in range(1, len(words) + 1):
        if any(words[start:end] in program for start in ends):
            ends.add(end)
    return bool(words) and len(words) in ends


def rows(engine: str) -> list[Row]:
    """Return the table of an engine: what a program prints, and of which something stands in its sources."""
    table = {"llama.cpp": llamacpp.ROWS, "sglang": sglang.ROWS}.get(engine, vllm.ROWS)
    own = [row for row in table if not row.quoted and (engine not in ("vllm", "lmcache") or row.component == engine)]
    return [row for row in map(Row, own) if row.literals]
