"""When a request began, which client asked, and at which address: the line of the HTTP server names no task.

It is printed at about the end of a request, before or after its slot is released. Knows this line and the requests
under way; knows no slot.
"""

from __future__ import annotations

from collections.abc import Callable

from cachedoctor.engines.base import Event
from cachedoctor.model import Request

ANSWERED = "http_done"
"""Message that names method, path, address and status (INFO from b5311 to b9093, later TRACE)."""
_MAX = 64
"""Requests under way; beyond, some were never answered, and counting begins anew."""
_PROMPTS = ("/completion", "/completions", "/messages", "/responses", "/infill")


class Clients:
    """Gives requests their client when as many were answered as were launched, and all answers say the same."""

    def __init__(self, time_of: Callable[[int], str | None]) -> None:
        """``time_of``: wall clock of the line with this number, where its wrapper has one."""
        self._time_of = time_of
        self._launched: list[Request] = []
        self._answers: list[tuple[str, str]] = []

    def launched(self, request: Request, line: int) -> None:
        """A request began at ``line``."""
        request.time = self._time_of(line)
        if len(self._launched) >= _MAX:
            self._clear()
        self._launched.append(request)

    def answered(self, event: Event) -> None:
        """The HTTP server has answered something."""
        path = str(event.fields["path"]).partition("?")[0]
        if event.fields["method"] != "POST" or not path.endswith(_PROMPTS):
            return
        self._answers.append((str(event.fields["remote_addr"]), path))
        asked = [request for request in self._launched if request.parent is None]
        if len(self._answers) < len(asked):
            return
        if len(self._answers) == len(asked) and len(set(self._answers)) == 1:
            for request in asked:
                request.client, request.endpoint = self._answers[0]
        self._clear()

    def _clear(self) -> None:
        self._launched, self._answers = [], []
