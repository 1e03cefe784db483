"""Where the log of one server may be cut so that its parts can be read side by side: between two lives of the server.

A cut is a guess from the lines around it; whoever reads the parts finds out whether it was right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import FileIO

from cachedoctor.engines.catalogue.base import Catalogue
from cachedoctor.engines.llamacpp.startup import RESTART_MARKS
from cachedoctor.sources.file import open_log
from cachedoctor.sources.span import FileSpan, plain_size

LEAST = 4 << 20
"""Bytes of a part; a smaller one is read faster than a process is started."""
_BLOCK = 1 << 20
_LINE = 1 << 12
"""Bytes of a start-up line."""
_BACK = 4 << 20
"""Bytes before a cut in which the last request of the life before it is looked for."""
_WORDS = (b"build", b"initializing", b"loading model '")
"""One of them stands in every line that begins a life."""
_REQUEST = b"processing task"
_CONTROL = re.compile(rb"[\0\r\x1b]")


def spans(path: str, parts: int, catalogue: Catalogue) -> list[FileSpan]:
    """Cut the file into about ``parts`` spans of about one size; none when it cannot be cut."""
    size = plain_size(path)
    parts = min(parts, size // LEAST)
    if parts < 2:
        return []
    found: list[int] = []
    with open_log(path) as file:
        for number in range(1, parts):
            wanted = max(size * number // parts, found[-1] + LEAST if found else 0)
            cut = _next_cut(file, wanted, size * (number + 1) // parts, catalogue)
            if cut is not None:
                found.append(cut)
        return list(_spans(file, [*found, size])) if found else []


def _spans(file: FileIO, ends: list[int]) -> Iterator[FileSpan]:
    start, line = 0, 1
    for end in ends:
        yield FileSpan(start, end, line)
        file.seek(start)
        left = end - start
        while left and (block := file.read(min(_BLOCK, left))):
            line += block.count(b"\n")
            left -= len(block)
        start = end


def _next_cut(file: FileIO, start: int, end: int, catalogue: Catalogue) -> int | None:
    """Offset of the first line from ``start`` on that begins a life after a life with requests."""
    at = start
    while at < end:
        file.seek(at)
        block = file.read(_BLOCK + _LINE) or b""
        for line in sorted({block.rfind(b"\n", 0, place) + 1 for place in _places(block)}):
            text = block[line : block.find(b"\n", line)]
            if line and _begins_life(text, catalogue) and _follows_requests(file, at + line, catalogue):
                return at + line
        at += _BLOCK
    return None


def _places(block: bytes) -> Iterator[int]:
    for word in _WORDS:
        place = block.find(word)
        while place >= 0:
            yield place
            place = block.find(word, place + 1)


def _begins_life(line: bytes, catalogue: Catalogue) -> bool:
    """Lines with control characters are none: what is read of them is decided where wrappers are taken off."""
    line = line.removesuffix(b"\r")
    if len(line) >= _LINE or _CONTROL.search(line):
        return False
    return any(event.message in RESTART_MARKS for event in catalogue.recognise(line))


def _follows_requests(file: FileIO, place: int, catalogue: Catalogue) -> bool:
    """Whether a request was begun since the last start-up line before ``place``."""
    first = max(0, place - _BACK)
    file.seek(first)
    _, request, since = (file.read(place - first) or b"").rpartition(_REQUEST)
    lines = {since.rfind(b"\n", 0, found) + 1 for found in _places(since)}
    return bool(request) and not any(_begins_life(since[line : since.find(b"\n", line)], catalogue) for line in lines)
