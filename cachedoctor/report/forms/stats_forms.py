"""Sums over many logs as text, markdown, csv and JSON (``cachedoctor.stats/1``, frozen)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import IO, Literal, get_args

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import By, MeasuredRow, Piece, Stats, StatsInput, StatsRow, StatsTable
from cachedoctor.model.report import Tool
from cachedoctor.redaction import sanitize
from cachedoctor.redaction.secrets import hidden
from cachedoctor.report.base import Appearance
from cachedoctor.report.markdown.markdown_safe import cell, table
from cachedoctor.report.text import page as text_table
from cachedoctor.report.text.page import TextPage
from cachedoctor.report.text.text_safe import visible
from cachedoctor.report.words.measured_table import Heading, MeasuredCells
from cachedoctor.report.words.numbers import count, duration, number, percent

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


def row_name(row: StatsRow, by: By | None) -> str:
    """Name a group."""
    return name_of(by, row.group)


def name_of(by: By | None, group: str | None) -> str:
    """Name a group that may be unknown."""
    return "all" if by is None else UNKNOWN if group is None else group


def cells(row: StatsRow) -> list[str]:
    """Write the numbers of a group, in the order of the headings; what the logs do not show is a dash."""
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
    """Say of how many requests the logs do not show the reuse; empty when of none."""
    unknown, requests = sum(row.unknown_requests for row in rows), sum(row.requests for row in rows)
    if not unknown:
        return ""
    return (
        f"{number(unknown)} of {number(requests)} requests are not in the sums: the logs do not show their "
        "prompt length and reuse."
    )


def _tokens(value: float | None) -> str:
    return "-" if value is None else number(value)


def _time(ms: float | None) -> str:
    return "-" if ms is None else duration(ms)


Form = Literal["text", "json", "csv", "markdown"]
FORMATS: tuple[Form, ...] = get_args(Form)
_MOST = 40
"""Groups that a person reads; the other forms have all."""
_VALUES = StatsRow.__struct_fields__[1:]

_FORMULA = late(r"(;\s*)([=+@-])")


class StatsDocument(msgspec.Struct):
    """Sums over the requests of many logs. Unknown values are None."""

    schema: Literal["cachedoctor.stats/1"]
    tool: Tool
    inputs: list[StatsInput]
    tables: list[StatsTable]
    measured: list[MeasuredRow] = []
    """Servers whose logs have no requests. Added after the first release of v1."""


def write(form: Form, stats: Stats, out: IO[bytes], look: Appearance) -> None:
    """Write the sums in one of the forms."""
    forms: dict[Form, Callable[[Stats, Appearance], bytes]] = {
        "text": _text, "json": _json, "csv": _csv, "markdown": _markdown,
    }  # fmt: skip
    out.write(forms[form](sanitize.mask(stats), look))


def _text(stats: Stats, look: Appearance) -> bytes:
    text = io.StringIO()
    page = TextPage(text, look.width, look.color, look.ascii_only)
    for shown in _with_rows(stats):
        page.gap()
        rows = [MeasuredCells(row_name(row, shown.by), cells(row)) for row in shown.rows[:_MOST]]
        if text_table.fits(page.width, title(shown.by), HEADINGS, rows):
            text_table.show_table(page, title(shown.by), HEADINGS, rows)
        else:
            _blocks(page, shown)
        if len(shown.rows) > _MOST:
            page.prose([], f"and {count(len(shown.rows) - _MOST, 'group')} more; --format csv has all.", 0)
    if stats.measured:
        page.gap()
        rows = [MeasuredCells(measured_name(row), measured_cells(row)) for row in stats.measured[:_MOST]]
        if text_table.fits(page.width, MEASURED, MEASURED_HEADINGS, rows):
            text_table.show_table(page, MEASURED, MEASURED_HEADINGS, rows)
        else:
            _measured_rows(page, stats.measured[:_MOST])
    page.gap()
    note = unsaid(stats.tables[0].rows)
    if note:
        page.prose([], note, 0)
    page.prose([], _read(stats), 0)
    return look.encode(text.getvalue())


def _blocks(page: TextPage, shown: StatsTable) -> None:
    """Write a block of rows for each group, where the columns do not fit the screen side by side."""
    if shown.by is not None:
        page.row((title(shown.by), "bold"))
    for row in shown.rows[:_MOST]:
        name = title(None) if shown.by is None else row_name(row, shown.by)
        page.facts([(visible(name), "bold"), ": "], _first_words(row), _INDENT)
        for key, words in _block_rows(row):
            page.facts([f"  {key:<{_INDENT - 2}}"], words, _INDENT)


def _measured_rows(page: TextPage, found: list[MeasuredRow]) -> None:
    """Write a sentence for each group of servers, where the columns do not fit the screen side by side."""
    page.row((MEASURED, "bold"))
    for row in found:
        share = f"{percent(row.reuse, 1)} reused"
        if row.low is not None and row.high is not None:
            share += f" (95 % interval: {percent(row.low, 1)} to {percent(row.high, 1)})"
        prompt = "" if row.prompt_tokens is None else f" of {count(row.prompt_tokens, 'prompt token')}"
        noun = PIECES[row.piece]
        if row.pieces == 1:
            noun = noun.removesuffix("es" if row.piece == "batch" else "s")
        pieces = f"from {number(row.pieces)} {noun} of {count(row.servers, 'server')}"
        page.facts([(visible(measured_name(row)), "bold"), ": "], f"{share}{prompt}, {pieces}", _INDENT)


_INDENT = 13
"""Cells before the words of a block."""


def _first_words(row: StatsRow) -> str:
    words = count(row.requests, "request")
    if not row.prompt_tokens:
        return f"{words}, prompt tokens {UNKNOWN}" if row.prompt_tokens is None else f"{words}, 0 prompt tokens"
    share = percent(row.cached_tokens or 0, row.prompt_tokens)
    return f"{words}, {count(row.prompt_tokens, 'prompt token')}, {share} reused"


def _block_rows(row: StatsRow) -> list[tuple[str, str]]:
    """Word the other numbers of a group; what the logs do not show is left out."""
    spent = "" if row.prompt_ms is None else f" in {duration(row.prompt_ms)}"
    computed = [] if row.processed_tokens is None else [f"{count(row.processed_tokens, 'token')}{spent}"]
    computed += [] if row.speed_p50 is None else [f"{number(row.speed_p50)} tokens/s"]
    if row.prompt_ms_p50 is not None and row.prompt_ms_p90 is not None:
        computed.append(f"median {duration(row.prompt_ms_p50)}, p90 {duration(row.prompt_ms_p90)}")
    lost = [("clients changed", row.client_lost_tokens), ("the server lost", row.server_lost_tokens)]
    parts = [f"{who} {number(tokens)}" for who, tokens in lost if tokens is not None]
    avoidable = [] if row.avoidable_tokens is None else [count(row.avoidable_tokens, "token")]
    avoidable += [duration(row.avoidable_ms)] if row.avoidable_ms else []
    found = {
        "computed": computed,
        "lost": [f"of the cached tokens, {parts[0]}", *parts[1:]] if parts else [],
        "avoidable": avoidable,
    }
    return [(key, ", ".join(words)) for key, words in found.items() if words]


def _with_rows(stats: Stats) -> list[StatsTable]:
    """The tables of requests, unless there are only servers without any."""
    return [table for table in stats.tables if not stats.measured or any(row.requests for row in table.rows)]


def _read(stats: Stats) -> str:
    kinds = {kind: sum(i.kind == kind for i in stats.inputs) for kind in ("log", "report", "table")}
    words = ", ".join(count(number, kind) for kind, number in kinds.items() if number)
    failed = sum(i.error is not None for i in stats.inputs)
    return f"Read {words or 'nothing'}{f'; {failed:,} of them in part' if failed else ''}."


def _json(stats: Stats, _: Appearance) -> bytes:
    tool = Tool("cachedoctor", stats.tool_version)
    document = StatsDocument("cachedoctor.stats/1", tool, stats.inputs, stats.tables, stats.measured)
    return msgspec.json.encode(document) + b"\n"


def _csv(stats: Stats, _: Appearance) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["by", "group", *_VALUES])
    for shown in stats.tables:
        for row in shown.rows:
            writer.writerow([shown.by or "all", _unrun(row.group), *(getattr(row, name) for name in _VALUES)])
    for measured in stats.measured:
        kind = f"{measured.by or 'all'}, {PIECES[measured.piece]}"
        writer.writerow([kind, _unrun(measured.group), *(getattr(measured, name, None) for name in _VALUES)])
    return text.getvalue().encode("utf-8", "backslashreplace")


def _unrun(group: str | None) -> str | None:
    """What begins like a formula would be run by a spreadsheet, after a semicolon as well in many countries."""
    if group is None:
        return None
    seen = _FORMULA.sub(r"\1'\2", visible(group))
    return f"'{seen}" if seen.startswith(("=", "+", "-", "@")) else seen


def _markdown(stats: Stats, _: Appearance) -> bytes:
    parts = [_markdown_table(shown) for shown in _with_rows(stats)]
    if stats.measured:
        heads = [f"{h.name}, {h.unit}" if h.unit else h.name for h in MEASURED_HEADINGS]
        rows = [[cell(hidden(measured_name(r))), *measured_cells(r)] for r in stats.measured]
        parts.append(table([MEASURED, *heads], rows, 1))
    note = unsaid(stats.tables[0].rows)
    words = "\n\n".join([*parts, *([note] if note else []), _read(stats)])
    return (words + "\n").encode("utf-8", "backslashreplace")


def _markdown_table(shown: StatsTable) -> str:
    heads = [f"{h.name}, {h.unit}" if h.unit else h.name for h in HEADINGS]
    rows = [[cell(hidden(row_name(row, shown.by))), *cells(row)] for row in shown.rows]
    return table([title(shown.by), *heads], rows, 1)
