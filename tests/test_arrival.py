"""The report of a log is the same however its bytes arrive, also where two programs write to it; so are its rows."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import test_ik_llama
import test_koboldcpp
import test_lmstudio
import test_ollama
from command import run
from conftest import CASES, FIXTURES, MEASURED, content_of, every_case, given_of, json_of, prompts_of
from test_stream import last, lines_of, of, stream_of

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.inputs.sources.base import Source
from cachedoctor.inputs.sources.file import FileSource
from cachedoctor.inputs.sources.follow import FollowSource
from cachedoctor.inputs.sources.stdin import StdinSource
from cachedoctor.redaction import sanitize
from cachedoctor.report.wire import report_v1

LLAMA = ("server-restarted-b9713", "parallel-agents-unified", "wrapped-compose-two-services")
MOST = 30_000
"""Bytes of each log of a mixture."""


def whole_lines(log: bytes) -> bytes:
    return log[: log.rfind(b"\n", 0, MOST) + 1]


def of_a_small_program(*lines: str) -> list[bytes]:
    return ["".join(lines).encode()]


@cache
def logs() -> dict[str, list[bytes]]:
    """Logs by the program that wrote them."""
    found = {"llama.cpp": [whole_lines(content_of(case)) for case in CASES if case.name in LLAMA]}
    for path, engine in {case["log"]: case["engine"] for case in MEASURED}.items():
        data = b"".join(FileSource(str(FIXTURES / path)).chunks())
        found.setdefault(engine, []).append(whole_lines(data))
    slot, done, kobold = test_ollama.slot, test_koboldcpp.done, test_koboldcpp
    found["ollama"] = of_a_small_program(
        test_ollama.LISTENING, slot(0, 100, 0), test_ollama.START, slot(0, 5000, 0), slot(5120, 5213, 5104)
    )
    found["koboldcpp"] = of_a_small_program(
        kobold.START, kobold.progress(2397), done(2475, 2397, 78), kobold.progress(190), done(2715, 190, 50)
    )
    found["ik_llama.cpp"] = of_a_small_program(
        test_ik_llama.chosen(0), test_ik_llama.launched(0), test_ik_llama.kept(0, 0), test_ik_llama.timings(11900)
    )
    found["lmstudio-mlx"] = of_a_small_program(*(test_lmstudio.BODY.format(256 * n, 101) + "\n" for n in range(4)))
    return found


def in_turns(one: bytes, other: bytes, chance: random.Random) -> bytes:
    """The lines of both, a few of each at a time."""
    waiting, mixed = [one.splitlines(keepends=True), other.splitlines(keepends=True)], []
    while all(waiting):
        lines = chance.choice(waiting)
        count = chance.choice((1, 1, 2, 5, 20))
        mixed += lines[:count]
        del lines[:count]
    return b"".join(mixed + waiting[0] + waiting[1])


PROGRAMS = ("llama.cpp", "vllm", "sglang", "ollama", "koboldcpp", "ik_llama.cpp", "lmstudio-mlx")
WAYS = ("in turns", "one by one", "and back")
PAIRS = [
    pytest.param(one, other, WAYS[(first + second) % len(WAYS)], id=f"{one}-{other}-{WAYS[(first + second) % 3]}")
    for (first, one), (second, other) in itertools.permutations(enumerate(PROGRAMS), 2)
]
"""Every program before every other one, and each in all three ways on either side.

Whose a line is, is asked of the line and not of the pair: that each pair comes in each way would show no more.
"""


def mixed(one: str, other: str, way: str) -> bytes:
    """A log of two programs, the same in every run."""
    chance = random.Random(f"{one} {other} {way}")
    first, second = chance.choice(logs()[one]), chance.choice(logs()[other])
    if way == "in turns":
        return in_turns(first, second, chance)
    return first + second + (first if way == "and back" else b"")


def pieces(log: bytes, size: int) -> Iterator[bytes]:
    return (log[at : at + size] for at in range(0, len(log), size))


def rows(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What the lines of a stream say in the end, in the words of the JSON report."""
    report: dict[str, Any] = {f"{kind}s": last(of(lines, kind)) for kind in ("request", "session")}
    report["inputs"] = of(last([line for line in lines if line["type"] == "input"]), "input", "index")
    report["findings"] = of([line for line in lines if line.get("final")], "finding", "final")
    report |= {
        "samples": of(lines, "sample"),
        "batches": of(lines, "batch"),
        "not_evaluated": of(lines, "not_evaluated"),
    }
    (summary,) = of(lines, "summary")
    return report | {key: summary[key] for key in ("totals", "restart", "interrupted", "slots", "ignored")}


