"""The order in time of rotated log files. Knows file names only; never opens a file or a folder."""

from __future__ import annotations

import os
import re

_COMPRESSED = re.compile(r"\.(?:gz|xz|bz2|zst)$")
# logrotate's dateext (-20260101, -2026010113, -1767225600) and the dotted dates of other rotators.
_DATE = re.compile(r"[.-](\d{4}-?\d\d-?\d\d(?:[T_-]?\d\d(?:[:-]?\d\d){0,2})?)$")
# Three digits at most: a longer number is rather a port or a process id.
_NUMBER = re.compile(r"\.(\d{1,3})$")

_DATED, _NUMBERED, _CURRENT = range(3)


def in_time_order(paths: list[str]) -> list[str]:
    """Sort the rotations of each log from the oldest to the newest.

    Rotations share folder and base name: ``server.log.2.gz``, ``server.log.1``, ``server.log``. A higher number is
    older, a date suffix (``server.log-20260101``) sorts ascending and before numbers, the bare name comes last. A
    group stands where its first member was given; files that are no rotations of each other keep their order.
    """
    groups: dict[str, list[tuple[tuple[int, int, str], str]]] = {}
    for path in paths:
        base, age = _dissected(path)
        groups.setdefault(base, []).append((age, path))
    return [path for group in groups.values() for _, path in sorted(group, key=lambda member: member[0])]


def rotations(path: str, names: list[str], *, packed: bool = False) -> list[str]:
    """Of ``names`` in the folder of ``path``, those that ``path`` may have had before, oldest first, itself the last.

    Compressed ones are left out unless ``packed``; then one that is being compressed counts once. A path that is
    itself a rotation (``server.log.1``) never had another name.
    """
    folder, base = os.path.split(path)
    (ours, (kind, *_)) = _dissected(path)
    plain = {name for name in names if not _COMPRESSED.search(name)}
    wanted = [name for name in names if name in plain or (packed and _COMPRESSED.sub("", name) not in plain)]
    before = [os.path.join(folder, name) for name in wanted if name != base]
    same = [other for other in before if kind == _CURRENT and _dissected(other)[0] == ours]
    return [*in_time_order(same), path]


def is_rotation(path: str) -> bool:
    """Whether a file is called like what a log was before: by a number, a date, or compressed."""
    return bool(_COMPRESSED.search(path)) or _dissected(path)[1][0] != _CURRENT


def _dissected(path: str) -> tuple[str, tuple[int, int, str]]:
    name = _COMPRESSED.sub("", os.path.normpath(path))
    if found := _DATE.search(name):
        return name[: found.start()], (_DATED, 0, re.sub(r"\D", "", found[1]))
    if found := _NUMBER.search(name):
        return name[: found.start()], (_NUMBERED, -int(found[1]), "")
    return name, (_CURRENT, 0, "")
