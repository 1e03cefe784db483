"""Failures in words of forks: what is judged by them, and what stays silent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import json_of

from cachedoctor.engines.llamacpp.excerpts import CLEARED, REFUSED, unknown

PREFIX = "44.10.003.010 W slot update_slots: id  0 | task 912 | "


def judged(text: str, prefix: str = PREFIX) -> tuple[str, dict[str, Any]] | None:
    """What a line is taken for, and its numbers."""
    found = unknown((prefix + text).encode(), 1)
    event = None if found is None else found.event
    return None if event is None else (event.message, event.fields)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("could not remove tokens from position 52210 on (state is recurrent), resetting slot memory", 52210),
        ("seq_rm failed at p0 = 18800, clearing slot memory", 18800),
        ("seq_rm refused for [18800, end), pos 18800, cache reset", 18800),
        ("roll back from 4100 failed: memory cleared, prompt is processed in full", 4100),
    ],
)
def test_a_cut_that_failed_and_what_was_cleared(text: str, position: int) -> None:
    assert judged(text) == (CLEARED.id, {"p0": position})


@pytest.mark.parametrize(
    "text",
    [
        "refusing to restore context checkpoint: size mismatch (pos_min = 30207, pos_max = 30207)",
        "restore of checkpoint (pos_max = 30207) failed, falling back to full prompt processing",
    ],
)
def test_a_checkpoint_that_was_refused(text: str) -> None:
    assert judged(text) == (REFUSED.id, {"pos_max": 30207})


@pytest.mark.parametrize(
    "text",
    [
        "seq_rm failed at p0 = 18800, put back the context checkpoint at 18700 instead",
        "restore of checkpoint (pos_max = 30207) failed, falling back to the one at 22000",
        "draft model: seq_rm failed at p0 = 18800, clearing draft cache",
        "failed to roll back the speculative state from 120, reset",
        "draft model returned no tokens, falling back to normal decoding",
        "seq_rm failed, clearing slot memory",
        "seq_rm failed at p0 = 18800",
        "clearing slot memory from position 18800",
        "failed to restore checkpoint",
        "prompt is long, cache may not fit",
    ],
)
def test_what_says_too_little_or_was_rescued_is_not_judged(text: str) -> None:
    """But it is a slot's line."""
    found = unknown((PREFIX + text).encode(), 1)
    assert found is not None
    assert found.event is None


@pytest.mark.parametrize(
    "line",
    [
        "seq_rm failed at p0 = 18800, clearing slot memory",
        "I think slot update_slots: id  0 | task 912 | seq_rm failed at p0 = 18800, clearing slot memory",
        "srv  update_slots: seq_rm failed at p0 = 18800, clearing slot memory",
        "9.01.100.200 I slot update_slots: id  0 | task 500 | cache looks fine today",
    ],
)
def test_what_is_not_a_slots_line_or_states_nothing_is_unknown(line: str) -> None:
    assert unknown(line.encode(), 1) is None


def names(*lines: str) -> list[str]:
    report = json.loads(json_of(["".join(line + "\n" for line in lines).encode()]))
    return [f["name"] for f in report["findings"] if f["name"] != "log-cut"]


FAILED = PREFIX + "seq_rm failed at p0 = 18800, clearing slot memory"
REFUSAL = PREFIX + "refusing to restore context checkpoint: size mismatch (pos_min = 30207, pos_max = 30207)"


@pytest.mark.parametrize(("line", "name"), [(FAILED, "rollback-failed"), (REFUSAL, "checkpoint-restore-failed")])
def test_a_first_batch_after_it_tells_how_it_ended(line: str, name: str) -> None:
    """From 0 on it was lost; from further on it was fixed."""
    batch = "44.10.003.020 I slot update_slots: id  0 | task 912 | cached n_tokens = {0}, memory_seq_rm [{0}, end)"
    assert names(line, batch.format(0)) == [name]
    assert names(line, batch.format(18700)) == []


def test_a_known_message_is_not_judged_twice() -> None:
    """With unknown text after it, it is still the server's own."""
    line = PREFIX + "failed to truncate tokens with position >= 23100 - clearing the memory, seq_rm of p0 = 5"
    report = json.loads(json_of([line.encode() + b"\n"]))
    assert [f["cost"]["tokens"] for f in report["findings"] if f["name"] == "rollback-failed"] == [23100]


@pytest.mark.parametrize("around", ["* {}", "> {}", "`{}`", "1. {}"])
def test_decoration_is_taken_off(around: str) -> None:
    assert names(around.format(FAILED)) == ["rollback-failed"]


@pytest.mark.parametrize("lines", [600, 4000])
def test_a_whole_log_is_not_searched_for_them(lines: int) -> None:
    """That would cost every log time: only excerpts are."""
    assert names(FAILED, *["a line of nobody"] * lines) == ["unknown-format"]
