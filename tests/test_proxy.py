"""The proxy: bytes pass unchanged, each request is told and recorded, fixes change what they say and nothing else."""

from __future__ import annotations

import errno
import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict
from proxy_exchanges import Server, differences, free_port
from schemas import schema_of

from cachedoctor.knowledge.texts import common_prefix
from cachedoctor.live.proxy import body_fixes, record_file, relay
from cachedoctor.live.proxy.body_fixes import BodyFixer, Fixed
from cachedoctor.live.proxy.connections import passing, went_through
from cachedoctor.live.proxy.exchange import Change, Exchange, PassedRequest, ProxyOptions
from cachedoctor.live.proxy.held_bytes import EACH, AnswerCopy, BodyCopy, HeldBytes, ReplyCopy
from cachedoctor.live.proxy.looking import Looking
from cachedoctor.live.proxy.passed_requests import line
from cachedoctor.live.proxy.record_file import RecordFile, unpacked, without_texts
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import inputs

HEADER = "x-anthropic-billing-header: cc_version=2.1.36.a; cc_entrypoint=cli; cch=%s;"
CHAT = "/v1/chat/completions"


class Proxy:
    """The command as a process of its own."""

    def __init__(self, upstream: str, *options: str, out: str = "") -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "cachedoctor", "proxy", "--upstream", upstream, "-f", "jsonl"]
        command += ["--listen", f"127.0.0.1:{self.port}", *options]
        with open(out or os.devnull, "wb") as lines:
            to = lines if out else subprocess.PIPE
            self.process = subprocess.Popen(command, stdout=to, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()

    def end(self) -> tuple[int, list[dict[str, object]]]:
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, [json.loads(text) for text in out.splitlines()]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[Proxy]:
    found = Proxy(f"http://127.0.0.1:{server.port}")
    yield found
    found.process.kill()
    found.process.communicate()


def test_exchanges_are_those_of_a_direct_connection(server: Server, proxy: Proxy) -> None:
    assert differences(server, proxy.port, range(15)) == []


def test_the_server_hears_that_a_client_left(server: Server, proxy: Proxy) -> None:
    server.left.clear()
    client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    client.request("POST", "/endless", b"{}")
    answer = client.getresponse()
    assert answer.read(5) == b"data:"
    answer.close()
    client.close()
    assert server.left.wait(1.0)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks the kernel of Linux")
def test_a_client_that_leaves_does_not_end_the_proxy(proxy: Proxy) -> None:
    """Whether it is written to just then is a matter of microseconds; that the signal of it is ignored is none."""
    status = Path(f"/proc/{proxy.process.pid}/status").read_text()
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    assert ignored >> (signal.SIGPIPE - 1) & 1


def test_bytes_that_are_not_http_are_quoted_nowhere_and_stop_nothing(server: Server, proxy: Proxy) -> None:
    """What the proxy wrote on its errors is asserted where it ends, below."""
    for head in (b"POST /v1/x?key=\xff", b"GET / HTTP/1.1\r\nAuthorization: Bearer \x00", b"\x16\x03\x01"):
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
            client.sendall(head + b" HTTP/1.1\r\n\r\n")
            assert b" 400 " in client.recv(99)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
        head = (
            b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: \xff\r\nContent-Length: 2\r\n\r\n{}"
            % CHAT.encode()
        )
        client.sendall(head)
        assert b" 400 " in client.recv(99)


@pytest.mark.sweep
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is full, on Linux")
def test_lines_that_find_no_room_are_missed_with_a_word(server: Server) -> None:
    proxy = Proxy(f"http://127.0.0.1:{server.port}", out="/dev/full")
    for _ in range(3):
        client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
        client.request("POST", CHAT, json.dumps({"messages": [{"role": "user", "content": "hello"}]}))
        client.getresponse().read()
        client.close()
    proxy.process.send_signal(signal.SIGTERM)
    _, errors = proxy.process.communicate(timeout=60)
    assert proxy.process.returncode == 0
    assert errors == (
        "cachedoctor: warning: the standard output: cannot be written (No space left on device); requests are still "
        "forwarded, and no more lines are written\n"
    )


def test_it_drains_and_says_what_it_saw(server: Server, proxy: Proxy) -> None:
    client = socket.create_connection(("127.0.0.1", proxy.port))
    client.sendall(b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nX-Seed: 5\r\nContent-Length: 2\r\n\r\n{")
    time.sleep(0.2)
    proxy.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    assert proxy.process.poll() is None
    client.sendall(b"}")
    assert client.recv(9) == b"HTTP/1.1 "
    client.close()
    out, errors = proxy.process.communicate(timeout=30)
    assert proxy.process.returncode == 0
    assert errors == ""
    for text in out.splitlines():
        validate("proxy", json.loads(text))
    faults = {told.get("fault", "") for told in map(json.loads, out.splitlines())}
    assert "the client disconnected" in faults
    assert "Bearer" not in out
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port))


@pytest.mark.sweep  # two more processes: a second of CPU time
def test_a_server_that_is_down_is_a_502_of_one_line() -> None:
    found = Proxy("http://127.0.0.1:9")
    try:
        status, words = posted(found.port)
        assert (status, words.count(b"\n")) == (502, 1)
        assert words.startswith(b"cachedoctor proxy: http://127.0.0.1:9: cannot be reached")
        code, told = found.end()
        assert code == 0
        assert [(one["status"], "cannot be reached" in str(one["fault"])) for one in told] == [(502, True)]
    finally:
        found.process.kill()


@pytest.mark.sweep  # two more processes
def test_told_twice_it_ends_at_once(server: Server) -> None:
    """One request is endless, and a body takes a fix and what looks at it many seconds."""
    found = Proxy(f"http://127.0.0.1:{server.port}", "--fix", "freeze-clock", "--fix", "pin-mid-system")
    body = json.dumps({"messages": [{"role": "user", "content": "word 12:30 "}] * 400_000}).encode()
    clients = []
    try:
        for path, sent in ((b"/endless", b"{}"), (b"/v1/x", body)):
            clients.append(socket.create_connection(("127.0.0.1", found.port)))
            clients[-1].sendall(
                b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path, len(sent)) + sent
            )
        assert clients[0].recv(9) == b"HTTP/1.1 "
        found.process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            found.process.wait(1)
        begun = time.monotonic()
        found.process.send_signal(signal.SIGINT)
        out, errors = found.process.communicate(timeout=60)
        assert time.monotonic() - begun < 5
    finally:
        found.process.kill()
    assert (found.process.returncode, errors) == (130, "")
    told = [json.loads(text) for text in out.splitlines()]
    assert [one["fault"] for one in told] == ["the proxy was stopped"] * 2


