"""Logs that a terminal broke into rows and that are longer than an excerpt: rows are joined all the same."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
from conftest import FIXTURES, content_of, json_of

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.intake import BROKEN_LINES, EXCERPT_LINES
from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.inputs.envelope.shapes import are_broken, columns

LINES = content_of(FIXTURES / "cases" / "billing-header-hybrid").decode().splitlines()


def hard(line: str, width: int = 80) -> list[str]:
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]


def soft(line: str) -> list[str]:
    return textwrap.wrap(line, 80, break_long_words=False) or [""]


def log(rows: list[str]) -> bytes:
    return "".join(row + "\n" for row in rows).encode()


def totals_of(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json_of([text]))["totals"]
    return found


def codes_of(text: bytes) -> list[str]:
    return [finding["code"] for finding in json.loads(json_of([text]))["findings"]]


@pytest.mark.parametrize("broken", [hard, soft])
def test_a_long_log_of_rows_counts_as_the_log(broken: Callable[[str], list[str]]) -> None:
    rows = [row for line in LINES for row in broken(line)]
    assert len(rows) > EXCERPT_LINES
    assert totals_of(log(rows)) == totals_of(log(LINES))
    assert codes_of(log(rows)) == ["CD101"]


def test_it_does_not_matter_how_the_rows_arrive() -> None:
    text = log([row for line in LINES for row in hard(line)])
    counted = []
    for step in (700, 100_000, len(text)):
        analyzer = Analyzer()
        analyzer.open("log")
        for at in range(0, len(text), step):
            analyzer.feed(text[at : at + step])
        analyzer.close()
        counted.append(analyzer.finish().totals)
    assert counted[0] == counted[1] == counted[2]
    assert counted[0].prompt_tokens == 8001


def test_rows_of_compose_have_its_name_once() -> None:
    rows = [row for line in LINES for row in hard(f"llama-1  | {line}")]
    found = totals_of(log(rows))
    assert (found["prompt_tokens"], found["avoidable_tokens"]) == (8001, 5912)


def test_rows_of_a_short_compose_log_as_well() -> None:
    begin = next(at for at, line in enumerate(LINES) if "processing task" in line and "task 21 " in line)
    some = [line for line in LINES[begin:] if "\t" not in line][:60]
    rows = [row for line in some for row in hard(f"llama-1  | {line}")]
    assert len(rows) < EXCERPT_LINES
    assert totals_of(log(rows))["prompt_tokens"] == totals_of(log(some))["prompt_tokens"] > 0


def test_a_redacted_log_of_rows_counts_the_same() -> None:
    text = log([row for line in LINES for row in hard(line)])
    redactor = Redactor()
    redacted = redactor.feed(text) + redactor.finish()
    assert totals_of(redacted) == totals_of(text)


def test_rows_beyond_the_limit_are_read_as_they_stand() -> None:
    rows = [row for line in LINES for row in hard(line)]
    many = (rows * (BROKEN_LINES // len(rows) + 1))[: BROKEN_LINES + 1]
    assert totals_of(log(many))["requests"] > 0


def test_no_log_is_taken_for_broken() -> None:
    """No log is joined that is as servers print it, if it is longer than an excerpt."""
    logs = {path: path.read_bytes().split(b"\n") for path in FIXTURES.glob("**/*.log")}
    long = {path: rows[:EXCERPT_LINES] for path, rows in logs.items() if len(rows) > EXCERPT_LINES}
    assert len(long) > 10
    assert [path.as_posix() for path, rows in long.items() if are_broken(rows)] == []


def test_prose_is_not_a_broken_log() -> None:
    words = ("The server reads the whole conversation again before each answer. " * 200).strip()
    assert not are_broken([row.encode() for row in textwrap.wrap(words, 80)])
    assert not are_broken([])


def test_the_width_is_that_of_most_wide_rows() -> None:
    assert columns([80] * 30 + [200]) == 80
    assert columns([10, 40]) == 40
    assert columns([]) == 0
