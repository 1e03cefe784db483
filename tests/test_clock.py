"""When requests started and who asked: from wrappers, from the uptime, from the lines of the HTTP server."""

from __future__ import annotations

import json

import pytest
from conftest import json_of, report_of
from loops import each
from test_ik_llama import REWRITTEN
from wrapped import docker

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.intake import EXCERPT_LINES
from cachedoctor.inputs.envelope.shapes import ends, wall_time

LAUNCH = "slot launch_slot_: id  0 | task 7 | processing task"


@each(
    ("stored", "time"),
    [
        ("2026-11-20T12:00:02.686000+00:00 box llama-server[42]: " + LAUNCH, "2026-11-20T12:00:02.686000+00:00"),
        ("2026-11-20T12:00:02+0100 box llama-server[42]: " + LAUNCH, "2026-11-20T12:00:02+01:00"),
        ("2026-11-20T12:00:00.546000123Z 0.00.368.207 I " + LAUNCH, "2026-11-20T12:00:00.546000Z"),
        ("2026-05-14 22:40:29.046 | " + LAUNCH, "2026-05-14T22:40:29.046"),
        ("[2026/05/14 22:40:29,046] " + LAUNCH, "2026-05-14T22:40:29.046"),
        ("Fri 2026-11-20 12:00:02 CET box llama-server[42]: " + LAUNCH, "2026-11-20T12:00:02"),
        ("Fri 2026-11-20 12:00:02 UTC box llama-server[42]: " + LAUNCH, "2026-11-20T12:00:02Z"),
        ("llama-1  | 2026-11-20T12:00:02.686Z " + LAUNCH, "2026-11-20T12:00:02.686Z"),
        ("Nov 20 12:00:02 box llama-server[42]: " + LAUNCH, "--11-20T12:00:02"),
        ("<30>Feb  3 01:02:03 box llama-server: " + LAUNCH, "--02-03T01:02:03"),
        ('{"log":"' + LAUNCH + '\\n","time":"2026-11-20T12:00:00.280092Z"}', "2026-11-20T12:00:00.280092Z"),
        ('{"log":"' + LAUNCH + " " * 300 + '\\n","time":"2026-11-20T12:00:00.280092Z"}', "2026-11-20T12:00:00.280092Z"),
        ("[53409] 0.00.118.712 I " + LAUNCH, None),
        ("llama-1  | " + LAUNCH, None),
        ("Foo 20 12:00:02 box llama-server[42]: " + LAUNCH, None),
        ("2026-13-20T12:00:02Z " + LAUNCH, None),
        ("2026-11-20T25:00:02Z " + LAUNCH, None),
    ],
)  # fmt: skip
def test_the_time_of_a_wrapper(stored: str, time: str | None) -> None:
    assert wall_time(stored.encode()) == time


@pytest.mark.parametrize("stored", [docker("x" * 2000).strip(), "2026-11-20T12:00:00.001373Z stderr P " + "x" * 2000])
def test_a_time_is_found_from_the_ends_of_its_row(stored: str) -> None:
    assert len(ends(stored.encode())) < 1000
    assert wall_time(ends(stored.encode())) == wall_time(stored.encode()) == "2026-11-20T12:00:00.001373Z"


def request(task: int, uptime: str = "") -> str:
    at = f"slot {{}}: id  0 | task {task} | "
    return (
        f"{uptime}{at.format('launch_slot_')}processing task\n"
        f"{uptime}{at.format('update_slots')}new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 1900\n"
        f"{uptime}{at.format('update_slots')}n_tokens = 0, memory_seq_rm [0, end)\n"
        f"{uptime}{at.format('release')}stop processing: n_tokens = 1905, truncated = 0\n"
    )


MORE = ["a line of nobody\n"] * (EXCERPT_LINES + 1)
"""With these it is not an excerpt, which is read when all of it has come."""


def stamped(lines: list[str], first: int = 0) -> list[str]:
    return [f"Nov 20 12:{at // 60:02}:{at % 60:02} box llama-server[7]: {line}" for at, line in enumerate(lines, first)]


def times(log: list[str]) -> list[str | None]:
    """Of a log that arrives line by line; as a whole it has the same report."""
    lines = [line.encode() for line in log]
    report = json_of(lines)
    assert report == json_of([b"".join(lines)])
    return [request["time"] for request in json.loads(report)["requests"]]


@pytest.mark.parametrize("more", [[], MORE], ids=["excerpt", "log"])
@pytest.mark.parametrize("ours", [0, 1])
def test_each_of_two_servers_has_its_times(more: list[str], ours: int) -> None:
    """The first is silent when the second begins."""
    first, second = stamped(request(1).splitlines(True)), stamped(request(9).splitlines(True), 4)
    wrapped = [f"web  | {line}" for line in (second if ours else first)]
    log = [*first, *wrapped] if ours else [*wrapped, *second]
    assert times([*log, *more]) == ["--11-20T12:00:00", "--11-20T12:00:04"]


