"""What a cut log shows where its lines decide, and where they do not: no all-clear, and no cause."""

from __future__ import annotations

import io
from typing import Any

import pytest
from conftest import FIXTURES, report_of

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.knowledge.decision import deciding
from cachedoctor.report.base import Appearance, write

FORMATS = ("text", "markdown", "html")


def shown(log: str, name: str = "text", *, verbose: bool = False) -> str:
    analyzer, out = Analyzer(), io.BytesIO()
    analyzer.open("log")
    analyzer.feed(log.encode())
    write(name, analyzer.finish(), out, Appearance(verbose=verbose))
    return " ".join(out.getvalue().decode().split())


def findings(log: str) -> list[tuple[str, str, str]]:
    found: list[dict[str, Any]] = report_of(log)["findings"]
    return [(f["name"], f["severity"], f["confidence"]) for f in found if f["name"] != "log-cut"]


def request(task: int, prompt: int, cached: int, *choice: str, slot: str = "slot update_slots: id  0") -> str:
    """A whole request as b8672 prints it, after the choice of its slot."""
    return "".join(
        f"{line}\n"
        for line in (
            *choice,
            f"slot launch_slot_: id  0 | task {task} | processing task, is_child = 0",
            f"{slot} | task {task} | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = {prompt}",
            f"{slot} | task {task} | n_tokens = {cached}, memory_seq_rm [{cached}, end)",
            f"slot print_timing: id  0 | task {task} | ",
            f"prompt eval time =      20.84 ms / {prompt - cached} tokens (    0.30 ms per token,  3310.78 tokens per second)",
            "       eval time =      16.15 ms /     6 tokens (    2.69 ms per token,   371.49 tokens per second)",
            f"      total time =      36.99 ms /    {prompt - cached + 6} tokens",
            f"slot      release: id  0 | task {task} | stop processing: n_tokens = {prompt + 5}, truncated = 0",
        )
    )


LRU = "slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = 4138572061"
RAM = (
    "srv   prompt_save:  - saving prompt with length {}, total state size = 0.747 MiB",
    "srv          load:  - looking for better prompt, base f_keep = 0.004, sim = 0.002",
)
KNOWN = request(
    38,
    1692,
    1623,
    LRU,
    RAM[0].format(2921),
    "srv          load:  - found better prompt with f_keep = 1.000, sim = 0.959",
)
"""A request that continues a prompt from RAM."""
OPEN = request(45, 2985, 7, LRU, RAM[0].format(1697), RAM[1])
"""One whose predecessor is not in the log: a new conversation, or the one whose prompt was in RAM all the time."""


HEAD = ("prefix-diverges-early", "note", "low")


def others(log: str) -> set[str]:
    """Look-alikes that the first finding leaves open."""
    finding: dict[str, Any] = report_of(log)["findings"][0]
    return {other["name"] for other in finding["ruled_out"] if other["why"].startswith("not excluded")}


@pytest.mark.parametrize("name", FORMATS)
def test_one_request_that_stays_open_is_not_an_all_clear(name: str) -> None:
    """A changed head, a slot that was taken, or a new conversation: the turn before may be above the first line."""
    said = shown(KNOWN + OPEN, name)
    assert "no findings" not in said.lower()
    assert findings(KNOWN + OPEN) == [HEAD]
    assert {"slot-held-other-prompt", "new-conversation"} <= others(KNOWN + OPEN)
    assert "new-conversation" in said


@pytest.mark.parametrize("prompt", [1984, 2985, 1200])
def test_the_second_request_of_an_excerpt_that_shares_little_is_a_note(prompt: int) -> None:
    """9 of 1,697 tokens in common: by their lengths the next turn, or another conversation's; no line shows."""
    log = request(21, 1692, 9, LRU) + request(28, prompt, 9, LRU)
    assert findings(log) == [HEAD]
    assert {"slot-held-other-prompt", "new-conversation"} <= others(log)
    report = report_of(log)
    assert report["totals"]["avoidable_tokens"] == 0
    rows = {entry["row"]: entry["tokens"] for entry in report["accounts"][0]["entries"]}
    assert rows["undecided"] == min(prompt, 1697) - 9
    assert "client" not in rows


