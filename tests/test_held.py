"""What a slot is known to hold when a request comes, in whole logs: tokens, checkpoints, prompts in the RAM cache."""

from __future__ import annotations

import re

import pytest
from conftest import FIXTURES, content_of, report_of

OLD = "recurrent-checkpoint-at-prefix-b7964"
"""A build that prints what it creates, drops and erases of its list of 8 checkpoints, and not what it looks at."""
SPEED = "    0.10 ms per token, 10000.00 tokens per second"
FORCED = (
    "forcing full prompt re-processing due to lack of cache data (likely due to SWA or hybrid/recurrent memory, "
    "see https://github.com/ggml-org/llama.cpp/pull/13194#issuecomment-2868343055)"
)


def head_of_b11549() -> str:
    return "srv          init: initializing ...\nsrv    load_model: loading model '/models/hybrid.gguf'\n"


OLDEST = "selected slot by LRU, t_last = -1"


def head(case: str) -> str:
    """The lines of a server that starts."""
    return content_of(FIXTURES / "cases" / case).decode().partition("slot get_availabl")[0]


def turn(
    task: int,
    prompt: int,
    cached: int,
    *before: str,
    choice: str = "selected slot by LCP similarity, sim_best = 0.900 (> 0.100 thold), f_keep = 1.000",
    ram: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
) -> str:
    """A request in the words of b7964, which leaves 5 tokens more than its prompt in the slot."""
    at = f"slot update_slots: id  0 | task {task} | "
    lines = [
        f"slot get_availabl: id  0 | task -1 | {choice}",
        *ram,
        f"slot launch_slot_: id  0 | task {task} | processing task, is_child = 0",
        f"{at}new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = {prompt}",
        *(at + line for line in before),
        f"{at}n_tokens = {cached}, memory_seq_rm [{cached}, end)",
        *(at + line for line in after),
        f"slot print_timing: id  0 | task {task} | ",
        f"prompt eval time =     100.00 ms / {prompt - cached:5} tokens ({SPEED})",
        f"       eval time =      10.00 ms /     6 tokens ({SPEED})",
        f"      total time =     110.00 ms / {prompt - cached + 6:5} tokens",
        f"slot      release: id  0 | task {task} | stop processing: n_tokens = {prompt + 5}, truncated = 0",
        "",
    ]
    return "\n".join(lines)


def created(number: int, at: int) -> str:
    return f"created context checkpoint {number} of 8 (pos_min = {at}, pos_max = {at}, size = 0.019 MiB)"


def erased(at: int) -> str:
    return f"erased invalidated context checkpoint (pos_min = {at}, pos_max = {at}, n_swa = 1, size = 0.019 MiB)"


def dropped(at: int) -> str:
    return f"erasing old context checkpoint (pos_min = {at}, pos_max = {at}, size = 0.019 MiB)"


def back(common: int, held: int) -> str:
    return f"n_past = {common}, slot.prompt.tokens.size() = {held}, seq_id = 0, pos_min = {held - 1}, n_swa = 1"


def similar(common: int, prompt: int, held: int) -> str:
    shares = f"sim_best = {common / prompt:.3f} (> 0.100 thold), f_keep = {common / held:.3f}"
    return f"selected slot by LCP similarity, {shares}"


# ---- checkpoints