@pytest.mark.parametrize("before", [[], MORE], ids=["excerpt", "log"])
def test_a_line_in_parts_has_the_time_of_its_first(before: list[str]) -> None:
    parts = [
        docker(part).replace("12:00:00", f"12:00:0{at}") for at, part in enumerate((LAUNCH[:30], LAUNCH[30:] + "\n"))
    ]
    assert times([*map(docker, before), *parts]) == ["2026-11-20T12:00:00.001373Z"]


@pytest.mark.parametrize("before", [[], MORE], ids=["excerpt", "log"])
def test_a_launch_that_is_told_of_later_has_its_own_time(before: list[str]) -> None:
    """Requests of a fork are known for such by a line about the memory."""
    lines = REWRITTEN.splitlines(True)
    at = [index for index, line in enumerate(lines) if "launch_slot_with_task" in line]
    assert times([*before, *stamped(lines)]) == [f"--11-20T12:00:{index:02}" for index in at]


def test_a_launch_in_one_rotation_is_told_of_in_the_next() -> None:
    """Each file's lines are counted from 1; the time is that of the launch."""
    lines = stamped(REWRITTEN.splitlines(True))
    at = next(index for index, line in enumerate(lines) if "launch_slot_with_task" in line) + 1
    analyzer = Analyzer()
    for part, continues in ((lines[:at], False), (lines[at:], True)):
        analyzer.open("server.log", continues=continues)
        analyzer.feed("".join(part).encode())
    assert [json.loads(row)["time"] for row in analyzer.finish().requests.lines()] == times(lines)


def answer(address: str, path: str = "/v1/messages", method: str = "POST") -> str:
    return f"srv  log_server_r: done request: {method} {path} {address} 200\n"


def asked(log: str) -> list[tuple[str | None, str | None]]:
    return [(r["client"], r["endpoint"]) for r in report_of(log)["requests"]]


def test_the_uptime_is_that_of_the_first_line() -> None:
    """Minutes are unbounded: 61 min 2.003004 s."""
    (only,) = report_of(request(1, "61.02.003.004 I "))["requests"]
    assert only["uptime_ms"] == 3_662_003.004
    assert report_of(request(1))["requests"][0]["uptime_ms"] is None


def test_each_request_has_the_client_of_its_answer() -> None:
    """Other addresses of the server, and queries in the path, are not part of it."""
    log = request(1) + answer("10.0.0.1", "/v1/messages?beta=true") + answer("10.0.0.9", "/slots", "GET")
    log += request(9) + answer("10.0.0.9", "/tokenize") + answer("10.0.0.2", "/v1/chat/completions")
    assert asked(log) == [("10.0.0.1", "/v1/messages"), ("10.0.0.2", "/v1/chat/completions")]


def test_requests_at_once_have_a_client_only_when_all_answers_agree() -> None:
    """The line names no task."""
    one, other = request(1), request(2).replace("id  0", "id  1")
    begun = "".join(a + b for a, b in zip(one.splitlines(True), other.splitlines(True), strict=True))
    same = [("10.0.0.1", "/v1/messages")] * 2
    assert asked(begun + answer("10.0.0.1") * 2) == same
    assert asked(begun + answer("10.0.0.1") + answer("10.0.0.2")) == [(None, None)] * 2


def test_a_request_without_an_answer_leaves_the_next_ones_open() -> None:
    """Nothing is guessed while an answer is missing."""
    assert asked(request(1) + request(2) + answer("10.0.0.1")) == [(None, None)] * 2


def test_a_date_in_the_text_of_a_prompt_is_not_a_time() -> None:
    assert wall_time(b" old: ...2026-11-20T12:00:00Z stderr P ") is None
    assert wall_time(b"2026-11-21T13:30:00Z box old: ... 2026-11-20T12:00:00Z |") == "2026-11-21T13:30:00Z"


def test_the_stamp_of_syslog_comes_before_a_date_of_the_message() -> None:
    line = b"Nov 20 12:00:00 box llama[12]: old: ... 2026-11-21T13:30:00Z stderr P "
    assert wall_time(line) == "--11-20T12:00:00"
    assert wall_time(b"2026-11-21T13:30:00Z box: Nov 20 12:00:00 x") == "2026-11-21T13:30:00Z"
    assert wall_time(b"Foo 20 12:00:00 box 2026-11-21T13:30:00Z x") == "2026-11-21T13:30:00Z", "no month"
