"""When a request began, which client asked, and at which address: the line of the HTTP server names no task.

It is printed at about the end of a request, before or after its slot is released:
``done request: POST /v1/chat/completions 127.0.0.1 200``.
"""

from __future__ import annotations

from collections.abc import Callable

from cachedoctor.model.observed import Asked

ANSWERED = "http_done"
"""Message that names method, path, address and status (INFO from b5311 to b9093, later TRACE)."""
_MAX = 64
"""Requests under way; beyond, some were never answered, and counting begins again."""
_PROMPTS = ("/completion", "/completions", "/messages", "/responses", "/infill")


class Clients:
    """Gives requests their client when as many were answered as were launched, and all answers say the same."""

    def __init__(self, time_of: Callable[[int], str | None]) -> None:
        """``time_of``: wall clock of the line with this number, where its wrapper has one."""
        self._time_of = time_of
        self._launched: list[Asked] = []
        self._answers: list[tuple[str, str]] = []

    def launched(self, line: int, *, child: bool) -> Asked:
        """A request began at ``line``; returns what will be known of who asked."""
        asked = Asked(child, self._time_of(line))
        if len(self._launched) >= _MAX:
            self._clear()
        self._launched.append(asked)
        return asked

    def answered(self, method: str, path: str, address: str) -> None:
        """The HTTP server has answered something."""
        path = path.partition("?")[0]
        if method != "POST" or not path.endswith(_PROMPTS):
            return
        self._answers.append((address, path))
        launched = [asked for asked in self._launched if not asked.child]
        if len(self._answers) < len(launched):
            return
        if len(self._answers) == len(launched) and len(set(self._answers)) == 1:
            for asked in launched:
                asked.client, asked.endpoint = self._answers[0]
        self._clear()

    def _clear(self) -> None:
        self._launched, self._answers = [], []