@pytest.mark.parametrize(("gone", "full"), [((), True), ((11535,), False), ((11535, 10835), False)])
def test_a_longer_list_is_advised_where_the_list_was_full(gone: tuple[int, ...], full: bool) -> None:
    """Nine turns fill a list of 8, which drops its first; a prompt that parts before all of them needs a longer one.

    Where some were erased since, the list had room: its length is not what lacked. Here the replay knows that the first
    one came too late as well, so that the option is named, and no advice.
    """
    log, held = head(OLD) + turn(0, 6000, 0, choice=OLDEST, after=(created(1, 5935),)), 6005
    for number in range(1, 9):
        prompt = 6000 + 700 * number
        left = (dropped(5935),) if number == 8 else ()
        log += turn(10 * number, prompt, held, after=(*left, created(min(number + 1, 8), prompt - 65)))
        held = prompt + 5
    log += turn(90, 11650, 11605, *map(erased, gone))
    log += turn(99, 11700, 0, back(5900, 11655), FORCED, choice=similar(5900, 11700, 11655))
    report = report_of(log)
    (finding,) = (f for f in report["findings"] if f["code"] == "CD201")
    commands = [command for remedy in finding["remedies"] for command in remedy["commands"]]
    assert not any("--ctx-checkpoints" in command for command in commands)
    assert any(remedy["text"].startswith("--ctx-checkpoints") for remedy in finding["remedies"]) is full
    assert report["requests"][-1]["checkpoints"]["held"] == [
        [at, at] for at in range(6635, 11536, 700) if at not in gone
    ]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_prompt_from_ram_brings_checkpoints_that_no_line_names(swapped: bool) -> None:
    """This build prints no list: what it had to reuse of 2,800 tokens is known where each checkpoint was seen made.

    A force erases every one that is left, and from then on all are known again.
    """
    ram = (
        "srv          load:  - looking for better prompt, base f_keep = 0.003, sim = 0.003",
        "srv          load:  - found better prompt with f_keep = 0.932, sim = 0.903",
    )
    other = turn(20, 3300, 0, choice=similar(10, 3300, 3005), after=(created(1, 3235),))
    log = head(OLD) + turn(0, 3000, 0, choice=OLDEST, after=(created(1, 2935),)) + (other if swapped else "")
    part = similar(2800, 3100, 3005)
    log += turn(30, 3100, 0, back(2800, 3005), FORCED, erased(2935), choice=part, ram=ram if swapped else ())
    log += turn(40, 3500, 3105, after=(created(1, 3435),))
    log += turn(50, 3600, 0, back(3300, 3505), FORCED, choice=similar(3300, 3600, 3505))
    first, last = (request for request in report_of(log)["requests"] if request["task"] in (30, 50))
    assert first["replay_missing"] == (["checkpoints_held"] if swapped else [])
    assert first["expected_cached"] == (None if swapped else 0)
    assert (last["expected_cached"], last["replay_missing"]) == (0, [])


@pytest.mark.parametrize("case", ["swa-threshold-misfire-b8672", "stale-checkpoint-dropped-b8672"])
def test_checkpoints_are_held_where_they_were_said_to_be_made(case: str) -> None:
    """Whether lines are read one by one or in one match: every position is one that the server printed."""
    log = content_of(FIXTURES / "cases" / case).decode()
    made = re.findall(r"created context checkpoint .*pos_min = (\d+), pos_max = (\d+)", log)
    held = [tuple(at) for request in report_of(log)["requests"] for at in request["checkpoints"]["held"]]
    assert held
    assert set(held) <= {(int(low), int(high)) for low, high in made}


@pytest.mark.parametrize(("found", "common"), [("0.960", 4321), ("0.900", 4320)])
def test_a_prompt_from_ram_is_known_by_its_share(found: str, common: int) -> None:
    """4,321 of 4,500 tokens are 0.960: that one came back. Where none fits, the share of 5,000 is left."""
    head, at = head_of_b11549(), "slot   operator(): id  0 | task 9 | "
    log = head + "\n".join(
        [
            "slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = 99",
            "srv          load:  - looking for better prompt, base f_keep = 0.002, f_sim = 0.002",
            "srv          load:    - prompt with length    4500, lcp =    4321, f_keep = 0.960, f_sim = 0.864",
            "srv          load:    - prompt with length    2000, lcp =       9, f_keep = 0.004, f_sim = 0.002",
            f"srv          load:  - found better prompt with f_keep = {found}, f_sim = 0.864",
            "slot launch_slot_: id  0 | task 9 | processing task, is_child = 0",
            f"{at}new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 5000",
            f"{at}cached n_tokens = 4000, memory_seq_rm [4000, end)",
            f"slot print_timing: id  0 | task 9 | prompt eval time =     100.00 ms /  1000 tokens ({SPEED})",
            f"slot print_timing: id  0 | task 9 |        eval time =     100.00 ms /     6 tokens ({SPEED})",
            "slot      release: id  0 | task 9 | stop processing: n_tokens = 5005, truncated = 0",
            "",
        ]
    )
    (request,) = report_of(log)["requests"]
    assert request["common_prefix_tokens"] == common


# ---- tokens


def test_a_slot_whose_share_is_negative_holds_nothing() -> None:
    """``base f_keep = -1.000``: whatever it was left with, it is empty."""
    search = "srv          load:  - looking for better prompt, base f_keep = {}, sim = 0.000"
    first = head(OLD) + turn(0, 3000, 0, choice=OLDEST)
    for share, held in (("0.010", 3005), ("-1.000", 0)):
        second = turn(9, 3300, 0, choice="selected slot by LRU, t_last = 919996079", ram=(search.format(share),))
        assert report_of(first + second)["requests"][1]["held_tokens"] == held


