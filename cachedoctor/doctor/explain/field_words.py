"""Words for the fields of a message: the name where it stands, the unit, the meaning, and what its value says."""

from __future__ import annotations

import re

from cachedoctor.engines.catalogue.base import HOLE, Message
from cachedoctor.engines.catalogue.field_text import Field
from cachedoctor.model import Reading

_LABEL = re.compile(r"(?:^|[,(|] ?)([A-Za-z_][\w.]*(?:\(\))?) ?= ?$")
"""The name that a message prints before a value, ``task.n_tokens = ``; several words are no name."""
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?(?=$|%|x$| reqs$| tokens(?:/s)?$)")
"""A number and how pairs print its unit."""


def reading(row: Message, name: str, raw: bytes | None, known: Field | None) -> Reading:
    """Put a field into words.

    Raises:
        LookupError: nothing describes it; the tables of an engine are complete.
    """
    if known is None:
        raise LookupError(f"{row.id}.{name} has no description")
    value = None if raw is None else text(raw).strip()
    return Reading(name, _label(row, name), value, known.unit, known.meaning, _here(known, value))


def paired(name: str, value: str, known: Field | None) -> Reading:
    """Put a pair that the line itself names into words; newer versions print pairs that are not known."""
    if known is None:
        return Reading(name, name, value, "", "not known: no version that was looked at prints it")
    return Reading(name, name, value, known.unit, known.meaning, _here(known, value))


def wording(row: Message) -> str:
    """Return the message with its fields by name, ``new prompt, n_ctx_slot = <n_ctx_slot>``."""
    return HOLE.sub(r"<\1>", row.template)


def text(raw: bytes) -> str:
    """Decode what a line prints."""
    return raw.decode("utf-8", "replace")


def _here(known: Field, value: str | None) -> str:
    said = ""
    for special, words in known.special.items():
        if value and _is(value, special):
            said = words
    return said


def _is(value: str, special: float) -> bool:
    found = _NUMBER.match(value)
    try:
        return float(found[0] if found is not None else value) == special
    except ValueError:
        return False


def _label(row: Message, name: str) -> str:
    """Return the name that the line prints before the value; that of the catalogue when it prints none."""
    for hole in HOLE.finditer(row.template):
        if hole[1] == name:
            before = row.template[: hole.start()]
            printed = _LABEL.search(before[before.rfind("}") + 1 :])
            return printed[1] if printed else name
    return name
