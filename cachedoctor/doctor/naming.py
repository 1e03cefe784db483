"""Names of files as any format can hold them."""

from __future__ import annotations


def printable(name: str) -> str:
    """Return a text that holds names of files, which need not be UTF-8, so that any format can hold it."""
    return name.encode("utf-8", "backslashreplace").decode()
