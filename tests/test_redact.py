"""No secret survives ``redact``, and the analysis of the redacted log is that of the log."""

from __future__ import annotations

import json
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, content_of, every_case, report_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from secret_places import SECRETS, log_with
from wrapped import docker, jsonl

from cachedoctor.diagnosis.rules.client.cd102_volatile_prefix import volatile_kind
from cachedoctor.diagnosis.rules.client.changes import header_field
from cachedoctor.doctor.redact.redact import Redactor, facts
from cachedoctor.redaction.redact_lines import Printed
from cachedoctor.redaction.stand_ins import StandInNames

sys.path.insert(0, str(ROOT / "benchmarks"))
from redacted import differences, without_quotes

CASE = ROOT / "fixtures" / "cases" / "billing-header-hybrid"
LINES = content_of(CASE).decode().splitlines()


def redacted(log: bytes | str, cuts: tuple[int, ...] = ()) -> bytes:
    """The redacted log, when it arrives cut at ``cuts``."""
    data = log.encode() if isinstance(log, str) else log
    redactor = Redactor()
    ends = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return b"".join(redactor.feed(data[a:b]) for a, b in pairwise(ends)) + redactor.finish()


def one(line: str) -> str:
    """A single line, redacted."""
    return redacted(line + "\n").decode().removesuffix("\n")


def same_report(log: bytes | str) -> list[str]:
    """What is different in the report of the redacted log."""
    return list(differences(without_quotes(report_of(log)), without_quotes(report_of(redacted(log)))))


# ---- what is above the log of an issue

ISSUE = """### Name and Version

version: 11549 (8ad7b3e6f)
built by zqmaker on zqhost

### Command line

```shell
zquser@zqhost:~$ ./zqfolder/llama-server -m /home/zquser/zqmodel.gguf --api-key zqsecret --alias zqalias \\
  -c 16384 --cache-ram 0 -ctk q8_0 --slot-save-path /srv/zqslots --slot-prompt-similarity .50 --no-mmproj
```

### Relevant log output

```shell
{}
```
and zqword below
"""
"""As the form for bugs of llama.cpp has it."""


def session_of(log: bytes | str) -> dict[str, Any]:
    found: dict[str, Any] = report_of(log)["sessions"][0]
    return {name: found[name] for name in ("build", "build_source", "settings")}


@pytest.mark.parametrize("form", ["{}", "> {}"])
def test_the_version_and_the_command_line_of_an_issue_stay(form: str) -> None:
    """They are evidence: without them another cause may be found. Paths, keys and names go all the same."""
    log = "".join(f"{form.format(line)}\n" for line in ISSUE.format("\n".join(LINES[194:275])).split("\n"))
    out = redacted(log).decode()
    assert "zq" not in out
    assert out.count("\n") == log.count("\n")
    assert form.format("version: 11549 (0000000)\n") in out
    kept = "$ llama-server -c 16384 --cache-ram 0 -ctk q8_0 --slot-save-path <path-1>"
    assert form.format(f"{kept} --slot-prompt-similarity 0.50 --no-mmproj\n") in out
    assert session_of(log)["build"] == 11549
    assert session_of(log)["settings"]["cache_ram_mib"]["value"] == 0
    assert session_of(out) == session_of(log)
    assert same_report(log) == []


def test_two_commands_that_differ_stay_hidden() -> None:
    """Neither is evidence."""
    said = "```\nllama-server -c 4096\nllama-server -c 8192\nLLAMA_ARG_CACHE_RAM=zq1\n```\n"
    log = said + "\n".join(LINES[194:275]) + "\n"
    out = redacted(log).decode()
    assert "llama-server" not in out
    assert "-c 8192" not in out
    assert same_report(log) == []


def test_variables_of_an_issue_stay() -> None:
    said = "```\nLLAMA_ARG_CACHE_RAM=0 ZQ_KEY=zqsecret LLAMA_ARG_SWA_FULL=true llama-server -m zq.gguf -c $ZQ\n```\n"
    out = redacted(said + "\n".join(LINES[194:275]) + "\n").decode()
    assert "$ LLAMA_ARG_CACHE_RAM=0 LLAMA_ARG_SWA_FULL=1 llama-server -c <text>\n" in out
    assert "zq" not in out.lower()


# ---- secrets


