"""What the tracker makes of SGLang's batches: stories with numbers that were added up by hand."""

from __future__ import annotations

import json

import pytest
from conftest import FIXTURES, report_of
from sglang_logs import START, Read, capacity, decode, flushed, head, prefill, read, ready, settings, tree

import cachedoctor
from cachedoctor.model import BatchPeriod

CHUNKED = (prefill(8192), prefill(8192), prefill(3616))
"""A prompt of 20,000 tokens that nothing was reused of."""


def kinds(found: Read) -> list[tuple[bool | None, bool]]:
    """Of every batch: whether it continues the one before, and whether it is one whole request."""
    return [(batch.continues, batch.whole) for batch in found.batches]


# ---- clients


def test_health_checks_and_the_warm_up_are_not_requests() -> None:
    """One token each, or a page of it before 0.5.20; a short prompt of a client is one."""
    found = read(*START, prefill(1), prefill(17), prefill(1))
    assert (found.period.seqs, found.period.wholes, found.period.smallest_prompt) == (1, 1, 17)
    pages = read(settings(page_size=64), capacity(), prefill(64), prefill(128))
    assert (pages.period.seqs, pages.period.wholes, pages.period.smallest_prompt) == (1, 1, 128)


def test_requests_are_counted_by_interface() -> None:
    """Those for text that were answered; not the server's health, no refused ones."""
    lines = (
        ("POST", "/v1/messages?beta=true", "200 OK"),
        ("POST", "/v1/messages", "200 OK"),
        ("POST", "/v1/messages/count_tokens", "200 OK"),
        ("POST", "/v1/messages", "400 Bad Request"),
        ("POST", "/v1/chat/completions", "200 OK"),
        ("GET", "/health_generate", "200 OK"),
    )
    shown = [
        f'[2026-07-04 04:31:24] INFO:     127.0.0.1:4 - "{how} {path} HTTP/1.1" {status}' for how, path, status in lines
    ]
    found = read(*START, *shown).session
    assert (found.setting("anthropic_requests"), found.setting("chat_requests")) == (2, 1)
    assert found.settings["anthropic_requests"].line == 5


# ---- chunks


def test_a_prompt_in_chunks_and_its_follow_up() -> None:
    """20,000 cold tokens in three batches; then 20,010 of 20,510 reused: two requests, one of them cold."""
    found = read(*START, *CHUNKED, prefill(500, 20010))
    assert kinds(found) == [(False, True), (False, False), (True, False), (True, False), (False, True)]
    period = found.period
    assert (period.rank, period.since, period.first_line, period.last_line) == ("TP0", "start", 1, 8)
    assert (period.batches, period.seqs) == (5, 2), "the warm-up is a batch and no request"
    assert (period.new_tokens, period.cached_tokens) == (7 + 20000 + 500, 20010)
    assert (period.wholes, period.cold, period.whole_tokens, period.whole_cached) == (2, 1, 40510, 20010)
    assert (period.smallest_prompt, period.largest_prompt) == (20000, 20510)
    assert (period.cached_least, period.cached_most) == (20010, 20010)
    assert period.best_share == pytest.approx(20010 / 20510)
    lines = {name: mark.line for name, mark in period.marks.items()}
    assert lines == {"begin": 1, "first": 3, "last": 8, "usage": 3, "first_whole": 5, "cold": 5, "whole": 8}
    assert period.marks["whole"].text.decode() == prefill(500, 20010)


def test_a_batch_carries_what_its_line_shows() -> None:
    """By hand, a line of 0.5.23 with both shares."""
    found = read(
        "[2026-07-04 04:31:24.998 DP1 TP4] Prefill batch, #new-seq: 2, #new-token: 310, #cached-token: 9344, "
        "full token usage: 0.07, swa token usage: 0.12, mamba usage: 0.21, #running-req: 3, #queue-req: 4, "
        "#pending-token: 5, cuda graph: False, input throughput (token/s): 1661414.45"
    )
    (batch,) = found.batches
    assert (batch.line, batch.rank, batch.time) == (1, "DP1 TP4", "2026-07-04T04:31:24.998")
    assert (batch.new_seqs, batch.new_tokens, batch.cached_tokens) == (2, 310, 9344)
    assert (batch.token_usage, batch.swa_usage, batch.mamba_usage) == (0.07, 0.12, 0.21)
    assert (batch.running, batch.queue, batch.pending_tokens) == (3, 4, 5)
    assert (batch.continues, batch.whole) == (None, False)


