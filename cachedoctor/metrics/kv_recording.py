"""Reads a recording of KV events, as ``cachedoctor record-kv`` writes it: one line of JSON for each message.

``{"type":"message","number":7,"time":1.79e9,"events":[{"type":"removed","ids":["1c9be8ee8e51c4a9"]}]}``
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from cachedoctor.knowledge.texts import sound_json
from cachedoctor.metrics.whole_lines import whole_lines
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.kv_events import KvHead, KvLine, KvUnread

MAX_LINE = 64 * 1024 * 1024
"""Bytes; a step of vLLM with 8,192 tokens has about 50 KB."""
_HINT = "cachedoctor record-kv tcp://HOST:5557 -o kv.jsonl writes one"


def lines(chunks: Iterable[bytes], path: str) -> Iterator[KvLine]:
    """Yield the lines of a recording; one that is broken, or was cut off, counts as a message that was not read.

    Raises:
        CacheDoctorError: it is no recording.
    """
    decoder = msgspec.json.Decoder(KvLine)
    first = True
    for text in whole_lines(chunks, lambda size: _refuse_large(size, path)):
        if not text.strip():
            continue
        try:
            line: KvLine = decoder.decode(sound_json(text))
        except (msgspec.DecodeError, RecursionError, ValueError):
            if first:
                raise CacheDoctorError(f"{path}: is no recording of KV events", _HINT) from None
            line = KvUnread(0, 1)
        if first and not isinstance(line, KvHead):
            raise CacheDoctorError(f"{path}: is a part of a recording of KV events", "give it from its first line on")
        first = False
        yield line
    if first:
        raise CacheDoctorError(f"{path}: is no recording of KV events", _HINT)


def _refuse_large(size: int, path: str) -> None:
    if size > MAX_LINE:
        raise CacheDoctorError(f"{path}: has a line of more than {MAX_LINE >> 20} MiB", _HINT)
