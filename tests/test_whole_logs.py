"""Small logs in, whole reports out: what one line more or less, or one number, must change, and what it must not."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from command import FIRST, SIMILARITY, TURN
from conftest import FIXTURES, content_of, report_of
from reports import written

from cachedoctor.doctor.analysis.analyzer import Analyzer

TRACE = """\
0.00.006.179 I srv    load_model: loading model '/models/dense.gguf'
0.00.025.155 I print_info: n_swa                 = 0
0.00.045.884 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 16384, kv_unified = 'false'
0.00.052.415 I srv          init: listening on http://127.0.0.1:8080
"""
SLOT = "0.00.637.407 W slot   operator(): id  0 | task 9 | "
SPEED = "    0.10 ms per token, 10000.00 tokens per second"


def turn(
    task: int,
    prompt: int,
    reply: int,
    *,
    cached: int = 0,
    choice: str = "selected slot by LRU, t_last = -1",
    reuse: str = "",
    computed: int | None,
) -> str:
    """Lines of b11549 on one request; ``reuse`` takes the place of the lines that give prompt and reuse.

    Args:
        computed: tokens of its timing line; without one it was cancelled, or the log is torn.
    """
    slot = f"slot {{}}: id  0 | task {task} | "
    shown = reuse or (
        f"{slot.format('  operator()')}new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = {prompt}\n"
        f"{slot.format('  operator()')}cached n_tokens = {cached}, memory_seq_rm [{cached}, end)\n"
    )
    timings = "".join(
        f"{slot.format('print_timing')}{what} time =     100.00 ms / {tokens:5} tokens ({SPEED})\n"
        for what, tokens in (("prompt eval", computed or 0), ("       eval", reply))
    )
    lines = (
        f"slot get_availabl: id  0 | task -1 | {choice}\n"
        f"{slot.format('launch_slot_')}processing task, is_child = 0\n"
        f"{shown}"
        f"{timings if computed is not None else ''}"
        f"{slot.format('     release')}stop processing: n_tokens = {prompt + reply - 1}, truncated = 0\n"
    )
    return "".join(f"0.01.000.000 I {line}" for line in lines.splitlines(keepends=True))


def requests(log: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report_of(log)["requests"]
    return found


# ---- counts of a request


def torn(reused: int, computed: int | None) -> tuple[int | None, ...]:
    """Counts of a request of 1,966 tokens with these reuse and timing lines; None: no timing line."""
    second = turn(9, 1966, 6, cached=reused, computed=computed)
    found = requests(TRACE + turn(0, 1896, 6, computed=1896) + second)[1]
    return found["prompt_tokens"], found["cached_tokens"], found["processed_tokens"]


@pytest.mark.parametrize(("reused", "cached"), [(1900, 1900), (1966, 1966), (1967, None), (5000, None)])
def test_no_request_reuses_more_than_its_prompt(reused: int, cached: int | None) -> None:
    """A torn log mixes the lines of two requests: a reuse line of more than the prompt is another one's."""
    assert torn(reused, None) == (1966, cached, None)
    assert torn(reused, 2100) == (1966, cached, 2100), "no timing of this request either"


def test_the_timing_line_shows_what_a_foreign_reuse_line_cannot() -> None:
    """1,966 tokens of which 66 were computed: 1,900 were reused, whatever the line of another request says."""
    assert torn(5000, 66) == (1966, 1900, 66)


# ---- conversations


def dropped_reasoning(matched: int, choice: str, reuse: str = "") -> dict[str, Any]:
    """The second of two prompts: it shares ``matched`` tokens with the first one and its reply, 4,000 together."""
    cut = turn(4000, 1150, 6, cached=matched, computed=1150 - matched, choice=choice, reuse=reuse)
    return requests(TRACE + turn(0, 1000, 3001, computed=1000) + cut)[1]


def similar(matched: int) -> str:
    """The choice of a slot with 4,000 tokens, ``matched`` of which are the beginning of 1,150."""
    shares = f"f_sim_best = {matched / 1150:.3f} (> 0.100 thold), f_keep = {matched / 4000:.3f}"
    return f"selected slot by LCP similarity, {shares}"