def test_a_prompt_that_is_exactly_a_chunk() -> None:
    """The next batch reuses something, so it begins a request of its own, and the chunk was one."""
    found = read(*START, prefill(8192), prefill(100, 8192))
    assert kinds(found)[1:] == [(False, False), (False, True)]
    assert (found.period.wholes, found.period.largest_prompt, found.period.seqs) == (2, 8292, 2)


def test_the_last_chunk_with_others_after_it() -> None:
    """One request continues and two begin; what they reused belongs to those two, and no prompt is known."""
    found = read(*START, prefill(8192), prefill(900, 4000, seqs=3))
    assert kinds(found)[1:] == [(False, False), (True, False)]
    assert (found.period.seqs, found.period.wholes) == (1 + 2, 0)


def test_chunks_are_off() -> None:
    """-1: no prompt is cut, so 8,192 tokens are one request like any other."""
    found = read(settings(chunked_prefill_size=-1), capacity(chunk=-1), prefill(8192), prefill(3000))
    assert kinds(found) == [(False, True), (False, True)]


def test_the_size_of_chunks_is_not_known() -> None:
    """Only a batch that is smaller than another one is not a chunk that continues."""
    found = read(prefill(8192), prefill(1200), prefill(310), prefill(200))
    assert kinds(found) == [(None, False), (None, False), (False, True), (False, True)]
    assert (found.period.since, found.period.wholes) == ("log", 2)


def test_nothing_is_pending() -> None:
    """From 0.5.11 on the line shows what is left: a full chunk that leaves nothing is a whole prompt."""
    found = read(*START[:2], prefill(8192, pending=0), prefill(500, pending=0))
    assert kinds(found) == [(False, True), (False, True)]
    found = read(*START[:2], prefill(8192, pending=4000), prefill(4000, pending=0))
    assert kinds(found) == [(False, False), (True, False)]
    assert found.period.largest_prompt == 12192


def test_a_chunk_may_be_cut_short() -> None:
    """A full pool, tokens that wait without a queue, pages, decoding requests: open, and no whole request."""
    full = read(*START, prefill(5000, usage="token usage: 0.97"), prefill(300))
    assert kinds(full)[1:] == [(False, False), (None, False)]
    waits = read(*START[:2], prefill(5000, pending=700), prefill(300, pending=0))
    assert kinds(waits) == [(False, False), (None, False)]
    mixed = read(settings(enable_mixed_chunk=True), capacity(), prefill(8180, running=12), prefill(300))
    assert kinds(mixed) == [(False, False), (None, False)]
    pages = read(settings(page_size=64), capacity(), prefill(8170, seqs=2, pending=9), prefill(300, pending=0))
    assert kinds(pages) == [(False, False), (None, False)]
    dynamic = read(settings(enable_dynamic_chunking=True), capacity(), prefill(5000), prefill(300))
    assert kinds(dynamic) == [(False, False), (None, False)]


def test_a_chunk_of_whole_pages() -> None:
    """1,000 tokens are not whole pages of 64: chunks have 960."""
    found = read(settings(page_size=64), capacity(chunk=1000), prefill(960), prefill(128))
    assert kinds(found) == [(False, False), (True, False)]
    assert found.period.largest_prompt == 1088


def test_others_are_there() -> None:
    """A request that runs or waits beside it: its batch is not a whole request; several are none either."""
    found = read(*START, prefill(500, running=1), prefill(500, queue=1), prefill(500, seqs=2))
    assert [batch.whole for batch in found.batches] == [True, False, False, False]
    assert found.period.wholes == 0


def test_health_checks_and_warming_up_are_not_prompts() -> None:
    """One token, seven, and a page of 64 tokens say nothing of reuse; 65 do."""
    found = read(settings(page_size=64), capacity(), prefill(1), prefill(7), prefill(64), prefill(65))
    assert [batch.whole for batch in found.batches] == [True] * 4
    assert (found.period.wholes, found.period.smallest_prompt, found.period.cold) == (1, 65, 1)


# ---- ranks


def test_two_data_parallel_ranks_are_two_schedulers() -> None:
    """Their chunks are told apart, and their sums."""
    found = read(
        settings(dp_size=2),
        capacity(rank="DP0 TP0"),
        capacity(rank="DP1 TP0"),
        prefill(8192, rank="DP0 TP0"),
        prefill(300, 700, rank="DP1 TP0"),
        prefill(808, rank="DP0 TP0"),
        prefill(100, 1000, rank="DP1 TP0"),
    )
    one, two = found.periods
    assert (one.rank, one.batches, one.new_tokens, one.cached_tokens, one.seqs) == ("DP0 TP0", 2, 9000, 0, 1)
    assert (two.rank, two.batches, two.new_tokens, two.cached_tokens, two.seqs) == ("DP1 TP0", 2, 400, 1700, 2)
    assert (one.largest_prompt, two.largest_prompt) == (9000, 1100)
    assert found.session.setting("data_parallel") == 2


