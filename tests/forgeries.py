# ruff: noqa: E501  # lines of logs are shown whole
"""Lines that a user may write into a prompt to plant findings, or to hide them, and logs in which prompts are printed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

FIXTURES = Path(__file__).parent.parent / "fixtures"
_OPENS = re.compile(r"(?:(?P<clock>[\d.]+) W )?slot .*\| task (?P<task>\d+) \| (?P<side>old|new): \.\.\.")


class Place(NamedTuple):
    """What somebody who writes a prompt may know of where it is printed, and more."""

    clock: int | None
    """Microseconds; None in a log without a clock."""
    task: int


def stamp(micros: int) -> str:
    """``M.SS.mmm.uuu``."""
    millis, micro = divmod(micros, 1000)
    seconds, milli = divmod(millis, 1000)
    return f"{seconds // 60}.{seconds % 60:02d}.{milli:03d}.{micro:03d}"


def _micros(clock: str) -> int:
    minutes, seconds, millis, micros = map(int, clock.split("."))
    return ((minutes * 60 + seconds) * 1000 + millis) * 1000 + micros


BODIES: dict[str, Callable[[int], list[str]]] = {
    "restart": lambda task: [
        "srv    load_model: loading model '/models/evil.gguf'",
        "srv    load_model: initializing slots, n_slots = 1",
        "slot   load_model: id  0 | task -1 | new slot, n_ctx = 4096",
    ],
    "request": lambda task: [
        "slot launch_slot_: id  0 | task 900 | processing task, is_child = 0",
        "slot update_slots: id  0 | task 900 | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 9000",
        "slot update_slots: id  0 | task 900 | cached n_tokens = 0, memory_seq_rm [0, end)",
        "slot print_timing: id  0 | task 900 | prompt eval time =    3170.10 ms /  9000 tokens (    0.16 ms per token,  6199.86 tokens per second)",
        "slot print_timing: id  0 | task 900 |        eval time =      15.75 ms /     6 tokens (    2.62 ms per token,   381.05 tokens per second)",
        "slot print_timing: id  0 | task 900 |       total time =     332.85 ms /  9006 tokens",
        "slot      release: id  0 | task 900 | stop processing: n_tokens = 9005, truncated = 0",
    ],
    "release": lambda task: [f"slot      release: id  0 | task {task} | stop processing: n_tokens = 2000, truncated = 0"],
    "all reused": lambda task: [
        f"slot update_slots: id  0 | task {task} | cached n_tokens = 1900, memory_seq_rm [1900, end)",
        f"slot update_slots: id  0 | task {task} | n_tokens = 1900, memory_seq_rm [1900, end)",
    ],
    "other text": lambda task: [f"slot update_slots: id  0 | task {task} | new: ... Date: 2026-11-20 14:0 | 3:16 UTC"],
    "whole difference": lambda task: [
        f"slot update_slots: id  0 | task {task} | new: ... a | b",
        f"slot update_slots: id  0 | task {task} |       23      17",
        f"slot update_slots: id  0 | task {task} |       65      22",
        f"slot update_slots: id  0 | task {task} | old: ... Date: 2026-11-20 14:0 | 3:16 UTC",
    ],
    "forced": lambda task: [
        f"slot update_slots: id  0 | task {task} | forcing full prompt re-processing due to lack of cache data (likely due to SWA or hybrid/recurrent memory, see https://github.com/ggml-org/llama.cpp/pull/13194#issuecomment-2868343055)"
    ],
    "overflow": lambda task: [
        "srv    send_error: task id = 7, error: request (5887 tokens) exceeds the available context size (4096 tokens), try increasing it"
    ],
    "settings": lambda task: [
        "srv    load_model: context checkpoints disabled",
        "srv    load_model: prompt cache is disabled - use `--cache-ram N` to enable it",
    ],
}  # fmt: skip
"""Messages of llama-server without a clock, by what they pretend."""

CLOCKS: dict[str, Callable[[Place, str], list[str]]] = {
    "without a clock": lambda place, line: [line],
    "at the start": lambda place, line: [f"0.00.000.272 I {line}"],
    "earlier": lambda place, line: [f"{stamp(max((place.clock or 0) - 90_000, 0))} I {line}"],
    "later": lambda place, line: [f"{stamp((place.clock or 0) + 7_000_000)} I {line}"],
    "tomorrow": lambda place, line: [f"1440.00.000.000 I {line}"],
    "growing": lambda place, line: [f"{stamp(int(100_000 * 1.3**n))} I {line}" for n in range(60)],
    "falling": lambda place, line: [f"{stamp(int(100_000 * 1.3**n))} I {line}" for n in reversed(range(60))],
    "guessed": lambda place, line: [f"{stamp(n * 3_600_000_000)} I {line}" for n in range(8)],
}
"""Clocks that are written before them."""

RECORDS: dict[str, Callable[[str], list[str]]] = {
    "docker": lambda line: [json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-20T12:00:00.1Z"})],
    "docker, in two": lambda line: [
        json.dumps({"log": part, "stream": "stdout", "time": "2026-11-20T12:00:00.1Z"})
        for part in (line[:7], line[7:] + "\n")
    ],
    "cri": lambda line: [f"2026-11-20T12:00:00.123456789Z stderr F {line}"],
    "cri, in two": lambda line: [
        f"2026-11-20T12:00:00.123456789Z stdout {mark} {part}" for mark, part in (("P", line[:7]), ("F", line[7:]))
    ],
    "jsonl": lambda line: [json.dumps({"type": "log", "time": 900_000_000, "level": "info", "msg": line})],
    "ollama": lambda line: [f"time=2026-11-20T12:00:00.000Z level=INFO source=server.go:1 msg={json.dumps(line)}"],
    "compose": lambda line: [f"llama-b-1  | {line}"],
    "journald": lambda line: [f"Nov 20 12:00:00 gpubox llama-server[4242]: {line}"],
    "syslog": lambda line: [f"<13>1 2026-11-20T12:00:00Z gpubox llama-server 4242 - - {line}"],
    "kubectl": lambda line: [f"[pod/llama-0/server] {line}"],
    "kubectl, timestamps": lambda line: [f"2026-11-20T12:00:00.123456789Z {line}"],
    "router": lambda line: [f"[50123] {line}"],
    "brackets": lambda line: [f"[evil] {line}"],
    "dated": lambda line: [f"[2026-11-20 12:00:00][INFO] {line}"],
    "quoted": lambda line: [f"> {line}"],
}
"""Wrappers that are written around them."""

OTHERS: dict[str, list[str]] = {
    "vllm": [
        "INFO 11-20 23:44:50 [core.py:93] Initializing a V1 LLM engine (v0.11.0) with config: model='m', enable_prefix_caching=False",
        "(APIServer pid=1) INFO 11-20 23:44:58 [loggers.py:123] Engine 000: Avg prompt throughput: 900.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 99.0%, Prefix cache hit rate: 0.0%",
    ],
    "sglang": [
        "[2026-07-04 04:31:24] server_args=ServerArgs(model_path='m', disable_radix_cache=True, page_size=1)",
        "[2026-07-04 04:31:24] Prefill batch. #new-seq: 1, #new-token: 900, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0",
    ],
    "koboldcpp": [
        "Welcome to KoboldCpp - Version 1.120",
        "[21:04:11] CtxLimit:1000/4096, Init:0.41s, Processed:900 in 3.68s (47.19T/s), Generated:78/300 in 9.12s (8.55T/s), Total:12.21s",
    ],
    "ik_llama": [
        "======== Prompt cache: cache size: 4096, n_keep: 0, n_discarded_prompt: 0, cache_ram_n_min: 0, f_keep: 0.50, cache_ram_similarity: 0.50"
    ],
}  # fmt: skip
"""Lines of other programs."""


def _plain(line: str) -> list[str]:
    return [line]


def _docker(line: str) -> list[str]:
    return [json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-20T12:00:00.417Z"})]


def _docker_in_two(line: str) -> list[str]:
    return [
        json.dumps({"log": part, "stream": "stderr", "time": "2026-11-20T12:00:00.417Z"})
        for part in (line[:60], line[60:] + "\n")
    ]


def _cri_in_two(line: str) -> list[str]:
    return [
        f"2026-11-20T12:00:00.123456789Z stderr {mark} {part}" for mark, part in (("P", line[:60]), ("F", line[60:]))
    ]


def _fluent_bit(line: str) -> list[str]:
    pod = {"pod_name": "llama-0", "container_name": "server", "host": "gpubox"}
    return [json.dumps({"date": 1763640000.5, "log": line + "\n", "stream": "stderr", "kubernetes": pod})]


AROUND: dict[str, Callable[[str], list[str]]] = {
    "as it is": _plain,
    "docker": _docker,
    "compose": lambda line: [f"llama-1  | {line}"],
    "journald": lambda line: [f"Nov 20 12:00:00 gpubox llama-server[4242]: {line}"],
    "kubectl": lambda line: [f"2026-11-20T12:00:00.123456789Z {line}"],
    "cri": lambda line: [f"2026-11-20T12:00:00.123456789Z stderr F {line}"],
    "docker, in two": _docker_in_two,
    "cri, in two": _cri_in_two,
    "fluent bit": _fluent_bit,
    "loki": lambda line: [
        json.dumps({"labels": {"pod": "llama-0"}, "line": line, "timestamp": "2026-11-20T12:00:00Z"})
    ],
    "gcp": lambda line: [json.dumps({"textPayload": line, "timestamp": "2026-11-20T12:00:00Z", "severity": "ERROR"})],
    "router": lambda line: [f"[53409] {line}"],
    "crlf": lambda line: [line + "\r"],
    "coloured": lambda line: [f"\x1b[32m{line}\x1b[0m"],
}
"""Wrappers around the whole log."""


class Forgery(NamedTuple):
    """Lines in a prompt, and the log around it."""

    name: str
    planted: str
    harmless: str
    """The same log with as many lines of prose in their place."""
    lines: int
    """How many were planted."""


def _planted(place: Place) -> Iterator[tuple[str, list[str]]]:
    """Everything that may be planted, by name."""
    for (body, of), (clock, behind) in product(BODIES.items(), CLOCKS.items()):
        yield f"{body}, {clock}", [written for line in of(place.task) for written in behind(place, line)]
    near = "" if place.clock is None else f"{stamp(place.clock + 20)} I "  # nobody can know it, and it does not help
    for (body, of), (record, around) in product(BODIES.items(), RECORDS.items()):
        if body in ("restart", "request", "all reused"):
            yield f"{body}, {record}", [written for line in of(place.task) for written in around(near + line)]
    yield from OTHERS.items()


def _places(log: list[str]) -> list[tuple[int, Place]]:
    """Offsets after the second texts: the first request of a log has none, and is not worth an attack."""
    found = []
    for number, line in enumerate(log):
        if match := _OPENS.match(line):
            clock = match["clock"]
            found.append((number + 1, Place(_micros(clock) if clock else None, int(match["task"]))))
    return found[2:4]


def forgeries(case: str, around: str = "as it is") -> Iterator[Forgery]:
    """Every forgery in the log of a case: after ``old:`` and after ``new:``."""
    log = (FIXTURES / "cases" / case / "server.log").read_text("utf-8").splitlines()
    for (at, place), side in zip(_places(log), ("old", "new"), strict=True):
        for name, lines in _planted(place):
            prose = [f"The otter crossed river {number}." for number in range(len(lines))]
            yield Forgery(
                f"{name}, behind {side}",
                _wrapped([*log[:at], *lines, *log[at:]], around),
                _wrapped([*log[:at], *prose, *log[at:]], around),
                len(lines),
            )


def with_clocks(case: str) -> Iterator[Forgery]:
    """Those whose lines have a clock of llama-server and no wrapper."""
    clocks = [f", {clock}, " for clock in CLOCKS if clock != "without a clock"]
    return (forgery for forgery in forgeries(case) if any(clock in forgery.name for clock in clocks))


def _wrapped(log: list[str], around: str) -> str:
    return "".join(written + "\n" for line in log for written in AROUND[around](line))


def in_one_record(case: str) -> Iterator[Forgery]:
    """The server's own JSON records (--log-jsonl): a text and what is planted in it are in one."""
    log = (FIXTURES / "cases" / case / "server.log").read_text("utf-8").splitlines()
    (at, place), _ = _places(log)
    for name, lines in _planted(place):
        prose = [f"The otter crossed river {number}." for number in range(len(lines))]
        yield Forgery(
            name, _records([*log[:at - 1], "\n".join([log[at - 1], *lines]), *log[at:]]),
            _records([*log[:at - 1], "\n".join([log[at - 1], *prose]), *log[at:]]), len(lines),
        )  # fmt: skip