@pytest.mark.parametrize(("matched", "goes_on"), [(1000, True), (1003, True), (1004, False), (1006, False)])
def test_an_exact_prefix_must_end_where_the_reply_begins(matched: int, goes_on: bool) -> None:
    """The prefix is printed: three tokens into the reply at most are those that every reply begins with."""
    exact = f" - checking sim = 0.870 ({matched}/1150) > 0.100\nslot get_availabl: id  0 | task -1 | {similar(matched)}"
    assert (dropped_reasoning(matched, exact)["thread"] == 0) is goes_on


@pytest.mark.parametrize(("matched", "goes_on"), [(1004, True), (1006, True), (1010, False)])
def test_a_rounded_prefix_may_end_a_little_behind(matched: int, goes_on: bool) -> None:
    """The default level prints shares of three decimals: up to eight tokens after the prompt is still its end."""
    hidden = "slot   operator(): id  0 | task 4000 | n_gen =      1, tg = 100.00 t/s, tg_3s = 100.00 t/s\n"
    assert (dropped_reasoning(matched, similar(matched), reuse=hidden)["thread"] == 0) is goes_on


# ---- checkpoints of a sliding window


@pytest.mark.parametrize(("window", "saved"), [(128, 1950), (1024, 1438)])
def test_a_checkpoint_must_reach_back_a_whole_window(window: int, saved: int) -> None:
    """1,965 tokens match; the dropped checkpoint of 1,950 tokens begins at 1,182, and the next token sees a window.

    With 128 tokens of window it would have been enough. With 1,024 the tokens from 941 on are needed: only the one of
    1,438 tokens has them (from 670 on).
    """
    text = content_of(FIXTURES / "cases" / "checkpoint-evicted-hybrid-b8672").decode()
    text = re.sub(r"(arch +=) qwen35", r"\1 gemma3", text)
    text = re.sub(r"(n_swa +=) 0", rf"\1 {window}", text)
    text = re.sub(r"pos_min = (\d+), pos_max", lambda m: f"pos_min = {int(m[1]) - 767}, pos_max", text)
    text = re.sub(r"\[(\d+), (\d+)\] against", lambda m: f"[{int(m[1]) - 100}, {m[2]}] against", text)  # too late
    (finding,) = (f for f in report_of(text)["findings"] if f["code"] == "CD203")
    assert finding["cost"]["tokens"] == saved
    assert f"a checkpoint at token {saved:,}, inside the common prefix" in finding["claim"]


# ---- slots that change hands


@pytest.mark.parametrize(("requests_read", "lost", "sure"), [(3, 1837, False), (4, 3449, False), (5, 5357, True)])
def test_lengths_must_alternate_three_times_to_show_two_conversations(
    requests_read: int, lost: int, sure: bool
) -> None:
    """1,841, 1,616, 1,912: one came back, or one changed its head twice. 1,692 and 1,984 after it leave no doubt.

    Without a RAM prompt cache each return costs what the conversation had: 1,846 - 9, 1,621 - 9, 1,917 - 9 tokens.
    """
    lines = content_of(FIXTURES / "cases" / "slot-taken-b6301").decode().splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines, 1) if "all slots are idle" in line]
    (finding,) = report_of("".join(lines[: ends[requests_read]]))["findings"]
    assert (finding["code"], finding["cost"]["tokens"]) == ("CD301", lost)
    assert finding["confidence"] == ("medium" if sure else "low")
    (other,) = finding["ruled_out"]
    assert other["name"] == "prefix-diverges-early"
    assert other["why"].startswith("not excluded: ")
    assert ("not excluded: the prompt lengths alternate" in other["why"]) is sure


def test_nobody_is_blamed_where_a_copy_came_back_from_ram_that_fits_in_part() -> None:
    """1,593 tokens came back, of which the prompt of 1,912 shares 487: the first of four conversations, or the last.

    Its own copy of 1,846 tokens was evicted before; where nothing comes back, that is the cause.
    """
    lines = content_of(FIXTURES / "cases" / "cache-ram-evicts-b9294").decode().splitlines(keepends=True)
    end = next(at for at, line in enumerate(lines) if "task 28 | stop processing" in line)
    searched = max(at for at, line in enumerate(lines[:end]) if "looking for better prompt" in line)
    found = "0.00.924.790 I srv          load:  - found better prompt with f_keep = 0.300, sim = 0.251\n"
    some = "".join([*lines[: searched + 1], found, *lines[searched + 1 : end + 1]])
    some = some.replace("/  1903 tokens (", "/  1425 tokens (")
    for log, cached, codes in (("".join(lines[: end + 1]), 9, ["CD304"]), (some, 487, [])):
        last = requests(log)[-1]
        assert (last["prompt_tokens"], last["cached_tokens"], last["codes"]) == (1912, cached, codes)