@pytest.mark.parametrize(
    "ranks", [("TP0", "TP1", "TP2", "TP3"), ("PP1 TP0", "PP0 TP0"), ("DP0 TP1 EP1", "DP0 TP0 EP0")]
)
def test_ranks_of_one_scheduler_say_the_same(ranks: tuple[str, ...]) -> None:
    """Each batch is printed by all of them, and counts once; so do retractions."""
    lines = [settings(), capacity()]
    for new, cached in ((8192, 0), (1808, 0), (200, 9990)):
        lines += [prefill(new, cached, rank=rank) for rank in ranks]
    lines += [
        f"{head(rank)}KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_tokens_gained: 900, "
        "#new_token_ratio: 0.5671 -> 0.8103"
        for rank in ranks
    ]
    found = read(*lines)
    assert len(found.batches) == 3
    assert (found.period.rank, found.period.batches, found.period.seqs) == (ranks[0], 3, 2)
    assert (found.period.new_tokens, found.period.cached_tokens, found.period.retracted) == (10200, 9990, 2)


# ---- pools


def test_a_hybrid_model() -> None:
    """Both usages, also of decode lines; the tokens computed while the pool of states was full."""
    low, high = "full token usage: 0.30, mamba usage: 0.50", "full token usage: 0.20, mamba usage: 0.92"
    found = read(
        *START[:2],
        prefill(1000, 3000, usage=low, pending=0),
        prefill(4000, 0, usage=high, pending=0),
        decode("#full token: 90000, full token usage: 0.35, mamba num: 6, mamba usage: 0.97", stop=","),
    )
    period = found.period
    assert (period.token_usage, period.mamba_usage, period.usage_at_mamba) == (0.35, 0.97, 0.35)
    assert (period.states_new_tokens, period.states_cached_tokens) == (4000, 0)
    assert (period.marks["usage"].line, period.marks["mamba"].line, period.last_line) == (5, 5, 5)
    said = found.session.settings["hybrid_ssm"]
    assert (said.value, said.line) == (True, 3)
    assert found.session.since("0.5.11") is True


def test_a_full_pool() -> None:
    """Of 3,000 tokens 1,000 were computed with 95 % in use or more."""
    found = read(
        *START, prefill(2000, 9), prefill(600, 5, usage="token usage: 0.95"), prefill(400, 5, usage="token usage: 0.99")
    )
    assert (found.period.full_new_tokens, found.period.full_cached_tokens) == (1000, 10)
    assert (found.period.token_usage, found.period.marks["usage"].line) == (0.99, 7)


def test_a_burst() -> None:
    """Four requests at once find nothing; the three after them do."""
    found = read(*START, prefill(4000, 0, seqs=4), prefill(100, 900), prefill(100, 1900, seqs=2))
    period = found.period
    assert (period.bursts, period.burst_seqs, period.burst_new_tokens) == (1, 4, 4000)
    assert (period.after_burst_seqs, period.after_burst_cached) == (3, 2800)
    assert period.marks["burst"].line == 5


def test_three_at_once_are_not_burst() -> None:
    found = read(*START, prefill(4000, 0, seqs=3), prefill(4000, 64, seqs=8))
    assert found.period.bursts == 0


FULL = "KV cache pool is full. Retract requests. #retracted_reqs: 3"
RATIO = ", #new_token_ratio: 0.5671 -> 0.8103"


@pytest.mark.parametrize(
    "line",
    [
        f"Decode out of memory happened. #retracted_reqs: 3{RATIO}",
        f"{FULL}{RATIO}",
        f"{FULL}, #aborted_retracted_reqs: 0{RATIO}",
        f"{FULL}, #new_tokens_gained: 8{RATIO}",
        f"{FULL}, #new_tokens_gained: 8, #mamba_num_gained: 2{RATIO}",
    ],
)
def test_retracted_requests(line: str) -> None:
    """Three in a line of any version, and twice."""
    found = read(*START, prefill(500), head() + line, prefill(700, running=5), head() + line)
    assert (found.period.retracted, found.period.marks["retracted"].line) == (6, 6)


# ---- lives and resets


