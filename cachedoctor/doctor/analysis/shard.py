"""What was found in a part of the logs, on its way to whoever joins the parts."""

from __future__ import annotations

import msgspec

from cachedoctor.account.ledger import Ledger
from cachedoctor.doctor.analysis.reuse import Reuse
from cachedoctor.doctor.analysis.slowest import Slowest
from cachedoctor.doctor.analysis.sums import Sums
from cachedoctor.doctor.diagnosis.groups import Groups
from cachedoctor.model import CacheSample, InputInfo, PrefillBatch, Session


class Shard(msgspec.Struct):
    """Requests and sessions are numbered from 0 in every part."""

    inputs: list[InputInfo]
    sessions: list[Session]
    sums: Sums
    ledger: Ledger
    reuse: Reuse
    requests: int
    """How many; as JSON they stand in a file of their own."""
    groups: Groups
    doubtful: int
    """Requests that lost tokens, or of which the log does not tell."""
    crashed: dict[str, str]
    """What rules failed with, by code."""
    rows: dict[type[CacheSample | PrefillBatch], bytes]
    """Samples and batches that were kept, one JSON object a line."""
    settled: bool
    """Behind the last line a new life of the server may begin of which no line before it says anything."""
    faulty: bool
    """What reads an engine failed; the input says it."""
    slowest: Slowest
    begin: bytes
    """The first bytes of its last input, or of this part of it."""


def add_input(info: InputInfo, more: InputInfo) -> None:
    """Add the next part of the same input."""
    info.bytes += more.bytes
    info.lines += more.lines
    info.recognised += more.recognised
    info.imitations += more.imitations
    info.engine = info.engine or more.engine
    info.error = info.error or more.error
