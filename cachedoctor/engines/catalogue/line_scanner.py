"""A scanner that hides nothing: every line on its own, also those that a tracker needs once or not at all.

For whoever shows events as they happen; slower than the scanner that an analysis needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from cachedoctor.engines.catalogue.base import Catalogue, Event
from cachedoctor.engines.catalogue.scanner import Plan, Scanner
from cachedoctor.model import Segment


class SingleScanner(Scanner):
    """Delivers what a scanner with the same plan delivers, and tells of more."""

    def __init__(self, catalogue: Catalogue, plan: Plan, more: frozenset[str], tell: Callable[[Event], None]) -> None:
        """Begin without a line.

        Args:
            catalogue: one without a fused pattern.
            plan: what is delivered; groups of a fused pattern are passed over.
            more: messages that are told of, and not delivered.
            tell: hears of every event in the order of the lines, of one that is delivered after it was taken.
        """
        super().__init__(catalogue, msgspec.structs.replace(plan, wanted=plan.wanted | more, fused_groups=0))
        self._more = more
        self._once = plan.once
        self._tell = tell
        self._again = False

    def scan(self, segment: Segment) -> Iterator[Event]:
        """Events in line order."""
        for event in super().scan(segment):
            again, self._again = self._again and event.message in self._once, False
            if not again and event.message not in self._more:
                yield event
            self._tell(event)

    def _repeated(self, message: str, slot: bytes, task: bytes) -> bool:
        self._again = super()._repeated(message, slot, task)
        return False
