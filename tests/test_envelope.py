"""The Unwrapper gives the engine the server's own lines, whatever program stored them."""

from __future__ import annotations

import pytest
from loops import each
from wrapped import EVAL, LINES, LOG, SLOT, SRV, UP, docker, jsonl, unwrap

from cachedoctor.inputs.envelope import Unwrapper


def test_unwrapped_block_is_one_segment_without_numbers() -> None:
    [segment] = Unwrapper().feed(LOG.encode(), 41)
    assert (segment.origin, segment.data, segment.first, segment.numbers) == (None, LOG.encode(), 41, None)


@each(
    ("prefix", "origin"),
    [
        ("llama-1  | ", "llama-1"),
        ("llama-1 | ", "llama-1"),
        ("llama   | ", "llama"),
        ("3090_llama_1  | ", "3090_llama_1"),
        ("stack_llama.1.x2k9@node1    | ", "stack_llama.1.x2k9@node1"),
        ("\x1b[36mllama-1  | \x1b[0m", "llama-1"),
        ("Nov 20 12:00:00 gpubox llama-server[4242]: ", None),
        ("Nov  2 12:00:00.123456 gpubox llama-server[4242]: ", None),
        ("Sep 11 00:03:06 host ollama[]: ", None),
        ("Sep 11 00:03:06   ollama[77]: ", None),
        ("Sep 11 00:03:06 ollama[77]: ", None),
        ("Sep 11 00:03:06  llama-Qwen:[1351]: ", None),
        ("Sep 11 00:03:06 gpubox llama-Qwen:[1351]: ", None),
        ("Nov 20 12:00:00 gpubox llama-server: ", None),
        ("2026-11-20T12:00:00+0000 gpubox llama-server[4242]: ", None),
        ("2026-11-20T12:00:00.017000+00:00 gpubox llama-server[4242]: ", None),
        ("Fri 2026-11-20 12:00:00 UTC gpubox llama-server[4242]: ", None),
        ("Fri 2026-11-20 12:00:00 CET gpubox user@1000.service/llama.service[4242]: ", None),
        ("1763640000.123456 gpubox llama-server[4242]: ", None),
        ("[    5.123456] gpubox llama-server[4242]: ", None),
        ("<30>Nov 20 12:00:00 gpubox llama-server[4242]: ", None),
        ("<30>1 2026-11-20T12:00:00.123Z gpubox llama-server 4242 - - ", None),
        ('<30>1 2026-11-20T12:00:00Z gpubox llama-server 4242 ID47 [a@1 k="v\\]"][b@2] \ufeff', None),
        ("2026-11-20T12:00:00.013000123Z ", None),
        ("2026-11-20T12:00:00.013+01:00 ", None),
        ("2026-11-20T12:00:00.013123Z stderr F ", None),
        ("[pod/llama-7d9f/server] ", "llama-7d9f/server"),
        ("[pod/llama-7d9f/server] 2026-11-20T12:00:00.013123Z ", "llama-7d9f/server"),
        ("[53409] ", "53409"),
        ("[ 8081] ", "8081"),
        ("[1707364943] ", None),
        ("llama-1  | [53409] ", "llama-1/53409"),
        ("Nov 20 12:00:00 gpubox llama-server[4242]: [53409] ", "53409"),
    ],
)
def test_certain_prefix_comes_off_every_line(prefix: str, origin: str | None) -> None:
    expected = [(number, line) for number, line in enumerate(LINES, 1)]
    assert unwrap("".join(f"{prefix}{line}\n" for line in LINES)) == {origin: expected}


@pytest.mark.parametrize(
    ("prefix", "origin"),
    [
        ("2026-11-20 12:00:00 | ", None),
        ("2026-11-20 12:00:00.123 | ", None),
        ("2026/11/20 12:00:00 ", None),
        ("[2026-11-20 12:00:00] ", None),
        ("2026-11-20 12:00:00,123 INFO ", None),
        ("2026-11-20 12:00:00,123 - INFO - ", None),
        ("[12:34:56] ", None),
        ("[12:34:56.123 PM] ", None),
        ("[Nov 20 12:34:56] ", None),
        ("[20/Nov/2026:12:34:56 +0000] ", None),
        ("[20261120 12:34:56] ", None),
        ("[1707364943123] ", None),
        ("[1707364943.123456] ", None),
        ("[+12.5s] ", None),
        ("12:34:56 ", None),
        ("1:34:56,123 PM ", None),
        ("[1707364943.gguf] ", "1707364943.gguf"),
        ("[12:34] ", "12:34"),
        ("[model.gguf] ", "model.gguf"),
        ("[my model] | ", "my model"),
        ("<tiny> ", "tiny"),
        ("2026-08-01 12:00:00 [model.gguf] ", "model.gguf"),
        ("llama | ", "llama"),
    ],
)
def test_uncertain_prefix_comes_off_once_a_server_line_has_shown_it(prefix: str, origin: str | None) -> None:
    expected = [(number, line) for number, line in enumerate(LINES, 1)]
    assert unwrap("".join(f"{prefix}{line}\n" for line in LINES)) == {origin: expected}