@pytest.mark.sweep  # two more processes
def test_told_twice_it_does_not_look_at_what_waits(server: Server) -> None:
    found = Proxy(f"http://127.0.0.1:{server.port}")
    body = json.dumps({"messages": [{"role": "user", "content": "word 12:30 "}] * 50_000}).encode()
    try:
        for _ in range(6):
            client = http.client.HTTPConnection("127.0.0.1", found.port, timeout=30)
            client.request("POST", "/v1/x", body, {"X-Seed": "5"})
            client.getresponse().read()
            client.close()
        found.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        found.process.send_signal(signal.SIGINT)
        out, errors = found.process.communicate(timeout=60)
    finally:
        found.process.kill()
    assert (found.process.returncode, errors) == (130, "")
    told = [json.loads(text).get("untold") for text in out.splitlines()]
    assert len(told) == 6
    assert "the proxy stopped before this request was checked" in told


def test_it_knows_its_own_requests() -> None:
    name = b"cachedoctor-0123"
    assert went_through([(b"Via", b"1.1 other, 1.1 " + name)], name.decode())
    assert not went_through([(b"Via", b"1.1 other")], name.decode())


def posted(port: int) -> tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    client.request("POST", CHAT, b'{"messages":[]}')
    answer = client.getresponse()
    return answer.status, answer.read()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--upstream", "ftp://x"], "is not a server address"),
        (["--upstream", "http://:hunter2@x"], "--upstream: the address contains a user name or password"),
        (["--upstream", "http://x/?key=hunter2"], "is not a server address"),
        (["--upstream", "http://x", "--listen", "8090"], "is not an address; give HOST:PORT"),
        (["--upstream", "http://x", "--listen", "[]:8090"], "is not an address; give HOST:PORT"),
        (["--upstream", "http://x", "--keep-text"], "--keep-text needs --record FILE"),
        (["--upstream", "http://x", "--dry-run"], "--dry-run needs --fix NAME"),
        (["--upstream", "http://x", "--fix", "all"], "choose from strip-billing-header, sort-tools, freeze"),
    ],
)
def test_wrong_usage_is_one_line(options: list[str], words: str) -> None:
    from typer.testing import CliRunner

    from cachedoctor.cli import make_app

    found = CliRunner().invoke(make_app(["proxy"]), ["proxy", *options])
    assert found.exit_code != 0
    said = (str(found.exception) + found.output).replace("\n", " ")
    assert words in said
    assert "hunter2" not in said


