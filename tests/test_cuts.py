"""A report does not depend on where its input was cut: real logs, wrapped ones, broken ones."""

from __future__ import annotations

import codecs
import gzip
import json
import random
from collections.abc import Iterator

import pytest
from conftest import FIXTURES, json_of
from fuzz import seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from cachedoctor.doctor.analysis import intake
from cachedoctor.inputs.sources.unpack import unpacked, utf8

LOGS = seeds.logs()
SMALL = [log for log in LOGS if len(log) < 12_000]


def bytewise(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


@pytest.mark.sweep
@pytest.mark.parametrize("log", SMALL, ids=range(len(SMALL)))
def test_byte_by_byte(log: bytes) -> None:
    assert json_of(bytewise(log)) == json_of([log])


@pytest.mark.sweep
@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.sampled_from(LOGS), st.lists(st.integers(0, 60_000), max_size=12))
def test_cut_anywhere(log: bytes, places: list[int]) -> None:
    bounds = sorted({place % (len(log) + 1) for place in places})
    pieces = [log[a:b] for a, b in zip([0, *bounds], [*bounds, len(log)], strict=True)]
    assert json_of(pieces) == json_of([log])


NASTY = "é漢🎉\u2028\u202e\x1b[31m\x1b]0;title\x07\x85\x0b\x0c\0\r"
UNICODE = NASTY.join(SMALL[0].decode().splitlines(keepends=True)) + "slot\u00a0x" + NASTY * 3


@pytest.mark.sample(8)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_inside_characters_escapes_and_line_ends(encoding: str, end: str, size: int) -> None:
    """Through the sources, which turn UTF-16 into UTF-8 and unpack."""
    mark = {"utf-8": codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}[encoding]
    text = UNICODE.replace("\n", end)
    data, wanted = mark + text.encode(encoding), json_of([text.encode()])
    for packed in (data, gzip.compress(data)):
        pieces = (packed[at : at + size] for at in range(0, len(packed), size))
        assert json_of(utf8(unpacked("f", pieces))) == wanted


CHOICE = "0.00.{ms}.000 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1\n"
LAUNCH = "0.00.{ms}.500 I slot launch_slot_: id  0 | task {task} | processing task, is_child = 0\n"
HEADER = "slot print_timing: id  2 | task 8 | \n"
TIMINGS = (
    "prompt eval time =     338.96 ms /  2003 tokens (    0.17 ms per token,  5909.22 tokens per second)\n"
    "       eval time =      31.17 ms /     6 tokens (    5.19 ms per token,   192.51 tokens per second)\n"
    "      total time =     370.13 ms /  2009 tokens\n"
)
RELEASE = "slot      release: id  2 | task 8 | stop processing: n_tokens = 2008, truncated = 0\n"


def lines_alone(log: str) -> list[bytes]:
    return [line.encode() for line in log.splitlines(keepends=True)]


def same_by_line(log: str) -> bytes:
    whole = json_of([log.encode()])
    assert json_of(lines_alone(log)) == whole
    return whole


def test_a_new_life_begins_with_the_choice_of_the_slot_of_its_first_launch() -> None:
    """Lines that are read together belong to two lives when the task number falls back."""
    first, second = (CHOICE.format(ms=ms) + LAUNCH.format(ms=ms, task=task) for ms, task in ((100, 0), (200, 0)))
    report = same_by_line(first + second)
    assert b'"first_line":1,"last_line":2,"n_requests":1' in report
    assert b'"first_line":3,"last_line":4,"n_requests":1' in report


def test_a_log_that_begins_with_a_timing_block_has_its_request() -> None:
    """The lines below the header carry no task."""
    report = same_by_line(HEADER + TIMINGS + RELEASE)
    assert b'"task":8,' in report
    assert b'"processed_tokens":2003,"generated_tokens":6' in report
    same_by_line(HEADER + TIMINGS.replace("370.13 ms", "370.13 ") + RELEASE)


def test_a_timing_block_of_a_request_that_has_ended_opens_no_other() -> None:
    for log in (HEADER + TIMINGS + RELEASE + HEADER + TIMINGS, (HEADER + TIMINGS + RELEASE) * 2):
        same_by_line(log)
    requests = json.loads(same_by_line(HEADER + TIMINGS + RELEASE + HEADER + TIMINGS))["requests"]
    assert [request["task"] for request in requests].count(8) == 1