@each(
    "line",
    [
        SLOT,
        SRV,
        UP,
        EVAL,
        "I " + SLOT,
        "slot update_slots: id 0 | task 9 | collapsed",
        "0.01.058.254 I [53409] llama-1  | not a wrapper here",
        '[INFO] Request 192.168.10.5 "POST /v1/chat/completions HTTP/1.1" 200 713 417.222534ms',
        "[INFO] <tiny> Executing start command: llama-server --port 5801",
        "[New LWP 4242]",
        "[1] a footnote",
        "[2026-11-20 12:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0",
        "[2026-11-20 12:00:00] server_args=ServerArgs(model_path='x')",
        "(EngineCore pid=42) INFO 11-20 12:00:00 [loggers.py:123] Engine 000: Avg prompt throughput: 1.0 tokens/s",
        'INFO [ release_slots] slot released | tid="1" timestamp=1 id_slot=0',
        "2026-11-20 12:00:00 a diary entry",
        "12:00:00 a diary entry",
        "[12:00:00 TP0] Prefill batch. #new-seq: 1, #new-token: 8192, #cached-token: 0",
        "<|im_start|>user",
        "<think> slot machines",
        "12: the twelfth",
        "  3. indented list",
        "    slot machines are: fun",
        'time=2026-09-11T00:03:06Z level=INFO source=server.go:1 msg="llama runner started"',
        'time=2026-09-11T00:03:06Z level=INFO msg="slot \\x1b broken',
        '{"type":"text","text":"slot"}',
        '{"type":"fit_memory_breakdown","data":{"unit":"MiB","rows":[{"kind":"host","self":21}]}}',
        '{"log":"unfinished',
        '{"log":"a\\n","stream":"other","time":"x"}',
        "{",
        "a | b",
        "-- Boot 3f2a --",
    ],
)
def test_line_that_is_not_a_wrapper_stays(line: str) -> None:
    assert unwrap(f"{line}\n{SLOT}\n") == {None: [(1, line), (2, SLOT)]}


def test_a_line_that_localai_quotes_is_of_the_model_that_it_names() -> None:
    row = 'Aug 05 15:27:04 DEBUG GRPC stderr id="{}" line="{}" caller={{caller.file="/b/process.go"  caller.L=219 }} \n'
    log = row.format("a.gguf-127.0.0.1:42043", UP) + row.format("b.gguf-127.0.0.1:42044", EVAL)
    assert unwrap(log) == {"a.gguf-127.0.0.1:42043": [(1, UP)], "b.gguf-127.0.0.1:42044": [(2, EVAL)]}


@pytest.mark.parametrize(
    "line",
    [
        'Aug 05 15:27:04 DEBUG [WatchDog] Watchdog checks for idle connections caller={caller.L=572 } ',
        'Aug 05 15:27:04 DEBUG GRPC stderr id="a" line="slot \\x1b broken" caller={caller.L=219 } ',
        'Aug 05 15:27:04 DEBUG GRPC stderr id="a" line="slot without an end',
    ],
)  # fmt: skip
def test_other_lines_of_localai_stay(line: str) -> None:
    assert unwrap(f"{line}\n{SLOT}\n") == {None: [(1, line), (2, SLOT)]}


@pytest.mark.parametrize(
    "lead", ["> ", ">", "> > ", "    ", "\t", ">     ", "123:", "123-", "   123\t", " 12 | ", "7  "]
)
def test_paste_marks_come_off_server_lines(lead: str) -> None:
    text = "".join(f"{lead}{line}\n" for line in (SLOT, SRV, UP))
    assert unwrap(text) == {None: [(1, SLOT), (2, SRV), (3, UP)]}


