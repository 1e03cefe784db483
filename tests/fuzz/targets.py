"""What readers hold for any bytes: nothing raises but the faults that a user can fix, and no cut changes a report.

A target takes bytes and raises ``AssertionError`` or whatever the code raised.
"""

from __future__ import annotations

import io
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from cachedoctor.cli import settings as read_settings
from cachedoctor.diagnosis.account.from_kv_events import KvFold
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.compare import compare as comparing
from cachedoctor.doctor.explain.explain import explain as explained
from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
from cachedoctor.doctor.fixing import patches
from cachedoctor.doctor.fixing.fixes import StartInfo, fixes
from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.doctor.tables.tables import Listing
from cachedoctor.inputs.envelope import Unwrapper
from cachedoctor.inputs.metrics import dump as dump_spans
from cachedoctor.inputs.metrics import dumps, kv_messages
from cachedoctor.inputs.metrics import dumps as prometheus_range
from cachedoctor.inputs.metrics.dump import Dump
from cachedoctor.inputs.metrics.kv_messages import Blinder
from cachedoctor.inputs.metrics.responses import ResponseFile
from cachedoctor.inputs.metrics.responses import read as read_responses
from cachedoctor.inputs.sources.base import SourceError
from cachedoctor.inputs.sources.unpack import unpacked, utf8
from cachedoctor.knowledge.cmdline import parse
from cachedoctor.model import CacheDoctorError, KvEvents, PromptDiff, as_typed
from cachedoctor.model.bounds import MOST as MANY
from cachedoctor.model.kv_events import KvLine
from cachedoctor.prompts import compare_prompts, inputs
from cachedoctor.prompts.confined_worker import from_path
from cachedoctor.prompts.render import render
from cachedoctor.prompts.request_bodies import kind_of, prompts_of
from cachedoctor.prompts.tokenizers import base
from cachedoctor.redaction import sanitize
from cachedoctor.report.base import FORMATS, Appearance, write
from cachedoctor.report.forms import compare_forms, fix_forms
from cachedoctor.report.launchers.forms import LaunchRequest
from cachedoctor.report.text import diff_text, explain_text, text_report
from cachedoctor.report.text.text_safe import visible
from cachedoctor.report.wire import diff_v1, line_v1, report_v1, stored
from fuzz import http_heads, planted, seeds, start_files

MOST = 200_000
"""Bytes of unpacked data in one run: enough for every path, little enough for many runs."""
_SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def cuts_of(data: bytes, most: int = 6) -> list[bytes]:
    """``data`` in pieces, cut at places that follow from it."""
    rng = random.Random(len(data) * 65_537 + sum(data[:4096]))
    bounds = sorted(rng.sample(range(1, len(data)), min(most, len(data) - 1))) if len(data) > 1 else []
    return [data[a:b] for a, b in zip([0, *bounds], [*bounds, len(data)], strict=True)]


def shown(page: str) -> None:
    """Text for a terminal holds no character that could control it."""
    rows = page.split("\n")
    assert all(visible(row) == row for row in rows), next(row for row in rows if visible(row) != row)


def _reported(pieces: list[bytes], cmdline: str | None = None) -> tuple[bytes, str]:
    analyzer, out, page = Analyzer(given=parse(cmdline) if cmdline else None), io.BytesIO(), io.StringIO()
    analyzer.open("server.log")
    for piece in pieces:
        analyzer.feed(piece)
    report = analyzer.finish()
    assert not analyzer.crashed, [rule for rule in report.not_evaluated if "failed" in rule.reason]
    report_v1.render(sanitize.report(report), out)
    text_report.render(sanitize.report(report), page, 80)
    return out.getvalue(), page.getvalue()


def log(data: bytes) -> None:
    """A log gives a report, the same however it is cut."""
    whole, page = _reported([data])
    json.loads(whole)
    shown(page)
    assert _reported(cuts_of(data)) == (whole, page)
    lines = data.splitlines(keepends=True)
    if len(lines) < 400:
        assert _reported(lines) == (whole, page)


