"""The columns of the sums over many logs, in words: what the text and the markdown form show.

Knows StatsRow. Knows no output.
"""

from __future__ import annotations

from cachedoctor.model import By, MeasuredRow, Piece, StatsRow
from cachedoctor.report.words.numbers import duration, number, percent
from cachedoctor.report.words.table_parts import Heading

UNKNOWN = "unknown"

HEADINGS = (
    Heading("requests"),
    Heading("prompt", "tokens"),
    Heading("reused", "of prompt"),
    Heading("computed", "tokens"),
    Heading("prompt time", "in all"),
    Heading("median", "of one"),
    Heading("p90", "of one"),
    Heading("speed", "tokens/s"),
    Heading("lost: client", "tokens"),
    Heading("server", "tokens"),
    Heading("avoidable", "tokens"),
    Heading("time", "in all"),
)

_TITLES: dict[By, str] = {
    "model": "by model", "build": "by build of llama.cpp", "memory": "by kind of memory", "path": "by input",
    "origin": "by server of one log", "client": "by client", "endpoint": "by endpoint", "hour": "by hour",
    "outcome": "by outcome", "slot": "by slot", "turn": "by turn of the conversation",
}  # fmt: skip

MEASURED = "servers without requests"
MEASURED_HEADINGS = (
    Heading("servers"),
    Heading("from"),
    Heading("prompt", "tokens"),
    Heading("reused", "of prompt"),
    Heading("95 %", "interval"),
)
PIECES: dict[Piece, str] = {
    "conversation": "conversations", "response": "responses", "metrics": "/metrics", "batch": "prefill batches",
    "interval": "intervals", "rate": "last hit rates",
}  # fmt: skip


def title(by: By | None) -> str:
    """Say what a table groups by."""
    return "all requests" if by is None else _TITLES[by]


def name(row: StatsRow, by: By | None) -> str:
    """Name a group."""
    return name_of(by, row.group)


def name_of(by: By | None, group: str | None) -> str:
    """Name a group that may be unknown."""
    return "all" if by is None else UNKNOWN if group is None else group


def cells(row: StatsRow) -> list[str]:
    """Write the numbers of a group, in the order of the headings; what the logs do not tell is a dash."""
    share = percent(row.cached_tokens or 0, row.prompt_tokens) if row.prompt_tokens else "-"
    return [
        number(row.requests),
        _tokens(row.prompt_tokens),
        share,
        _tokens(row.processed_tokens),
        _time(row.prompt_ms),
        _time(row.prompt_ms_p50),
        _time(row.prompt_ms_p90),
        _tokens(row.speed_p50),
        _tokens(row.client_lost_tokens),
        _tokens(row.server_lost_tokens),
        _tokens(row.avoidable_tokens),
        _time(row.avoidable_ms),
    ]


def measured_name(row: MeasuredRow) -> str:
    """Name a group of servers."""
    return name_of(row.by, row.group)


def measured_cells(row: MeasuredRow) -> list[str]:
    """Write what these servers measured, in the order of the headings."""
    return [
        number(row.servers),
        f"{number(row.pieces)} {PIECES[row.piece]}",
        _tokens(row.prompt_tokens),
        percent(row.reuse, 1),
        f"{percent(row.low, 1)} to {percent(row.high, 1)}" if row.low is not None and row.high is not None else "-",
    ]


def unsaid(rows: list[StatsRow]) -> str:
    """Say of how many requests the logs do not tell the reuse; empty when of none."""
    unknown, requests = sum(row.unknown_requests for row in rows), sum(row.requests for row in rows)
    if not unknown:
        return ""
    return (
        f"Of {number(unknown)} of {number(requests)} requests the logs do not tell prompt and reuse: no sum has them."
    )


def _tokens(value: float | None) -> str:
    return "-" if value is None else number(value)


def _time(ms: float | None) -> str:
    return "-" if ms is None else duration(ms)
