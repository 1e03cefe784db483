"""Lines of two servers in one log, without a name in front of them: what looks like a cause may be the other server."""

from __future__ import annotations

import re
from typing import Any

import pytest
from conftest import FIXTURES, report_of

CASES = FIXTURES / "cases"


def lines_of(case: str) -> list[str]:
    return (CASES / case / "server.log").read_text("utf-8").splitlines(keepends=True)


def mixed(first: list[str], second: list[str], at_once: int) -> str:
    """Take so many lines of each in turn."""
    out: list[str] = []
    for at in range(0, max(len(first), len(second)), at_once):
        out += first[at : at + at_once] + second[at : at + at_once]
    return "".join(out)


def confidences(log: str) -> dict[str, str]:
    report: dict[str, Any] = report_of(log.encode())
    return {finding["code"]: finding["confidence"] for finding in report["findings"]}


def test_no_finding_is_sure_where_lines_of_two_servers_are_mixed() -> None:
    log = mixed(lines_of("slot-contention-dense-b8672"), lines_of("no-checkpoint-mamba-b6301"), 3)
    found = confidences(log)
    assert {code for code, sure in found.items() if sure != "low"} <= {"CD902"}
    cut = next(finding for finding in report_of(log.encode())["findings"] if finding["code"] == "CD902")
    assert "lines of several servers are mixed" in cut["claim"].lower()


def test_the_same_servers_one_after_the_other_are_not_mixed() -> None:
    log = "".join(lines_of("slot-contention-dense-b8672") + lines_of("no-checkpoint-mamba-b6301"))
    found = confidences(log)
    assert (found["CD302"], found["CD201"]) == ("medium", "high")


def test_a_filtered_log_is_not_mixed() -> None:
    """Neither where a request has no end, nor where it has no beginning."""
    for word in (" release: ", " launch_slot_: "):
        log = "".join(line for line in lines_of("volatile-prefix-hybrid") if word not in line)
        assert "low" not in confidences(log).values()


def test_lines_without_numbers_of_requests_are_not_mixed() -> None:
    """As in a post that leaves out slot and task: each of these seems to be a part of a request."""
    messages = (
        "new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 1500",
        "n_tokens = 0, memory_seq_rm [0, end)",
    )
    report: dict[str, Any] = report_of("".join(f"{message}\n" for message in messages * 6).encode())
    assert not any("are mixed" in finding["claim"].lower() for finding in report["findings"])


@pytest.mark.parametrize("words", ["new prompt|memory_seq_rm|prompt eval time", "new prompt|n_past"])
def test_numbers_that_come_again_after_a_restart_are_not_of_another_server(words: str) -> None:
    """In lines that someone picked, no request has a beginning or an end."""
    picked = [line for line in lines_of("slot-contention-dense-b8672") if re.search(words, line)]
    (cut,) = report_of("".join(picked * 4).encode())["findings"]
    assert (cut["code"], cut["confidence"]) == ("CD902", "high")
    assert "mixed" not in cut["claim"]