def rows(data: bytes) -> None:
    """A redacted log and the table of events are the same however the log is cut."""

    def redacted(pieces: list[bytes]) -> bytes:
        redactor = Redactor()
        return b"".join(map(redactor.feed, pieces)) + redactor.finish()

    def listed(pieces: list[bytes]) -> list[bytes]:
        listing = Listing("server.log")
        return [*(row for piece in pieces for row in listing.feed(piece)), *listing.finish()]

    whole, table = redacted([data]), listed([data])
    for pieces in (cuts_of(data), data.splitlines(keepends=True)):
        assert redacted(pieces) == whole
        assert listed(pieces) == table


def messages(data: bytes) -> None:
    """Lines of the catalogue in any order, with any bytes in them: two bytes name a row, the next change it."""
    lines = []
    for at in range(0, len(data) - 3, 4):
        line = bytearray(_SAMPLES[int.from_bytes(data[at : at + 2], "little") % len(_SAMPLES)])
        if data[at + 2] < 128 and line:
            line[data[at + 2] % len(line)] = data[at + 3]
        lines.append(bytes(line))
    log(b"\n".join(lines) + b"\n")


_SAMPLES = seeds.messages()


def envelope(data: bytes) -> None:
    """Wrapped lines give bodies, the same whichever lines come together."""

    def bodies(pieces: list[bytes]) -> dict[str | None, list[tuple[int, bytes]]]:
        unwrapper, number, found = Unwrapper(), 1, {}
        segments = []
        for piece in pieces:
            segments += unwrapper.feed(piece, number)
            number += piece.count(b"\n")
        for segment in [*segments, *unwrapper.flush()]:
            assert segment.data.endswith(b"\n")
            for index, body in enumerate(segment.data[:-1].split(b"\n")):
                found.setdefault(segment.origin, []).append((segment.number(index), body))
        return found

    data += b"\n"
    assert bodies([data]) == bodies([line + b"\n" for line in data[:-1].split(b"\n")])


def line(data: bytes) -> None:
    """A line is explained or it is not."""
    for answer in explained(data[:20_000]):
        page, out = io.StringIO(), io.BytesIO()
        explain_text.render_line(answer, page, 80)
        line_v1.render(answer, out, "0")
        shown(page.getvalue())
        json.loads(out.getvalue())


def source(data: bytes) -> None:
    """Packed bytes are unpacked as far as they are sound, up to a limit."""

    def drained(pieces: list[bytes]) -> tuple[bytes, bool]:
        got: list[bytes] = []
        try:
            for chunk in utf8(unpacked("f", iter(pieces), MOST)):
                assert len(chunk) <= 1 << 20
                got.append(chunk)
        except SourceError as fault:
            one_line(fault)
            return b"".join(got), True
        return b"".join(got), False

    plain, failed = drained([data])
    assert len(plain) <= max(2 * len(data), 2 * MOST)
    again, failed_again = drained(cuts_of(data))
    assert failed == failed_again
    assert failed or again == plain


def prompts(data: bytes) -> None:
    """A file is prompts, or an error in one line."""
    _parsed(data)


def _parsed(data: bytes) -> list[inputs.Prompt]:
    try:
        return inputs.parse(data, "f", reply=True)
    except CacheDoctorError as error:
        one_line(error)
        return []


def diff(data: bytes) -> None:
    """Two prompts, parted by a NUL, are compared."""
    first, _, second = data.partition(b"\0")
    cutter = base.pieces()
    for a, b in zip(_parsed(first)[:3], _parsed(second)[:3], strict=False):
        found = compare_prompts.compare(a, b, cutter, compare_prompts.DiffOptions(full=True))
        for answer in (found, compare_prompts.hashed(found)):
            _write_diff(answer)