def test_the_command_names_every_fix() -> None:
    import typer

    from cachedoctor.cli import make_app
    from cachedoctor.cli import proxy as command

    assert command._FIXES == body_fixes.NAMES
    context = typer.Context(typer.main.get_command(make_app()))
    option = next(one for one in context.command.commands["proxy"].params if one.name == "fix")  # type: ignore[attr-defined]
    assert all(name in option.help for name in body_fixes.NAMES)
    page = (Path(__file__).parent.parent / "docs" / "usage" / "proxy.md").read_text()
    assert all(f"| `{name}` |" in page for name in body_fixes.NAMES)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/x?k=1", "/v1/x"),
        ("http://u:hunter2@h:1/v1/x", "/v1/x"),
        ("http://u:hunter2@h", "/"),
        ("/\udcff", "/\\udcff"),
    ],
)
def test_a_path_that_is_told_holds_no_password_and_can_be_written(target: str, path: str) -> None:
    request = make_mocked_request("POST", "/")
    request._message = request._message._replace(path=target)
    request._headers = CIMultiDict({"Content-Encoding": "\udcff"})  # type: ignore[assignment]
    found = relay._Passage(request, HeldBytes(), ProxyOptions()).exchange()
    assert found.path == path
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Exchange) == found


@pytest.mark.sweep  # a process for it
def test_a_port_that_is_taken() -> None:
    from cachedoctor.live.proxy.serving import Address, ServingPlan, serve

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = Address("127.0.0.1", taken.getsockname()[1])
        plan = ServingPlan("http://127.0.0.1:9", where, None, ProxyOptions(), lambda _: None, lambda *_: None)
        with pytest.raises(CacheDoctorError, match="the port is in use"):
            serve(plan)


def test_only_fields_of_one_connection_stay_behind() -> None:
    fields = [(b"Connection", b"close, X-Mine"), (b"x-mine", b"1"), (b"TE", b"gzip"), (b"Accept", b"*/*")]
    fields += [(b"Content-Length", b"3"), (b"Cookie", b"a"), (b"cookie", b"b"), (b"Proxy-Authorization", b"x")]
    assert passing(fields) == [(b"Accept", b"*/*"), (b"Content-Length", b"3"), (b"Cookie", b"a"), (b"cookie", b"b")]
    # Who names the length of the body a field of the connection must not take it from the next reader.
    assert passing([(b"Connection", b"content-length"), (b"Content-Length", b"3")]) == [(b"Content-Length", b"3")]


def validate(name: str, told: dict[str, object]) -> None:
    """Hold a line against its schema, in which all of its keys must stand."""
    schema_of(name).validate(told)
    assert set(told) <= set(schema_of(name).schema["properties"])


