"""The JSON report, ``cachedoctor.report/1``: frozen wire types, written as a stream.

Knows the contract (docs/schemas/report-v1.schema.json). Only additions are allowed here. Knows nothing
of how a value came about.
"""

from __future__ import annotations

from typing import IO, Any

import msgspec

from cachedoctor.model import Report, Request, Session
from cachedoctor.report import quoted

SCHEMA = "cachedoctor.report/1"


class CheckpointsV1(msgspec.Struct):
    """Context checkpoints of a request; null where the build hides them."""

    tried: int | None
    restored: int | None
    created: int | None
    erased: int | None


class RequestV1(msgspec.Struct):
    """A row of ``requests``."""

    index: int
    session: int
    path: str
    slot: int
    task: int
    parent: int | None
    thread: int | None
    first_line: int
    last_line: int
    prompt_tokens: int | None
    cached_tokens: int | None
    processed_tokens: int | None
    generated_tokens: int | None
    derived: list[str]
    prompt_ms: float | None
    selected_by: str | None
    similarity: float | None
    f_keep: float | None
    common_prefix_tokens: int | None
    restored_from_ram: bool | None
    checkpoints: CheckpointsV1
    lost_tokens: int | None
    outcome: str
    partial: bool
    codes: list[str]
    expected_cached: int | None
    replay_missing: list[str]


_encoder = msgspec.json.Encoder()
_HIDDEN = CheckpointsV1(None, None, None, None)
"""Counts of a request whose log hides checkpoints."""


def encode_request(r: Request) -> bytes:
    """One request as a JSON object without newline."""
    checkpoints = _HIDDEN if r.tried is None else CheckpointsV1(r.tried, r.restored, r.created, r.erased)
    return _encoder.encode(
        RequestV1(
            r.index, r.session, r.path, r.slot, r.task, r.parent, r.thread, r.first_line, r.last_line,
            r.prompt_tokens, r.cached_tokens, r.processed_tokens, r.generated_tokens, r.derived, r.prompt_ms,
            r.selected_by, r.similarity, r.f_keep, r.common_prefix_tokens, r.restored_from_ram, checkpoints,
            r.lost_tokens, r.outcome, r.partial, r.codes, r.expected_cached, r.replay_missing,
        )
    )  # fmt: skip


_SESSION = (
    "index", "path", "origin", "engine", "build", "build_min", "build_max", "build_source", "model", "memory",
    "n_slots", "n_ctx_slot", "settings", "first_line", "last_line",
)  # fmt: skip


def _session(session: Session) -> dict[str, Any]:
    s = quoted.session(session)
    out = {name: getattr(s, name) for name in _SESSION}
    out["settings"] = {name: {"value": found.value, "line": found.line} for name, found in s.settings.items()}
    return out


def head(report: Report) -> dict[str, Any]:
    """What stands before the sessions."""
    return {
        "schema": SCHEMA,
        "tool": {"name": "cachedoctor", "version": report.tool_version},
        "interrupted": report.interrupted,
        "inputs": report.inputs,
    }


def tail(report: Report) -> dict[str, Any]:
    """Everything of the report that stands after the requests."""
    return {
        "samples": [],
        "batches": [],
        "findings": quoted.findings(report),
        "not_evaluated": report.not_evaluated,
        "rules": report.rules,
        "restart": report.restart,
    }


def render(report: Report, out: IO[bytes]) -> None:
    """Write the report to ``out``; sessions and requests stream through."""
    report.requests.check()  # now, because half a report is worse than none
    before, after = msgspec.json.encode(head(report)), msgspec.json.encode(tail(report))
    out.write(before[:-1] + b',"sessions":[')
    for at, session in enumerate(report.sessions):
        out.write(b"," * (at > 0) + _encoder.encode(_session(session)))
    out.write(b'],"totals":' + _encoder.encode(report.totals) + b',"requests":[\n')
    report.requests.copy_to(out)
    out.write(b"\n]," + after[1:] + b"\n")