def test_timing_lines_keep_their_indent_in_pastes() -> None:
    text = f"> {SLOT}\n> {EVAL}\n124-{EVAL}\n{EVAL}\n"
    assert unwrap(text) == {None: [(1, SLOT), (2, EVAL), (3, EVAL), (4, EVAL)]}


def test_services_and_ports_do_not_mix() -> None:
    text = (
        f"Attaching to llama-1, webui-1\nllama-1  | [53409] {UP}\nwebui-1  | INFO:     GET /health\n"
        f"llama-1  | [ 8081] {SRV}\nllama-1  | [53409] {SLOT}\nllama-1  | {SRV}\nllama-1  | \nllama-1  |\n"
    )
    assert unwrap(text) == {
        None: [(1, "Attaching to llama-1, webui-1")],
        "llama-1/53409": [(2, UP), (5, SLOT)],
        "webui-1": [(3, "INFO:     GET /health")],
        "llama-1/8081": [(4, SRV)],
        "llama-1": [(6, SRV), (7, ""), (8, "")],
    }


def test_bare_slot_line_is_not_a_compose_service() -> None:
    text = f"{SLOT}\nllama-1  | {SLOT}\nslot      release: id  3 | task 9  | x\n"
    assert unwrap(text) == {None: [(1, SLOT), (3, "slot      release: id  3 | task 9  | x")], "llama-1": [(2, SLOT)]}


def test_autoloader_names_the_model() -> None:
    text = f"2026-08-01 12:00:00 [INFO] autoloader: [model.gguf] {UP}\n"
    assert unwrap(text) == {"model.gguf": [(1, UP)]}


def test_docker_json_file() -> None:
    assert unwrap("".join(docker(line + "\n") for line in LINES)) == {None: list(enumerate(LINES, 1))}


def test_docker_json_holds_wrapped_and_coloured_lines() -> None:
    text = docker(f"\x1b[34m[53409] \x1b[0m{UP}\x1b[0m\r\n") + docker(jsonl(SLOT + "\n"))
    assert unwrap(text) == {"53409": [(1, UP)], None: [(2, "0.01.058.254 I " + SLOT)]}


def test_docker_parts_join_by_stream() -> None:
    text = docker(UP[:30]) + docker("out\n", "stdout") + docker(UP[30:60]) + SRV + "\n" + docker(UP[60:] + "\n")
    assert unwrap(text) == {None: [(2, "out"), (4, SRV), (1, UP)]}


def test_unfinished_docker_part_comes_out_at_the_end() -> None:
    assert unwrap(docker(SRV + "\n") + docker(SLOT)) == {None: [(1, SRV), (2, SLOT)]}


def test_endless_docker_part_is_released() -> None:
    unwrapper = Unwrapper()
    record = docker("x" * 16384).encode()
    sizes = [sum(len(s.data) for s in unwrapper.feed(record, number)) for number in range(1, 600)]
    assert [size for size in sizes if size] == [(4 << 20) + 16384 + 1] * 2


def test_parts_of_too_many_lines_come_out_one_by_one() -> None:
    unwrapper = Unwrapper()
    given = [unwrapper.feed(f"web{number}-1  | {docker(SRV)}".encode(), number) for number in range(1, 300)]
    assert [number for number, segments in enumerate(given, 1) if segments] == list(range(257, 300))


def test_only_so_many_uncertain_prefixes_are_remembered() -> None:
    names = [f"model {number}" for number in range(257)]
    shown = "".join(f"[{name}] {UP}\n" for name in names)
    found = unwrap(shown + f"[{names[255]}] text\n[{names[256]}] text\n")
    assert found[names[255]] == [(256, UP), (258, "text")]
    assert found[None] == [(257, UP), (259, f"[{names[256]}] text")]


def test_it_is_settled_where_no_line_before_has_a_say() -> None:
    """A log may be cut there, and its parts read by themselves."""

    def settled(text: str) -> bool:
        unwrapper = Unwrapper()
        unwrapper.feed(text.encode(), 1)
        return unwrapper.settled

    assert settled(f"{UP}\n{docker(SRV)}{docker('.' + chr(10))}")
    assert not settled(docker(SRV))
    assert not settled(f"[53409] {UP}\n")
    assert not settled("2026-05-29 11:02:40 [DEBUG]\n")
    assert not settled(f"2026-05-29 11:02:40 {UP}\n")


