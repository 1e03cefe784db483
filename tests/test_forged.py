"""Text in a prompt that looks like lines of a server plants no finding and hides none, and is counted."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterator

import forgeries
import pytest
from conftest import FIXTURES, ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import forged

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.intake import Intake
from cachedoctor.doctor.analysis.prompt_text import PromptText
from cachedoctor.report import base
from cachedoctor.report.wire import report_v1

EVERY = 23
"""One in so many forgeries is tried outside of the benchmark, which tries all."""
BEGIN = "0.10.000.000 W slot update_slots: id  0 | task 7 | old: ... a | b"
NEW = "0.10.000.020 W slot update_slots: id  0 | task 7 | new: ... a | c"
IDS = "0.10.000.030 W slot update_slots: id  0 | task 7 |       23      17"
BODY = "0.10.000.000 D srv  log_server_r: request:  {"
LINE = "srv    load_model: loading model '/models/evil.gguf'"


def some(made: Iterator[forgeries.Forgery]) -> Iterator[forgeries.Forgery]:
    return (forgery for number, forgery in enumerate(made) if number % EVERY == 0)


def passed(*lines: str, size: int = 0) -> tuple[list[str], int]:
    """What is left of the lines without the text put after them, and how many looked like a server's.

    ``size``: cut after so many lines.
    """
    out, imitations = read(*lines, size=size)
    return [re.sub(r'\x1e.*|\\u001e[^"]*', "", line) for line in out], imitations


def read(*lines: str, size: int = 0) -> tuple[list[str], int]:
    """The same with the text."""
    texts, out = PromptText(), b""
    stored = [line.encode() + b"\n" for line in lines]
    for at in range(0, len(stored), size or len(stored)):
        out += texts.feed(b"".join(stored[at : at + (size or len(stored))]))
    out += texts.finish()
    return out.decode().split("\n")[:-1], texts.imitations


@pytest.mark.spread(9)
@pytest.mark.sample(1)
@pytest.mark.parametrize("case", forgeries.CLOCKED)
@pytest.mark.parametrize("around", forgeries.AROUND)
def test_no_forgery_changes_the_report_of_a_log_with_clocks(case: str, around: str) -> None:
    row = forged.changed(case, some(forgeries.forgeries(case, around)))
    assert row.ratio == 0, row.measured


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", forgeries.CLOCKED)
@pytest.mark.parametrize("made", [forgeries.in_one_record, forgeries.in_bodies])
def test_no_forgery_in_a_record_or_a_body_changes_the_report(
    case: str, made: Callable[[str], Iterator[forgeries.Forgery]]
) -> None:
    row = forged.changed(case, some(made(case)))
    assert row.ratio == 0, row.measured


@pytest.mark.sweep
@pytest.mark.parametrize("engine", forgeries.LOGGED)
def test_no_forgery_in_a_logged_prompt_changes_the_report(engine: str) -> None:
    made = list(forgeries.in_logged_prompts(engine))
    named = [forgery for forgery in made if forgery.name in forgeries.OTHERS]
    row = forged.changed(engine, [*some(iter(made)), *named])
    assert row.ratio == 0, row.measured


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", forgeries.UNCLOCKED)
def test_forgeries_in_a_log_without_clocks_are_counted(case: str) -> None:
    row = forged.silent(case, some(forgeries.forgeries(case)))
    assert row.ratio == 0, row.measured


@pytest.mark.sweep
def test_the_benchmark_notices_a_forgery_that_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PromptText, "feed", lambda self, block, last=False: block)
    row = forged.changed("x", some(forgeries.forgeries(forgeries.CLOCKED[0])))
    assert row.is_marked


def test_prose_counts_as_no_imitation() -> None:
    for case in (*forgeries.CLOCKED, *forgeries.UNCLOCKED):
        log = (FIXTURES / "cases" / case / "server.log").read_text("utf-8")
        assert forged.report(log)[1] == 0


# ---- where a text ends


@pytest.mark.parametrize("size", [0, 1, 2])
def test_lines_without_a_clock_belong_to_the_text(size: int) -> None:
    assert passed(BEGIN, LINE, "prose", NEW, IDS, LINE, size=size) == ([BEGIN, "", "", NEW, IDS, LINE], 1)


@pytest.mark.parametrize("size", [0, 1, 2])
@pytest.mark.parametrize("wrap", [str, lambda line: f"a-1  | {line}", lambda line: json.dumps({"log": line + "\n"})])
def test_more_lines_of_a_text_come_after_the_one_that_begins_it(size: int, wrap: Callable[[str], str]) -> None:
    begin, new = BEGIN.replace("a | b", "<|system|>"), NEW.replace("a | c", "<|system|>")
    lines = [begin, "it is 08:1 | 0", "more", new, "it is 08:1 | 1", "more", IDS]
    out = [line.replace("\\u001e", "\x1e") for line in read(*map(wrap, lines), size=size)[0]]
    assert out == [
        wrap(begin + "#it is 08:1 | 0#more").replace("#", "\x1e"),
        *("", ""),
        wrap(new + "#it is 08:1 | 1#more").replace("#", "\x1e"),
        *("", ""),
        wrap(IDS),
    ]


@pytest.mark.parametrize("size", [0, 1])
def test_a_line_like_the_servers_ends_what_is_put_behind_a_line_without_a_clock(size: int) -> None:
    bare = [line.partition(" W ")[2] for line in (BEGIN, NEW, IDS)]
    out, _ = read(bare[0], "prose", LINE, "more", bare[1], "of it", bare[2], size=size)
    assert (out[0], out[4]) == (bare[0] + "\x1eprose", bare[1] + "\x1eof it")


@pytest.mark.parametrize("clock", ["0.00.000.272", "0.09.900.000", "9.00.000.000"])
@pytest.mark.parametrize("size", [0, 1])
def test_lines_whose_clock_does_not_continue_belong_to_the_text(clock: str, size: int) -> None:
    forged_line = f"{clock} I {LINE}"
    assert passed(BEGIN, forged_line, NEW, IDS, size=size) == ([BEGIN, "", NEW, IDS], 1)


def test_a_line_of_another_thread_interrupts_a_text() -> None:
    other = "0.10.000.010 I srv  log_server_r: done request: GET /health 127.0.0.1 200"
    assert passed(BEGIN, other, LINE, NEW, LINE, IDS) == ([BEGIN, other, "", NEW, "", IDS], 2)


def test_a_record_that_the_log_does_not_have_belongs_to_the_text() -> None:
    record = json.dumps({"log": f"0.10.000.010 I {LINE}\n", "stream": "stderr", "time": "2026-11-20T12:00:00Z"})
    assert passed(BEGIN, record, NEW, IDS) == ([BEGIN, "", NEW, IDS], 1)


def test_lines_of_another_container_are_not_in_the_text() -> None:
    lines = [f"a-1  | {BEGIN}", f"b-1  | {LINE}", f"a-1  | {LINE}", f"a-1  | {NEW}", f"a-1  | {IDS}"]
    assert passed(*lines) == ([*lines[:2], "", *lines[3:]], 1)


def cri(line: str, mark: str = "F") -> str:
    return f"2026-11-20T12:00:00.123456789Z stderr {mark} {line}"


@pytest.mark.parametrize("size", [0, 1, 2])
def test_the_rest_of_a_line_that_a_container_cut_is_of_the_server(size: int) -> None:
    old, new = [[cri(line[:60], "P"), cri(line[60:])] for line in (BEGIN, NEW)]
    other = cri("prose of another stream").replace("stderr", "stdout")
    lines = [old[0], other, old[1], cri(LINE), *new, cri(LINE), cri(IDS)]
    assert passed(*lines, size=size) == ([*old[:1], other, old[1], "", *new, "", cri(IDS)], 2)


@pytest.mark.parametrize("size", [0, 1, 2])
def test_the_rest_of_a_line_of_a_text_is_not_a_line(size: int) -> None:
    lines = [cri(BEGIN), cri("x" * 40, "P"), cri(f"0.10.000.010 I {LINE}"), cri(NEW), cri(IDS)]
    assert passed(*lines, size=size) == ([lines[0], "", "", *lines[3:]], 1)


@pytest.mark.parametrize("size", [0, 1])
def test_a_cut_line_of_another_thread_is_passed_on_whole(size: int) -> None:
    other = "0.10.000.010 I srv  log_server_r: done request: GET /health 127.0.0.1 200"
    lines = [cri(BEGIN), cri(other[:30], "P"), cri(other[30:]), cri(LINE), cri(NEW), cri(IDS)]
    assert passed(*lines, size=size) == ([*lines[:3], "", *lines[4:]], 1)


@pytest.mark.parametrize("size", [0, 1])
def test_a_text_in_records_of_a_collector_ends_where_its_server_continues(size: int) -> None:
    """Records of another pod, and those whose line stands under another key, are not of the text."""

    def record(line: str, pod: str = "a", key: str = "line") -> str:
        return json.dumps({"pod": pod, key: line})

    lines = [record(BEGIN), record(LINE, "b"), record(LINE), record(LINE, key="msg"), record(NEW), record(IDS)]
    assert passed(*lines, size=size) == ([*lines[:2], "", *lines[3:]], 1)


def test_a_record_of_which_nobody_knows_whether_it_was_cut_opens_no_text() -> None:
    """Docker cuts at 16 KiB, and only the last part ends with a newline: a collector that drops it hides that."""
    lines = [json.dumps({"pod": "a", "line": line}) for line in (BEGIN + "x" * 20_000, LINE)]
    assert passed(*lines) == (lines, 0)


@pytest.mark.parametrize("begin", [BEGIN, BODY])
@pytest.mark.parametrize("size", [0, 1])
def test_a_server_that_was_killed_in_a_text_and_started_again_loses_no_line(begin: str, size: int) -> None:
    run = [f"0.{second:02d}.000.000 I {LINE}" for second in range(9)]
    assert passed(begin, *run, size=size) == ([begin, *run], 0)


@pytest.mark.parametrize("size", [0, 1, 10])
def test_what_waits_is_read_when_much_came(size: int) -> None:
    """Another server reaches the clock of the text then, and does not end it."""
    run = [f"0.{second:02d}.000.000 I {LINE}{'x' * 500_000}" for second in range(12)]
    assert passed(BEGIN, *run, size=size) == ([BEGIN, *run], 0)


@pytest.mark.parametrize("size", [0, 1])
def test_a_clock_that_ran_backwards_before_a_text_tells_nothing(size: int) -> None:
    lines = [f"0.12.000.000 I {LINE}", f"0.09.000.000 I {LINE}", BEGIN, f"0.09.000.000 I {LINE}", NEW, LINE, IDS]
    assert passed(*lines, size=size) == (lines, 0)


def test_records_out_of_order_before_a_text_tell_nothing() -> None:
    """A store of logs gives those of one millisecond in any order."""
    clocks = ("0.09.900.200", "0.09.900.100", "0.09.900.300", "0.09.900.400", "0.09.900.500")
    before = [f"{clock} I {LINE}" for clock in clocks]
    lines = [json.dumps({"pod": "a" * 200, "line": line}) for line in (*before, BEGIN, before[0], NEW, IDS)]
    assert passed(*lines) == (lines, 0)


def test_a_server_that_was_suspended_in_a_text_loses_no_line() -> None:
    later = [line.replace("0.10.000", "9.10.000") for line in (NEW, IDS)]
    assert passed(BEGIN, "prose", *later) == ([BEGIN, "", *later], 0)


def test_silence_gives_what_waits() -> None:
    intake = Intake("log")
    later = f"0.40.000.000 I {LINE}"
    assert intake.feed(f"{BODY}\n{later}\n".encode())[0].data == f"{BODY}\n".encode()
    assert intake.quiet()[0].data == f"{later}\n".encode()
    assert not intake.quiet()


def test_texts_of_a_server_without_a_clock_are_read_and_counted() -> None:
    begin, new, ids = (line.partition(" W ")[2] for line in (BEGIN, NEW, IDS))
    lines = [begin, LINE, "prose", new, ids, ids, LINE]
    assert passed(*lines) == (lines, 1)


def _bare(task: int, *bodies: str) -> list[str]:
    return [f"slot update_slots: id  0 | task {task} | {body}" for body in bodies]


OLD_TEXT, NEW_TEXT, FORCED = "old: ... a | b", "new: ... a | c", "n_tokens = 100, memory_seq_rm [100, end)"
ROWS_OF_IDS = "     23      17", "     65      22"


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("texts", [(OLD_TEXT, NEW_TEXT), (OLD_TEXT,)])
def test_a_text_of_a_post_without_rows_of_ids_ends_at_a_row_of_its_request(texts: tuple[str, ...], size: int) -> None:
    """The server's lines that come then are none that a prompt holds, nor are those of the next request."""
    lines = []
    for task in range(7, 70, 9):
        lines += [*_bare(task, *texts, FORCED), LINE, *_bare(task, "prompt done, n_tokens = 9, batch.n_tokens = 9")]
    assert passed(*lines, size=size) == (lines, 0)


