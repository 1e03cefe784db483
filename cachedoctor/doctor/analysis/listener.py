"""Who hears of inputs, events, requests and findings, and how parts of a log are joined."""

from __future__ import annotations

import msgspec

from cachedoctor.diagnosis.account.ledger import Ledger
from cachedoctor.doctor.analysis.spool import Spool
from cachedoctor.doctor.analysis.sums import Reuse, Slowest, Sums
from cachedoctor.doctor.findings.groups import FindingGroups
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.model import CacheSample, Finding, InputInfo, Judged, PrefillBatch, Request, Session


class Listener:
    """Hears, and does nothing; to be refined."""

    patient = True
    """It can wait until a short input shows that it is not an excerpt; a live screen cannot."""
    hears_lines = True
    """It needs the event of every line; otherwise lines that follow each other are read together, in half the time."""

    judges_late = False
    """It hears of requests when they end, but not of their verdicts: they are judged when their input has ended."""

    def __init__(self, spool: Spool | None = None) -> None:
        """``spool``: takes the finished requests; None keeps none of them."""
        self.spool = spool or Spool(None)

    def opened(self, index: int, info: InputInfo) -> None:
        """Hear that an input began; ``info`` grows with it."""

    def event(self, event: Event, path: str, origin: str | None, session: Session | None) -> None:
        """Hear of a line, after it was taken; no session when it came before any that tells of a server."""

    def measured(self, row: CacheSample | PrefillBatch, session: Session) -> None:
        """Hear of a sample of vLLM or a batch of SGLang, before the event of the line with which it became known."""

    def ended(self, requests: list[tuple[Request, Session]]) -> None:
        """Hear of requests that ended, or that are seen otherwise now, before they are judged late."""

    def examined(self, judged: list[tuple[Judged, Session]], findings: list[Finding]) -> None:
        """Hear of requests that ended, or that are seen otherwise now; all findings when there is a new one."""


class Shard(msgspec.Struct):
    """Requests and sessions are numbered from 0 in every part."""

    inputs: list[InputInfo]
    sessions: list[Session]
    sums: Sums
    ledger: Ledger
    reuse: Reuse
    requests: int
    """Number of requests; as JSON they are in a file of their own."""
    groups: FindingGroups
    doubtful: int
    """Requests that lost tokens, or for which the log does not show whether they did."""
    crashed: dict[str, str]
    """What rules failed with, by code."""
    rows: dict[type[CacheSample | PrefillBatch], bytes]
    """Samples and batches that were kept, one JSON object a line."""
    settled: bool
    """After the last line a new server run may begin that no line announces."""
    faulty: bool
    """The reader of an engine failed; the input records it."""
    slowest: Slowest
    begin: bytes
    """The first bytes of its last input, or of this part of it."""
    replayable: list[Request] | None
    """All requests; None where there are too many to be replayed."""


def add_input(info: InputInfo, more: InputInfo) -> None:
    """Add the next part of the same input."""
    info.bytes += more.bytes
    info.lines += more.lines
    info.recognised += more.recognised
    info.imitations += more.imitations
    info.engine = info.engine or more.engine
    info.error = info.error or more.error
