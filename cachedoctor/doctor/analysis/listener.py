"""Who is told of everything while it happens: inputs, events, requests, findings.

What a listener hears does not depend on how the input was cut into chunks, neither its content nor its order: a request
comes right after the event that ended it. Only the silence of a live log may end a cancelled request earlier.
"""

from __future__ import annotations

from cachedoctor.doctor.analysis.spool import Spool
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.model import CacheSample, Finding, InputInfo, Judged, PrefillBatch, Session


class Listener:
    """Hears, and does nothing; to be refined."""

    patient = True
    """It can wait until a short input shows that it is no excerpt; a screen that shows lines as they come cannot."""

    def __init__(self, spool: Spool | None = None) -> None:
        """``spool``: takes the finished requests; None keeps none of them."""
        self.spool = spool or Spool(None)

    def opened(self, index: int, info: InputInfo) -> None:
        """Hear that an input began; ``info`` grows with it."""

    def event(self, event: Event, path: str, origin: str | None, session: Session | None) -> None:
        """Hear of a line, after it was taken; no session when it came before any that tells of a server."""

    def measured(self, row: CacheSample | PrefillBatch, session: Session) -> None:
        """Hear of a sample of vLLM or a batch of SGLang, before the event of the line with which it became known."""

    def examined(self, judged: list[tuple[Judged, Session]], findings: list[Finding]) -> None:
        """Hear of requests that ended, or that are seen otherwise now; all findings when there is a new one."""
