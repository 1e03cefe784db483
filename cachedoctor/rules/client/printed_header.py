"""Where a billing header stands in the text that the server prints.

``cc_entrypoint=cli; cch=`` before the bar: the field is ``cch``.
"""

from __future__ import annotations

import re

_FIELD_BEFORE = re.compile(r"(cch|cc_[a-z_]+)=[^;\s]*$")
_FIELD_AFTER = re.compile(r"^[0-9A-Za-z._-]*; ?(cch|cc_[a-z_]+)=")
_INSIDE = re.compile(r"(?:x-anthropic-billing-header:|;)\s*[\w.=-]*\s*$")
"""The text before a bar that stands inside the header."""
_HEADER = re.compile(r"x-anthropic-billing-header|\bcc_version=|\bcc_entrypoint=|\bcch=")


def field_that_differs(old: str, new: str) -> str | None:
    """Name of the header field at the bars of an ``old:`` / ``new:`` pair whose values differ; "" for one out of sight."""
    field = header_field(new)
    if field is None or field != header_field(old):
        return None
    if not field and not stands_inside(new):
        return None  # the header is the same in both, and text behind it differs
    before, after = (text.partition(" | ")[2].strip() for text in (old, new))
    return field if before and after and before != after else None


def stands_inside(text: str) -> bool:
    """Whether the bar of an ``old:`` / ``new:`` text stands inside the header, or directly behind one of its fields."""
    return _INSIDE.search(text.partition(" | ")[0]) is not None


def header_field(text: str) -> str | None:
    """Name of the header field in which the bar of an ``old:`` / ``new:`` text stands; "" for a field out of sight."""
    before, bar, after = text.partition(" | ")
    if not bar:
        return None
    inside = _FIELD_BEFORE.search(before.rstrip(" "))
    if inside:
        return inside.group(1)
    following = _FIELD_AFTER.match(after.lstrip(" "))
    if following:
        return "cc_version" if following.group(1) in ("cc_entrypoint", "cch") else ""
    return "" if _HEADER.search(before) and "\n" not in before and "\\n" not in before else None