def assert_rows_are_those_of(report: dict[str, Any], stream: bytes) -> None:
    found = rows(lines_of(stream))
    reported = {session["index"] for session in report["sessions"]}
    # A library that says a word before its program does is a session until then.
    assert all(session["index"] in reported or not session["n_requests"] for session in found["sessions"])
    found["sessions"] = [session for session in found["sessions"] if session["index"] in reported]
    assert found == {key: report.get(key, []) for key in found}
    assert repr(found) == repr({key: report.get(key, []) for key in found})  # 0 is not null, nor False, nor 0.0


@pytest.mark.spread(9)
@pytest.mark.sweep
@pytest.mark.parametrize(("one", "other", "way"), PAIRS)
def test_two_programs_in_one_log_are_read_the_same_however_it_is_cut(one: str, other: str, way: str) -> None:
    """Servers in the order in which they began; with their last lines, rows and findings."""
    log = mixed(one, other, way)
    whole = json_of([log])
    for chunks in (pieces(log, 7), pieces(log, 4096), log.splitlines(keepends=True)):
        assert json_of(chunks) == whole
    report = json.loads(whole)
    if way != "in turns" and one != "ik_llama.cpp":  # after a line of this fork all are taken for its own
        engines = [session["engine"] for session in report["sessions"]]
        assert (engines[0], set(engines)) == (one, {one, other})
    streams = [stream_of(chunks) for chunks in ([log], log.splitlines(keepends=True))]
    assert streams[0] == streams[1]
    assert_rows_are_those_of(report, streams[0])
    events = [event["line"] for event in of(lines_of(streams[0]), "event")]
    assert events == sorted(events)


@pytest.mark.spread(9)
@pytest.mark.sample(3)
@pytest.mark.parametrize(("one", "other", "way"), PAIRS)
def test_two_programs_in_one_log_byte_by_byte(one: str, other: str, way: str) -> None:
    log = mixed(one, other, way)[: MOST // 2]
    assert json_of(pieces(log, 1)) == json_of([log])


@pytest.mark.sample(3)
@pytest.mark.spread(9)
@every_case
def test_the_stream_of_a_case_has_the_values_of_its_report(case: Path) -> None:
    log = content_of(case)
    report = json.loads(json_of([log], prompts=prompts_of(case), given=given_of(case)))
    assert_rows_are_those_of(report, stream_of([log], prompts_of(case), given_of(case)))


@pytest.mark.spread(9)
@pytest.mark.sample(4)
@pytest.mark.parametrize("path", sorted({case["log"] for case in MEASURED}))
def test_the_stream_of_a_measured_log_has_the_values_of_its_report(path: str) -> None:
    log = b"".join(FileSource(str(FIXTURES / path)).chunks())
    assert_rows_are_those_of(json.loads(json_of([log])), stream_of([log]))


def read_from(source: Source) -> bytes:
    analyzer, out = Analyzer(), io.BytesIO()
    analyzer.open("server.log")  # the name is all that may differ
    for chunk in source.chunks():
        if chunk:
            analyzer.feed(chunk)
        else:
            analyzer.idle()
    report_v1.render(sanitize.report(analyzer.finish()), out)
    return out.getvalue()


def written(log: bytes, sizes: Iterator[int], write: Callable[[bytes], object]) -> None:
    at = 0
    while at < len(log):
        size = next(sizes)
        write(log[at : at + size])
        at += size


@pytest.mark.sample(2)
@pytest.mark.parametrize(("one", "other", "way"), PAIRS[::2])  # what reads bytes does not read what they say
def test_a_file_a_pipe_and_a_followed_file_give_the_same(one: str, other: str, way: str, tmp_path: Path) -> None:
    log, path, grown = mixed(one, other, way), tmp_path / "server.log", tmp_path / "grown.log"
    path.write_bytes(log)
    expected = json_of([log])
    assert read_from(FileSource(str(path))) == expected
    reading, writing = os.pipe()
    done, chance = threading.Event(), random.Random(3)

    def write() -> None:
        sizes = iter(lambda: chance.choice((1, 7, 300, 4096)), 0)
        with open(writing, "wb", buffering=0) as pipe, grown.open("ab", buffering=0) as file:
            written(log, sizes, pipe.write)
            written(log, sizes, file.write)
        done.set()

    grown.touch()
    writer = threading.Thread(target=write)
    writer.start()
    assert read_from(StdinSource(reading)) == expected
    assert read_from(FollowSource(str(grown), 0.001, done.is_set)) == expected
    writer.join()
    os.close(reading)


@pytest.mark.sweep
def test_the_command_gives_the_same_of_a_file_a_pipe_and_several_processes(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    log = mixed("vllm", "llama.cpp", "in turns")
    path.write_bytes(log)
    expected = json_of([log], path=str(path))
    assert run("analyze", path, "-f", "json").stdout == expected
    assert run("analyze", path, "-f", "json", "-j", "2").stdout == expected
    piped = run("analyze", "-", "-f", "json", stdin=log).stdout
    assert piped.replace(b'"-"', json.dumps(str(path)).encode()) == expected