def exchange(number: int, body: object, prompt: int | None = None, cached: int | None = None) -> Exchange:
    usage = {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached}}
    answer = b"" if prompt is None else json.dumps({"id": "a", "choices": [], "usage": usage}).encode()
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Exchange(float(number), "POST", CHAT, 200, 0.5, 0.1, data, answer=answer)


def chat(system: str, *turns: str, **more: object) -> dict[str, object]:
    said = [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(turns)]
    return {"model": "m", "messages": [{"role": "system", "content": system}, *said], **more}


RULES = "\nYou are Claude Code. " + "Follow the rules of the house. " * 40
FIRST, REPLY = "What does the first file say, in a few words?", "It says nothing of note, as far as I can see."


def test_a_request_is_compared_with_the_one_before_it_in_its_conversation(tmp_path: Path) -> None:
    looking = Looking(ProxyOptions(str(tmp_path / "r.jsonl")))
    seen = [
        looking.at(exchange(1, chat(HEADER % "abcde" + RULES, FIRST), 300, 0)),
        looking.at(
            exchange(2, chat("Another program " + RULES[20:], "Which day of the week is it today, please?"), 9, 0)
        ),
        looking.at(exchange(3, chat(HEADER % "abcdf" + RULES, FIRST, REPLY, "Go on"), 330, 20)),
        looking.at(exchange(4, chat(HEADER % "abcdf" + RULES, FIRST, REPLY, "Go on", REPLY, "On"), 350, 330)),
    ]
    looking.close()
    assert [one.conversation for one in seen] == [1, 2, 1, 1]
    assert [one.change and one.change.kind for one in seen] == [None, None, "billing-header", "appended"]
    # The request had 300 tokens, all of which the next one sends again but its header: 20 were reused.
    assert [one.recomputed for one in seen] == [None, None, 280, 0]
    assert "280 tokens of the previous prompt recomputed" in line(seen[2])
    said = "350 prompt tokens, 330 reused (94 %); 0.50 s; /v1/chat/completions 200; only extended"
    assert line(seen[3]).endswith(said)
    text = (tmp_path / "r.jsonl").read_text()
    assert stat.S_IMODE((tmp_path / "r.jsonl").stat().st_mode) == 0o600
    for one in seen:
        validate("proxy", msgspec.to_builtins(one))
    for record in text.splitlines():
        validate("proxy-record", json.loads(record))
    for word in ("Claude", "rules", "abcd", "file", "Another"):
        assert word not in text
    assert len(inputs.load_sent(str(tmp_path / "r.jsonl"))) == 4


def test_on_a_terminal_a_request_breaks_at_words_and_begins_with_its_reuse() -> None:
    seen = PassedRequest(0.0, CHAT, 200, 1.0, prompt_tokens=1526, cached_tokens=59, recomputed=1413, conversation=1)
    seen.change = Change("timestamp", "the time of the request, " + "new in every one " * 6, "messages[0].content")
    first, *others = line(seen, width=80).split("\n")
    assert first[9:] == "#1  1,526 prompt tokens, 59 reused (4 %); 1.00 s; /v1/chat/completions"
    assert len(others) > 1
    assert all(row.startswith(" " * 13) and row[13] != " " and len(row) <= 80 for row in others)
    assert " ".join([first, *(row.strip() for row in others)]) == line(seen)


def clocked(time: str, question: str, words: str = RULES) -> dict[str, object]:
    return chat(f"It is {time}. {words}", question)


