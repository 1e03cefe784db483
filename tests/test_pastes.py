"""Pasted excerpts of llama-server: hard-wrapped, without prefixes, with prose, fences and quotes around them."""

from __future__ import annotations

import io
import json
import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
from conftest import FIXTURES, content_of
from test_vllm_tracker import report_of

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.engines.llamacpp.pasted_issue import read_issue
from cachedoctor.report.base import Appearance, write

LINES = """\
slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = 3983212900
srv  get_availabl: updating prompt cache
srv   prompt_save:  - saving prompt with length 2040, total state size = 0.521 MiB
srv          load:  - looking for better prompt, base f_keep = 0.028, sim = 0.028
srv        update:  - cache state: 3 prompts, 1.511 MiB (limits: 8192.000 MiB, 16384 tokens, 32048112 est)
srv  get_availabl: prompt cache update took 0.69 ms
slot launch_slot_: id  0 | task 21 | processing task
slot update_slots: id  0 | task 21 | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 2104
slot update_slots: id  0 | task 21 | old: ... ; cch= | 0ed9c;
slot update_slots: id  0 | task 21 | new: ... ; cch= | ee661;
slot update_slots: id  0 | task 21 |       26     285     297      28      15     287      24      66      26     198
slot update_slots: id  0 | task 21 | n_tokens = 58, memory_seq_rm [58, end)
slot update_slots: id  0 | task 21 | prompt processing progress, n_tokens = 2104, batch.n_tokens = 2046, \
progress = 1.000000
slot update_slots: id  0 | task 21 | prompt done, n_tokens = 2104, batch.n_tokens = 2046
slot print_timing: id  0 | task 21 |\x20
prompt eval time =    2358.26 ms /  2046 tokens (    1.15 ms per token,   867.59 tokens per second)
       eval time =      14.76 ms /     6 tokens (    2.46 ms per token,   406.48 tokens per second)
      total time =    2373.03 ms /  2052 tokens
slot      release: id  0 | task 21 | stop processing: n_tokens = 2109, truncated = 0
""".splitlines()
"""A request of b6900 whose prompt diverges at token 58 of the 2,040 that its slot held."""
FORCED = (
    "forcing full prompt re-processing due to lack of cache data (likely due to SWA or hybrid/recurrent memory, see "
    "https://github.com/ggml-org/llama.cpp/pull/13194#issuecomment-2868343055)"
)
PREFIX = re.compile(r"(?:slot +\S+: id +0 \| task -?\d+ \| ?|srv +\S+: ?)")
COUNTED = {
    "prompt_tokens": 2104,
    "cached_tokens": 58,
    "processed_tokens": 2046,
    "generated_tokens": 6,
    "prompt_ms": 2358.26,
    "common_prefix_tokens": 58,
    "held_tokens": 2040,
    "lost_tokens": 1982,
    "outcome": "reprocessed",
    "partial": False,
}


def report(*lines: str) -> dict[str, Any]:
    return report_of("".join(f"{line}\n" for line in lines).encode())


