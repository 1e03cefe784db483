"""Tells a web address from the name of a file; kept apart, since most runs ask nobody and import no HTTP."""

from __future__ import annotations


def is_address(text: str) -> bool:
    """Whether an argument is a web address, not a file."""
    return text.startswith(("http://", "https://"))