def test_a_prompt_on_a_slot_of_unknown_content_is_not_known_to_be_cold() -> None:
    """The log begins after the start: the slot may have held this conversation, changed at its head."""
    (request,) = report_of(turn(9, 3000, 0, choice="selected slot by LRU, t_last = 919996079"))["requests"]
    assert (request["outcome"], request["held_tokens"]) == ("unknown", None)


def test_a_batch_before_which_the_log_begins_may_be_any() -> None:
    """The line is there for every batch of a prompt, and only the first one says what was reused."""
    log = turn(9, 3000, 2048).partition("n_keep = 0, task.n_tokens = 3000\n")[2]
    ended = "".join(line for line in log.splitlines(keepends=True) if "time =" not in line and "print_t" not in line)
    assert "memory_seq_rm [2048" in ended.splitlines()[0]
    (request,) = report_of(ended)["requests"]
    assert request["cached_tokens"] is None


# ---- conversations


def test_a_slot_that_works_holds_its_conversation() -> None:
    """Unified memory, b8672 and newer: a launch elsewhere clears idle slots, not one that is at work.

    A prompt on the other slot, a little longer than the conversation that runs here, is another conversation's.
    """
    start = "srv    load_model: initializing, n_slots = 2, n_ctx_slot = 16384, kv_unified = 'true'\n"
    first = turn(0, 2000, 0, choice=OLDEST)
    running = turn(9, 2100, 2005).split("slot print_timing")
    beside = turn(20, 2150, 0, choice=OLDEST).replace("id  0", "id  1")
    log = head_of_b11549() + start + first + running[0] + beside + "slot print_timing" + running[1]
    threads = {request["task"]: request["thread"] for request in report_of(log)["requests"]}
    assert threads == {0: 0, 9: 0, 20: 1}


def test_a_turn_of_what_an_idle_slot_still_held_costs_what_an_earlier_one_left() -> None:
    """Two chats in turn, whose slots are emptied at each launch: 2,005 and 2,105 tokens are lost.

    Lengths alone make one chat of them; but an idle slot still held each turn before, when another one was chosen.
    """
    log = head_of_b11549() + "srv    load_model: initializing, n_slots = 2, n_ctx_slot = 16384, kv_unified = 'true'\n"
    for task, prompt in enumerate((2000, 2100, 2350, 2450)):
        choice = OLDEST if task < 2 else OLDEST.replace("-1", "99")
        log += turn(10 * task, prompt, 0, choice=choice).replace("id  0", f"id  {task % 2}")
    (finding,) = report_of(log)["findings"]
    assert (finding["code"], finding["count"]) == ("CD901", 3)
    least, most = 2005 + 2005, 2005 + 2105 + 2355
    assert least <= 2005 + 2105 <= most
    assert (finding["cost"]["tokens"], finding["cost"]["at_most"]) == (least, most)


@pytest.mark.parametrize(("last", "found"), [(1734, {"CD105": 6}), (58, {"CD105": 5, "CD108": 1})])
def test_a_change_stays_one_finding_as_the_conversation_grows_after_it(last: int, found: dict[str, int]) -> None:
    """Notes at the end of a system prompt, one more each turn: what is common was most of the prompt at first.

    A change before it is another one.
    """
    log = head_of_b11549() + turn(0, 1709, 0, choice=OLDEST)
    for number, common in enumerate((1379, 1450, 1521, 1592, 1663, last), 1):
        prompt, held = 1709 + 407 * number, 1714 + 407 * (number - 1)
        choice = f"selected slot by LCP similarity, sim_best = {common / prompt:.3f} (> 0.010 thold)"
        log += turn(10 * number, prompt, common, choice=f"{choice}, f_keep = {common / held:.3f}")
    findings = report_of(log)["findings"]
    assert {finding["code"]: finding["count"] for finding in findings} == found
    if last == 1734:  # the first change may have been wanted
        assert findings[0]["cost"]["tokens"] == (2121 - 1450) + (2528 - 1521) + (2935 - 1592) + (3342 - 1663) + (
            3749 - last
        )


