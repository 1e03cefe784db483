"""A scanner that hides nothing: every line on its own, also those that a tracker needs once or not at all.

For whoever shows events as they happen; slower than the scanner that an analysis needs.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cachedoctor.engines.catalogue.base import Catalogue, Event
from cachedoctor.engines.catalogue.scanner import Plan, Scanner
from cachedoctor.model import Segment


class SingleScanner(Scanner):
    """Delivers what a scanner with the same plan delivers, and more that is only to be told of."""

    def __init__(self, catalogue: Catalogue, plan: Plan, more: frozenset[str]) -> None:
        """Begin without a line.

        Args:
            catalogue: one without a fused pattern.
            plan: what is delivered; groups of a fused pattern are passed over.
            more: messages that are delivered as well, to be told of.
        """
        super().__init__(catalogue, msgspec.structs.replace(plan, wanted=plan.wanted | more, fused_groups=0))
        self._more = more
        self._once = plan.once
        self._again = False
        self.is_extra = False
        """Nobody but a listener asks for the event that was delivered last."""

    def scan(self, segment: Segment) -> Iterator[Event]:
        """Events in line order."""
        for event in super().scan(segment):
            again, self._again = self._again and event.message in self._once, False
            self.is_extra = again or event.message in self._more
            yield event

    def _repeated(self, message: str, slot: bytes, task: bytes) -> bool:
        self._again = super()._repeated(message, slot, task)
        return False