def requests(*lines: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report(*lines)["requests"]
    return found


def counted(request: dict[str, Any]) -> dict[str, Any]:
    return {name: request[name] for name in COUNTED}


def wrap(line: str, columns: int, indent: str, more: int) -> list[str]:
    """Cut a line at so many columns; what is continued is indented and has ``more`` columns."""
    step = columns + more - len(indent)
    return [line[:columns], *(indent + line[at : at + step] for at in range(columns, len(line), step))]


# ---- wrapped


@pytest.mark.sample(10)
@pytest.mark.parametrize("columns", [80, 98, 99, 100, 101, 116, 120, 140])
@pytest.mark.parametrize(("indent", "more"), [("", 0), ("    ", 0), ("    ", 4), ("\t", 1)])
def test_a_wrapped_request_counts_as_a_whole_one(columns: int, indent: str, more: int) -> None:
    """At 98 to 100 columns a number of tokens is cut in two."""
    lines = [part for line in LINES for part in wrap(line, columns, indent, more)]
    (request,) = requests(*lines)
    assert counted(request) == COUNTED


@pytest.mark.parametrize("columns", [80, 98, 99, 100, 101, 116, 120, 140])
def test_wrapped_rows_may_all_be_indented(columns: int) -> None:
    """As in a quote or below an item of a list: the rows that begin a record lose their indentation, the others not."""
    lines = ["  " + part for line in LINES for part in wrap(line, columns, "", 0)]
    (request,) = requests(*lines)
    assert counted(request) == COUNTED


@pytest.mark.parametrize("indent", ["", " ", "    "])
def test_digits_continue_in_a_line_that_is_shorter_than_others(indent: str) -> None:
    """The continued lines of the first record are wider than any that begins one."""
    prefix = "slot update_slots: id  0 | task 9 | "
    prompt = f"{prefix}new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 11520"
    at = prompt.index("20", len(prompt) - 2)
    (request,) = requests(prompt[:at], indent + prompt[at:], *wrap(prefix + FORCED, at, indent, len(indent)))
    assert (request["prompt_tokens"], request["cached_tokens"]) == (11520, 0)


def test_tokens_below_the_widest_line_are_not_digits_of_it() -> None:
    """``old`` and ``new`` tokens are below their texts; here they lost their prefix."""
    prompt = next(line for line in LINES if "new prompt" in line)
    lines = [line for line in LINES if len(line) <= len(prompt)]
    at = lines.index(prompt)
    assert len(prompt) == max(map(len, lines)), "it looks as if a terminal had cut it"
    (request,) = requests(*lines[: at + 1], "      26     285     297      28", *lines[at + 1 :])
    assert request["prompt_tokens"] == 2104


@pytest.mark.parametrize("columns", [60, 71, 72, 80])
def test_wrapped_messages_without_prefix(columns: int) -> None:
    """At 71 columns the length of the prompt is cut in two, at 60 a share."""
    bare = [PREFIX.sub("", line) for line in LINES]
    (request,) = requests(*(part for line in bare for part in wrap(line, columns, "", 0)))
    assert counted(request) == COUNTED


# ---- messages alone


def test_messages_alone_are_a_whole_request() -> None:
    (request,) = requests(*(PREFIX.sub("", line) for line in LINES))
    assert counted(request) == COUNTED
    assert "CD101" in request["codes"]


def test_two_requests_of_messages_alone() -> None:
    bare = [PREFIX.sub("", line) for line in LINES]
    first, second = requests(*bare, *(line.replace("2358.26", "4000.00") for line in bare))
    assert [first["prompt_ms"], second["prompt_ms"]] == [2358.26, 4000.00]
    assert [first["generated_tokens"], second["generated_tokens"]] == [6, 6]


def test_timings_that_were_not_pasted_are_not_sign_of_a_client_that_went_away() -> None:
    """Of lines that stand as the server wrote them they are."""
    lines = [line for line in LINES if " time = " not in line and "print_timing" not in line]
    assert [request["outcome"] for request in requests(*lines)] == ["cancelled"]
    (pasted,) = requests(*(PREFIX.sub("", line) for line in lines))
    assert (pasted["outcome"], pasted["partial"], pasted["lost_tokens"]) == ("reprocessed", True, 1982)


# ---- an issue

VERSION = [
    "### Name and Version",
    "",
    "$ ./llama-server --version",
    "version: 6900 (8ad7b3e6f)",
    "built with cc 13.3.0",
]
COMMAND = ["### Command line", "", "```shell", "./llama-server -m model.gguf \\", "  -c 16384 --cache-ram 0", "```"]
LOG = ["### Relevant log output", "", "```shell", *LINES[:9], "```", "and a bit later", "~~~", *LINES[9:], "~~~"]


def facts(*lines: str) -> tuple[Any, ...]:
    """Build, how it is known, RAM cache in MiB and context in tokens of the only server."""
    (session,) = report(*lines)["sessions"]
    known = {name: setting["value"] for name, setting in session["settings"].items()}
    return session["build"], session["build_source"], known.get("cache_ram_mib"), known.get("n_ctx")


def test_an_issue_is_read_whole() -> None:
    lines = [*VERSION, "", "### Operating systems", "", "Linux", "", *COMMAND, "", *LOG]
    assert facts(*lines) == (6900, "paste", 0, 16384)
    assert facts(*(f"> {line}" for line in lines)) == (6900, "paste", 0, 16384)
    (request,) = requests(*lines)
    assert counted(request) == COUNTED


def test_an_issue_as_its_page_shows_it() -> None:
    """Without the marks of markdown."""
    page = [line.lstrip("# ") for line in (*VERSION, *COMMAND, *LOG) if not line.startswith(("```", "~~~"))]
    assert facts(*page) == (6900, "paste", 0, 16384)


@pytest.mark.parametrize(
    ("said", "build"),
    [
        (["version: 6900 (8ad7b3e6)"], 6900),
        (["- `version: 6900 (8ad7b3e6)`"], 6900),
        (["build: 6900 (8ad7b3e6)"], 6900),
        (["### Version", "ghcr.io/ggml-org/llama.cpp:server-cuda-b6900"], 6900),
        (["**Version**", "b6900, from the releases"], 6900),
        (["### Name and Version", "version: 6900 (8ad7b3e6)", "### First Bad Commit", "version: 6890 (aaaaaaa)"], 6900),
        (["It worked in version: 6890 (aaaaaaa)", "and fails in version: 6900 (8ad7b3e6)"], None),
        (["in b6900 it fails"], None),
        (["version: 6900"], None),
        (["version: 0 (unknown)"], None),
    ],
)
def test_which_build_is_named(said: list[str], build: int | None) -> None:
    """Two that differ name none; a number in a sentence is none."""
    assert facts(*said, "", *LOG)[0] == build


@pytest.mark.parametrize(
    ("said", "build"),
    [
        (["version: 0.6.0-dev (build 11457, commit 5ad1c5da0)"], 11457),
        (["### Name and Version", "llama-server v0.9.0"], 12110),
        (["### Name and Version", "llama-server v1.0.0"], None),
        (["### Name and Version", "v0.9.0-dev"], None),
        (["Since v0.9.0 it is slow."], None),
    ],
)
def test_a_version_names_a_build(said: list[str], build: int | None) -> None:
    """By the number beside it; a release alone where its build is known, below the heading."""
    assert read_issue([line.encode() for line in said]).build == build


@pytest.mark.parametrize(("between", "codes"), [([], ["CD404"]), (["```", "", "Bad:", "", "```"], [])])
def test_runs_in_fences_of_their_own_are_not_restart(between: list[str], codes: list[str]) -> None:
    """A good run and a bad one, as issues show them; in one fence the second life follows the first."""
    log = content_of(FIXTURES / "cases" / "server-restarted-b9713").decode().splitlines()
    start = next(at for at, line in enumerate(log) if at and "build_info" in line)
    found = report("### Problem", "", "Good:", "", "```", *log[:start], *between, *log[start:], "```")
    assert len(found["sessions"]) == 2
    assert [finding["code"] for finding in found["findings"]] == codes


def test_the_log_knows_its_build_better() -> None:
    own = "build: 6901 (1234567) with cc (Ubuntu 13.3.0) 13.3.0 for x86_64-linux-gnu"
    assert facts("version: 6900 (8ad7b3e6)", own, *LINES)[:2] == (6901, "line")
    assert facts("version: 11500 (8ad7b3e6)", *LINES)[:2] == (None, "wording"), "b11500 does not write these lines"
    assert facts(*LINES, "version: 6900 (8ad7b3e6)")[:2] == (None, "wording"), "below the log it may be part of a text"


@pytest.mark.parametrize(
    ("said", "ram"),
    [
        (["```", "llama-server -m model.gguf --cache-ram 0", "```"], 0),
        (["```", "LLAMA_ARG_CACHE_RAM=0 sudo /opt/llama-server -m model.gguf", "```"], 0),
        (["I start it so:", "", "$ llama-server -m model.gguf --cache-ram 0"], 0),
        (["me@box:~$ ./llama-server --cache-ram 0 -m model.gguf"], 0),
        (["```", "docker run -p 80:80 ghcr.io/ggml-org/llama.cpp:server -m model.gguf --cache-ram 0", "```"], 0),
        (["### Command line", "llama-server -m model.gguf ^", "--cache-ram 0"], 0),
        (["llama-server --cache-ram 0 crashed here, with other values it runs"], None),
        (["```", "llama-server -m 'model.gguf --cache-ram 0", "```"], None),
        (["```", "llama-server --cache-ram 0", "llama-server --cache-ram 4096", "```"], None),
        (["```", "vllm serve model --cache-ram 0", "```"], None),
        (["### Command line", "", "_No response_"], None),
    ],
)
def test_which_command_is_given(said: list[str], ram: int | None) -> None:
    """Prose that begins with the program's name, open quotes, and two commands that differ give none."""
    assert facts(*said, "", *LOG)[2] == ram


@pytest.mark.parametrize("end", ["processing", "due to lack of", "(likely due to SWA", "memory, see https://gi"])
def test_a_symptom_of_which_the_end_is_missing(end: str) -> None:
    line = FORCED[: FORCED.index(end) + len(end)]
    assert [finding["code"] for finding in report(line)["findings"]] == ["CD901", "CD902"]
    assert [finding["code"] for finding in report(f"we are {line} again")["findings"]] == ["CD903"]


def test_prose_between_is_not_a_line_of_the_log() -> None:
    said = ["```", "", f"{FORCED} is what I expected", "forcing full prompt re-processing due to SWA, they say", "```"]
    (request,) = requests(*LINES[:9], *said, *LINES[9:])
    assert counted(request) == COUNTED
    assert request["checkpoints"]["erased"] == 0
    assert [finding["code"] for finding in report(*LINES[:9], *said, *LINES[9:])["findings"]] == ["CD101"]


# ---- prompts and errors

HEADERS = (
    "-x-anthropic-billing-header: cc_version=2.1.50.b97; cc_entrypoint=cli; cch=0ed9c;",
    "+x-anthropic-billing-header: cc_version=2.1.50.b97; cc_entrypoint=cli; cch=ee661;",
)
ERRORS = (
    "request (35000 tokens) exceeds the available context size (32768 tokens), try increasing it",
    "BadRequestError: 400 request (35000 tokens) exceeds the available context size (32768 tokens), try increasing it",
    '{"error":{"code":400,"message":"request (35000 tokens) exceeds the available context size (32768 tokens), try '
    'increasing it","type":"exceed_context_size_error","n_prompt_tokens":35000,"n_ctx":32768}}',
    '{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":'
    '"exceed_context_size_error","n_prompt_tokens":35000,"n_ctx":32768}}',
    "Error code: 400 - {'error': {'code': 400, 'message': 'the request exceeds the available context size, try "
    "increasing it', 'type': 'exceed_context_size_error', 'n_prompt_tokens': 35000, 'n_ctx': 32768}}",
)


@pytest.mark.parametrize("width", [80, 120])
def test_rows_that_a_record_continues_in_are_recognised(width: int) -> None:
    lines = [line for line in LINES if len(line) > 60 and not re.search(r"\| (?:old:|new:| )", line)]
    rows = [line[at : at + width] for line in lines for at in range(0, len(line), width)]
    (whole,), (wrapped,) = report(*lines)["inputs"], report(*rows)["inputs"]
    assert len(rows) > len(lines)
    assert wrapped["lines"] - wrapped["recognised"] == whole["lines"] - whole["recognised"]


AROUND = ("{}", "> {}", "I see this:\n\n```\n{}\n```\n\nand nothing else.", "  {}\n\nwhat now?")


@pytest.mark.parametrize("around", AROUND)
def test_headers_of_two_prompts_differ(around: str) -> None:
    for text in ("\n".join(HEADERS), "\n".join(["@@ -1,2 +1,2 @@", *HEADERS, " You are Claude Code"])):
        pasted = (
            "\n".join(around.replace("{}", line) for line in text.split("\n"))
            if "> " in around
            else (around.replace("{}", text))
        )
        (finding,) = report(*pasted.split("\n"))["findings"]
        assert (finding["code"], finding["severity"]) == ("CD101", "note")
        assert "(cch)" in finding["claim"]


@pytest.mark.parametrize("around", [*AROUND, "- {}"])
@pytest.mark.parametrize("error", ERRORS)
def test_errors_as_clients_print_them(error: str, around: str) -> None:
    (finding,) = report(*around.replace("{}", error).split("\n"))["findings"]
    assert finding["code"] == "CD401"
    assert "35,000 tokens did not fit into a context of 32,768 tokens" in finding["claim"]


# ---- a pipe that is slow to begin


def test_an_excerpt_that_comes_late_is_read_as_one() -> None:
    """``ssh host dmesg | cachedoctor analyze -``: nothing comes for a while, and then all at once."""
    analyzer, redactor = Analyzer(), Redactor()
    analyzer.open("-")
    analyzer.idle()
    analyzer.feed(b"* " + FORCED.encode())
    assert [finding.code for finding in analyzer.finish().findings] == ["CD901", "CD902"]
    assert redactor.quiet() == b""
    assert redactor.feed(b"* forcing full prompt re-processing due to lack") == b""
    assert b"forcing full prompt" in redactor.finish()


# ---- refusals inside the records of a client

WORDS = "request (35000 tokens) exceeds the available context size (32768 tokens), try increasing it"
REFUSED = {"code": 400, "message": WORDS, "type": "exceed_context_size_error", "n_prompt_tokens": 35000, "n_ctx": 32768}
ANSWER = json.dumps({"error": REFUSED}, separators=(",", ":"))
OLD_ANSWER = ANSWER.replace(WORDS, "the request exceeds the available context size, try increasing it")
CALL = {"name": "AI_APICallError", "url": "http://127.0.0.1:8080/v1/chat/completions", "statusCode": 400}
OPENCODE = "ERROR 2026-03-01T10:00:05 +214ms service=llm providerID=llama.cpp modelID=qwen3 sessionID=ses_1"
RECORDS = {
    "escaped": ANSWER.replace('"', '\\"'),
    "opencode": f"{OPENCODE} error={json.dumps({**CALL, 'responseBody': ANSWER})} stream error",
    "opencode, an older server": f"{OPENCODE} error={json.dumps({**CALL, 'responseBody': OLD_ANSWER})} stream error",
    "opencode, the name": f'{OPENCODE} error=AI_APICallError: {WORDS} stack="AI_APICallError: {WORDS}\\n    at run.ts"',
    "opencode, the words": f"{OPENCODE} error={WORDS} process",
    "JSON": json.dumps({"level": "ERROR", "service": "llm", "error": {"message": WORDS, "statusCode": 400}}),
    "JSON, the body": json.dumps(
        {"level": "ERROR", "error": {**CALL, "message": "Bad Request", "responseBody": ANSWER}}
    ),
    "JSON, a message": json.dumps({"level": "error", "msg": f"llm failed: {ANSWER}"}),
    "logfmt": f"level=error session=ses_1 err={json.dumps(f'400 {ANSWER}')}",
    "line breaks": f"APICallError: 400 \\n{WORDS}\\n",
}


def wraps(text: str, width: int) -> list[list[str]]:
    """The text in a window: cut anywhere, cut and indented, and between words."""
    rows = [text[at : at + width] for at in range(0, len(text), width)]
    words = textwrap.wrap(text, width, break_on_hyphens=False)
    return [rows, [rows[0], *(f"    {row}" for row in rows[1:])], words, [f"  {row}" for row in words]]


def only_claim(*lines: str) -> str:
    (finding,) = report(*lines)["findings"]
    assert (finding["code"], finding["severity"]) == ("CD401", "error")
    claim: str = finding["claim"]
    return claim


@pytest.mark.parametrize("name", RECORDS)
def test_a_refusal_in_a_record_of_a_client(name: str) -> None:
    """OpenCode's log and others hold the answer of the server as a string of JSON."""
    claim = "35,000 tokens did not fit into a context of 32,768 tokens"
    assert claim in only_claim(RECORDS[name])
    assert claim in only_claim("INFO  2026-03-01T10:00:04 +1ms service=llm stream", RECORDS[name], "INFO  exiting loop")


@pytest.mark.sweep
@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("name", [*RECORDS, *map(str, range(len(ERRORS)))])
def test_a_refusal_that_was_wrapped(name: str, width: int) -> None:
    text = RECORDS[name] if name in RECORDS else ERRORS[int(name)]
    for rows in wraps(text, width):
        assert "35,000 tokens did not fit into a context of 32,768 tokens" in only_claim(*rows)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_refusal_in_opencodes_log_that_was_wrapped(width: int) -> None:
    for rows in wraps(RECORDS["opencode"], width):
        assert "35,000 tokens did not fit into a context of 32,768 tokens" in only_claim(*rows)


@pytest.mark.parametrize(
    "text",
    [
        f"The docs say: {WORDS}.",
        f'They write "{WORDS}" in their manual.',
        f"{OPENCODE} request={json.dumps({'messages': [{'role': 'user', 'content': ANSWER}]})}",
        json.dumps({"messages": [{"role": "user", "content": f"what is {ANSWER}?"}]}),
        json.dumps({"role": "tool", "text": ANSWER}),
        f"{OPENCODE} error=AI_APICallError: Connection refused",
    ],
)
def test_a_refusal_that_is_talked_about_is_none(text: str) -> None:
    """In prose, or in a prompt that a record holds."""
    assert [finding["code"] for finding in report(text)["findings"]] == ["CD903"]


def test_a_refusal_in_a_record_stays_when_it_is_redacted() -> None:
    redactor = Redactor()
    log = "\n".join(wraps(RECORDS["opencode"], 80)[0]) + "\n"
    out = (redactor.feed(log.encode()) + redactor.finish()).decode()
    assert "ses_1" not in out
    assert "35,000 tokens did not fit into a context of 32,768 tokens" in only_claim(*out.split("\n"))


# ---- a diff of two prompts

DIFF = """\
--- first.txt
+++ second.txt
@@ -11,5 +11,5 @@
 You are OpenCode, a coding agent.
 Working directory: src
-{}
+{}
 Platform: linux
@@ -900,2 +900,3 @@
 user: go on
+assistant: done
"""
VALUES = [
    ("Date: Mon Mar 02 2026", "Date: Tue Mar 03 2026", "date or time", ("Mon Mar 02 2026", "Tue Mar 03 2026")),
    ("Today's date: 2026-03-02", "Today's date: 2026-03-03", "date or time", ("2026-03-02", "2026-03-03")),
    ("At 2026-03-02T10:00:01Z, all", "At 2026-03-02T10:02:11Z, all", "date or time", ("10:00:01", "10:02:11")),
    ("It is 9:41 AM.", "It is 10:02 PM.", "date or time", ("9:41 AM", "10:02 PM")),
    ("0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7", "UUID", ("0f8fad5b", "7c9e6679")),
    ("nonce=9f3c2a71bb", "nonce=41d08e0c55", "random id", ("9f3c2a71bb", "41d08e0c55")),
]  # fmt: skip


@pytest.mark.parametrize("around", ["{}", "This is what changes:\n```diff\n{}```\nand nothing else\n"])
@pytest.mark.parametrize(("old", "new", "kind", "shown"), VALUES)
def test_a_diff_of_prompts_whose_first_change_is_a_value(
    old: str, new: str, kind: str, shown: tuple[str, str], around: str
) -> None:
    """The hunk begins in line 11 of the second prompt; two lines come before the change."""
    (finding,) = report(*around.replace("{}", DIFF.format(old, new)).split("\n"))["findings"]
    assert (finding["code"], finding["severity"], finding["confidence"]) == ("CD102", "note", "medium")
    assert f"a {kind} in line 13 of the prompt changed" in finding["claim"]
    texts = {line["role"]: line["text"] for line in finding["evidence"]}
    assert texts["related"].startswith("-")
    assert shown[0] in texts["related"]
    assert shown[1] in texts["primary"]
    assert "Working" not in json.dumps(finding), "the prompt is nobody's business"


@pytest.mark.parametrize(
    "diff",
    [
        DIFF.format("Use tabs.", "Use spaces."),
        DIFF.format("Step 3 of 10", "Step 4 of 10"),
        DIFF.format("Built 2026-03-02, use tabs", "Built 2026-03-03, use spaces"),
        DIFF.format("Today: 2026-03-02", "Today: 2026-03-02"),
        DIFF.replace("-{}\n", "").format("Today: 2026-03-02"),
        DIFF.replace("first.txt", "a/app.py").replace("second.txt", "b/app.py").format("2026-03-02", "2026-03-03"),
        "diff --git a/x.txt b/x.txt\nindex 41d08e0c..9f3c2a71 100644\n" + DIFF.format("on 2026-03-02", "on 2026-03-03"),
        "-on 2026-03-02\n+on 2026-03-03\n",
        DIFF.replace(" Working directory", "+Working directory").format("on 2026-03-02", "on 2026-03-03"),
        DIFF.format("on \0 2026-03-02", "on 2026-03-02 \0"),
    ],
)  # fmt: skip
def test_other_diffs_name_no_cause(diff: str) -> None:
    """Words, a counter, words beside a date, nothing, an added line, source code, no hunk, another change before it."""
    assert [finding["code"] for finding in report(*diff.split("\n"))["findings"]] == ["CD903"]


def test_a_diff_stays_when_it_is_redacted() -> None:
    for old, new, kind, values in VALUES:
        redactor = Redactor()
        out = (redactor.feed(DIFF.format(old, new).encode()) + redactor.finish()).decode()
        assert not any(value in out for value in values)
        assert "Working" not in out
        (finding,) = report(*out.split("\n"))["findings"]
        assert (finding["code"], finding["confidence"]) == ("CD102", "medium")
        assert f"a {kind} in line 13 of" in finding["claim"]


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: text.replace(" ", "\u00a0"),
        lambda text: re.sub(" {2,}", "\t", text),
        lambda text: text.replace(" ", "\u00a0").replace("\n", "\r\n"),
    ],
    ids=["no-break", "tabs", "both ends"],
)
def test_blanks_that_a_page_or_a_table_changed(changed: Callable[[str], str]) -> None:
    (request,) = requests(*changed("\n".join(LINES)).split("\n"))
    assert counted(request) == COUNTED


def test_lost_line_breaks_are_named() -> None:
    """Lines that only blanks separate are not taken apart: a prompt may contain lines of a log."""
    log = (FIXTURES / "cases" / "checkpoints-beyond-prefix-11k" / "server.log").read_bytes().replace(b"\n", b" ")
    analyzer, out = Analyzer(), io.BytesIO()
    analyzer.open("log")
    analyzer.feed(log)
    write("text", analyzer.finish(), out, Appearance())
    assert "its line breaks are lost" in " ".join(out.getvalue().decode().split())
