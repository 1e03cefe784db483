"""``watch`` on what a proxy writes: a row for each conversation, with what changed in it and what that cost."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command import one_line, run, start
from rich.cells import cell_len
from screens import on_terminal
from test_cli_live import read_until

from cachedoctor.cli import proxy_watch
from cachedoctor.live.proxy import passed_requests
from cachedoctor.live.proxy.exchange import Exchange, ProxyOptions
from cachedoctor.live.proxy.looking import Looking
from cachedoctor.live.proxy.passed_requests import PassedRequests, is_passed
from cachedoctor.model.view import ConversationView, PassingView
from cachedoctor.report.live.proxy_screen import draw, summary
from cachedoctor.report.live.screen import Screenful

HEADER = "x-anthropic-billing-header: cc_version=2.1.36.a; cc_entrypoint=cli; cch=%s;"
CLERK, COUNT = "You are the clerk of a harbour office. " * 20, "Count the boats that come in, one by one. " * 30
CHAT = "/v1/chat/completions"


def chat(head: str, *users: str) -> bytes:
    messages = [{"role": "system", "content": head}]
    for number, text in enumerate(users):
        messages += [{"role": "assistant", "content": "Noted, thank you."}] * (number > 0)
        messages.append({"role": "user", "content": text})
    return json.dumps({"model": "otter-8b", "messages": messages}).encode()


def exchanges() -> Iterable[Exchange]:
    """Two conversations that come in turn; the second one's last request fails."""
    asked = [
        (chat(HEADER % "aaaa1" + CLERK, "one"), 1500, 0),
        (chat(COUNT, "a"), 900, 0),
        (chat(HEADER % "bbbb2" + CLERK, "one", "two"), 1560, 59),
        (chat(COUNT, "a", "b"), 960, 899),  # of the last reply's opening the server computes a token again
        (chat(HEADER % "cccc3" + CLERK, "one", "two", "three"), 1620, 59),
        (chat(COUNT, "a", "b", "c"), 1010, 0),  # the server lost it
        (chat(COUNT, "a", "b", "c", "d"), None, None),
    ]
    for number, (body, prompt, cached) in enumerate(asked):
        usage = {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached}}
        answer = b"" if prompt is None else json.dumps({"id": "x", "model": "otter-8b", "usage": usage}).encode()
        yield Exchange(
            1790000000.5 + number, "POST", CHAT, 200 if answer else 503, 0.4, 0.1, body, answer=answer
        )  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a proxy writes of these exchanges, in both forms."""
    path = tmp_path_factory.mktemp("proxy") / "requests.jsonl"
    looking = Looking(ProxyOptions(record=str(path)))
    lines = "".join(json.dumps(msgspec.to_builtins(looking.at(one))) + "\n" for one in exchanges())
    looking.close()
    return {"records": path.read_bytes(), "lines": lines.encode()}


def view_of(*chunks: bytes) -> PassingView:
    passed = PassedRequests("requests.jsonl")
    for chunk in chunks:
        passed.take(chunk)
    return passed.view()


@pytest.mark.parametrize("form", ["records", "lines"])
def test_a_row_for_each_conversation(written: dict[str, bytes], form: str) -> None:
    view = view_of(written[form])
    first, second = view.conversations
    assert (first.number, first.requests, first.prompt_tokens, first.cached_tokens) == (1, 3, 1620, 59)
    # 1,500 - 59 and 1,560 - 59 tokens of the prompts before.
    assert (first.recomputed, first.changes, first.lost) == (1441 + 1501, 2, 0)
    assert (first.kind, first.place) == ("billing-header", "messages[0].content")
    assert (second.requests, second.recomputed, second.changes, second.lost) == (4, 960, 0, 1)
    assert (second.prompt_tokens, second.cached_tokens, second.trouble) == (None, None, "503"), "unknown is not 0"
    assert (view.requests, view.failed, view.counted) == (7, 1, 6)
    assert (view.prompt_tokens, view.cached_tokens, view.recomputed) == (7550, 1017, 2942 + 960)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_may_come_in_any_parts(written: dict[str, bytes], size: int) -> None:
    data = written["lines"]
    assert view_of(*(data[at : at + size] for at in range(0, len(data), size))) == view_of(data)


def test_a_line_that_has_not_ended_is_not_a_line_yet(written: dict[str, bytes]) -> None:
    assert view_of(written["records"][:-1]).requests == 6
    assert view_of(written["records"][:-1]).unread == 0


def test_what_is_not_a_line_of_a_proxy_is_counted(written: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    odd = b'{"a": 1}\nnot json\n\n{"sent": "x"}\n\xff\xfe\n' + b'{"recorder":"cachedoctor proxy","sent":\n'
    assert (view_of(odd, written["lines"]).unread, view_of(odd, written["lines"]).requests) == (5, 7)
    monkeypatch.setattr(passed_requests, "_LONGEST", 100)
    assert view_of(written["lines"]).unread == 7
    assert view_of(b"a" * 300 + b"\n").unread == 1


@pytest.mark.parametrize(
    "more", [{"sent": 1e300}, {"sent": -1.0}, {"prompt_tokens": -5}, {"recomputed": 10**30}, {"seconds": 1e99}]
)
def test_numbers_that_cannot_be_are_not_line(more: dict[str, Any]) -> None:
    view = view_of(line(1), line(1, **more))
    assert (view.requests, view.unread) == (1, 1)


def test_a_proxy_that_is_started_again_numbers_again(written: dict[str, bytes]) -> None:
    view = view_of(written["records"], written["records"])
    assert [(row.number, row.requests) for row in view.conversations] == [(1, 3), (1, 3), (2, 4), (2, 4)]


def line(number: int, **more: Any) -> bytes:
    change = {"kind": "appended", "explanation": "", **more.pop("change", {})} if "change" in more else None
    row = {"sent": 1.0, "path": CHAT, "status": 200, "seconds": 0.1, "conversation": number, "is_prompt": True}
    return json.dumps(row | more | ({"change": change} if change else {})).encode() + b"\n"


def test_what_no_answer_said_is_unknown() -> None:
    (row,) = view_of(line(1), line(1, change={})).conversations
    assert (row.prompt_tokens, row.cached_tokens, row.recomputed) == (None, None, None)
    text = [row.plain for row in draw(view_of(line(1), line(1, change={})), 80, 24)]
    assert text[1] == "reused    unknown: no response had counts"
    assert text[4].split() == ["#1", "2", "unknown", "unknown", "unknown", "only", "extended"]


def test_a_few_tokens_after_a_reply_are_not_loss() -> None:
    """A template may write the opening of a reply again."""
    (row,) = view_of(line(1), line(1, change={}, recomputed=16), line(1, change={}, recomputed=17)).conversations
    assert (row.recomputed, row.lost) == (17, 1)


def test_the_oldest_conversations_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_requests, "_MOST", 3)
    view = view_of(*(line(number, sent=float(number)) for number in range(1, 9)))
    assert sorted(row.number for row in view.conversations) == [6, 7, 8]
    assert view.requests == 8


# ---- on the screen


def many(count: int) -> PassingView:
    rows = [
        ConversationView(
            n, 2, "m", 1000 * n, 0, 900 * n, 1, 0, "timestamp", "messages[0].content", "\x1b[31mred\x1b[0m\u202e" * 3
        )
        for n in range(count, 0, -1)
    ]
    return PassingView("/var/log/" + "requests" * 12 + ".jsonl", rows, 2 * count, 0, 0, 0, 0, 7)


@pytest.mark.parametrize(("width", "height"), [(20, 4), (30, 6), (59, 12), (80, 24), (80, 11), (200, 60)])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_any_size(width: int, height: int, count: int) -> None:
    for first in (0, 39):
        for helps in (False, True):
            rows = draw(many(count), width, height, chosen=Screenful(first, helps, True))
            assert len(rows) <= height
            assert all(cell_len(row.plain) <= width for row in rows)
            assert not any(set(row.plain) & set("\x1b\u202e\n") for row in rows)


def test_80_by_24() -> None:
    rows = [row.plain for row in draw(many(40), 80, 24, chosen=Screenful(20, False, True))]
    assert "#    requests    prompt    reused     again  changed" in rows
    assert any(row.startswith("#20         2    20,000         0    18,000  timestamp in messages[0]") for row in rows)
    assert rows[-1] == "q quits   arrows: other conversations   ? help"
    assert len(rows) == 24
    below = next(at for at, row in enumerate(rows) if row.startswith("#20       2 requests"))
    assert rows[below + 1].startswith("changed   timestamp in messages[0].content:")


def test_the_end_lists_all_conversations() -> None:
    rows = [row.plain for row in summary(many(40), 80)]
    assert sum(row.startswith("#") for row in rows) == 41


# ---- the command


def test_which_files_are_a_proxys(written: dict[str, bytes], tmp_path: Path) -> None:
    assert all(is_passed(data[:4096]) for data in written.values())
    for name, data, expected in (
        ("a.jsonl", written["records"], True), ("a.log", written["lines"], True), ("b.jsonl", b"", True),
        ("b.log", b"", False), ("c.jsonl", b'{"sent": 1}\n', False), ("d.log", b"srv init: x\n", False),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(data)
        assert proxy_watch.is_of_proxy(str(tmp_path / name)) is expected, name
    assert not proxy_watch.is_of_proxy(str(tmp_path))
    assert not proxy_watch.is_of_proxy("-")


def test_without_a_terminal_a_line_for_each_request(written: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(written["records"])
    with start("watch", path) as process:
        read_until(process, b"503")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    assert b"\n#1          3     1,620        59     2,942  2 x billing-header in messages[0]." in out


@pytest.mark.parametrize("kind", ["records", "lines"])
def test_a_pipe_of_a_proxy_is_known_by_its_first_line(written: dict[str, bytes], kind: str) -> None:
    done = run("watch", "-", stdin=written[kind])
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\n#1          3     1,620        59     2,942  2 x billing-header in messages[0]." in done.stdout
    refused = run("watch", "-", "--launcher", "compose", stdin=written[kind])
    assert refused.returncode == 2
    one_line(refused, "--launcher: cannot be combined with the output of a proxy")


def test_options_of_logs_are_refused(written: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(written["lines"])
    done = run("watch", path, "--select", "CD101")
    one_line(done, "--select: cannot be combined with the output of a proxy")


@pytest.mark.sweep
def test_on_a_terminal_as_requests_end(written: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"")
    with on_terminal("watch", path) as terminal:
        terminal.wait_for("waiting for the first request", "no conversation yet")
        with path.open("ab") as file:
            file.write(written["records"])
        terminal.wait_for("2 x billing-header", "failed: 503; lost by the server", "? help")
        terminal.type(b"?")
        terminal.wait_for("number of the conversation, given by the proxy")
        terminal.type(b"q")
        report = terminal.end()
    assert terminal.process.returncode == 130
    assert "again     3,902 tokens of earlier prompts recomputed" in report
