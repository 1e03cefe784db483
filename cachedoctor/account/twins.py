"""Prompts of one length that several slots computed at the same time: perhaps one prompt that was sent twice.

No line tells what another slot computes. One length may be chance, or that of a template; several lengths, each of them
seen only so, are what a client leaves that sends its requests twice: ``4,037 and 4,037``, ``5,572 and 5,572``. Drafts
of one message have one length as well; their conversation goes on with none of them.
"""

from __future__ import annotations

import msgspec

from cachedoctor.model import Request, Twins

RECENT = 64
"""Lengths of the last prompts that are remembered."""
MAX_LENGTHS = 256
"""Lengths of which something is counted; of those that come later nothing is."""
LEAST = 256
"""Tokens: shorter prompts have one length by chance."""


class _Seen(msgspec.Struct, gc=False):
    """The request that computed a prompt of some length last."""

    slot: int
    first_line: int
    last_line: int
    processed: int


class _Length(msgspec.Struct, gc=False):
    """What is known of prompts of one length."""

    apart: bool = False
    """Two of them were not at work at once: prompts of one length come again here."""
    goes_on: bool = False
    """The next turn of one reused all of it."""
    parted: bool = False
    """The next turn of one did not."""
    twins: Twins | None = None


class SameLengths(msgspec.Struct):
    """What one life of a server computed at once, by length of the prompts."""

    recent: dict[int, _Seen] = msgspec.field(default_factory=dict)
    lengths: dict[int, _Length] = msgspec.field(default_factory=dict)
    last: dict[int, int] = msgspec.field(default_factory=dict)
    """Length of the last prompt of a conversation, for as many of them."""

    def add(self, r: Request) -> None:
        """Take a request when it ends; one that is judged again is known."""
        length, processed = r.prompt_tokens, r.processed_tokens
        if length is None or processed is None or length < LEAST or r.revision:
            return
        self._follow(r, length)
        before = self.recent.pop(length, None)
        if before is not None and before.first_line == r.first_line:
            self.recent[length] = before
            return
        self.recent[length] = _Seen(r.slot, r.first_line, r.last_line, processed)
        if len(self.recent) > RECENT:
            del self.recent[next(iter(self.recent))]
        if before is None:
            return
        found = self.lengths.get(length)
        if found is None:
            if len(self.lengths) >= MAX_LENGTHS:
                return
            found = self.lengths[length] = _Length()
        if before.slot == r.slot or before.last_line < r.first_line:
            found.apart = True
            return
        twins = found.twins
        if twins is None:
            twins = found.twins = Twins(length, r.marks["start"])
        twins.requests += 1
        twins.tokens += min(before.processed, processed)

    def _follow(self, r: Request, length: int) -> None:
        """Note how a conversation went on after its last prompt."""
        if r.thread is None:
            return
        last = self.last.pop(r.thread, None)
        self.last[r.thread] = length
        if len(self.last) > RECENT:
            del self.last[next(iter(self.last))]
        found = None if last is None else self.lengths.get(last)
        if found is not None:
            found.goes_on |= r.outcome == "reused"
            found.parted |= r.outcome != "reused"

    def merge(self, more: SameLengths) -> None:
        """Count the requests of another part."""
        for length, found in more.lengths.items():
            known = self.lengths.setdefault(length, found)
            if known is found:
                continue
            known.apart |= found.apart
            known.goes_on |= found.goes_on
            known.parted |= found.parted
            if known.twins is None or found.twins is None:
                known.twins = known.twins or found.twins
            else:
                known.twins.requests += found.twins.requests
                known.twins.tokens += found.twins.tokens
        self.recent = more.recent

    def twins(self) -> list[Twins]:
        """Those of lengths that were seen in no other way, and are no drafts."""
        return [
            found.twins
            for found in self.lengths.values()
            if found.twins is not None and not found.apart and (found.goes_on or not found.parted)
        ]