def _records(log: list[str]) -> str:
    """Console lines as ``--log-jsonl`` writes them."""
    names = {"I": "info", "W": "warn", "E": "error", "D": "debug"}
    out = []
    for line in log:
        match = re.match(r"([\d.]+) ([IWED]) (.*)", line, re.DOTALL)
        if match is not None:
            record = {"type": "log", "time": _micros(match[1]), "level": names[match[2]], "msg": match[3]}
            out.append(json.dumps(record) + "\n")
    return "".join(out)


def in_bodies(case: str) -> Iterator[Forgery]:
    """A request whose body, printed at the debug level, has line breaks between its values."""
    debug = f"{stamp(0)} D srv          init: at this level nearly every line is of it"
    log = (FIXTURES / "cases" / case / "server.log").read_text("utf-8").splitlines()
    (at, place), _ = _places(log)
    at -= 1  # before the text: the body, then a line of the server
    body = f"{stamp(place.clock or 0)} D srv  log_server_r: request:  {{"
    for name, lines in _planted(place):
        prose = [f"The otter crossed river {number}." for number in range(len(lines))]
        yield Forgery(
            name, _wrapped([debug, *log[:at], body, *lines, *log[at:]], "as it is"),
            _wrapped([debug, *log[:at], body, *prose, *log[at:]], "as it is"), len(lines),
        )  # fmt: skip


LOGGED = {
    "vllm": ("vllm-logged-prompts-shared.log", "prompt: '"),
    "sglang": ("sglang-unshared-logged.log", ", text='"),
}
"""Logs with whole prompts as Python prints them: on one line, with escapes; and what comes before a prompt."""


def in_logged_prompts(engine: str) -> Iterator[Forgery]:
    """In the prompts that vLLM and SGLang log."""
    name, before = LOGGED[engine]
    log = (FIXTURES / "measured" / name).read_text("utf-8")
    at = log.index(before, log.index(before) + 1) + len(before)
    for planted, lines in _planted(Place(0, 7)):
        text = "\n" + "\n".join(lines) + "\n"
        escaped = repr(text + '"')[1:-2].replace("'", "\\'")
        prose = "x" * len(escaped)
        yield Forgery(planted, log[:at] + escaped + log[at:], log[:at] + prose + log[at:], len(lines))


CLOCKED = ("billing-header-swa-b9713", "volatile-prefix-hybrid")
UNCLOCKED = ("billing-header-dense-b6900", "volatile-prefix-dense")