@pytest.mark.sample(9)
@pytest.mark.parametrize("kind", SECRETS)
def test_no_secret_survives_anywhere(kind: str) -> None:
    log = log_with(SECRETS[kind])
    out = redacted(log).decode()
    assert re.findall(".*zq.*", out, re.IGNORECASE) == []
    assert not any(part in out for part in re.findall(r"\w{9,}", SECRETS[kind]))
    assert out.count("\n") == log.count("\n")
    assert "updating prompt cache" in out, "what the server logs stays"


SECRET = st.text(
    st.sampled_from("gijkmnopqrsuvwxyzGHJKLMNPQRSTUVWXYZ0123456789-_./ é"), min_size=9, max_size=24
).filter(lambda s: re.search(r"[g-zG-Z]{3}", s) is not None)
WRAPPERS = [
    lambda line: line + "\n",
    lambda line: docker(line + "\n"),
    lambda line: docker(line[: len(line) // 2]) + docker(line[len(line) // 2 :] + "\n"),
    jsonl,
    lambda line: f"[50021] {line}\n",
    lambda line: f"Nov 20 12:00:00 box llama[12]: {line}\n",
    lambda line: f"llama-1  | {line}\n",
]
SAMPLES = [line for line in LINES if line.strip()]


@pytest.mark.sweep
@settings(deadline=None, max_examples=80)
@example("000000GGG", 0, 2, WRAPPERS[1], False)
@given(SECRET, st.integers(0), st.integers(0), st.sampled_from(WRAPPERS), st.booleans())
def test_a_secret_at_any_place_of_any_line_is_gone(secret: str, line: int, place: int, wrap: Any, inside: bool) -> None:
    sample = SAMPLES[line % len(SAMPLES)]
    text = sample if inside else wrap(sample).removesuffix("\n")
    at = place % (len(text) + 1)
    planted = text[:at] + secret + text[at:]
    out = redacted(wrap(planted) if inside else planted + "\n").decode()
    assert secret not in out
    for word in re.findall(r"[g-zG-Z]{6,}", secret):
        assert word not in out or word in text


def test_a_secret_that_two_records_share_is_gone() -> None:
    records = docker("0.00.010.665 I srv    load_model: loading model '/home/zqja") + docker("ne/hunterhunter.gguf'\n")
    out = redacted(records).decode()
    assert "zqja" not in out
    assert "hunter" not in out
    assert json.loads(out.split("\n")[0])["log"] == "0.00.010.665 I srv    load_model: loading model '<path-1>'"
    assert json.loads(out.split("\n")[1])["log"] == "\n"


def test_of_the_keys_of_a_record_only_those_of_collectors_stay() -> None:
    """Another may be a name: it gets one for itself, under which the line is found again."""
    records = [{"zqhunter": {"log": line}, "k8s.pod.name": "zqpod", "zqts 2": "x"} for line in LINES[194:275]]
    log = "".join(json.dumps(record) + "\n" for record in records)
    out = redacted(log).decode()
    assert "zq" not in out
    assert set(json.loads(out.split("\n")[0])) == {"key-1", "k8s.pod.name"}
    assert same_report(log) == []


def test_a_number_longer_than_any_of_the_server_is_none() -> None:
    """Where a pointer stands, a key of hexadecimal digits may."""
    line = "0.00.824.587 W srv        update:    - prompt 0x{}:    1901 tokens, checkpoints:  2,     0.317 MiB"
    assert one(line.format("7f0616805480")) == line.format("7f0616805480")
    assert one(line.format("deadbeef" * 8)) == line.format("deadbeef" * 8).replace("0x" + "deadbeef" * 8, "<text-1>")


TOO_LONG = "request (2807 tokens) exceeds the available context size (2048 tokens)"
FORCED = (
    "slot update_slots: id  0 | task 9 | forcing full prompt re-processing due to lack of cache data "
    "(likely due to SWA, see {})"
)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("srv    send_error: task id = 14, error: {}", TOO_LONG),
        (FORCED, "https://github.com/ggml-org/llama.cpp/pull/13194"),
    ],
)
def test_what_stands_around_a_known_text_is_gone(line: str, kept: str) -> None:
    assert kept in one(line.format(kept))
    assert "zq" not in one(line.format(f"{kept}/zqsecret")) + one(line.format(f"zqsecret/{kept}, try increasing it"))


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe\xfazqsecret\n",
        b"slot update_slots: id  0 | task 9 | old: ... zq\xff\xfesecret | \xe9\n",
        b"zq\0sec\0ret\n",
        "zqsecret\n".encode("utf-16-le"),
        b"zqsecret\x85\xe2\x80\xa8zqsecret\x0b\n",
        b"zqsecret without an end",
        b"zq" * (1 << 20),
    ],
)
def test_odd_bytes_do_not_leak(data: bytes) -> None:
    out = redacted(data)
    assert b"zq" not in out
    assert b"secret" not in out
    assert out.decode().count("\n") == data.count(b"\n") + (not data.endswith(b"\n"))