def test_a_flush_begins_a_period() -> None:
    """Every TP rank prints it; what was seen before is another cache's. A chunk does not continue after it."""
    found = read(
        *START, prefill(8192), flushed("TP0"), flushed("TP1"),
        f"{head()}Cache not flushed because there are pending requests. #queue-req: 0, #running-req: 3",
        prefill(500), prefill(100, 499),
    )  # fmt: skip
    one, two = found.periods
    assert (one.since, one.new_tokens, one.last_line) == ("start", 8199, 5)
    assert (two.since, two.first_line, two.new_tokens, two.cached_tokens) == ("reset", 6, 600, 499)
    assert (two.wholes, two.cold, two.cached_least, two.marks["begin"].line) == (2, 1, 499, 6)
    assert kinds(found)[2:] == [(False, True), (False, True)]
    assert "flush_refused" in found.session.seen


def test_a_flush_before_the_first_batch_is_part_of_the_start() -> None:
    assert [p.since for p in read(settings(), capacity(), flushed(), prefill(500)).periods] == ["start"]


def test_a_log_that_begins_with_a_flush() -> None:
    """Others may print such words: it needs a line before that only SGLang writes."""
    assert [p.since for p in read(decode(), flushed(), prefill(500)).periods] == ["log", "reset"]
    assert read(flushed(), f'{head("")}INFO:     1.2.3.4:5 - "GET / HTTP/1.1" 200 OK').sessions == []


def test_a_restart() -> None:
    """The line that switches the cache off comes before the settings, and belongs to the new life."""
    found = read(
        *START, prefill(500),
        f"{head('')}SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
        f"{head('')}Disabling Radix Cache for FalconH1ForCausalLM as it is not yet supported.",
        settings(disable_radix_cache=True), capacity(chunk=4096), ready(), prefill(600),
    )  # fmt: skip
    old, new = found.sessions
    assert (old.first_line, old.setting("radix_cache"), old.setting("chunked_prefill")) == (1, True, 8192)
    assert (new.first_line, new.setting("radix_cache"), new.setting("chunked_prefill")) == (7, False, 4096)
    assert (new.setting("radix_off_because"), new.setting("architecture")) == ("off_arch", "FalconH1ForCausalLM")
    assert (old.starts_cold, new.starts_cold) == (True, True)
    assert [p.new_tokens for p in found.periods] == [507, 600]
    assert found.periods[1].marks["begin"].line == 7
    assert [batch.session for batch in found.batches] == [0, 0, 1]


def test_a_server_that_fails_again_and_again() -> None:
    """Settings twice without a life in between are two starts; with another port they are servers of a router."""
    assert len(read(settings(port=30000), settings(port=30000)).sessions) == 2
    assert len(read(settings(port=30000), settings(port=30001), capacity(rank="DP0 TP0")).sessions) == 1


def test_a_log_without_its_start() -> None:
    """Nothing is known of the settings, and nothing is guessed."""
    found = read(prefill(100, 900), prefill(100, 950))
    assert (found.session.settings, found.session.starts_cold, found.period.since) == ({}, False, "log")
    assert "begin" not in found.period.marks
    assert kinds(found) == [(False, False), (False, False)]


def test_a_torn_line_is_not_a_batch() -> None:
    """One has lost its begin, another its end in the middle of a number: what follows that may continue it."""
    torn = prefill(700, 3000)
    found = read(
        *START,
        "ken: 8192, #cached-token: 0, token usage: 0.05",
        prefill(900, 100),
        torn[: torn.index("3000") + 2],
        prefill(300),
        decode()[:-30].replace("0.05", "0.97"),
    )
    assert (found.period.batches, found.period.cached_tokens, found.period.token_usage) == (3, 100, 0.05)
    assert kinds(found) == [(False, True), (False, True), (None, False)]
    assert read(f"{head()}Prefill batch. #new-s").batches == []


def test_it_does_not_matter_where_the_log_is_cut() -> None:
    lines = (*START, *CHUNKED, prefill(500, 20010), flushed(), prefill(30000), decode())
    whole = read(*lines)
    for cut in range(1, len(lines)):
        assert read(*lines, cut=cut) == whole


def test_at_most_64_periods_are_kept() -> None:
    """Of 70 those with the fewest tokens go: six of the 69 that have 20."""
    lines = [*START[:2], prefill(5000)]
    for _ in range(69):
        lines += [flushed(), prefill(20)]
    found = read(*lines)
    assert len(found.periods) == 64
    assert [p.new_tokens for p in found.periods].count(5000) == 1


# ---- values that nobody should print


