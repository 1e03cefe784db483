"""``--cache-reuse``: pieces of what a slot holds that a prompt has at another place. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def moved(old: Sequence[int], new: Sequence[int], common: int, least: int) -> int:
    """Tokens of a prompt that are there when every piece of ``least`` tokens or more was moved to its place.

    ``common``: length of the prefix that both share. Each piece has to go on where the one in front of it ended, and
    no token of the slot is looked at twice.
    """
    at, place = common, common
    while at < len(new) and place < len(old):
        if old[place] != new[at]:
            place += 1
            continue
        size = _equal(old, new, place, at)
        if size >= least:
            at += size
            place += size
        else:
            place += 1
    return at


def _equal(old: Sequence[int], new: Sequence[int], place: int, at: int) -> int:
    size, most = 0, min(len(old) - place, len(new) - at)
    while size < most and old[place + size] == new[at + size]:
        size += 1
    return size