def test_the_second_request_after_a_short_one_stays_open() -> None:
    """The slot held a title of 86 tokens: what a prompt of 2,267 does not share with it is not a loss."""
    log = request(36, 81, 7, LRU) + request(43, 2267, 7, LRU)
    assert findings(log) == []
    assert "cannot tell" in shown(log).lower()


def test_later_conversations_of_a_cut_log_are_new() -> None:
    """Only the first content of a slot may be an earlier turn of the next request."""
    log = request(21, 1692, 9, LRU) + request(28, 4000, 9, LRU) + request(35, 9000, 9, LRU)
    assert [len(f["requests"]) for f in report_of(log)["findings"]] == [1]


def test_the_first_conversations_of_a_whole_log_are_new() -> None:
    """The server started here: nothing came before."""
    start = "srv    load_model: initializing, n_slots = 1, n_ctx_slot = 16384, kv_unified = 'true'\n"
    log = "build_info: b8672-1111111\nmain: server is listening on http://127.0.0.1:8080 - starting the main loop\n"
    report = report_of(log + start + request(21, 1692, 0, LRU) + request(28, 2985, 9, LRU))
    assert HEAD not in [(f["name"], f["severity"], f["confidence"]) for f in report["findings"]]


def test_a_short_request_that_stays_open_is_not_worth_a_word() -> None:
    """78 tokens, a title: whatever came before, it cost nothing that matters."""
    said = shown(KNOWN + request(45, 78, 7, LRU, RAM[0].format(1697), RAM[1]))
    assert "No findings." in said


def test_few_open_requests_among_many_are_not_named() -> None:
    turns = "".join(
        request(50 + n, 3000 + 70 * n, 2995 + 70 * (n - 1), "slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, sim_best = 0.976 (> 0.100 thold), f_keep = 1.000")
        for n in range(1, 12)
    )  # fmt: skip
    report = report_of(request(45, 3000, 7, LRU) + turns)
    assert (report["totals"]["open_requests"], report["totals"]["judged_requests"]) == (1, 11)
    assert "No findings." in shown(request(45, 3000, 7, LRU) + turns)


def test_grep_for_the_slots_leaves_a_log_that_can_be_judged() -> None:
    """Up to b9093 the lines of the timing block have no prefix: their head says that the client got an answer."""
    log = (FIXTURES / "cases" / "swa-threshold-misfire-b8672" / "server.log").read_text("utf-8")
    kept = "".join(line for line in log.splitlines(keepends=True) if "slot" in line)
    assert "prompt eval time" not in kept
    names = {name for name, _, _ in findings(log)}
    assert {name for name, _, _ in findings(kept)} == names
    assert {r["outcome"] for r in report_of(kept)["requests"]} == {r["outcome"] for r in report_of(log)["requests"]}


REFUSED = (
    "slot launch_slot_: id  0 | task 14 | processing task\n"
    "slot update_slots: id  0 | task 14 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = {}\n"
    "slot      release: id  0 | task 14 | stop processing: n_tokens = 0, truncated = 0\n"
)


def test_a_prompt_that_does_not_fit_was_refused() -> None:
    """5,887 tokens in a slot of 4,096, given back before the first batch; the line of the error is not there."""
    assert findings(REFUSED.format(5887)) == [("context-overflow", "error", "medium")]
    assert "5,887" in shown(REFUSED.format(5887))
    assert "4,096" in shown(REFUSED.format(5887))
    assert findings(REFUSED.format(4095)) == []


def test_a_prompt_that_does_not_fit_and_was_cut_was_not_refused() -> None:
    """Up to b6628 the server drops its middle, and continues."""
    batch = "slot update_slots: id  0 | task 14 | kv cache rm [0, end)\n"
    log = REFUSED.format(5887).replace("slot      release", batch + "slot      release")
    assert "context-overflow" not in {name for name, _, _ in findings(log)}


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (6301, '"kv cache rm [N, end)"'),
        (8672, '"memory_seq_rm [N, end)"'),
        (11549, '"cached n_tokens = N, memory_seq_rm [N, end)" with -lv 4'),
    ],
)
def test_the_line_that_decides_is_that_of_the_build(build: int, words: str) -> None:
    assert deciding("reused", build, build) == f"the reused tokens ({words})"