def test_requests_of_two_servers_count_in_the_order_of_their_lines() -> None:
    """A choice and its launch are read together, unless another server's launch stands between them."""
    ours = [f"[53401] {line.format(ms=100, task=1)}" for line in (CHOICE, LAUNCH)]
    theirs = f"[53402] {LAUNCH.format(ms=100, task=7)}"
    report = same_by_line(ours[0] + theirs + ours[1])
    assert report.index(b'"task":7,') < report.index(b'"task":1,')


@pytest.mark.parametrize("over", [-1, 0, 1, 300])
def test_a_line_is_kept_up_to_the_same_byte(monkeypatch: pytest.MonkeyPatch, over: int) -> None:
    """However the long line arrives, and whether lines follow it in the same chunk."""
    monkeypatch.setattr(intake, "MAX_LINE", 1000)
    rng = random.Random(7)
    long = bytes(rng.choices(b"abc {}[]", k=1000 + over))
    log = SMALL[0] + long + b"\n" + SMALL[0] + b"\n" + long

    def kept(sizes: list[int]) -> list[bytes]:
        taken, at, segments = intake.Intake("f"), 0, []
        for size in sizes:
            segments += taken.feed(log[at : at + size])
            at += size
        segments += [*taken.feed(log[at:]), *(segment for rest in taken.finish() for segment in rest)]
        assert taken.info.lines == log.count(b"\n") + 1
        return [line for segment in segments for line in segment.data.split(b"\n")[:-1]]

    wanted = [line[:1000] for line in log.split(b"\n")]
    for sizes in ([], [1] * len(log), [999] * 40, [len(SMALL[0]) + 500, 700], [len(SMALL[0]) + 1200, 1]):
        assert kept(sizes) == wanted


def test_the_cases_of_the_wrappers() -> None:
    """Real logs as docker, journald and others stored them: in three pieces, cut in the middle of a line."""
    folders = sorted(path.parent for path in (FIXTURES / "cases").glob("wrapped-*/server.log"))
    assert len(folders) > 3
    for folder in folders:
        log = (folder / "server.log").read_bytes()
        third = len(log) // 3
        assert json_of([log[:third], log[third : 2 * third], log[2 * third :]]) == json_of([log]), folder.name


BATCH = "0.00.{ms}.000 I slot   operator(): id  0 | task {task} | cached n_tokens = {n}, memory_seq_rm [{n}, end)\n"
CREATED = (
    "0.00.{ms}.100 I slot create_check: id  0 | task {task} | created context checkpoint 2 of 32"
    " (pos_min = {n}, pos_max = {n}, n_tokens = 9, size = 0.016 MiB)\n"
)
CHECK = "0.00.{ms}.200 I slot   operator(): id  0 | task {task} | checking checkpoint with [{n}, {n}] against 9...\n"


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(60))
def test_lines_of_two_requests_in_any_order(seed: int) -> None:
    """A torn or shuffled log: what is read together gives what each line gives by itself."""
    rng = random.Random(seed)
    forms = [CHOICE, LAUNCH, BATCH, CREATED, CHECK, BATCH + CREATED, CHOICE + LAUNCH + BATCH, CHECK + CHECK]
    lines = [rng.choice(forms).format(ms=100 + at, task=rng.choice((0, 9, 21)), n=50 + at) for at in range(14)]
    same_by_line("".join(lines) + (HEADER + TIMINGS + RELEASE) * rng.randrange(3))


def test_a_server_restarted_after_one_request_shows_what_the_next_one_reused() -> None:
    """Task 0 of the new life is not task 0 of the old one, though no batch lies between them."""
    life = LAUNCH.format(ms=100, task=0) + "slot x: id  0 | task 0 | y\n" + BATCH.format(ms=200, task=0, n=40)
    report = same_by_line(life + life.replace("n_tokens = 40", "n_tokens = 70"))
    assert b'"cached_tokens":40' in report
    assert b'"cached_tokens":70' in report
