r"""Finds the server's refusal of a prompt inside a client's own log records and messages, wrapped or escaped.

``ERROR 2026-03-01T10:00:05 service=llm error={"statusCode":400,"responseBody":"{\"error\":{\"code\":400,\"message\":``
``\"request (35000 tokens) exceeds the available context size (32768 tokens), try increasing it\",...``. Only where the
words stand as an error does, behind its name or key; in prose, and in a prompt that a record holds, they prove nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from cachedoctor.knowledge.later_pattern import LaterPattern

_ROWS = 6
"""Rows over which a refusal is wrapped at most."""
_SIGN = b"exceedstheavailablecontextsize"
_BLANKS = b" \t\r\n"
_QUOTE = rb"\\{0,7}[\"']"
_NAMED = rb"(?:[A-Za-z_.]{0,40}(?:Error|Exception)|failed):"
_LEAD = (
    rb"(?P<lead>(?:" + _QUOTE + rb"(?:error|message|msg|err|detail|reason)" + _QUOTE + rb":" + _QUOTE
    + rb"|(?:error|message|msg|err|detail|reason)=(?:" + _QUOTE + rb")?"
    + rb"|" + _NAMED + rb")(?:" + _NAMED + rb")?(?:\d{3}:?)?(?:\\{1,4}n)?)"
)  # fmt: skip
_NUMBERED = LaterPattern(
    _LEAD + rb"request\((?P<tokens>\d{1,10})tokens\)exceedstheavailablecontextsize\((?P<limit>\d{1,10})tokens\)"
)
_TYPED = LaterPattern(
    _LEAD + rb"therequestexceedstheavailablecontextsize[^{}]{1,60}exceed_context_size_error[^{}]{1,40}n_prompt_tokens"
    + _QUOTE + rb":(?P<tokens>\d{1,10})," + _QUOTE + rb"n_ctx" + _QUOTE + rb":(?P<limit>\d{1,10})"
)  # fmt: skip
"""Older builds say the numbers beside the words alone."""
_KEY = re.compile(rb"(?<!\\)\"(\w{1,40})\":\"|(\w{1,40})=\"")
_NEAR = 1 << 12
"""Bytes before a refusal in which the key of the string that holds it is looked for."""
_OF_ERRORS = (
    b"error", b"err", b"message", b"msg", b"detail", b"reason", b"cause", b"stack", b"data", b"body", b"response",
    b"responseBody", b"exception", b"log", b"line", b"textPayload",
)  # fmt: skip
"""Keys under which a record holds what a server answered; other strings are prompts, names, addresses."""


def refusals(lines: list[bytes]) -> dict[int, tuple[int, bytes]]:
    """Return the refusals by the index of the line in which each begins: lines it takes, and the server's own words."""
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
        yield from (hit for hit in pattern.compiled.finditer(text) if _held_by_an_error(text, hit))


def _held_by_an_error(text: bytes, hit: re.Match[bytes]) -> bool:
    """Whether the string in a record that holds the refusal, if one does, is that of an error."""
    if b"\\" not in hit["lead"]:
        return True  # the key that stands directly before it is its own
    keys = list(_KEY.finditer(text, max(0, hit.start() - _NEAR), hit.start()))
    return not keys or (keys[-1][1] in _OF_ERRORS if keys[-1][1] else keys[-1][2].endswith(_OF_ERRORS))