def test_crlf_and_escapes_do_not_change_the_report() -> None:
    log = content_of(CASE)
    assert same_report(log.replace(b"\n", b"\r\n")) == []
    assert same_report(re.sub(rb"(?m)^(?=.)", b"\x1b[32m", log)) == []


# ---- what stays


@pytest.mark.spread(7)
@pytest.mark.sample(4)
@every_case
def test_the_report_of_a_case_stays(case: Path) -> None:
    log = content_of(case)
    assert same_report(log) == []


PASTED = sorted((ROOT / "fixtures" / "excerpts").glob("*.log"))


@pytest.mark.spread(9)
@pytest.mark.sample(7)
@pytest.mark.parametrize("path", PASTED, ids=lambda path: path.stem)
def test_the_report_of_an_excerpt_stays(path: Path) -> None:
    """Lines that only a lenient reader understands are still read: cut, quoted, wrapped, bare, in words of a fork."""
    log = path.read_bytes()
    assert same_report(log) == []
    assert redacted(log).count(b"\n") == log.count(b"\n") + (not log.endswith(b"\n"))


@pytest.mark.parametrize(
    ("line", "safe"),
    [
        (
            "> erased invalidated context checkpoint (pos_min = 9215, jane [...])",
            "erased invalidated context checkpoint (pos_min = 9215 ...",
        ),
        ("slot launch_slot_: processing task, jane", "slot launch_slot_: processing task <text-1>"),
        ("- loading model '/home/jane/x.gg", "<line>"),
        (
            "> Checking checkpoint with [401, 402] (jane = 403) against 172, jane",
            "Checking checkpoint with [401, 402] against 172...",
        ),
        (
            "slot update_slots: id  0 | task 3 | seq_rm of jane failed at p0 = 18800, clearing slot memory",
            "could not remove tokens from position 18800, resetting slot memory",
        ),
        ("0.00.100.200 W slot update_slots: id  0 | task 3 | jane is tired, and says so", "task 3 | <line> failed"),
        (
            "< x-anthropic-billing-header: cc_version=2.1; cc_jane=1; cch=9f3c2;",
            "cc_version=<text-1>; cc_field=<text-2>; cch=<text-3>;",
        ),
        ("< x-anthropic-billing-header: cch=9f3c2; jane", "< x-anthropic-billing-header: <text-1>"),
    ],
)  # fmt: skip
def test_lines_of_an_excerpt(line: str, safe: str) -> None:
    """Words of the message and its values stay, what else is there goes."""
    shown = one(line)
    assert "jane" not in shown
    assert safe in shown


def _wrapped(line: str, number: int) -> dict[str, str]:
    quoted = json.dumps(line)
    return {
        "docker": docker(line + "\n"),
        "docker in parts": docker(line[:40]) + docker(line[40:] + "\n"),
        "cri in parts": f"2026-11-20T12:00:00Z stderr P {line[:9]}\n2026-11-20T12:00:00Z stderr F:t {line[9:]}\n",
        "jsonl": jsonl(line.partition(" I ")[2] or line),
        "compose": f"jane-1  | {line}\n",
        "compose, one space": f"jane | {line}\n",
        "compose of docker": f"jane-1  | {docker(line + chr(10))}",
        "journald": f"Nov 20 12:00:00 janebox llama-server[123]: {line}\n",
        "journald iso": f"2026-11-20T12:00:00+0100 janebox llama[123]: {line}\n",
        "rfc5424": f'<34>1 2026-11-20T12:00:00Z janebox llama 123 ID47 [x@1 user="jane"] {line}\n',
        "router": f"[{50021 + number % 2}] {line}\n",
        "kubectl": f"[pod/jane-{number % 2}/llama] {line}\n",
        "date": f"2026-11-20 12:00:00,123 INFO jane.logger: {line}\n",
        "brackets": f"[jane model {number % 2}] {line}\n",
        "angles": f"<jane-model> {line}\n",
        "slog": f"time=2026-11-20T12:00:00Z level=INFO source=jane.go:1 msg={quoted}\n",
        "lm studio": f"[2026-11-20 12:00:00][DEBUG][jane]\n {line}\n",
        "quote": f"> {line}\n",
    }