def test_cri_parts_join() -> None:
    stamp = "2026-11-20T12:00:00.013123Z"
    text = f"{stamp} stderr P {UP[:40]}\n{stamp} stdout F out\n{stamp} stderr F {UP[40:]}\n{stamp} stderr F \n"
    assert unwrap(text) == {None: [(2, "out"), (1, UP), (4, "")]}


def test_log_jsonl_gets_the_console_prefix_back() -> None:
    text = (
        jsonl("srv  load: a\n", 60_000_001, "warn")
        + jsonl("slot launch_slot_: id  0 | task 7 | sampler params: \n\ttop_k = 40\n\ttop_p = 1\n")
        + jsonl("srv  load: no clock\n", 0)
        + jsonl(".", 5, "cont")
        + jsonl("\n", 3_599_999_999, "debug")
        + jsonl("[53409] " + jsonl("srv  load: child\n", 1), 2, "none")
        + jsonl(f"[ 8081] {UP}\n", 2, "none")
        + jsonl("e\n", 7, "error")
    )
    assert unwrap(text) == {
        None: [
            (1, "1.00.000.001 W srv  load: a"),
            (2, "0.01.058.254 I slot launch_slot_: id  0 | task 7 | sampler params: "),
            (2, "\ttop_k = 40"),
            (2, "\ttop_p = 1"),
            (3, "srv  load: no clock"),
            (4, "."),
            (5, "59.59.999.999 D "),
            (8, "0.00.000.007 E e"),
        ],
        "53409": [(6, "0.00.000.001 I srv  load: child")],
        "8081": [(7, UP)],
    }


def test_lm_studio_record_has_two_lines() -> None:
    text = f"2026-05-29 11:02:40 [DEBUG]\n {UP}\n[2026-05-29 11:02:40][INFO] \n prompt eval time = 1 ms\n{EVAL}\n"
    expected = {None: [(2, UP), (4, "prompt eval time = 1 ms"), (5, EVAL)]}
    assert unwrap(text) == expected
    assert unwrap(text, (1, 2, 3, 4)) == expected


def test_date_and_level_on_every_line_lose_only_the_empty_line() -> None:
    expected = [(number, line) for number, line in enumerate(LINES, 1) if line]
    assert unwrap("".join(f"[2026-11-20 12:00:00][DEBUG] {line}\n" for line in LINES)) == {None: expected}


def test_ollama_line_is_unquoted_when_the_server_said_it() -> None:
    quoted = 'time=2026-09-11T00:03:06Z level=INFO source=llama_server.go:1274 msg="{}" x=1\n'
    text = quoted.format(SLOT + "\\n") + SRV + "\n" + quoted.format("starting")
    assert unwrap(text) == {None: [(1, SLOT), (2, SRV), (3, quoted.format("starting").rstrip("\n"))]}


def test_controls_are_removed() -> None:
    text = f"\x1b[35mW {SLOT}\r\n\x1b[0m\x1b[34m{UP}\x1b]8;;http://x\x1b\\\x00\n\x1b]0;title\x07{SRV}\r\n"
    assert unwrap(text) == {None: [(1, "W " + SLOT), (2, UP), (3, SRV)]}
    assert unwrap(f"\x1b[31mI am lost\x1b\nllama-1  | {UP}\r\n") == {None: [(1, "I am lost\x1b")], "llama-1": [(2, UP)]}


PAGE = "slot update_slots: id  0 | task 7 | prompt done\n"


@pytest.mark.parametrize(
    "changed",
    [
        PAGE.replace(" ", "\u00a0"),
        PAGE.replace("  ", "\t"),
        f"[34m0.00.637.407[0m [35mW [0m{PAGE}",
    ],
    ids=["no-break", "tabs", "colours"],
)
def test_what_a_page_changed_is_repaired_in_that_line_alone(changed: str) -> None:
    """Wherever the input is cut, and whatever the lines beside it are."""
    beside = "a\tb\u00a0[main] claude-opus-4[1m] [31m\x1b[1mtext\n"
    text = beside + changed + beside
    whole = b"".join(segment.data for segment in Unwrapper().feed(text.encode(), 1))
    parts = Unwrapper()
    cut = [parts.feed(line.encode(), at) for at, line in enumerate(text.splitlines(keepends=True), 1)]
    assert whole == b"".join(segment.data for segments in cut for segment in segments)
    first, repaired, last = whole.decode().splitlines()
    assert first == last == "a\tb\u00a0[main] claude-opus-4[1m] [31mtext"
    assert " ".join(repaired.split()).endswith("slot update_slots: id 0 | task 7 | prompt done")
    assert not set("\t\u00a0[") & set(repaired)


