"""The slots of all servers of a report, each with a name of its own. Knows sessions; knows no drawing."""

from __future__ import annotations

from collections.abc import Sequence

from cachedoctor.knowledge.rotations import base_name
from cachedoctor.model import RequestRow, Session
from cachedoctor.report.text.text_safe import cut

Server = tuple[str, str | None]


class Lanes:
    """Numbers the slots in the order in which they come; a slot keeps its number when its server starts anew."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self._servers: dict[int, Server] = {s.index: (base_name(s.path), s.origin) for s in sessions}
        self._by_origin = len({origin for _, origin in self._servers.values()}) > 1
        self._by_path = len({path for path, _ in self._servers.values()}) > 1
        self._numbers: dict[tuple[Server, int], int] = {}
        self._life: dict[Server, int] = {}
        self._order: dict[Server, int] = {}
        self.names: list[str] = []
        self.places: list[tuple[int, int]] = []
        """Where each slot stands among all: its server, its number there."""

    def of(self, row: RequestRow) -> int:
        """Number of the slot that a request ran in."""
        server = self._server(row)
        found = self._numbers.get((server, row.slot))
        if found is None:
            found = self._numbers[server, row.slot] = len(self.names)
            self.names.append(self._named(server, row.slot))
            self.places.append((self._order.setdefault(server, len(self._order)), row.slot))
        return found

    def restarted(self, row: RequestRow) -> bool:
        """Whether it is the first request of a server's next life; to be asked once for each, in order."""
        server = self._server(row)
        before = self._life.get(server)
        self._life[server] = row.session if before is None else max(before, row.session)
        return before is not None and before < row.session

    def _server(self, row: RequestRow) -> Server:
        return self._servers.get(row.session, (row.path, None))

    def _named(self, server: Server, slot: int) -> str:
        path, origin = server
        parts = [cut(path.replace("\\", "/").rpartition("/")[2], 24)] if self._by_path else []
        if self._by_origin and origin is not None:
            parts.append(cut(origin, 24))
        return " ".join([*parts, f"slot {slot}"])