# ---- a place that changes each time


@pytest.mark.parametrize(("places", "same"), [((2500, 2508, 2516), True), ((2500, 2508, 2517), False)])
def test_the_same_place_is_within_sixteen_tokens(places: tuple[int, ...], same: bool) -> None:
    """A prompt that grows by 300 tokens a turn, and each time differs from the slot's content at one of ``places``."""
    log, held = TRACE + turn(0, 4000, 6, computed=4000), 4005
    for number, place in enumerate(places, 1):
        prompt = 4000 + 300 * number
        shares = f"f_sim_best = {place / prompt:.3f} (> 0.100 thold), f_keep = {place / held:.3f}"
        exact = f" - checking sim = {place / prompt:.3f} ({place}/{prompt}) > 0.100"
        choice = f"{exact}\nslot get_availabl: id  0 | task -1 | selected slot by LCP similarity, {shares}"
        log += turn(1000 * number, prompt, 6, cached=place, computed=prompt - place, choice=choice)
        held = prompt + 5
    report = report_of(log)
    assert [request["common_prefix_tokens"] for request in report["requests"][1:]] == list(places)
    (finding,) = report["findings"]
    assert (finding["code"], finding["count"]) == ("CD105", 3)
    assert ("The change is at the same place in at least three growing requests" in finding["why"]) is same


@pytest.mark.parametrize(
    ("text", "new", "sure"), [("Current time: 2026-11-20 14:02:", "59 UTC", "high"), ("cat no.", "7 of 9", "medium")]
)
def test_a_bare_number_is_less_sure_than_a_time(text: str, new: str, sure: str) -> None:
    """It may be part of the question; a time of day is none."""
    diff = f"{SLOT}old: ... {text} | 3 x\n{SLOT}new: ... {text} | {new}\n"
    second = TURN.format(task=9, tokens=2035, similarity=SIMILARITY.format(tokens=2035), diff=diff)
    (finding,) = report_of(FIRST + second)["findings"]
    assert (finding["code"], finding["confidence"]) == ("CD102", sure)


# ---- what a number is: printed, derived, bounded, unknown

_HEADLESS = """\
slot launch_slot_: id  0 | task 7 | processing task
slot update_slots: id  0 | task 7 | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 2000
slot update_slots: id  0 | task 7 | n_tokens = 1160, memory_seq_rm [1160, end)
prompt eval time =     183.08 ms /   840 tokens (    0.10 ms per token, 10356.35 tokens per second)
slot release: id  0 | task 7 | stop processing: n_tokens = 2005, truncated = 0
"""


_UNTIMED = re.sub(r"prompt eval time.*\n", "", _HEADLESS)


def test_what_was_not_said_to_be_computed_is_unknown_and_not_0() -> None:
    """The timings are missing. Prompt is reused + computed + unknown."""
    totals = report_of(_UNTIMED)["totals"]
    known = {name: totals[f"{name}_tokens"] for name in ("prompt", "cached", "processed", "unknown")}
    assert known == {"prompt": 2000, "cached": 1160, "processed": 0, "unknown": 840}
    assert totals["unknown_requests"] == 1


def test_no_format_says_that_nothing_was_computed_where_the_log_does_not_show() -> None:
    for name in ("text", "markdown", "github", "html"):
        analyzer = Analyzer()
        analyzer.open("server.log")
        analyzer.feed(_UNTIMED.encode())
        page = written(name, analyzer.finish()).decode()
        assert "840" in page, name
        assert not re.search(r"\b0 computed|omputed\W+0\b", page), name