@pytest.mark.parametrize("size", [0, 1])
def test_a_line_with_a_clock_in_a_text_of_a_server_without_one_is_of_the_text(size: int) -> None:
    """Rows that are due with it as well: they do not end the text. After the text another server may have a clock."""
    clocked = [f"0.10.000.000 I {line}" for line in (LINE, *_bare(7, FORCED, NEW_TEXT, *ROWS_OF_IDS))]
    rows = _bare(7, *ROWS_OF_IDS)
    begin, new = _bare(7, OLD_TEXT, NEW_TEXT)
    lines = [begin, *clocked, new, *clocked, *rows, LINE, clocked[0]]
    read = [begin, *[""] * 5, new, *[""] * 5, *rows, LINE, clocked[0]]
    assert passed(*lines, size=size) == (read, 10)


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", forgeries.UNCLOCKED)
def test_no_forgery_with_a_clock_changes_the_report_of_a_log_without_clocks(case: str) -> None:
    row = forged.changed(case, some(forgeries.with_clocks(case)))
    assert row.ratio == 0, row.measured


@pytest.mark.parametrize("size", [0, 1])
def test_rows_of_ids_that_come_after_all_show_that_the_text_continued(size: int) -> None:
    """Who writes a prompt may know slot and task, and end the text with a row of the request, or with another text."""
    forged = [*_bare(7, FORCED), LINE]
    rows = _bare(7, *ROWS_OF_IDS)
    begin = _bare(7, OLD_TEXT, NEW_TEXT)
    assert passed(*begin, *forged, *rows, LINE, size=size)[1] == 2
    before = [*_bare(7, OLD_TEXT), *forged, *_bare(7, NEW_TEXT), *rows, LINE]
    assert passed(*before, size=size)[1] == 2
    other = [*begin, *forged, *_bare(900, OLD_TEXT, NEW_TEXT), *rows, LINE]
    assert passed(*other, size=size)[1] >= 2
    whole = [*begin, *forged, *_bare(900, OLD_TEXT, NEW_TEXT, *ROWS_OF_IDS), LINE, *rows, LINE]
    assert passed(*whole, size=size)[1] >= 3