def _write_diff(answer: PromptDiff) -> None:
    page, out = io.StringIO(), io.BytesIO()
    diff_text.render(answer, page, 80)
    diff_v1.render([answer], out, "0")
    shown(page.getvalue())
    json.loads(out.getvalue())


def beside(data: bytes) -> None:
    """Prompts beside a log."""
    with _file(data, ".jsonl") as path:
        try:
            given = GivenPrompts([str(path)])
        except CacheDoctorError:
            return
    analyzer, out = Analyzer(prompts=given), io.BytesIO()
    analyzer.open("server.log")
    analyzer.feed(_LOG)
    report_v1.render(sanitize.report(analyzer.finish()), out)
    assert not analyzer.crashed


_LOG = (seeds.FIXTURES / "cases" / "requests-tools-reordered" / "server.log").read_bytes()


def metrics(data: bytes) -> None:
    """A dump gives counters that have not run backwards, however it is cut, or is refused."""
    found = _counted([data])
    assert _counted(cuts_of(data)) == found
    lives = [life for server in dump_spans.lives([*found, *_counted([_DUMP]), *found]) for life in server]
    for counted in (counted for life in lives for counted in life):
        numbers = [value for value in msgspec.structs.astuple(counted) if isinstance(value, int)]
        assert all(0 <= value <= MANY for value in numbers), counted


def _counted(pieces: list[bytes]) -> list[Dump]:
    try:
        return dumps.servers(pieces, "f")
    except CacheDoctorError as error:
        one_line(error)
        return []


_DUMP = seeds.metrics()[0]


def kv_events(data: bytes) -> None:
    """A recording adds up, however it is cut; a message of anything is a line that can be read back, or none."""
    found = _recorded([data])
    assert _recorded(cuts_of(data)) == found
    if found is not None:
        rows = (found.new, found.evicted, found.emptied, found.changed, found.salted, found.routed, found.present)
        assert sum(rows) == found.stored
    message = _BLINDER.message([b"", bytes(8), data], 0)
    if message is not None:
        assert msgspec.json.decode(msgspec.json.encode(message), type=KvLine) == message


def _recorded(pieces: list[bytes]) -> KvEvents | None:
    try:
        return KvFold("f").take(kv_messages.lines(pieces, "f"))
    except CacheDoctorError as error:
        one_line(error)
        return None


_BLINDER = Blinder(bytes(32))


def prometheus(data: bytes) -> None:
    """An answer of Prometheus gives dumps that can be counted, or is an error in one line."""
    try:
        moments = prometheus_range.moments(data, "f")
    except CacheDoctorError as error:
        one_line(error)
        return
    found = [dump for moment, exposition in moments for dump in dumps.of(exposition, f"f at {moment}")]
    for dump in found:
        dump.asked = "f"
    lives = [life for server in dump_spans.lives(found) for life in server]
    for counted in (counted for life in lives for counted in life):
        numbers = [value for value in msgspec.structs.astuple(counted) if isinstance(value, int)]
        assert all(0 <= value <= MANY for value in numbers), counted


def responses(data: bytes) -> None:
    """Responses are answers that add up, however they are cut, or an error in one line."""
    found = _answered([data])
    assert _answered(cuts_of(data)) == found
    if found is not None:
        told = [answer for answer in found.answers.each if answer.cached_tokens is not None]
        assert found.answers.requests == len(found.answers.each)
        assert found.answers.cached_tokens == sum(answer.cached_tokens or 0 for answer in told)
        assert all(0 <= (answer.cached_tokens or 0) <= answer.prompt_tokens <= MANY for answer in found.answers.each)


def _answered(pieces: list[bytes]) -> ResponseFile | None:
    try:
        return read_responses(pieces, "f")
    except CacheDoctorError as error:
        one_line(error)
        return None


