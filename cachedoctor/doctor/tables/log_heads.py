"""Whether a file is the log of a server, by its first lines, where something else was asked for."""

from __future__ import annotations

import os
import re

from cachedoctor.sources.unpack import MAX_BYTES

_HEAD = 1 << 15
"""Bytes that are looked at."""
_SHARE = 0.2
"""Of the lines that are messages of a server; in what a person asks about a log they are fewer, or come later."""
_PROMPT = re.compile(rb"\s*+(?:<|\[\s*+\{|\{[^\n]{0,4096}?\"(?:messages|prompt|input)\"\s*+:)")
"""How a prompt begins in which somebody may have pasted a log: with a template's token, or as a body."""
_MAYBE = re.compile(rb"\b(?:slot|srv|llama|vllm|sglang|INFO|WARN)\b")
"""What no log of a server lacks; catalogues are compiled only where it stands."""


def is_log(path: str) -> bool:
    """Whether the file at ``path`` begins with lines of a server; False of standard input, pipes and folders."""
    if not os.path.isfile(path):
        return False
    head = _head(path)
    lines = [line for line in head.split(b"\n") if line.strip()]
    if not lines or _PROMPT.match(head) is not None or _MAYBE.search(head) is None:
        return False
    from cachedoctor.doctor.tables.events import Listing

    listing = Listing("")
    known = len([*listing.feed(head), *listing.finish()])
    return known >= _SHARE * len(lines)


def logs_in(folder: str) -> tuple[list[str], list[str]]:
    """Return the logs of servers that lie directly in ``folder``, by name, and the other files that are called logs.

    A rotation may begin anywhere: it is a log where the one is whose rotation it is. None of a folder that cannot be
    read, which whoever reads it will say.
    """
    from cachedoctor.knowledge.rotations import base_name

    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file() and entry.name[0] != ".")
    except OSError:
        return [], []
    known = {base_name(name) for name in names if is_log(os.path.join(folder, name))}
    logs = [os.path.join(folder, name) for name in names if base_name(name) in known]
    return logs, [name for name in names if base_name(name) not in known and base_name(name).endswith(".log")]


def _head(path: str) -> bytes:
    """Return the first whole lines, unpacked; nothing of what cannot be read, which whoever reads it will say."""
    from cachedoctor.model import CacheDoctorError
    from cachedoctor.sources.file import FileSource

    try:
        head = next(FileSource(path, MAX_BYTES).chunks(), b"")
    except CacheDoctorError:
        return b""
    return head if len(head) <= _HEAD else head[:_HEAD].rpartition(b"\n")[0]
