"""Writes a matched wrapper anew: its named parts get other names, in a form that its pattern takes again.

Knows the named groups of the table of prefixes. Must not know lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NUMBER = re.compile(rb" *\d{1,5}")
_COUNTED = re.compile(rb"[-_]\d\Z")
_HARMLESS = {"pid": re.compile(rb"-|\d{1,10}"), "zone": re.compile(rb"[A-Z]{1,5}|[+-]\d{2,4}")}


def renamed(match: re.Match[bytes], name: Callable[[str, bytes], bytes]) -> bytes:
    """Return the text of ``match`` with every named part renamed by ``name(kind, part)``."""
    out, at = [], match.start()
    groups = sorted((match.span(group), group) for group in match.re.groupindex if match[group] is not None)
    for (start, end), group in groups:
        out.append(match.string[at:start])
        out.append(_part(group, match[group], name))
        at = end
    out.append(match.string[at : match.end()])
    return b"".join(out)


def _part(group: str, raw: bytes, name: Callable[[str, bytes], bytes]) -> bytes:
    if group == "data":
        return b"-"
    harmless = _HARMLESS.get(group)
    if not raw.strip() or raw == b"-" or (harmless is not None and harmless.fullmatch(raw)):
        return raw
    if group == "logstream":  # taken for one by its slash
        return name("host", raw) + b"/0"
    if group != "origin":
        return name(group, raw)
    if _NUMBER.fullmatch(raw):  # the port of a router's child
        return raw
    counted = _COUNTED.search(raw)  # compose pads a name that ends so with one blank only
    return name(group, raw.strip()) + (counted[0] if counted else b"")