def test_a_name_in_brackets_is_not_a_colour() -> None:
    line = "[35mW [0msrv  load_model: [main] claude-opus-4[1m]\n"
    (segment,) = Unwrapper().feed(line.encode(), 1)
    assert segment.data == b"W srv  load_model: [main] claude-opus-4[1m]\n"


def test_progress_goes_only_where_a_server_line_follows() -> None:
    text = f"10%\r20%\r{UP}\n10%\r20%\nllama-1  | 10%\r{UP}\n{SRV}: a\rb\n{SRV}\r{SLOT}\n"
    kept = [(1, UP), (2, "10%\r20%"), (4, f"{SRV}: a\rb"), (5, f"{SRV}\r{SLOT}")]
    assert unwrap(text) == {None: kept, "llama-1": [(3, UP)]}


def test_a_date_before_a_line_of_vllm_comes_off_and_its_own_stays() -> None:
    line = "INFO 07-08 07:17:34 metrics.py:334] Avg prompt throughput: 6501.4 tokens/s"
    for date in ("[2024-07-08 15:17:34] ", "2024-07-08 15:17:34,123 "):
        assert unwrap(f"{date}{line}\n") == {None: [(1, line)]}


# ---- what people put before lines

OLLAMA = 'time=2026-02-03T21:14:02.118Z level=DEBUG source=cache.go:151 msg="loading cache slot" id=0 cache=1 prompt=2'
GROUPED = "INFO:rapid_mlx.scheduler:[cache_fetch] request=5d99e1c5-748 MISS prompt_tokens=79800 time=0.001s entries=0"
DS4 = "0521 13:36:02 ds4-server: chat ctx=0..85790:85790 TOOLS prompt done 171.204s"
STUDIO = "[2025-07-13 12:00:01][DEBUG] Cache reuse summary: 0/9000 of prompt (0%), 0 prefix, 0 non-prefix"
VLLM = "(APIServer pid=7268) INFO 11-23 03:55:47 [loggers.py:335] Engine 000: Avg prompt throughput: 979.7 tokens/s"


@pytest.mark.parametrize("line", [SLOT, SRV, UP, OLLAMA, GROUPED, DS4, STUDIO, VLLM])
@pytest.mark.parametrize("before", ["> ", ">> ", "    ", "\t", "  12\t", "12:", "  12  "])
def test_quotes_indentation_and_numbers_are_taken_off_lines_of_any_server(before: str, line: str) -> None:
    assert unwrap(f"{before}{line}\n") == {None: [(1, line)]}


@pytest.mark.parametrize("before", ["> ", "    ", "12:"])
def test_they_are_taken_off_a_service_as_well(before: str) -> None:
    assert unwrap(f"{before}llama-1   | {UP}\n") == {"llama-1": [(1, UP)]}


def test_below_a_quote_every_quoted_line_is_unquoted() -> None:
    text = f"> {UP}\n> You are Marlow\n>\n> {SRV}\nprose\n"
    assert unwrap(text) == {None: [(1, UP), (2, "You are Marlow"), (3, ""), (4, SRV), (5, "prose")]}
    assert unwrap("> You are Marlow\n") == {None: [(1, "> You are Marlow")]}


@pytest.mark.parametrize("line", [SLOT, UP, OLLAMA, VLLM])
def test_files_that_grep_names_are_servers(line: str) -> None:
    text = f"a/server.log:17:{line}\na/server.log:{line}\n./b.log.1:{line}\n"
    assert unwrap(text) == {"a/server.log": [(1, line), (2, line)], "./b.log.1": [(3, line)]}


def test_timing_lines_that_grep_found_keep_their_blanks() -> None:
    assert unwrap(f"server.log:18:{EVAL}\n") == {"server.log": [(1, EVAL)]}


@pytest.mark.parametrize(
    "line",
    [
        "llama_perf_context_print: prompt eval time =   10431.44 ms /  9000 tokens",
        'INFO:     127.0.0.1:51234 - "GET /health HTTP/1.1" 200 OK',
        "    return [2026, 1, 1]",
        "2026-08-29 16:15:45,630 - INFO - Prefill completed: request=111ade240 prompt_tokens=8120",
    ],
)
def test_what_only_looks_like_it_stays(line: str) -> None:
    assert unwrap(f"{line}\n") == {None: [(1, line)]}