def test_single_turns_with_one_prompt_after_a_clock_are_compared() -> None:
    looking = Looking(ProxyOptions())
    seen = [
        looking.at(exchange(1, clocked("12:00:01", "Is the first file in order, in one word?"), 300, 0)),
        looking.at(exchange(2, clocked("12:00:07", "And what does the second one say of boats?"), 310, 5)),
        looking.at(exchange(3, clocked("12:00:09", "How many boats are in?", "You count boats. " * 40), 200, 0)),
        looking.at(exchange(4, clocked("12:00:12", "Are there more files than these?"), 290, 5)),
    ]
    looking.close()
    assert [one.conversation for one in seen] == [1, 1, 2, 1]
    assert [one.change and one.change.kind for one in seen] == [None, "timestamp", None, "timestamp"]
    assert [one.recomputed for one in seen] == [None, 295, None, 284]


def test_a_chat_beside_one_that_continued_is_a_new_conversation_in_spite_of_its_clock() -> None:
    looking = Looking(ProxyOptions())
    rest = (REPLY, "And what does the second one say of boats?")
    seen = [
        looking.at(exchange(1, clocked("12:00:01", FIRST), 300, 0)),
        looking.at(exchange(2, chat(f"It is 12:00:02. {RULES}", FIRST, *rest), 330, 20)),
        looking.at(exchange(3, clocked("12:00:03", "Which day of the week is it today, please?"), 300, 5)),
    ]
    looking.close()
    assert [one.conversation for one in seen] == [1, 1, 2]
    assert seen[2].change is None


def test_what_only_continues_and_was_lost_is_not_a_fault_of_the_client() -> None:
    seen = PassedRequest(0.0, CHAT, 200, 1.0, prompt_tokens=400, cached_tokens=100, recomputed=200, conversation=1)
    seen.change = Change("appended", "text was added at the end")
    assert line(seen).endswith(
        "only extended; 200 tokens of the previous prompt recomputed, although the client changed nothing in it"
    )


def test_unknown_is_not_zero() -> None:
    looking = Looking(ProxyOptions())
    seen = [looking.at(exchange(n, chat("You are", FIRST), 50 if n == 1 else None, 0)) for n in (1, 2)]
    assert seen[1].prompt_tokens is None
    assert seen[1].recomputed is None
    assert "prompt length unknown" in line(seen[1])
    for odd in (b"", b"\xff", b"[1]", b'{"messages":1}', b'{"messages":[{"role":"user"', b"[" * 100_000):
        told = looking.at(exchange(3, odd))
        assert told.conversation is None
    looking.close()


def test_a_line_controls_no_terminal() -> None:
    seen = PassedRequest(0.0, "/v1\x1b[2J\n", 200, 1.0, conversation=1)
    seen.change = Change("other", "\x1b]0;x\x07", "messages[0]\r")
    assert all(char.isprintable() for char in line(seen))


def test_dry_run_says_what_the_fix_then_keeps() -> None:
    looking = Looking(ProxyOptions(fixes=("strip-billing-header",), dry_run=True))
    looking.at(exchange(1, chat(HEADER % "abcde" + RULES, FIRST), 300, 0))
    seen = looking.at(exchange(2, chat(HEADER % "abcdf" + RULES, FIRST, REPLY, "Go on"), 330, 20))
    looking.close()
    assert seen.would_reuse is not None
    # Of 330 tokens the header, the reply and the new question cannot be reused: between 230 and 300 can.
    assert 230 < seen.would_reuse < 300
    assert seen.would_save == seen.would_reuse - 20
    assert seen.edits == [f"strip-billing-header: dropped {len(HEADER % 'abcdf') + 2} bytes of the system prompt"]


def fix(body: bytes, names: list[str]) -> Fixed:
    return BodyFixer(names).fix(body, CHAT, b"")


BLOCK = '{"type": "text", "text": "%s"}'


def test_the_block_of_the_header_goes_and_nothing_else() -> None:
    before, after = '{"system": [%s,\n %s], "messages": [1.50]}', '{"system": [%s], "messages": [1.50]}'
    header, rest = BLOCK % (HEADER % "a1b2c"), BLOCK % "You \\u00e4re  caf\u00e9"
    found = fix((before % (header, rest)).encode(), ["strip-billing-header"])
    assert found.body == (after % rest).encode()


