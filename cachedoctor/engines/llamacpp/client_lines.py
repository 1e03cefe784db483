"""Lines about clients: the HTTP access line of a request, and rejections quoted in a client's own log."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model.observed import Asker

ANSWERED = "http_done"
"""Message that names method, path, address and status (INFO from b5311 to b9093, later TRACE)."""
_MAX = 64
"""Requests under way; beyond, some were never answered, and counting begins again."""
_PROMPTS = ("/completion", "/completions", "/messages", "/responses", "/infill")


class Clients:
    """Assigns clients to requests if as many requests were answered as launched, and all answers name one client."""

    def __init__(self, time_of: Callable[[int], str | None]) -> None:
        """``time_of``: wall clock of the line with this number, where its wrapper has one."""
        self._time_of = time_of
        self._launched: list[Asker] = []
        self._answers: list[tuple[str, str]] = []

    def launched(self, line: int, *, child: bool) -> Asker:
        """Note that a request began at ``line``; returns what will be known of its client."""
        asked = Asker(child, self._time_of(line))
        if len(self._launched) >= _MAX:
            self._clear()
        self._launched.append(asked)
        return asked

    def answered(self, method: str, path: str, address: str) -> None:
        """The HTTP server has answered something."""
        path = path.partition("?")[0]
        if method != "POST" or not path.endswith(_PROMPTS):
            return
        if len(self._launched) == 1 and not self._answers and not self._launched[0].child:  # as nearly always
            only = self._launched.pop()
            only.client, only.endpoint = address, path
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


_ROWS = 6
"""Maximum rows over which a refusal is wrapped."""
_SIGN = b"exceedstheavailablecontextsize"
_BLANKS = b" \t\r\n"
_QUOTE = rb"\\{0,7}[\"']"
_NAMED = rb"(?:[A-Za-z_.]{0,40}(?:Error|Exception)|failed):"
_LEAD = (
    rb"(?P<lead>(?:" + _QUOTE + rb"(?:error|message|msg|err|detail|reason)" + _QUOTE + rb":" + _QUOTE
    + rb"|(?:error|message|msg|err|detail|reason)=(?:" + _QUOTE + rb")?"
    + rb"|" + _NAMED + rb")(?:" + _NAMED + rb")?(?:\d{3}:?)?(?:\\{1,4}n)?)"
)  # fmt: skip
_NUMBERED = late(
    _LEAD + rb"request\((?P<tokens>\d{1,10})tokens\)exceedstheavailablecontextsize\((?P<limit>\d{1,10})tokens\)"
)
_TYPED = late(
    _LEAD + rb"therequestexceedstheavailablecontextsize[^{}]{1,60}exceed_context_size_error[^{}]{1,40}n_prompt_tokens"
    + _QUOTE + rb":(?P<tokens>\d{1,10})," + _QUOTE + rb"n_ctx" + _QUOTE + rb":(?P<limit>\d{1,10})"
)  # fmt: skip
"""Older builds say the numbers beside the words alone."""
_KEY = late(rb"(?<!\\)\"(\w{1,40})\":\"|(\w{1,40})=\"")
_NEAR = 1 << 12
"""Bytes before a refusal in which the key of the string that holds it is searched for."""
_OF_ERRORS = (
    b"error", b"err", b"message", b"msg", b"detail", b"reason", b"cause", b"stack", b"data", b"body", b"response",
    b"responseBody", b"exception", b"log", b"line", b"textPayload",
)  # fmt: skip
"""Keys under which a record holds what a server answered; other strings are prompts, names, addresses."""


def refusals(lines: list[bytes]) -> dict[int, tuple[int, bytes]]:
    """Return the rejections by the index of their first line: their number of lines, and the server's own words."""
    rows = [line.translate(None, _BLANKS) for line in lines]
    text = b"".join(rows)  # without blanks it does not matter where a line was wrapped
    if _SIGN not in text:
        return {}
    starts = list(accumulate(map(len, rows), initial=0))
    found: dict[int, tuple[int, bytes]] = {}
    for hit in _refusals(text):
        first, last = bisect_right(starts, hit.start()) - 1, bisect_right(starts, hit.end() - 1) - 1
        if last - first < _ROWS:
            words = b"request (%s tokens) exceeds the available context size (%s tokens), try increasing it"
            found.setdefault(first, (last - first + 1, words % (hit["tokens"], hit["limit"])))
    return found


def _refusals(text: bytes) -> Iterator[re.Match[bytes]]:
    for pattern in (_NUMBERED, _TYPED):
        yield from (hit for hit in pattern.finditer(text) if _held_by_an_error(text, hit))


def _held_by_an_error(text: bytes, hit: re.Match[bytes]) -> bool:
    """Whether the string in a record that holds the refusal, if one does, is that of an error."""
    if b"\\" not in hit["lead"]:
        return True  # the key that stands directly before it is its own
    keys = list(_KEY.finditer(text, max(0, hit.start() - _NEAR), hit.start()))
    return not keys or (keys[-1][1] in _OF_ERRORS if keys[-1][1] else keys[-1][2].endswith(_OF_ERRORS))


# b7710 and newer: "request (5887 tokens) exceeds the available context size (4096 tokens), try increasing it";
# older builds say the same without numbers.
_NUMBERS = late(r"\((\d{1,10}) tokens\)[^(]*\((\d{1,10}) tokens\)")
_OVERLONG = late(r"exceeds? the available context size|larger than the max context size")


class Overlong(msgspec.Struct, frozen=True):
    """Lengths of a prompt that did not fit, and of the context; None if the error does not show it."""

    tokens: int | None
    limit: int | None


def overlong(text: str) -> Overlong | None:
    """Read the text of an error; None when it is about something else."""
    if not _OVERLONG.search(text):
        return None
    numbers = _NUMBERS.search(text)
    return Overlong(int(numbers[1]), int(numbers[2])) if numbers else Overlong(None, None)