def test_builds_are_named_where_the_wording_leaves_them_open() -> None:
    said = deciding("prompt", None, None)
    assert "up to b6751" in said
    assert "from b9094 on" in said


def test_a_request_without_its_end_names_the_lines_that_tell_it() -> None:
    said = shown(
        "0.00.975.634 I slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, f_sim_best = 0.176 (> 0.100 thold), f_keep = 0.886\n"
        "0.00.976.010 I slot launch_slot_: id  0 | task 16 | processing task, is_child = 0\n"
        "0.00.976.030 I slot      release: id  0 | task 16 | stop processing: n_tokens = 1173, truncated = 0\n",
        verbose=True,
    )
    assert "missing here" in said
    assert '"new prompt, ... task.n_tokens = N" with -lv 4' in said
    assert '"task id = T, error:"' in said


FORCED = "slot update_slots: id  0 | task 9 | forcing full prompt re-processing due to lack of cache data (likely due to SWA)\n"


@pytest.mark.parametrize(("held", "said"), [(870, "too few tokens to matter"), (9870, "CD108")])
def test_a_small_request_is_said_to_be_small(held: int, said: str) -> None:
    log = (
        f"slot update_slots: id  0 | task 9 | n_past = 6, slot.prompt.tokens.size() = {held}, seq_id = 0, "
        f"pos_min = {held - 1}, n_swa = 0\n"
    )
    assert said in shown(log + FORCED)
    assert ("too few" in shown(log + FORCED)) == (held < 1000)


def test_a_first_request_is_not_a_warning() -> None:
    """Nothing before it is in the log: it may have begun a conversation."""
    log = request(18, 1594, 0, LRU).replace(
        "slot update_slots: id  0 | task 18 | n_tokens",
        "slot update_slots: id  0 | task 18 | n_past = 9, slot.prompt.tokens.size() = 1846, seq_id = 0, pos_min = 1845, n_swa = 1\n"
        + FORCED.replace("task 9", "task 18")
        + "slot update_slots: id  0 | task 18 | n_tokens",
    )
    assert findings(log) == [("prefix-diverges-early", "note", "low")]


# ---- a window that no line prints

WINDOW = (FIXTURES / "excerpts" / "window-ends-beyond.log").read_text("utf-8")
FORCED_LINE = next(line for line in WINDOW.splitlines(keepends=True) if "forcing" in line)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (", f_keep = 0.684", ", f_keep = 0.400"),  # 0.4 of 6,136 is less than the threshold: bounds too wide
        (", f_keep = 0.684", ", f_keep = 0.950"),  # contradicts the refusal
        ("[2700, 4235]", "[3400, 4935]"),  # refused for its begin: says nothing of the end
        ("[2700, 4235]", "[3170, 6100]"),  # bounds too wide
        (FORCED_LINE, ""),
    ],
)
def test_what_does_not_determine_the_prefix_names_no_cause(old: str, new: str) -> None:
    assert old in WINDOW
    assert "no-usable-checkpoint" not in {name for name, _, _ in findings(WINDOW.replace(old, new))}


def test_a_checkpoint_whose_restore_failed_was_not_refused_for_its_end() -> None:
    failed = (
        "7.10.300.485 E slot update_slots: id  2 | task 951 | failed to restore context checkpoint (pos_min = 2700, "
        "pos_max = 4235, size = 70.500 MiB)\n"
    )
    log = WINDOW.replace(FORCED_LINE, failed + FORCED_LINE)
    names = {name for name, _, _ in findings(log)}
    assert "checkpoint-restore-failed" in names
    assert "no-usable-checkpoint" not in names
    ((plain,), (after,)) = (report_of(text)["requests"] for text in (WINDOW, log))
    assert 4194 <= plain["common_prefix_tokens"] <= 4234
    assert after["common_prefix_tokens"] is None
