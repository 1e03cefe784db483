"""Values that no server means, wherever a log, a dump or a response has a number or a quoted word; and all outputs.

Every output is held against its contract, and the JSON report is read back and written in every other format.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from schemas import schema_of

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.event_stream import EventStream
from cachedoctor.doctor.extras.extra_inputs import ExtraInputs
from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.doctor.tables.tables import Listing
from cachedoctor.engines.sglang.messages import ROWS as SGLANG
from cachedoctor.engines.vllm.messages import ROWS as VLLM
from cachedoctor.inputs.metrics import dump as dump_spans
from cachedoctor.inputs.metrics import dumps, responses
from cachedoctor.model import CacheDoctorError, Report
from cachedoctor.report.base import FORMATS, Appearance, write
from cachedoctor.report.wire import stored
from fuzz import seeds

VALUES = [
    b"0", b"-1", b"1", b"-0", b"-9999999999", b"-9223372036854775809", b"2147483648", b"9999999999", b"10000000000",
    b"999999999999999", b"9007199254740993", b"9223372036854775808", b"18446744073709551616", b"9" * 400,
    b"-" + b"9" * 400, b"nan", b"-nan", b"-nan(ind)", b"inf", b"-inf", b"1e308", b"-1e308", b"1e999", b"1e-320",
    b"0.0", b"0.000", b"1.000", b"-1.000", b"1.001", b"99999999.999", b"0.0000000000000000000001", b"9" * 400 + b".5",
    b"1.2.3", b"None", b"", b"a\\ud83d", b"\\ude00\\ud83d", b"\\\\ud83d", b"\\ud83d\\ude00", b"\xed\xa0\xbd",
    b"\\u0000", b"\\x00", b"\x00", b"\xd9\xa3", b"0x7fffffff", b"1,234", b"9,999,999,999,999",
]  # fmt: skip
"""Numbers of every size, and lone surrogates."""
MOST = 16
"""Values planted in one input."""
_PLACE = re.compile(rb"-?\d+(?:\.\d+)?|(?<=[\"'=])[A-Za-z/][\w./-]{0,60}(?=[\"'])")
_LOOK = Appearance(width=80)


class Base(NamedTuple):
    """A sound text, and where its values stand."""

    text: bytes
    places: list[tuple[int, int]]


def _base(text: bytes) -> Base:
    return Base(text, [found.span() for found in _PLACE.finditer(text)])


@cache
def logs() -> list[Base]:
    """Logs of every engine, bare and wrapped, and a sample of every message of those that log no requests."""
    measured = sorted((seeds.FIXTURES / "measured").glob("*.log"))
    small = [path.read_bytes() for path in measured if path.stat().st_size < 30_000]
    rows = ["".join(f"{row.sample}\n" for row in catalogue).encode() for catalogue in (SGLANG, VLLM)]
    return [_base(text) for text in [*(log for log in seeds.logs() if len(log) < 30_000), *small, *rows]]


@cache
def extras() -> list[tuple[Base, Base]]:
    """A dump of counters, and responses."""
    return [(_base(dump), _base(told)) for dump in seeds.metrics()[:4] for told in seeds.responses()[:2]]


def check(data: bytes) -> None:
    """Two bytes choose a log and what is beside it; four each choose a place, a value, and how it is planted there."""
    if len(data) < 6:
        return
    base = logs()[data[0] % len(logs())]
    groups = [data[at : at + 4] for at in range(2, len(data) - 3, 4)][:MOST]
    log = _planted(base, groups)
    beside = None
    if data[1] % 8 == 0:
        dump, told = extras()[data[1] // 8 % len(extras())]
        beside = _extras(_planted(dump, groups), _planted(told, groups))
    outputs(log, beside)


_NUMBERS = (b"0", b"1", b"2", b"999", b"123456789", b"9999999999", b"null", b"-1", b"0.5", b"1e-9", b"[]")
_TEXTS = (
    b'""',
    b'"x"',
    b"null",
    b'"--11-20T12:00:00"',
    b'"2026-11-20T12:00:00Z"',
    b'"</script>|`_[x](y)"',
    b'"\\u001b[31m"',
)
_VALUE = re.compile(rb'(?<=[:,\[])(?:-?\d+(?:\.\d+)?(?:e-?\d+)?|null|true|false|"(?:[^"\\]|\\.)*+")(?=[,\]}])')


@cache
def _stored() -> list[Base]:
    """JSON reports of small logs, of every engine some."""
    made = []
    for base in logs()[::3]:
        analyzer, out = Analyzer(), io.BytesIO()
        analyzer.open("server.log")
        analyzer.feed(base.text)
        write("json", analyzer.finish(), out, _LOOK)
        text = out.getvalue()
        made.append(Base(text, [found.span() for found in _VALUE.finditer(text)]))
    return made


def report(data: bytes) -> bytes:
    """A JSON report: two bytes choose it, four each a value in it and what is in its place."""
    base = _stored()[data[0] % len(_stored())]
    groups = [data[at : at + 4] for at in range(2, len(data) - 3, 4)][: 1 + data[1] % 4]
    chosen = {int.from_bytes(group[:2], "little") % len(base.places): group for group in groups}
    text = bytearray(base.text)
    for index in sorted(chosen, reverse=True):
        start, end = base.places[index]
        values = _TEXTS if text[start : start + 1] == b'"' else _NUMBERS
        text[start:end] = values[chosen[index][2] % len(values)]
    return bytes(text)


def outputs(log: bytes, beside: ExtraInputs | None = None) -> None:
    """Write all that can be written of a log, and read it back."""
    _reports(log, beside)
    _stream(log)
    _others(log)


def _planted(base: Base, groups: list[bytes]) -> bytes:
    """Plant a value at each of the places, from the last to the first."""
    chosen = {int.from_bytes(group[:2], "little") % len(base.places): group for group in groups}
    text = bytearray(base.text)
    for index in sorted(chosen, reverse=True):
        start, end = base.places[index]
        value, way = VALUES[chosen[index][2] % len(VALUES)], chosen[index][3] % 4
        if way < 2:
            text[start:end] = value
            continue
        begin = text.rfind(b"\n", 0, start) + 1
        stop = text.find(b"\n", end)
        stop = len(text) if stop < 0 else stop
        line = text[begin:start] + value + text[end:stop]
        if way == 3:  # as a line of a prompt that the server printed
            line = b"0.00.637.407 W slot   operator(): id  0 | task 9 | old: ... a | b\n" + line
        text[begin:begin] = line + b"\n"
    return bytes(text)


def _extras(dump: bytes, told: bytes) -> ExtraInputs | None:
    try:
        return ExtraInputs(
            dump_spans.lives(dumps.servers([dump], "metrics.txt")), [responses.read([told], "usage.json")]
        )
    except CacheDoctorError:
        return None


def _reports(log: bytes, beside: ExtraInputs | None) -> None:
    analyzer, out = Analyzer(extras=beside), io.BytesIO()
    analyzer.open("server.log")
    analyzer.feed(log)
    report = analyzer.finish()
    _sound(analyzer, report)
    write("json", report, out, _LOOK)
    schema_of("report").validate(_document(out.getvalue()))
    again = stored.read(out.getvalue(), "report.json")
    for name in FORMATS:
        if name != "jsonl":
            write(name, report, io.BytesIO(), _LOOK)
            write(name, again, io.BytesIO(), _LOOK)


def _stream(log: bytes) -> None:
    told = EventStream()
    analyzer = Analyzer(listener=told)
    analyzer.open("server.log")
    analyzer.feed(log)
    report = analyzer.finish()
    lines = b"".join(told.close(report)).splitlines()
    _sound(analyzer, report)
    for line in lines:
        found = _document(line)
        schema_of("stream", found["type"]).validate(found)


def _others(log: bytes) -> None:
    """A redacted log, and the table of events."""
    redactor, listing = Redactor(), Listing("server.log")
    (redactor.feed(log) + redactor.finish()).decode()
    for row in _rows(listing, log):
        _document(row)


def _rows(listing: Listing, log: bytes) -> Iterator[bytes]:
    yield from listing.feed(log)
    yield from listing.finish()


def _sound(analyzer: Analyzer, report: Report) -> None:
    failed = [f"{left.code}: {left.reason}" for left in report.not_evaluated if "failed" in left.reason]
    assert not analyzer.crashed, [*failed, *(info.error for info in report.inputs)]


def _document(text: bytes) -> Any:
    return json.loads(text.decode("utf-8", "strict"), parse_constant=_refused)


def _refused(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")
