"""The JSON report, ``cachedoctor.report/1``: frozen, and written as a stream.

The wire form of a request is ``model.RequestRow``. Covers the contract (docs/schemas/report-v1.schema.json). Only
additions are allowed.
"""

from __future__ import annotations

from operator import attrgetter
from typing import IO, Any

import msgspec

from cachedoctor.diagnosis.account.asking import asker
from cachedoctor.diagnosis.account.from_numbers import lost_elsewhere, slot_taken
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import (
    CacheSample,
    CheckpointRow,
    Judged,
    Period,
    PrefillBatch,
    Report,
    Request,
    RequestRow,
    Session,
    causes,
)
from cachedoctor.model.report import DECLARED
from cachedoctor.redaction import sanitize
from cachedoctor.redaction.sanitize import ShownReport
from cachedoctor.report.base import Appearance

SCHEMA = "cachedoctor.report/1"


_encoder = msgspec.json.Encoder()
_HIDDEN = CheckpointRow(None, None, None, None)
"""Counts of a request whose log hides checkpoints."""
_UPTIME = late(rb"\d{1,9}\.\d\d\.\d\d\d\.\d\d\d(?= )")


def encode_request(judged: Judged) -> bytes:
    """One request as a JSON object without newline."""
    r, said = judged.request, judged.verdict
    seen, thread, before = r.seen, r.thread, r.before
    lost, derived = r.lost_tokens, r.derived
    choice, asked = seen.choice, seen.asked
    client, server = _split(judged) if lost else (r.lost_client, r.lost_server)
    nobody = asked.client is None and asked.endpoint is None and judged.asker is None
    who = None if nobody else asker(judged)
    bounds, at_least = r.bounds if r.between or r.prefix_between else {}, r.at_least if r.between else {}
    hidden = not lost and not r.checkpoints_shown and seen.tried is None
    checkpoints = _HIDDEN if hidden else _checkpoints(r)
    return _encoder.encode(
        RequestRow(
            r.index, r.session, r.path, r.slot, r.task, r.parent, thread, r.first_line - before, r.last_line - before,
            r.prompt_tokens, r.cached_tokens, r.processed_tokens, r.generated_tokens, [*derived], r.prompt_ms,
            choice.selected_by, r.similarity, r.f_keep, r.common_prefix_tokens, r.restored_from_ram, checkpoints,
            lost, r.outcome, r.partial,
            said.codes, said.expected_cached, said.replay_missing,  # type: ignore[arg-type]  # tuples are written as lists
            None if thread is None else r.thread_turn, r.reference_tokens, r.held_tokens,
            client, server, choice.saved is not None, asked.time, _uptime(r), asked.client,
            asked.endpoint and sanitize.name(asked.endpoint),
            said.avoidable_tokens, said.avoidable_ns / 1e6, derived, bounds,
            at_least, None if who is None else who.by, None if who is None else sanitize.name(who.name),
        )
    )  # fmt: skip


def encode_row(row: CacheSample | PrefillBatch) -> bytes:
    """One sample or batch as a JSON object without newline."""
    by = row.rank if isinstance(row, PrefillBatch) else row.engine
    return _encoder.encode(row if sanitize.is_shown(by) else sanitize.mask(row))


def _split(judged: Judged) -> tuple[int | None, int | None]:
    """Of a request that lost tokens those that the client changed, and those that the server could not reuse.

    Where the slot held another conversation, what it shares with the prompt says nothing of the client.
    """
    r = judged.request
    if r.reference_tokens is None or not slot_taken(r):
        return r.lost_client, r.lost_server
    return lost_elsewhere(judged, r.reference_tokens, r.lost_tokens or 0) or (None, None)


def _uptime(r: Request) -> float | None:
    """Milliseconds from ``M.SS.mmm.uuu``; minutes are unbounded."""
    start = r.marks.get("start")
    found = None if start is None else _UPTIME.match(start.text)
    if found is None:
        return None
    clock = int(found[0].replace(b".", b""))
    return clock // 10**8 * 60_000 + clock % 10**8 // 1000 + clock % 1000 / 1000


_span_of = attrgetter("pos_min", "pos_max")


def _checkpoints(r: Request) -> CheckpointRow:
    seen = r.seen
    held = sorted({*map(_span_of, seen.checks), *seen.held_positions}) if r.lost_tokens else []
    if r.checkpoints_shown:
        return CheckpointRow(
            seen.tried or 0, seen.restored or 0, seen.created or 0, seen.erased or 0, held, seen.restored_at
        )
    if seen.tried is None:
        return CheckpointRow(None, None, None, None, held, seen.restored_at)
    return CheckpointRow(seen.tried, seen.restored, seen.created, seen.erased, held, seen.restored_at)


_SESSION = (
    "index", "path", "origin", "engine", "build", "build_min", "build_max", "build_source", "model", "memory",
    "n_slots", "n_ctx_slot", "settings", "first_line", "last_line", "n_requests", "version", "version_min",
    "version_max", "counters", "answers",
)  # fmt: skip


def session(s: Session) -> dict[str, Any]:
    """One session, as it may be shown, with the keys of the contract."""
    out = {name: getattr(s, name) for name in _SESSION}
    out["settings"] = {name: {"value": found.value, "line": found.line} for name, found in s.settings.items()}
    if s.program is not None:
        out["program"] = s.program
    out["periods"] = [_period(period) for period in s.periods]
    if s.kv_events:
        out["kv_events"] = s.kv_events
    return out


def _period(period: Period) -> dict[str, Any]:
    """A period without its lines: those that prove something are in findings."""
    out: dict[str, Any] = msgspec.to_builtins(period)
    del out["marks"]
    return out


def head(report: Report) -> dict[str, Any]:
    """What comes before the sessions."""
    return {
        "schema": SCHEMA,
        "tool": {"name": "cachedoctor", "version": report.tool_version},
        "interrupted": report.interrupted,
        "inputs": report.inputs,
    }


def declared(report: Report, causes_before: str) -> dict[str, Any]:
    """The fields that are written as ``Report`` declares them, and the causes of its findings."""
    out: dict[str, Any] = {}
    for name in DECLARED:
        if name == causes_before:
            out["causes"] = causes(report.findings)
        out[name] = getattr(report, name)
    return out


def tail(report: Report) -> dict[str, Any]:
    """Everything of the report that stands after the requests."""
    out = {"findings": report.findings, "not_evaluated": report.not_evaluated, "rules": report.rules}
    out |= declared(report, "slowest")
    if report.unknown is None:
        del out["unknown"]
    return out


def render(report: ShownReport, out: IO[bytes]) -> None:
    """Write the report to ``out``; sessions and requests stream through."""
    report.requests.check()  # now, because half a report is worse than none
    before, after = msgspec.json.encode(head(report)), msgspec.json.encode(tail(report))
    out.write(before[:-1] + b',"sessions":[')
    for at, found in enumerate(report.sessions):
        out.write(b"," * (at > 0) + _encoder.encode(session(found)))
    out.write(b'],"totals":' + _encoder.encode(report.totals) + b',"requests":[\n')
    report.requests.copy_to(out)
    out.write(b"\n]")
    for name, rows in (("samples", report.samples), ("batches", report.batches)):
        out.write(b',"%b":[' % name.encode())
        for at, row in enumerate(rows.lines() if rows is not None else ()):
            out.write(b",\n" * (at > 0) + row)
        out.write(b"]")
    out.write(b"," + after[1:] + b"\n")


def write(report: ShownReport, out: IO[bytes], _: Appearance) -> None:
    """Write the report; JSON looks the same everywhere."""
    render(report, out)