@pytest.mark.sweep
@pytest.mark.parametrize("wrapper", _wrapped("", 0))
def test_the_report_of_a_wrapped_log_stays(wrapper: str) -> None:
    log = "".join(_wrapped(line, i)[wrapper] for i, line in enumerate(LINES))
    assert report_of(log)["inputs"][0]["recognised"] > 100 or wrapper == "jsonl"
    assert same_report(log) == []
    assert "jane" not in redacted(log).decode()


@pytest.mark.parametrize(
    ("line", "safe"),
    [
        ("0.00.010.665 I srv    load_model: loading model '/home/jane/x.gguf'", "loading model '<path-1>'"),
        ("srv  log_server_r: done request: POST /v1/messages 10.0.0.7 200", "POST /v1/messages <host-1> 200"),
        ("srv  log_server_r: done request: POST /slots/3?action=save ::1 200", "/slots/3?action=save <host-1> 200"),
        ("srv  log_server_r: done request: GET /private/jane 10.0.0.7 404", "request: GET <path-1> <host-1> 404"),
        ("0.00.061.383 I srv          init: listening on http://gpu-box:8080", "listening on http://<host-1>:8080"),
        ("0.00.061.383 I srv          init: listening on http://[fd00::7]:8080", "listening on http://<host-1>:8080"),
        ("0.00.061.383 I srv          init: listening on unix:///run/user/jane.sock", "listening on unix://<host-1>"),
        ("0.00.036.154 I print_info: arch                  = qwen35", "arch                  = qwen35"),
        ("0.00.036.154 I print_info: arch                  = qwen35-acme", "arch                  = qwen35"),
        ("error: invalid argument: --checkpoint-every-nb", "error: invalid argument: --checkpoint-every-nb"),
        ("error: invalid argument: --acme-secret", "error: invalid argument: <text-1>"),
        (
            "srv    send_error: task id = 1, error: request (3731 tokens) exceeds the available context size (2048 "
            "tokens), try increasing it",
            "error: request (3731 tokens) exceeds the available context size (2048 tokens), try increasing it",
        ),
        ("0.12.345.678 D srv  log_server_r: request:  {\"messages\": []}", "request:  <json-1>"),
        ("slot update_slots: id  0 | task 9 |      101     102     103", "|      0     0     0"),
        ("slot update_slots: id  0 | task 9 | stop processing: n_tokens = 9, truncated = 0, by jane", "= 0 <text-1>"),
        ("0.00.000.272 I srv          init: hello jane", "0.00.000.272 I srv          init: <line>"),
        ("jane: hello", "<line>"),
        ("0.00.036.154 I jane: arch                  = qwen35", "I function: arch                  = qwen35"),
        ("0.00.036.154 I llama_jane: arch                  = qwen35", "I init: arch                  = qwen35"),
        ("llama_context: kv_unified    =jane false", "llama_context: kv_unified    =<line>"),
        ("", ""),
    ],
)  # fmt: skip
def test_lines(line: str, safe: str) -> None:
    assert one(line).endswith(safe)


def test_a_secret_has_one_token_and_another_has_another() -> None:
    lines = "".join(f"srv    load_model: loading model '{path}'\n" for path in ("/a", "/b", "/a"))
    assert re.findall("<path-[0-9]>", redacted(lines).decode()) == ["<path-1>", "<path-2>", "<path-1>"]


def test_many_secrets_have_as_many_tokens() -> None:
    lines = "".join(f"srv    load_model: loading model '/models/{n}.gguf'\n" for n in range(300))
    assert re.findall("<path-[0-9]+>", redacted(lines).decode()) == [f"<path-{n}>" for n in range(1, 301)]


def test_a_secret_has_its_token_wherever_it_stands() -> None:
    state = "srv f: failed to allocate memory for prompt cache state: acme\n"
    lines = redacted(f"{state}slot f: id  0 | task 1 | clearing slot with 7 tokens acme\n")
    assert re.findall("<text-[0-9]>", lines.decode()) == ["<text-1>", "<text-1>"]


@pytest.mark.parametrize("name", ["4111111111111111", "491511234567"])
def test_the_name_of_a_service_may_be_a_number(name: str) -> None:
    assert name not in one(f"[{name}] srv  get_availabl: updating prompt cache")
    assert one("[50021] srv  get_availabl: updating prompt cache") == "[50021] srv  get_availabl: updating prompt cache"


