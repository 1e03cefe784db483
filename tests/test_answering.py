"""Requests whose numbers a program logs: sums, what is kept of them, lives of a program, rotated files."""

from __future__ import annotations

from pathlib import Path

import pytest
from answered import numbers, report_of
from conftest import FIXTURES
from test_ollama import LISTENING, START, slot

from cachedoctor.doctor.analysis.analyzer import Analyzer


def test_sums_are_over_all_requests_and_ten_thousand_are_listed() -> None:
    analyzer = Analyzer()
    analyzer.open("server.log")
    analyzer.feed((slot(0, 10, 4) * 10_003).encode())
    [session] = analyzer.finish().sessions
    [answers] = session.answers
    assert (answers.requests, answers.told) == (10_003, 10_003)
    assert (answers.prompt_tokens, answers.cached_tokens) == (100_030, 40_012)
    assert len(answers.each) == 10_000


def test_another_life_is_listed_again() -> None:
    analyzer = Analyzer()
    analyzer.open("server.log")
    analyzer.feed((slot(0, 10, 4) * 10_003 + START + slot(0, 7, 0)).encode())
    _, second = analyzer.finish().sessions
    assert numbers(second) == [(7, 0, 10_005)]


def test_a_session_continues_in_the_next_file() -> None:
    analyzer = Analyzer()
    analyzer.open("server.log.1")
    analyzer.feed((LISTENING + slot(0, 100, 0)).encode())
    analyzer.open("server.log", continues=True)
    analyzer.feed((slot(100, 120, 100) + slot(120, 140, 120)).encode())
    [session] = analyzer.finish().sessions
    assert [(a.path, a.requests, a.prompt_tokens) for a in session.answers] == [
        ("server.log.1", 1, 100),
        ("server.log", 2, 260),
    ]
    assert numbers(session) == [(100, 0, 2), (120, 100, 1), (140, 120, 2)]
    assert session.version == "0.13.5"


def test_another_input_is_another_server() -> None:
    analyzer = Analyzer()
    for path in ("a.log", "b.log"):
        analyzer.open(path)
        analyzer.feed(slot(0, 100, 0).encode())
    assert [(s.path, s.engine) for s in analyzer.finish().sessions] == [("a.log", "ollama"), ("b.log", "ollama")]


def test_services_are_told_apart() -> None:
    analyzer = Analyzer()
    analyzer.open("compose.log")
    analyzer.feed(f"ollama-1  | {slot(0, 100, 0)}ollama-2  | {slot(0, 30, 9)}".encode())
    found = analyzer.finish().sessions
    assert [(s.origin, numbers(s)) for s in found] == [("ollama-1", [(100, 0, 1)]), ("ollama-2", [(30, 9, 2)])]


def test_a_llama_server_beside_it_is_a_server_of_its_own(tmp_path: Path) -> None:
    """Newer ollama runs some models with a llama-server. A part that ends so cannot be read without the next one."""
    alone, beside = Analyzer(), Analyzer()
    log = (FIXTURES / "cases" / "healthy-dense-b6301" / "server.log").read_bytes()
    for analyzer, more in ((alone, b""), (beside, slot(0, 100, 40).encode())):
        analyzer.open("server.log")
        analyzer.feed(log + more)
        analyzer.idle()
    engines = [session.engine for session in beside.finish().sessions]
    assert engines == ["llama.cpp", "ollama"]
    assert beside.totals() == alone.totals()
    parts = [analyzer.part(str(tmp_path / "requests")) for analyzer in (alone, beside)]
    assert [part.settled for part in parts] == [True, False]


N = 200_000
LONG = {
    "a time": "time=" + "a" * N,
    "a number": 'time=a level=INFO msg="cache hit" total=' + "1" * N,
    "brackets": "[a]" * N + "Prompt cache restore: cached_tokens=1",
    "returns": "\r" * N + "Processing Prompt [BATCH] (1 / 2 tokens)" + "\r" * N,
    "an id": "Metrics (ID: " + "a" * N,
    "blanks": "Metrics (ID: a): 3 tokens generated in 1 seconds (Queue: 1 s, Process: 1 cached tokens" + " " * N + "x",
    "a function": "INFO [" + "a" * N + "] slot is processing task | tid=" + "a" * N,
    "equals": "======== " * N,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("line", LONG.values(), ids=LONG)
def test_a_line_made_to_cost_time_has_no_numbers(line: str) -> None:
    assert [n for session in report_of(f"{line}\n" * 2).sessions for n in numbers(session)] == []
