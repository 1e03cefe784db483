"""Explains single lines of vLLM: the text before a message, and the option that makes the server print it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cachedoctor.engines.catalogue.base import Message
from cachedoctor.engines.catalogue.logger import Prefix, Vocabulary
from cachedoctor.engines.vllm.fields import MEANINGS, field, pair
from cachedoctor.engines.vllm.messages import PREFIX, ROWS
from cachedoctor.knowledge.late_patterns import late

_BEGIN = late(rb"(?:" + PREFIX + rb")?+[ \t]*+")
_WRITER = rb"(?:\((?P<process>[\w.-]{1,60})(?: (?P<rank>rank=\d{1,6}))?(?: (?P<pid>pid=\d{1,10}))?\) )?"
_LOGGER = (
    rb"\[?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\s{1,4}(?P<time>\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)"
    rb" \[?(?P<source>[\w./-]{1,200}\.py:\d{1,5})\] "
)
_LMCACHE = rb"\[(?P<dated>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{1,6})?)\] (?P<logger>LMCache) (?P<lmlevel>[A-Z]{4,8}): "
_PARTS = late(_WRITER + rb"(?:" + _LOGGER + rb"|" + _LMCACHE + rb")\Z")
_HEAD = 1 << 12
"""Bytes of a prefix that are checked; progress bars may be glued before it."""

_PROCESSES = {
    b"APIServer": "process that takes requests and prints the statistics",
    b"EngineCore": "process of the engine, which schedules requests and keeps the prefix cache",
    b"Worker": "process that computes the model, or a part of it",
    b"VllmWorker": "process that computes the model, or a part of it",
    b"MainProcess": "process that starts the others, or one that has no name yet",
}
"""Meaning by the start of a name; a rank may follow it (``EngineCore_DP0``, ``Worker_TP1``)."""
_WORDS = {
    "rank": "rank of the process within the model",
    "pid": "number of the process",
    "level": "level of the line",
    "lmlevel": "level of the line",
    "time": "month, day and time in the time zone of the server; no year is printed",
    "dated": "date and time in the time zone of the server",
    "logger": "printed by LMCache inside vLLM: its version numbers are those of LMCache",
    "source": "source file and line number that print this line; the number changes between versions",
}
_REQUESTS = "by default up to 0.10.0, in newer versions only with --enable-log-requests"
_ITERATION = "only with --enable-logging-iteration-details"


def prefix(line: bytes) -> Prefix:
    """Split the text before the message of ``line``, which may be missing."""
    found = _BEGIN.match(line)
    end = found.end() if found is not None else 0
    parts = _PARTS.search(line[:end].rstrip(b" \t") + b" ", max(0, end - _HEAD))
    if parts is None:
        return {}, end, line[:end]
    return {name: raw for name, raw in parts.groupdict().items() if raw is not None}, end, line[: parts.start()]


def part(name: str, raw: bytes) -> str:
    """Return the meaning of a part of the prefix."""
    if name != "process":
        return _WORDS[name]
    known = _PROCESSES.get(re.split(rb"[_-]", raw, maxsplit=1)[0], "process that prints the line")
    rank = "; DP, PP, TP and EP number the ranks of data, pipeline, tensor and expert parallelism"
    return known + (rank if re.search(rb"_(?:DP|PP|TP|EP)\d", raw) else "")


def time(parts: Mapping[str, bytes]) -> str | None:
    """Return the time of a line; LMCache prints the year."""
    if "dated" in parts:
        return parts["dated"].decode().replace(" ", "T").replace(",", ".")
    return f"--{parts['time'].decode().replace(' ', 'T').replace(',', '.')}" if "time" in parts else None


def process(parts: Mapping[str, bytes]) -> str:
    """Return the name of the process."""
    return parts.get("process", b"").decode()


def shown(row: Message, level: str) -> str:
    """Return the option or default with which the server prints the line."""
    if row.id == "iteration":
        return _ITERATION
    if row.id in ("request", "request_details"):
        return _REQUESTS if level != "D" else "only with --enable-log-requests and VLLM_LOGGING_LEVEL=DEBUG"
    if level != "D":
        return "shown by default"
    return "only at the debug level of LMCache" if row.component == "lmcache" else "only with VLLM_LOGGING_LEVEL=DEBUG"


VOCABULARY = Vocabulary(
    "vllm", ROWS, MEANINGS, field, pair, prefix, part, time, process, {"vllm": "vLLM", "lmcache": "LMCache"}, shown
)