def tokenizer(data: bytes) -> None:
    """A tokenizer cuts text into pieces that begin in order, or is refused."""
    with _file(data, ".gguf" if data.startswith(b"GGUF") else ".json") as path:
        try:
            made = from_path(str(path))
            for sample in ("Hello  world, 12\n\u65e5\u672c <|im_start|> \x00", "", " a"):
                tokens = made.encode(sample)
                assert tokens.starts == sorted(tokens.starts)
                assert len(tokens.ids) == len(tokens.starts)
        except CacheDoctorError as error:
            one_line(error)


def template(data: bytes) -> None:
    """A chat template renders, or fails with a word."""
    body = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    kind = kind_of(body)
    assert kind is not None
    with _file(data, ".jinja") as path:
        try:
            render.with_template(prompts_of(body, kind, "f")[0], render.chat_template(str(path)))
        except CacheDoctorError as error:
            one_line(error)


def cmdline(data: bytes) -> None:
    """A command line is read, or refused."""
    line = data.decode("utf-8", "replace")
    try:
        parse(line)
    except CacheDoctorError as error:
        one_line(error)
        return
    report, page = _reported([_LOG], line)
    json.loads(report)
    shown(page)


def launcher(data: bytes) -> None:
    """What starts a server is patched or refused, and a patched one needs no patch; the first line names the file."""
    name, _, text = data.partition(b"\n")
    suffix = next((end for end in (".yaml", ".service") if name.endswith(end.encode())), ".sh")
    asked = LaunchRequest(as_typed("--parallel 4 --cache-ram 256 LLAMA_ARG_CTX_SIZE=5"), low=8672, high=8672)
    with _file(text, suffix) as path:
        try:
            old = patches.read(str(path)).replace("\r\n", "\n")
            new = patches.edited(old, str(path), None, asked)
        except CacheDoctorError as error:
            one_line(error)
            return
    assert patches.edited(new, str(path), None, asked) == new


def settings(data: bytes) -> None:
    """A file of settings is read, or refused."""
    with _file(data, ".toml") as path:
        try:
            read_settings.read_file(path)
        except CacheDoctorError as error:
            one_line(error)


def report(data: bytes) -> None:
    """A report is read back and written in every format, compared and fixed, or refused: values changed in it."""
    if len(data) < 6:
        return
    text = planted.report(data)
    try:
        found = stored.read(text, "report.json")
    except CacheDoctorError as error:
        one_line(error)
        return
    for name in FORMATS:
        out = io.BytesIO()
        write(name, found, out, Appearance(width=80))
        if name == "text":
            shown(out.getvalue().decode())
    fix_forms.text(fixes(found.findings, found.sessions, found.inputs, StartInfo("compose")))
    compared = comparing.compare(found, stored.read(text, "report.json"), ("a", "b"))
    if compared is not None:
        compare_forms.write("markdown", compared, io.BytesIO(), Appearance(width=80))


def one_line(error: CacheDoctorError) -> None:
    """An error is one line, whatever it quotes."""
    assert "\n" not in visible(f"{error.message} {error.hint}")
    assert error.exit_code == 2


class _file:  # noqa: N801  # used like a function
    """``data`` as a file for the time of a ``with`` block."""

    def __init__(self, data: bytes, suffix: str) -> None:
        handle, name = tempfile.mkstemp(suffix, dir=_SCRATCH)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        self._path = Path(name)

    def __enter__(self) -> Path:
        return self._path

    def __exit__(self, *_: object) -> None:
        self._path.unlink()


class Target(NamedTuple):
    """A reader, and sound inputs for it."""

    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


def _indices(count: int = 1) -> list[bytes]:
    rng = random.Random(5)
    return [rng.randbytes(4 * size) for size in (8, 40, 120) * count]


