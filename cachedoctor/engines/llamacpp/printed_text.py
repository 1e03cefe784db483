"""Lines of llama-server behind which text of a user may go on: ``old: ... a | b``, bodies of requests, prompts.

A message is printed as it is, line breaks included. What comes behind them in a prompt may look like any line of a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from cachedoctor.engines.catalogue.base import STAMP

_STAMP = rb"(\d{1,9})\.(\d\d)\.(\d{3})\.(\d{3}) "
_COMMON = rb"[ \t]{0,8}" + STAMP
_SLOT = rb"slot ++[^\s:|]*+: *+id ++(?P<slot>\d{1,3}) *+\| *+task ++(?P<task>-?\d{1,18}) *+\| *+"
_OPENS = re.compile(
    _COMMON
    + rb"(?:"
    + _SLOT
    + rb"(?P<side>old|new): \.\.\."
    + rb"|srv +log_server_r\w{0,40}: *request:  "
    + rb"|add_text: "
    + rb"|(?:[^\s:]{1,80}: )?Parsing (?:PEG )?input with format )"
)
_TOKENS = re.compile(_COMMON + _SLOT + rb"(?:[-\d \t]*)(?:\n|\Z)")
_ROW = re.compile(_COMMON + _SLOT)
_CLOCKED = re.compile(_STAMP)
_NEXT_CLOCKED = re.compile(rb"\n" + _STAMP)  # led by a literal, for which sre then scans
ALWAYS = (b"| old: ...",)
"""Stands in each of these lines but ``new: ...``, which follows one."""
AT_DEBUG = (*ALWAYS, b"log_server_r: request:  ", b" D add_text: ", b" input with format ")
"""The same where the server logs at the debug level."""
DEBUG = b" D "
"""Stands in nearly every line at that level, behind a clock."""


class Opening(NamedTuple):
    """A line behind which text may go on."""

    clock: int | None
    """Microseconds since the start of the server; None where its lines have no clock."""
    side: bytes | None = None
    """``old`` or ``new``, where two prompts diverge."""
    slot: bytes = b""
    task: bytes = b""


def opening(body: bytes) -> Opening | None:
    """Read a line without wrappers; None for one that ends where it ends."""
    found = _OPENS.match(body)
    if found is None:
        return None
    return Opening(clock(body), found["side"], found["slot"] or b"", found["task"] or b"")


def clock(body: bytes) -> int | None:
    """Microseconds since the start of the server at which a line without wrappers was written; None without a clock."""
    found = _CLOCKED.match(body)
    return None if found is None else _microseconds(found)


def clocks(lines: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Give offset and clock, in microseconds, of every line that has one, from the line at ``at`` on."""
    if found := _CLOCKED.match(lines, at):
        yield at, _microseconds(found)
    for found in _NEXT_CLOCKED.finditer(lines, at):
        yield found.start() + 1, _microseconds(found)


def _microseconds(found: re.Match[bytes]) -> int:
    minutes, seconds, millis, micros = map(int, found.groups())
    return ((minutes * 60 + seconds) * 1000 + millis) * 1000 + micros


def ids_of(body: bytes) -> Opening | None:
    """Read a list of token ids, of which two follow the texts; None for any other line."""
    found = _TOKENS.match(body)
    return None if found is None else Opening(clock(body), None, found["slot"], found["task"])


def row_of(body: bytes) -> Opening | None:
    """Read whose row a line without wrappers is; None for a line that is of no slot."""
    found = _ROW.match(body)
    return None if found is None else Opening(clock(body), None, found["slot"], found["task"])