def test_tokens_beyond_the_numbered_ones_are_stable_and_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cachedoctor.redaction.stand_ins._NUMBERED", 1)
    tokens = StandInNames()
    assert tokens.give("text", b"a") == b"<text-1>"
    assert tokens.give("text", b"b") == tokens.give("text", b"b") != tokens.give("text", b"c")
    other = StandInNames()
    other.give("text", b"a")  # numbered, as in the first
    assert tokens.give("text", b"b") != other.give("text", b"b"), "not to be looked up in a table of hashes"
    assert facts(f" {tokens.give('text', b'b').decode()} | a") == facts(" <text-1> | a")


@pytest.mark.sweep
@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(0, 40_000), max_size=6))
@example([1, 2, 3])
def test_where_the_input_is_cut_does_not_matter(cuts: list[int]) -> None:
    log = content_of(CASE) + "".join(docker(line[:20]) + docker(line[20:] + "\n") for line in LINES[:40]).encode()
    assert redacted(log, tuple(cuts)) == redacted(log)


def test_lines_that_wait_for_a_part_that_never_comes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cachedoctor.inputs.envelope.rewriter._WAITING_MAX", 1000)
    redactor = Redactor()
    redactor.feed(docker("srv  get_availabl: updating").encode())
    assert redactor.quiet() == b""  # it is not an excerpt, and still waits for the rest of the line
    waited = b""
    for _ in range(40):
        waited += redactor.feed(docker("srv  get_availabl: updating prompt cache\n", stream="stdout").encode())
    assert waited.count(b"updating prompt cache") > 20
    assert (waited + redactor.finish()).count(b"\n") == 41


# ---- the text around the place where two prompts diverge

PART = st.text(st.sampled_from("0123456789abcfgmnot-:/ .;=|\"'éSM"), max_size=14) | st.sampled_from(
    [" | ", "2026-11-20 14:", "cch=", "cc_version=", "; cc_entrypoint=", "x-anthropic-billing-header", "cc_other=",
     "12ab34", "date ", "Mon", "1234abcd-12ab", "session: ", "...", "\\n"]
)  # fmt: skip
TEXT = st.lists(PART, max_size=7).map("".join)


@pytest.mark.sweep
@settings(deadline=None, max_examples=300)
@given(TEXT, TEXT)
@example(" 01.e51; cc_entrypoint=cli; cch= | b791f;", " 01.e51; cc_entrypoint=cli; cch= | 0ed9c;")
@example(" Current time: 2026-11-20 14:02: | 14 UTC", " Current time: 2026-11-20 14:02: | 59 UTC")
@example("  | 12", "  | 14:02")
@example(" | b", " | 00000a")
@example(" | ; cc_entrypoint=", " | 1234abcd-12ab")
@example("cch=;000b | 00", "cch= 0 | 0000b")
def test_rules_read_the_same_in_printed_texts(old: str, new: str) -> None:
    tokens, printed = StandInNames(), Printed(facts)
    a, b = printed.rewrite(old, tokens), printed.rewrite(new, tokens)
    assert facts(a) == facts(old)
    assert facts(b) == facts(new)
    assert volatile_kind(a, b) == volatile_kind(old, new)
    fields = [(header_field(was), header_field(now)) for was, now in ((old, a), (new, b))]
    assert all(was == now or now == "cc_field" for was, now in fields)


def test_a_bar_that_the_analysis_does_not_see_is_not_shown() -> None:
    text = "x" * 3000 + " | 14:02"
    assert " | " not in Printed(facts).rewrite(text, StandInNames())


FRAGMENT = st.binary(max_size=8) | st.sampled_from(
    [b"\n", b"\r", b"\0", b" | ", b'{"log":"', b'","stream":"stderr"}\n', b'{"type":"log","msg":"', b'"}\n',
     b"2026-11-20T12:00:00Z stderr P ", b"2026-11-20T12:00:00Z stderr F ", b"Nov 20 12:00:00 box llama[12]: ",
     b'time=a level=b msg="', b"[2026-11-20 12:00:00][DEBUG][jane]\n ", b"0.00.205.552 I ", b"[50021] ", b"nan(",
     b"slot f: id  0 | task 7 | ", b"srv  f: ", b"old: ...", b"n_tokens = 58, memory_seq_rm [58, end)", b"9" * 30,
     b"updating prompt cache", b"\x1b[31m", b"print_info: "]
)  # fmt: skip


@pytest.mark.sweep
@settings(deadline=None, max_examples=60)
@given(st.lists(FRAGMENT, max_size=40).map(b"".join))
def test_any_bytes_give_as_many_lines_and_the_same_report(data: bytes) -> None:
    out = redacted(data)
    assert out.decode("ascii").count("\n") == data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    assert same_report(data) == []
