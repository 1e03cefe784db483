"""What the request bodies given beside a log have in common: what a cache could have reused, and what undid it."""

from __future__ import annotations

import msgspec

from cachedoctor.model.diff import PromptDiff


class SentBodies(msgspec.Struct):
    """Sums over all bodies, in bytes of their text."""

    bodies: int
    complete: bool
    """As many as the server answered, so that what it held can be worked out."""
    size: int
    """Of all prompts."""
    shared: int
    """Longest beginning that an earlier body had, too: what an endless cache would have reused."""
    endless: int | None
    """Of it, what is whole blocks."""
    kept: int | None
    """Of these, what a cache of the logged size still had; None where its size, or how long a token is, is unknown."""
    repeated: int
    """Behind a difference: it stood in an earlier body whose beginning was another."""
    changed: int
    """Bodies most of which is such text."""
    salted: int
    """What an earlier body under another ``cache_salt`` began with, beyond ``shared``."""
    salts: int
    """Different salts, none at all among them."""
    worst: PromptDiff | None
    """The changed body with most of it, against the one whose text it repeats."""

    def share(self, part: int | None) -> float:
        """What a part is of all prompts, from 0 to 1."""
        return (part or 0) / self.size if self.size else 0.0