def test_a_row_of_spaces_takes_time_like_its_length() -> None:
    """It looks like a list of token ids up to its end; 300 KB took ten minutes."""
    row = _bare(7, " " * 300_000 + "x")
    assert passed(*_bare(7, OLD_TEXT), *row) == ([*_bare(7, OLD_TEXT), *row], 1)


def test_bodies_are_searched_for_where_the_server_logs_at_the_debug_level() -> None:
    """Which is noticed at the same line, however the log is cut."""
    info, debug = ["0.09.000.000 I x"] * 500, ["0.09.000.000 D x"] * 15_000
    lines = [*info, BODY, LINE, *info, *debug, BODY, LINE, "0.10.000.010 D x"]
    expected = [*lines[:-2], "", lines[-1]]
    assert all(passed(*lines, size=size) == (expected, 1) for size in (0, 1, 7, 5000))


# ---- whole reports


def _rendered(log: bytes, step: int) -> bytes:
    analyzer, out = Analyzer(), io.BytesIO()
    analyzer.open("log")
    for at in range(0, len(log), step):
        analyzer.feed(log[at : at + step])
    report_v1.render(analyzer.finish(), out)
    return out.getvalue()


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", forgeries.CLOCKED)
def test_the_report_does_not_depend_on_where_the_log_was_cut(case: str) -> None:
    for forgery in [*list(forgeries.forgeries(case))[::60], *list(forgeries.in_bodies(case))[::60]]:
        log = forgery.planted.encode()
        whole = _rendered(log, len(log))
        assert all(_rendered(log, step) == whole for step in (997, 4096))


def test_every_format_says_how_many_lines_looked_like_the_servers() -> None:
    forgery = next(forgeries.forgeries(forgeries.CLOCKED[0]))
    analyzer = Analyzer()
    analyzer.open("log")
    analyzer.feed(forgery.planted.encode())
    report = analyzer.finish()
    assert report.inputs[0].imitations == forgery.lines == 3
    for form in ("text", "markdown", "html"):
        out = io.BytesIO()
        base.write(form, report, out, base.Appearance())
        assert "3 lines inside a prompt looked like server log lines" in out.getvalue().decode().replace("&#39;", "'")