@pytest.mark.parametrize(
    ("ends", "severity"),
    [((500, 500, 500, 500), "note"), ((500, 430, 580, 510), "warning"), ((-5, 500, 500, 500), "warning")],
)
def test_text_before_an_end_that_stays_the_same_may_be_an_editors(ends: tuple[int, ...], severity: str) -> None:
    """Completions: what follows the cursor stays, and no prompt continues the one before. Another end, or a turn that
    continued, is a client's that moves text."""
    prompt, log = 1500, head_of_b11549() + turn(0, 1500, 0, choice=OLDEST)
    for number, (end, more) in enumerate(zip(ends, (90, 60, 140, 75), strict=True), 1):
        common, held, prompt = prompt - end, prompt + 5, prompt + more
        choice = f"selected slot by LCP similarity, sim_best = {common / prompt:.3f} (> 0.010 thold)"
        log += turn(10 * number, prompt, common, choice=f"{choice}, f_keep = {common / held:.3f}")
    (finding,) = report_of(log)["findings"]
    assert (finding["code"], finding["severity"]) == ("CD105", severity)
    assert ("/infill" in str(finding["ruled_out"])) is (severity == "note")
    if severity == "note":
        assert (finding["confidence"], finding["cost"]["tokens"]) == ("low", 0)


@pytest.mark.parametrize(("build", "keeps"), [(7964, True), (8671, True), (8672, False)])
def test_a_launch_elsewhere_clears_idle_slots_from_b8672_on(build: int, keeps: bool) -> None:
    """Unified memory, and a RAM cache by default; else the slot still holds the 2,005 tokens of its last request."""
    start = f"build: {build} (8ad7b3e6) with GNU 13.3.0 for Linux x86_64\n"
    start += "init: n_parallel is set to auto, using n_parallel = 4 and kv_unified = true\n"
    beside = turn(9, 4000, 0, choice=OLDEST).replace("id  0", "id  1")
    log = start + turn(0, 2000, 0, choice=OLDEST) + beside + turn(20, 900, 0, choice=OLDEST.replace("-1", "99"))
    held = {request["task"]: request["held_tokens"] for request in report_of(log)["requests"]}
    assert (held[20] == 2005) == keeps


def test_a_conversation_whose_head_changes_continues_changing() -> None:
    """5,005 tokens of another conversation could continue 5,100 as well; that one has not changed its head before."""
    log = head(OLD) + turn(0, 5000, 0, choice=OLDEST)
    for number, (prompt, held) in enumerate(((4700, 5005), (4800, 4705), (5100, 4805)), 1):
        log += turn(10 * number, prompt, 0, back(10, held), FORCED, choice=OLDEST.replace("-1", "99"))
    assert [request["thread"] for request in report_of(log)["requests"]] == [0, 1, 1, 1]


def test_a_copy_that_the_cache_did_not_give_back_did_not_match() -> None:
    """3,005 tokens lay in RAM when their conversation came back: its head changed, whatever the slot held."""
    search = "srv          load:  - looking for better prompt, base f_keep = 0.003, sim = 0.003"
    save = "srv   prompt_save:  - saving prompt with length {}, total state size = 0.019 MiB"
    other = OLDEST.replace("-1", "99")
    log = head(OLD) + turn(0, 3000, 0, choice=OLDEST)
    log += turn(9, 2000, 0, choice=other, ram=(save.format(3005), search))
    log += turn(20, 3100, 0, choice=other, ram=(save.format(2005), search))
    report = report_of(log)
    assert (report["requests"][-1]["thread"], report["requests"][-1]["codes"]) == (0, ["CD108"])
    (finding,) = report["findings"]
    saved = "srv   prompt_save:  - saving prompt with length 3005, total state size = 0.019 MiB"
    assert saved in [evidence["text"] for evidence in finding["evidence"]], "the line that proves that it was there"


# ---- lives


@pytest.mark.parametrize(("stamp", "lives"), [("0.08.500.000", 1), ("0.07.999.000", 2)])
def test_a_clock_that_falls_by_more_than_a_second_is_of_another_life(stamp: str, lives: int) -> None:
    """Start-up lines and task 0 are not in the log; lines of threads may be a little out of order."""
    log = ""
    for task, clock in ((3, "0.09.000.000"), (9, stamp)):
        lines = turn(task, 2000, 0).splitlines(keepends=True)
        log += "".join(f"{clock} I {line}" for line in lines if "cached" not in line)
    assert len(report_of(log)["sessions"]) == lives


@pytest.mark.parametrize(("before", "lives"), [(16, 1), (17, 2)])
def test_task_0_after_many_is_of_another_life(before: int, lives: int) -> None:
    """Without a clock: tasks that ran side by side may begin in another order, but not so many of them."""
    log = turn(before, 2000, 0) + turn(0, 2000, 0)
    assert len(report_of(log)["sessions"]) == lives