def test_the_header_before_a_text_goes_with_its_line_ends() -> None:
    body = '{"messages":[{"role":"system","content":"' + HEADER % "a1b2c" + '\\n\\nYou are"}], "n" : 1e2}'
    expected = '{"messages":[{"role":"system","content":"You are"}], "n" : 1e2}'
    assert fix(body.encode(), ["strip-billing-header"]).body == expected.encode()


@pytest.mark.parametrize(
    "body",
    [
        '{"messages":[{"role":"user","content":"x-anthropic-billing-header: cch=1;\\nhi"}]}',  # not the system prompt
        '{"system":"You said x-anthropic-billing-header: cch=1;"}',  # not its beginning
        '{"system":"x-anthropic-billing-header: cch=1"}',  # half a header
        '{"system":"x-anthropic-billing-header: cch=1;"}',  # nothing would be left
        '{"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"}]}',
        '{"system":"x-anthropic-billing-header: cch=1;a","system":"x"}',  # which of them is meant?
        '{"system":"x-anthropic-billing-header: cch=1;a"',  # no JSON
        '{"tools":[{"name":"b"},{"name":"b"}]}',
        '{"tools":[{"name":"b"},{"title":"a"}]}',
        '{"tools":[{"name":"a"},{"name":"b"}]}',
    ],
)
def test_what_is_not_recognised_stays(body: str) -> None:
    assert fix(body.encode(), ["strip-billing-header", "sort-tools"]) == Fixed(body.encode())


def test_tools_are_sorted_and_keep_their_bytes() -> None:
    body = '{"tools": [ {"function": {"name":"b",  "x":1}} ,\n{"name":"a"}, {"name":"c"}], "z":0}'
    found = fix(body.encode(), ["sort-tools"])
    assert found.body == b'{"tools": [ {"name":"a"} ,\n{"function": {"name":"b",  "x":1}}, {"name":"c"}], "z":0}'
    assert found.edits == ("sort-tools: moved 2 of 3 tools",)


def test_digests_keep_shape_beginning_and_length() -> None:
    long = "Some words of a prompt that are nobody's business. " * 40
    tool = {"name": "read", "parameters": {"type": "object", "properties": {"secret_key": {"default": 12345}}}}
    a, b = (without_texts(chat(long + end, tools=[tool], temperature=0.5)) for end in ("one", "two"))
    x, y = (found["messages"][0]["content"] for found in (a, b))
    assert 0.8 * len(x) < common_prefix(x, y) < len(x)
    assert a["temperature"] == 0.5
    assert a["messages"][0]["role"] == "system"
    text = json.dumps(a)
    assert not any(word in text for word in ("words", "secret", "12345", "read", "business"))
    from cachedoctor.prompts.tokenizers.base import pieces

    assert abs(len(pieces().encode(x)) - len(pieces().encode(long + "one"))) <= len(long) / 256 + 1


def test_token_ids_are_texts() -> None:
    found = without_texts({"prompt": [101, 102, "secret", 103], "input_ids": [[104, 105]], "stream": True})
    assert [type(item) for item in found["prompt"]] == [int, int, str, int]
    assert len(found["input_ids"][0]) == 2
    assert not set(range(101, 106)) & {*found["prompt"], *found["input_ids"][0]}
    assert found["stream"] is True