def test_every_derived_number_says_by_which_identity() -> None:
    """2,005 in the slot at the end and 6 generated: 2,000 of prompt; of these 840 were computed, so 1,160 reused."""
    log = re.sub(r".*(new prompt|memory_seq_rm).*\n", "", _HEADLESS).replace(
        "prompt eval time", "slot print_timing: id  0 | task 7 | prompt eval time"
    )
    reply = "slot print_timing: id  0 | task 7 |        eval time =       6.86 ms /     6 tokens (    1.37 ms per token,   728.97 tokens per second)\n"  # noqa: E501
    (only,) = report_of(log.replace("slot release", reply + "slot release"))["requests"]
    assert (only["prompt_tokens"], only["cached_tokens"]) == (2000, 1160)
    assert only["identities"] == {"prompt_tokens": "released - generated + 1", "cached_tokens": "prompt - processed"}
    assert list(only["identities"]) == only["derived"]


def test_a_prefix_known_as_a_share_has_bounds() -> None:
    """similarity 0.959 of 2,049 tokens, f_keep 0.882 of the slot's 2,229: 1,965 or 1,966."""
    log = content_of(FIXTURES / "cases" / "history-edited-dense")
    found = [request for request in report_of(log)["requests"] if request["bounds"]]
    assert found
    for request in found:
        low, high = request["bounds"]["common_prefix_tokens"]
        assert low < high
        assert "common_prefix_tokens" in request["derived"]


# ---- a conversation whose prompts change at their beginning, on several slots


def hidden(*literals: str) -> str:
    """The log of a chat with a clock at its head on four slots, without the lines that hold one of these."""
    log = FIXTURES / "days" / "dense-clock_alone_auto-b11549-lv4" / "server.log"
    lines = log.read_text("utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not any(literal in line for literal in literals))


def test_what_is_compared_and_passed_over_tells_where_the_prompts_part() -> None:
    """46 tokens of each are those of the prompt before it, which another slot, or the RAM cache, holds."""
    for lines in ((), ("prompt with length",)):
        finding = report_of(hidden(*lines))["findings"][0]
        assert (finding["code"], finding["count"]) == ("CD108", 5)
        assert "after 46 tokens" in finding["claim"]
        assert "one-shot-prompts" in {other["name"] for other in finding["still_possible"]}


def test_a_slot_that_is_emptied_for_the_next_request_was_passed_over() -> None:
    """Builds up to b9294 print that alone: how little is the same is not known, so that it is a note."""
    log = hidden("checking sim", "prompt with length", "kv_unified", "kv unified")
    finding = report_of(log)["findings"][0]
    assert (finding["code"], finding["severity"], finding["confidence"]) == ("CD108", "note", "low")
    assert "within the first 306 tokens" in finding["claim"]
    left = "".join(line for line in log.splitlines(keepends=True) if "prompt_clear" not in line)
    assert report_of(left)["findings"][0]["code"] != "CD108"


def test_an_older_turn_that_comes_back_in_part_is_of_the_same_conversation() -> None:
    """A client shuffles passages behind its instructions: RAM gives back its own prompt that begins most alike."""
    log = (FIXTURES / "days" / "hybrid-rag_shuffled-b9713-lv4" / "server.log").read_text("utf-8")
    findings = {finding["code"]: finding for finding in report_of(log)["findings"]}
    head = findings["CD108"]
    assert (head["count"], head["cost"]["tokens"], head["confidence"]) == (5, 13035, "medium")
    assert findings["CD201"]["claim"].endswith("; all of these tokens are also counted under CD108")


@pytest.mark.parametrize("lines", [1, 3])
def test_records_of_several_lines_are_cited_by_their_own_number(lines: int) -> None:
    """A record stands in one line of the input, however many lines of the server it holds."""
    said = (FIXTURES / "cases" / "volatile-prefix-hybrid" / "server.log").read_text("utf-8").splitlines()
    records = [
        json.dumps({"time": "2026-07-04T04:31:24Z", "message": "\n".join(said[at : at + lines])})
        for at in range(0, len(said), lines)
    ] * 3
    log = "".join(f"{record}\n" for record in records)
    assert len(log) > 1 << 16  # lines that follow each other are read together
    report = report_of(log)
    assert "CD102" in {finding["code"] for finding in report["findings"]}
    ends = [request["last_line"] for request in report["requests"]]
    assert ends == sorted(ends)
    for end in ends:
        assert "stop processing: n_tokens" in records[end - 1]
