"""Explains single lines of SGLang: the text before a message, and the option that makes the server print it."""

from __future__ import annotations

from collections.abc import Mapping

from cachedoctor.engines.catalogue.base import Message
from cachedoctor.engines.catalogue.logger import Field, Prefix, Vocabulary
from cachedoctor.engines.sglang.fields import MEANINGS, PAIRS, field
from cachedoctor.engines.sglang.messages import PREFIX, ROWS
from cachedoctor.knowledge.late_patterns import late

_BEGIN = late(rb"(?:" + PREFIX + rb")?+[ \t]*+")
_PARTS = late(
    rb"\[(?P<time>(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?P<ranks>(?: [A-Z_]{2,8}\d{1,4})*)\] \Z"
)
_HEAD = 1 << 12
"""Bytes of a prefix that are checked; progress bars may be glued before it."""

_TIME = "when the line was written, in the time zone of the server"
_RANKS = {
    "DP": "data-parallel rank: each rank has its own cache",
    "PP": "pipeline rank: each rank computes some of the layers",
    "TP": "tensor-parallel rank: all ranks compute the same batches, and normally only TP0 prints",
    "EP": "expert-parallel rank",
    "CP": "context-parallel rank",
}


def prefix(line: bytes) -> Prefix:
    """Split the text before the message of ``line``, which may be missing."""
    found = _BEGIN.match(line)
    end = found.end() if found is not None else 0
    head = line[:end].rstrip(b" \t") + b" "
    parts = _PARTS.search(head, max(0, len(head) - _HEAD))
    if parts is None:
        return {}, end, line[:end]
    ranks = {rank.decode(): rank for rank in parts["ranks"].split()}
    return {"time": parts["time"], **ranks}, end, line[: parts.start()]


def part(name: str, raw: bytes) -> str:
    """Return the meaning of a part of the prefix."""
    if name == "time":
        return _TIME
    return _RANKS.get(name.rstrip("0123456789").rpartition("_")[2], "rank of the process that prints the line")


def time(parts: Mapping[str, bytes]) -> str | None:
    """Return the time of a line; None without a date, as in logs of 2024."""
    raw = parts.get("time", b"").decode()
    return raw.replace(" ", "T").replace(",", ".") if " " in raw else None


def process(parts: Mapping[str, bytes]) -> str:
    """Return the ranks of the process, ``DP0 TP0``."""
    return " ".join(name for name in parts if name != "time")


def shown(row: Message, level: str) -> str:
    """Return the option or default with which the server prints the line."""
    if row.id in ("received", "finished"):
        json = " --log-requests-format json" if row.template.startswith("{") else ""
        return f"only with --log-requests{json}"
    return "the text of an error that ends the server" if level == "P" else "shown by default"


def _pair(message: str, name: str) -> Field | None:
    return PAIRS.get(name)


VOCABULARY = Vocabulary(
    "sglang", ROWS, MEANINGS, field, _pair, prefix, part, time, process, {"sglang": "SGLang"}, shown
)