TARGETS = {
    "log": Target(log, seeds.logs),
    "rows": Target(rows, seeds.logs),
    "messages": Target(messages, _indices),
    "planted": Target(planted.check, lambda: _indices(6)),
    "envelope": Target(envelope, seeds.logs),
    "line": Target(line, seeds.messages),
    "source": Target(source, seeds.packed),
    "prompts": Target(prompts, seeds.prompts),
    "diff": Target(diff, seeds.pairs),
    "beside": Target(beside, seeds.prompts),
    "metrics": Target(metrics, seeds.metrics),
    "prometheus": Target(prometheus, seeds.ranges),
    "kv_events": Target(kv_events, seeds.kv_events),
    "responses": Target(responses, seeds.responses),
    "tokenizer": Target(tokenizer, lambda: [*seeds.tokenizers(), *seeds.models()]),
    "template": Target(template, seeds.templates),
    "cmdline": Target(cmdline, seeds.cmdlines),
    "launcher": Target(launcher, seeds.launchers),
    "fix_file": Target(start_files.check, lambda: _indices(6)),
    "settings": Target(settings, seeds.settings),
    "report": Target(report, lambda: _indices(6)),
    "request_head": Target(http_heads.request_head, http_heads.requests),
    "request_target": Target(http_heads.request_target, http_heads.targets),
    "response_head": Target(http_heads.response_head, http_heads.responses),
}


# ---- changes that a reader of text stumbles over

SCRAPS = [
    b"\n", b"\r", b"\r\n", b"\0", b"\x1b[", b"\x1b]8;;http://x\x07", b"\xff", b"\xe2\x80\xae", b"\xed\xa0\x80", b"\xc3",
    b"9" * 30, b"-1", b"inf", b"nan", b"1e999", b"{", b"}", b"[" * 50, b'"', b"\\", b"\\u0000", b"\\ud800", b"| ",
    b": ", b"(", b"%s", b"=", b" " * 40, b"\t", b"id  0 | task 9 | ", b"[53409] ", b"data: ", b"</s>", b"<|im_start|>",
    b"{{", b"%}", b"\xef\xbb\xbf", b"\x1f\x8b\x08", b"\xf4\x80\x80\x80", b"\xf3\xb0\x80\x80", b"\xc2\xb2", b"\xd9\xa3",
    b"1,000,000,000",
]  # fmt: skip
"""Bytes with a meaning to one reader or another."""


def mutated(rng: random.Random, pool: list[bytes]) -> bytes:
    """One of ``pool``, changed a few times: bytes, numbers, lines, and what others of the pool hold."""
    data = bytearray(rng.choice(pool))
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        _change(rng, data, pool)
    return bytes(data[:MOST])


def _change(rng: random.Random, data: bytearray, pool: list[bytes]) -> None:
    at, size = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 16, 64, 400))
    kind = rng.randrange(7)
    if kind == 0:
        data[at : at + 1] = bytes([rng.randrange(256)])
    elif kind == 1:
        data[at:at] = rng.choice(SCRAPS)
    elif kind == 2:
        del data[at : at + size]
    elif kind == 3:
        data[at:at] = data[at : at + size] * rng.choice((1, 2, 5))
    elif kind == 4:
        other = rng.choice(pool)
        start = rng.randrange(len(other) + 1)
        data[at : at + rng.choice((0, size))] = other[start : start + size]
    elif kind == 5:
        lines = bytes(data).split(b"\n")
        first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[first], lines[second] = lines[second], lines[first]
        data[:] = b"\n".join(lines)
    else:
        digits = [index for index in range(len(data)) if 48 <= data[index] < 58]
        if digits:
            index = rng.choice(digits)
            data[index : index + 1] = rng.choice((b"0", b"9", b"99999", b"-", b"1e9", b"123456789012345678901"))


def cases(target: Target, seed: int, count: int) -> Iterator[bytes]:
    """``count`` inputs for a target, always the same for a seed."""
    rng, pool = random.Random(seed), target.seeds()
    yield from pool[:count]
    for _ in range(max(0, count - len(pool))):
        yield mutated(rng, pool)
