"""What stands before a message of SGLang: when it was written, and by which of the processes.

Source: ``configure_logger`` and the name of a scheduler process, 0.4.3 to 0.5.23.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

HEAD = rb"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: [A-Z_]{2,8}\d{1,4})*\] "
"""The inside of ``[2026-07-04 04:31:24.998 DP0 PP0 TP0] ``; logs of 2024 have no date, one process has no rank."""
_HEAD = re.compile(
    rb"\[(?:(?P<date>\d{4}-\d\d-\d\d) )?(?P<time>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?P<rank>(?: [A-Z_]{2,8}\d{1,4})*)\] "
)
_DATA_PARALLEL = re.compile(r"\bDP\d+")


class Writer(NamedTuple):
    """Who wrote a line, and when."""

    time: str | None
    """ISO 8601 without a zone, ``2026-07-04T04:31:24``, or ``T04:31:24``."""
    rank: str | None
    """``DP0 TP0``; None for a process that has none."""
    stream: str = ""
    """What schedules by itself: each data-parallel rank.

    Pipeline, tensor, context and expert ranks of one of these run the same batches, and some versions let several of
    them print.
    """


def writer_of(line: bytes) -> Writer:
    """Read the prefix of a line; both unknown where it has none."""
    found = _HEAD.search(line, 0, 4096)
    if found is None:
        return Writer(None, None)
    return _writer(*found.groups())


@lru_cache(maxsize=256)
def _writer(date: bytes | None, time: bytes, rank: bytes) -> Writer:
    """Decode the parts of a prefix: within a second, lines have the same."""
    name = rank.decode().strip()
    stream = _DATA_PARALLEL.search(name)
    iso = f"{(date or b'').decode()}T{time.decode().replace(',', '.')}"
    return Writer(iso, name or None, stream[0] if stream else "")
