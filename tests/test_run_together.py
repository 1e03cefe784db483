"""Records that a paste ran together in one row, and rows that only look like it."""

from __future__ import annotations

import pytest
from conftest import report_of

from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.engines.llamacpp.excerpts import parts
from cachedoctor.engines.llamacpp.tracker import catalogue

IDLE = "srv update_slots: all slots are idle"
LAUNCH = "slot launch_slot_: id 3 | task 1 | processing task"
PROMPT = "slot update_slots: id 3 | task 1 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 2043"
BATCH = "slot update_slots: id 3 | task 1 | n_tokens = 1000, memory_seq_rm [1000, end)"
CHAIN = "slot launch_slot_: id 3 | task -1 | sampler chain: logits -> top-k -> ?dry -> dist"
DONE = "srv log_server_r: request: POST /v1/chat/completions 127.0.0.1 200"
CLOCK = "0.01.058.254 I "


def parted(*rows: str) -> dict[int, list[str]]:
    found = parts([row.encode() for row in rows], catalogue())
    return {at: [piece.decode() for piece in pieces] for at, pieces in found.items()}


def test_a_row_is_parted_before_every_prefix() -> None:
    pieces = [IDLE, DONE, CHAIN, LAUNCH, PROMPT, BATCH]
    assert parted("some words", " ".join(pieces)) == {1: pieces}
    clocked = [CLOCK + piece for piece in pieces]
    assert parted(CLOCK + IDLE, " ".join(clocked)) == {1: clocked}


def test_names_of_the_server_end_a_record_and_text_does_not() -> None:
    """After a text of somebody all that follows may be his."""
    assert parted(f"{CHAIN} {LAUNCH}") == {0: [CHAIN, LAUNCH]}
    error = "srv send_error: task id = 1, error: no such role: user"
    assert parted(f"{IDLE} {error} {LAUNCH}") == {0: [IDLE, f"{error} {LAUNCH}"]}


def test_timing_lines_without_a_prefix_are_parted() -> None:
    head = "slot print_timing: id 3 | task 1 |"
    rows = [
        "prompt eval time = 200.00 ms / 1043 tokens ( 0.19 ms per token, 5215.00 tokens per second)",
        "eval time = 10.50 ms / 6 tokens ( 2.10 ms per token, 476.19 tokens per second)",
        "total time = 210.50 ms / 1049 tokens",
    ]
    assert parted(" ".join([BATCH, head, *rows, IDLE])) == {0: [BATCH, head, *rows, IDLE]}
    assert parted(f"{head} {rows[1]}", f"{head} {rows[2]}") == {}, "these are lines of newer builds"


@pytest.mark.parametrize(
    "rows",
    [
        (f"srv send_error: task id = 1, error: {IDLE}",),
        (f"slot update_slots: id 3 | task 1 | old: ... | {LAUNCH}",),
        (f"srv params_from_: Chat format: {IDLE}",),
        (f"srv params_from_: Chat format: <|user|> say this {IDLE}",),
        (f"please explain {IDLE} {LAUNCH}",),
        (CLOCK + IDLE, f"{IDLE} {LAUNCH}"),
        (f"{CLOCK}{IDLE} {LAUNCH}",),
        (IDLE, LAUNCH, PROMPT),
    ],
    ids=["an error", "a prompt", "a format", "text", "words", "no clock", "no second clock", "single lines"],
)
def test_what_may_be_text_is_not_parted(rows: tuple[str, ...]) -> None:
    assert parted(*rows) == {}


def test_what_a_paragraph_says_is_read_and_redacted() -> None:
    log = "It is slow:\n" + " ".join([IDLE, DONE, LAUNCH, PROMPT, BATCH]) + "\n"
    redactor = Redactor()
    for text in (log, (redactor.feed(log.encode()) + redactor.finish()).decode()):
        report = report_of(text)
        (request,) = report["requests"]
        assert (request["task"], request["prompt_tokens"], request["cached_tokens"]) == (1, 2043, 1000)
        assert request["first_line"] == 2
        (info,) = report["inputs"]
        assert (info["lines"], info["recognised"]) == (2, 1)
