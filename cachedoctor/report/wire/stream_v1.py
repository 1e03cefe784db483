"""The stream, ``cachedoctor.stream/1``: one JSON object per line, frozen like the report.

Written as things happen by ``doctor/analysis/event_stream.py``, or from a report by ``write``, then without events.
Covers the contract (docs/schemas/stream-v1.schema.json). Only additions are allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import msgspec

from cachedoctor.model import CacheSample, Finding, InputInfo, PrefillBatch, Report, Session
from cachedoctor.redaction import sanitize
from cachedoctor.redaction.sanitize import ShownReport
from cachedoctor.report.base import Appearance
from cachedoctor.report.wire import report_v1

SCHEMA = "cachedoctor.stream/1"

_encoder = msgspec.json.Encoder()


def _line(kind: str, **values: Any) -> bytes:
    return _encoder.encode({"type": kind, **values}) + b"\n"


def _typed(kind: str, encoded: bytes) -> bytes:
    """Put the type before an encoded object that has keys."""
    return b'{"type":"%b",%b\n' % (kind.encode(), encoded[1:])


def start(version: str) -> bytes:
    """Give the first line."""
    return _line("start", schema=SCHEMA, tool={"name": "cachedoctor", "version": version})


def opened(index: int, info: InputInfo) -> bytes:
    """Give the line of an input: what was read of it so far."""
    return _line("input", index=index, **msgspec.structs.asdict(sanitize.mask(info)))


def session(shown: Session) -> bytes:
    """Give the line of a session: what is known of it so far."""
    return _typed("session", _encoder.encode(report_v1.session(sanitize.mask(shown))))


def event(
    path: str,
    line: int,
    origin: str | None,
    session: int | None,
    slot: int,
    task: int,
    message: str,
    fields: dict[str, Any],
) -> bytes:
    """Give the line of an event; ``slot`` and ``task`` are -1 where the log names none."""
    shown = origin and sanitize.name(origin)
    return _line(
        "event", path=path, line=line, origin=shown, session=session, slot=None if slot < 0 else slot,
        task=None if task < 0 else task, message=message, fields=sanitize.fields(fields),
    )  # fmt: skip


def request(encoded: bytes) -> bytes:
    """Give the line of a request from what the JSON report would list."""
    return _typed("request", encoded)


def sample(row: CacheSample) -> bytes:
    """Give the line of a sample of vLLM."""
    return _typed("sample", report_v1.encode_row(row))


def batch(row: PrefillBatch) -> bytes:
    """Give the line of a batch of SGLang."""
    return _typed("batch", report_v1.encode_row(row))


def finding(shown: Finding, final: bool) -> bytes:
    """Give the line of a finding; ``final``: nothing is added to its numbers any more."""
    return _finding(sanitize.mask(shown), final)


def _finding(shown: Finding, final: bool) -> bytes:
    """Give the line of a finding that is as it may be shown."""
    return _line("finding", final=final, **msgspec.structs.asdict(shown))


def close(report: Report) -> Iterator[bytes]:
    """Yield the lines after the last event: everything as it is in the end, and the summary.

    Of the requests only those that ``report`` still holds.
    """
    for index, info in enumerate(report.inputs):
        yield opened(index, info)
    for found in report.sessions:
        yield session(found)
    for encoded in report.requests.lines():
        yield request(encoded)
    for kind, rows in (("sample", report.samples), ("batch", report.batches)):
        for encoded in rows.lines() if rows is not None else ():
            yield _typed(kind, encoded)
    shown = sanitize.mask(report)
    for one in shown.findings:
        yield _finding(one, True)
    for rule in shown.not_evaluated:
        yield _line("not_evaluated", **msgspec.structs.asdict(rule))
    rest = report_v1.declared(shown, "clients")
    del rest["filtered"], rest["unknown"]
    yield _line(
        "summary", interrupted=report.interrupted, totals=report.totals, inputs=len(report.inputs),
        sessions=len(report.sessions), requests=sum(s.n_requests for s in report.sessions),
        findings=len(report.findings), not_evaluated=len(report.not_evaluated), **rest,
    )  # fmt: skip


def write(report: ShownReport, out: IO[bytes], _: Appearance) -> None:
    """Write what a report holds; it has no events."""
    report.requests.check()
    out.write(start(report.tool_version))
    out.writelines(close(report))