@pytest.mark.parametrize("bad", ["-5", "nan", "inf", "1e9", "9" * 40, "", "0x10", "٣", "1.5"])
def test_values_that_are_none(bad: str) -> None:
    """They are unknown, not 0, and do not spoil the sums."""
    found = read(
        *START, prefill(bad, bad, running=bad, queue=bad, usage=f"token usage: {bad}", pending=None), prefill(500, 20)
    )
    batch = found.batches[1]
    assert (batch.new_tokens, batch.cached_tokens, batch.running, batch.queue) == (None, None, None, None)
    assert batch.token_usage in (None, 1.0)  # 1.5 is a share that is too high
    assert (found.period.new_tokens, found.period.cached_tokens) == (507, 20)
    assert not batch.whole


@pytest.mark.parametrize("bad", ["-5", "nan", "9" * 40, ""])
def test_a_batch_of_no_number_of_requests_is_none(bad: str) -> None:
    assert read(*START, prefill(500, seqs=bad)).period.batches == 1


def test_settings_of_the_wrong_kind_are_left_out() -> None:
    found = read(
        settings(page_size="many", chunked_prefill_size=True, mem_fraction_static="x", dp_size=None, model_path=7,
                 disable_radix_cache="no", enable_hierarchical_cache=3, attention_backend=None),
    )  # fmt: skip
    assert found.session.settings == {}
    assert found.session.model is None


def test_a_setting_inside_a_string_is_none() -> None:
    """A path may hold anything."""
    found = read(
        settings(model_path="/m, disable_radix_cache=True, page_size=64)", chat_template="'\\', 'page_size': 8")
    )
    assert (found.session.setting("radix_cache"), found.session.setting("page_size")) == (True, 1)
    assert found.session.model == "/m, disable_radix_cache=True, page_size=64)"


def test_a_torn_line_of_settings() -> None:
    """What comes before the tear is known, the setting that it tears is not."""
    found = read(settings(schedule_policy="lpm", attention_backend="fa3")[:-8])
    assert (found.session.setting("schedule_policy"), found.session.setting("attention_backend")) == ("lpm", None)


# ---- wrappers


def test_lines_in_wrappers(tmp_path) -> None:
    """Docker's JSON, compose, journald: the same period."""
    lines = [*START, *CHUNKED, prefill(500, 20010)]
    plain = read(*lines).period
    wrapped = {
        "docker": [
            json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-07-04T04:31:24.1Z"}) for line in lines
        ],
        "compose": [f"sglang-1  | {line}" for line in lines],
        "journald": [f"Jul 04 04:31:24 gpu1 python3[812]: {line}" for line in lines],
        "colour": [f"\x1b[32m{line}\x1b[0m" for line in lines],
    }
    for name, stored in wrapped.items():
        path = tmp_path / f"{name}.log"
        path.write_text("".join(line + "\n" for line in stored), "utf-8")
        report = cachedoctor.analyze(path)
        (session,) = report.sessions
        (period,) = session.periods
        assert isinstance(period, BatchPeriod), name
        assert (session.engine, period.new_tokens, period.cached_tokens) == ("sglang", 20507, 20010), name
        assert (period.wholes, period.seqs, period.largest_prompt) == (plain.wholes, plain.seqs, plain.largest_prompt)
        assert session.setting("chunked_prefill") == 8192, name
        assert session.model == "Qwen/Qwen3-8B", name


def test_the_kind_of_cache() -> None:
    """A tree that keeps nothing is off; one that is switched off stays off whatever its kind is."""
    on = read(settings(), capacity(), tree("UnifiedRadixCache", ssm=True, hicache=True)).session
    assert [on.setting(n) for n in ("radix_cache", "cache_kind", "hybrid_ssm", "hybrid_swa", "hicache")] == [
        True, "UnifiedRadixCache", True, False, True,
    ]  # fmt: skip
    assert read(settings(), tree("SWAChunkCache")).session.setting("radix_cache") is False
    off = read(settings(disable_radix_cache=True), tree("RadixCache")).session
    assert (off.setting("radix_cache"), off.settings["radix_cache"].line) == (False, 1)


def test_without_prefill_lines_the_others_still_count() -> None:
    """A log of which only other lines were kept: what was retracted, and a flush that the server outlived."""
    log = (FIXTURES / "measured" / "sglang-retraction.log").read_bytes()
    kept = b"".join(line for line in log.splitlines(keepends=True) if b"Prefill batch" not in line)
    (found,) = report_of(kept)["findings"]
    assert (found["code"], found["severity"]) == ("CD604", "warning")
    assert found["claim"].endswith(" retracted"), "how many were admitted is not known"
