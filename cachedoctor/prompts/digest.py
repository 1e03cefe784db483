"""What stands for a text that is not shown."""

from __future__ import annotations

import hashlib


def digest(text: str) -> str:
    """Stand-in for a text: its length and a hash."""
    return f"{len(text)} chars, sha256 {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
