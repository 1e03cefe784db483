"""Catalogues of programs whose lines begin with the prefix of a Python logger, and pairs of names and values in them.

``INFO 11-20 23:44:58 [loggers.py:335] Engine 000: ...``: the message begins behind the bracket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cachedoctor.engines.catalogue.base import Catalogue, Event, Message
from cachedoctor.engines.catalogue.heads import Heads


class LoggerCatalogue(Catalogue):
    """Rows found behind the end of a prefix, wherever in the line it stands: progress bars may be glued before it."""

    def __init__(self, rows: list[Message], prefix: bytes) -> None:
        """``prefix``: pattern from the begin of a line to the message, without groups, and possessive.

        Lines without one are read, too: uvicorn writes none, and people paste messages without.
        """
        self.rows = rows
        self.by_head: dict[tuple[str, bytes], list[Message]] = {}
        heads: set[str] = set()
        self._prefix = prefix
        for row in rows:
            for head in row.heads:
                heads.add(head)
                self.by_head.setdefault(("bare", head.encode()), []).append(row)
        self._begin = re.compile(rb"(?:" + prefix + rb")?+[ \t]*+")
        self.pattern = Heads({"bare": heads}, self._compiled)

    def _compiled(self, heads: Mapping[str, bytes]) -> re.Pattern[bytes]:
        # The five groups of every catalogue: a slot, a task, and heads in three places, of which here only the last is.
        return re.compile(rb"\n(?:(?!)()()()()|(?:" + self._prefix + rb")?+[ \t]*+(" + heads["bare"] + rb"))")

    def recognise(self, body: bytes) -> list[Event]:
        """Every row that matches the single line ``body`` exactly (one, unless the catalogue is ambiguous)."""
        found = self._begin.match(body)
        start = found.end() if found is not None else 0
        text = b" ".join(body[start:].split())
        events = []
        for row in self.rows:
            if row.may_begin(text):
                fields = row.match(body, start)
                if fields is not None:
                    events.append(Event(row.id, row, fields, -1, -1, 1, body, 0))
        return events