def test_a_record_that_does_not_fit_is_not_there_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.jsonl"
    records = RecordFile(str(path), 1000)
    one = record_file.MARK + b',"n":1}'
    assert records.add(one) == ""
    real = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) > 10:
            return real(file, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(record_file.os, "write", full)
    assert records.add(one) == f"{path}: cannot be written: No space left on device; requests are still forwarded"
    assert records.add(one) == ""  # it is said once
    assert path.read_bytes() == one + b"\n"
    monkeypatch.undo()
    assert "can be written again" in records.add(one)
    assert path.read_bytes() == (one + b"\n") * 2
    records.close()


def test_half_a_line_of_a_crash_goes_and_strangers_files_stay(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    one = record_file.MARK + b',"n":1}\n'
    path.write_bytes(one + one[:20])
    RecordFile(str(path), 1000).close()
    assert path.read_bytes() == one
    path.write_bytes(b"my notes\n")
    path.chmod(0o644)
    with pytest.raises(CacheDoctorError, match="contains data that is not a proxy record"):
        RecordFile(str(path), 1000)
    assert path.read_bytes() == b"my notes\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    with pytest.raises(CacheDoctorError, match="cannot be written"):
        RecordFile(str(tmp_path), 1000)
    (tmp_path / "new.jsonl.1").write_bytes(b"my notes\n")
    with pytest.raises(CacheDoctorError, match=r"new\.jsonl\.1: contains no proxy records"):
        RecordFile(str(tmp_path / "new.jsonl"), 1000)


def test_a_file_of_records_is_put_aside_at_its_size(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    one = record_file.MARK + b',"n":1}'
    records = RecordFile(str(path), 100)
    assert [records.add(one) for _ in range(3)] == ["", "", ""]
    assert "longer than --record-size" in records.add(one * 10)
    records.close()
    assert path.read_bytes() == one + b"\n"
    assert (tmp_path / "r.jsonl.1").read_bytes() == (one + b"\n") * 2


def test_a_file_that_cannot_be_put_aside_is_written_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.jsonl"
    one = record_file.MARK + b',"n":1}'
    records = RecordFile(str(path), 100)
    records.add(one)
    records.add(one)

    def refused(path: str) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(record_file, "_opened", refused)
    assert "Too many open files" in records.add(one)
    monkeypatch.undo()
    assert os.fstat(records._file).st_ino == (tmp_path / "r.jsonl.1").stat().st_ino  # still open: no number went free
    records.close()


def test_copies_are_bounded() -> None:
    held = HeldBytes(EACH + 10)
    first, second = BodyCopy(held), BodyCopy(held)
    first.add(b"x" * EACH)
    second.add(b"y" * 11)
    assert second.whole() is None
    assert second.untold == "other long bodies used the space"
    first.add(b"x")
    assert first.untold == "the body is longer than 32 MiB"
    assert held.take(EACH + 10)


def test_answers_share_one_bound_with_bodies() -> None:
    held = HeldBytes(100)
    line = b'data: {"usage": {"prompt_tokens":3}}\n'
    streams = [AnswerCopy(held, is_stream=True) for _ in range(3)]
    for copy in streams:
        copy.add(b"data: words\n" * 20 + line)
    assert [copy.told() for copy in streams] == [line, line, b""]
    whole = AnswerCopy(held, is_stream=False)
    whole.add(b"x" * 20)
    whole.add(b"x" * 20)
    assert whole.told() == b""
    assert sum(copy.size for copy in [*streams, whole]) == 2 * len(line)
    held.give_back(2 * len(line))
    assert held.take(100)
    assert not held.take(1)
    long = ReplyCopy(HeldBytes(10), is_stream=False)
    long.add(b'{"choices":[]}')
    assert (long.message(), long.size) == (None, 0)


def test_of_a_stream_only_what_tells_is_kept() -> None:
    copy = AnswerCopy(HeldBytes(), is_stream=True)
    for part in (b'data: {"choices":["a"]}\n\nda', b'ta: {"usa', b'ge": {"prompt_tokens":3}}\n', b"\ndata: [DONE]\n\n"):
        copy.add(part)
    assert copy.told() == b'data: {"usage": {"prompt_tokens":3}}\ndata: [DONE]\n'


def test_bodies_are_unpacked_within_bounds() -> None:
    assert unpacked(zlib.compress(b"abc"), "deflate") == b"abc"
    assert unpacked(b"abc", "identity") == b"abc"
    assert unpacked(b"abc", "br") is None
    assert unpacked(b"abc", "gzip") is None
    assert unpacked(zlib.compress(bytes(65 << 20), 1), "deflate") is None
