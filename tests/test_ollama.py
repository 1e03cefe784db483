"""What ollama's own runners log of each request becomes answers of its session."""

from __future__ import annotations

import pytest
from answered import numbers, report_of, sessions_of

CLOCK = "time=2026-02-03T21:14:05.118Z"
CONFIG = 'msg="server config" env="map[HTTPS_PROXY:http://me:secret@proxy OLLAMA_DEBUG:DEBUG]"'
START = f"{CLOCK} level=INFO source=routes.go:1933 {CONFIG}\n"
LISTENING = f'{CLOCK} level=INFO source=routes.go:1984 msg="Listening on 127.0.0.1:11434 (version 0.13.5)"\n'


def slot(held: int, prompt: int, used: int) -> str:
    return (
        f'{CLOCK} level=DEBUG source=cache.go:136 msg="loading cache slot" '
        f"id=0 cache={held} prompt={prompt} used={used} remaining={prompt - used}\n"
    )


def mlx(words: str) -> str:
    return f"{CLOCK} level=INFO source=cache.go:157 {words}\n"


def test_the_go_runner_tells_each_request() -> None:
    [session] = sessions_of(START + LISTENING + slot(0, 5000, 0) + slot(5120, 5213, 5104))
    assert (session.engine, session.version, session.build_source) == ("ollama", "0.13.5", "line")
    assert numbers(session) == [(5000, 0, 3), (5213, 5104, 4)]
    [answers] = session.answers
    assert (answers.source, answers.requests, answers.told) == ("log", 2, 2)
    assert (answers.prompt_tokens, answers.cached_tokens) == (10213, 5104)
    assert (session.first_line, session.last_line) == (1, 4)


@pytest.mark.parametrize(
    ("words", "prompt", "cached"),
    [
        ('msg="Cache hit" type=partial total=1210 cached=1180 left=30', 1210, 1180),
        ('msg="Cache hit" type=exact total=1210 cached=1210 left=1210', 1210, 1210),
        ('msg="Cache hit" type=prefix total=1210 cached=640 left=570 trimmed=12', 1210, 640),
        ('msg="Cache hit" total=8301 cached=8117 left=184', 8301, 8117),
        ('msg="Cache miss" left=8090', 8090, 0),
        ('msg="Cache miss" left=8402 matched=7990 reason=non_trimmable_divergence', 8402, 0),
        ('msg="cache hit" total=23169 matched=21742 cached=16383 left=6786', 23169, 16383),
        ('msg="cache miss" total=21743 matched=21000 cached=0 left=21743', 21743, 0),
        ('msg="cache hit" total=100 matched=90 cached=80 left=20 seq=1', 100, 80),
    ],
)
def test_the_mlx_runner_tells_what_was_restored_not_what_matched(words: str, prompt: int, cached: int) -> None:
    [session] = sessions_of(mlx(words))
    assert numbers(session) == [(prompt, cached, 1)]


def test_a_start_begins_another_session() -> None:
    first, second = sessions_of(LISTENING + slot(0, 100, 0) + START + slot(0, 200, 0))
    assert (numbers(first), numbers(second)) == ([(100, 0, 2)], [(200, 0, 4)])
    assert (first.version, second.version) == ("0.13.5", None)
    assert second.first_line == 3


def test_a_log_without_a_request_has_no_session_of_ollama() -> None:
    """At the default level the Go runner says nothing, and a llama-server in it speaks for itself."""
    assert sessions_of(START + LISTENING + f'{CLOCK} level=INFO source=sched.go:1 msg="loaded runners" count=1\n') == []


def test_the_environment_is_not_read() -> None:
    assert b"secret" not in repr(report_of(START + slot(0, 10, 0)).sessions).encode()


def test_after_journald() -> None:
    log = "".join(
        f"Sep 11 00:03:06 host ollama[812]: {line}" for line in (LISTENING, slot(0, 100, 0), slot(100, 110, 99))
    )
    [session] = sessions_of(log)
    assert numbers(session) == [(100, 0, 2), (110, 99, 3)]


@pytest.mark.parametrize(
    "line",
    [
        'he wrote msg="loading cache slot" id=0 cache=1 prompt=2 used=1 remaining=1',
        '{"msg":"cache hit total=1 matched=1 cached=1 left=0"}',
        f'{CLOCK} level=INFO msg="cache hit" total=many matched=1 cached=1 left=0',
        f'{CLOCK} level=INFO msg="cache hit" total=9999999999999999999999 matched=1 cached=1 left=0',
    ],
)
def test_what_is_none_of_its_lines_is_not_a_request(line: str) -> None:
    assert sessions_of(line + "\n") == []


def test_more_matched_than_was_restored_at_no_multiple() -> None:
    """ollama issue 17829: 32,838 - 24,933 = 7,905 tokens, in a single line."""
    (finding,) = report_of(mlx('msg="cache hit" total=33083 matched=32838 cached=24933 left=8150')).findings
    assert (finding.code, finding.severity, finding.confidence) == ("CD705", "note", "high")
    assert "7,905 cached tokens recomputed in 1 request: 24,933 of 32,838 matching tokens reused" in finding.claim


def test_the_stride_is_named_where_it_shows() -> None:
    """One token below 2 * 8,192: the rule on the stride says why, and the other one is silent."""
    report = report_of(mlx('msg="cache hit" total=23169 matched=21742 cached=16383 left=6786'))
    assert [finding.code for finding in report.findings] == ["CD701"]
