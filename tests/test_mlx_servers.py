# ruff: noqa: E501  # lines of logs are shown whole
"""Lines of oMLX, ds4-server, vllm-mlx, Rapid-MLX, mlx_lm.server and mlx-vlm become answers, and rules look at them."""

from __future__ import annotations

import pytest
from answered import numbers, report_of, sessions_of

from cachedoctor.model import Finding
from cachedoctor.report.report_view import ReportView

A, B = "4776f942-88fe-4ad0-936f-d1454dca1c45", "0fbf9c00-2858-4e1e-9f2f-3847d517846d"
CLOCK = "2026-08-21 14:39:16,178 - "


def found(log: str) -> dict[str, Finding]:
    return {finding.code: finding for finding in report_of(log).findings}


# ---- oMLX


def restored(request: str, cached: int, left: int) -> str:
    return (
        f"{CLOCK}omlx.scheduler - INFO - [-] - Prefix cache restore for {request}: source=paged cached={cached} suffix={left} "
        "blocks=24 lookup=4.737ms reconstruct=164.598ms promote=True\n"
    )


def parted(request: str, prompt: int, cached: int, matched: int, held: int, who: str = "[-] - ") -> str:
    return (
        f"{CLOCK}omlx.scheduler - INFO - {who}prefix cache: request {request} re-prefills {prompt - cached} of {prompt} tokens "
        f"(reused {cached}); closest stored sequence {B} shares the first {matched} of {held} comparable tokens before diverging\n"
    )


def test_two_lines_of_one_request_of_omlx_are_one_answer() -> None:
    """118,784 + 301,389 = 420,173 tokens; the second line shows the same, and where they diverge."""
    log = restored(A, 118784, 301389) + parted(A, 420173, 118784, 119464, 417792) + restored(B, 95193, 478)
    [session] = sessions_of(log)
    assert (session.engine, session.program) == ("omlx", "oMLX")
    assert numbers(session) == [(420173, 118784, 1), (95671, 95193, 3)]
    [answers] = session.answers
    assert (answers.requests, answers.told, answers.prompt_tokens, answers.cached_tokens) == (2, 2, 515844, 213977)
    assert [answer.prefix for answer in answers.each] == [119464, None]


def test_omlx_at_the_level_of_debugging_prints_a_hit_once_or_twice() -> None:
    hit = (
        f"{CLOCK}omlx.scheduler - DEBUG - [-] - Request {A}: paged cache hit, 5120 tokens in 5 blocks, 30952 tokens "
        "remaining, cache reconstructed\n"
    )
    for log in (hit, hit + restored(A, 5120, 30952), restored(A, 5120, 30952) + hit):
        [session] = sessions_of(log)
        assert [(prompt, cached) for prompt, cached, _ in numbers(session)] == [(36072, 5120)]


def test_omlx_says_what_the_client_changed_and_what_the_server_could_not_restore() -> None:
    """417,792 - 119,464 = 298,328 tokens come after the place; 119,464 - 118,784 = 680 were common and not reused."""
    causes = found(parted(A, 420173, 118784, 119464, 417792))
    assert set(causes) == {"CD105", "CD705"}
    assert (
        "298,328 tokens in 1 request differ from the prompt cached by oMLX, from token 119,464 of 417,792 on"
        in causes["CD105"].claim
    )
    assert (
        "680 cached tokens recomputed in 1 request: 118,784 of 119,464 matching tokens reused" in causes["CD705"].claim
    )
    assert (causes["CD105"].severity, causes["CD105"].confidence) == ("note", "low")
    assert (causes["CD705"].severity, causes["CD705"].confidence) == ("note", "high")


def test_an_older_omlx_without_the_request_in_brackets() -> None:
    [session] = sessions_of(parted(A, 71530, 66310, 68144, 69632, who=""))
    assert numbers(session) == [(71530, 66310, 1)]


def test_a_stored_sequence_that_was_whole_and_not_restored_is_the_servers_part_alone() -> None:
    causes = found(restored(B, 2048, 100) + parted(A, 9880, 0, 8192, 8192))
    assert list(causes) == ["CD705"]
    assert "8,192 cached tokens recomputed in 1 request: 0 of 8,192 matching tokens reused" in causes["CD705"].claim
    assert "It has no setting for the block size" in causes["CD705"].remedies[0].text


def test_omlx_says_itself_why_it_went_back() -> None:
    """Issue 2876: 8,466 tokens in common, three blocks of 2,048 restored; 8,466 - 6,144 = 2,322 lost, and 12,578 behind."""
    walked = (
        f"{CLOCK}omlx.cache.prefix_cache - INFO - [-] - Walk-back truncation: dropped 1 trailing block(s) with placeholder "
        "non-sliceable state, keeping 3 block(s) (6144 tokens)\n"
    )
    log = walked + restored(A, 6144, 14900) + parted(A, 21044, 6144, 8466, 21044)
    assert numbers(sessions_of(log)[0]) == [(21044, 6144, 2)]
    causes = found(log)
    assert "2,322 cached tokens" in causes["CD705"].claim
    assert "dropped 1 trailing block(s) with placeholder non-sliceable state" in causes["CD705"].why
    assert "12,578 tokens in 1 request differ from the prompt cached by oMLX" in causes["CD105"].claim
    assert "non-sliceable" not in causes["CD105"].claim


def test_a_head_that_most_prompts_have_does_not_tell_who_changed_it() -> None:
    """14 of 9,000 in common: below a tenth. Nobody is accused."""
    causes = found(restored(B, 8192, 100) + parted(A, 9100, 0, 14, 9000))
    assert list(causes) == ["CD108"]
    assert (causes["CD108"].confidence, causes["CD108"].severity) == ("low", "note")
    assert "another conversation used the server" in causes["CD108"].why
    assert "only 14 of 9,000 cached tokens match" in causes["CD108"].claim


@pytest.mark.parametrize(("matched", "code"), [(8488, "CD105"), (8489, None)])
def test_a_few_tokens_at_the_end_are_not_change(matched: int, code: str | None) -> None:
    """9,000 - 8,488 = 512."""
    causes = found(parted(A, 9500, 8448, matched, 9000))
    assert list(causes) == ([] if code is None else [code])


# ---- ds4-server


def ds4(words: str) -> str:
    return f"0521 13:40:02 ds4-server: {words}\n"


def prompt(cached: int, length: int, flags: str = "") -> str:
    return ds4(f"chat ctx={cached}..{length}:{length - cached} {flags}prompt start")


def miss(live: int, asked: int, common: int, why: str = "token-mismatch") -> str:
    return ds4(f"live kv cache miss live={live} prompt={asked} common={common} reason={why}")


def test_the_prompt_that_starts_next_is_the_one_that_missed() -> None:
    """86,593 - 28,336 = 58,257 live tokens after the place; 28,336 - 24,576 = 3,760 were not on disk."""
    log = prompt(0, 85790) + miss(86593, 86821, 28336) + prompt(24576, 86821, "RESPPROTO TOOLS ") + prompt(86821, 87000)
    [session] = sessions_of(log)
    assert (session.engine, session.program) == ("ds4", "ds4-server")
    assert numbers(session) == [(85790, 0, 1), (86821, 24576, 3), (87000, 86821, 4)]
    causes = found(log)
    assert (
        "58,257 tokens in 1 request differ from the prompt cached by ds4-server, from token 28,336 of 86,593 on (token-mismatch)"
        in causes["CD105"].claim
    )
    assert "3,760 cached tokens" in causes["CD705"].claim
    assert "--kv-disk-dir" in causes["CD705"].remedies[0].text


def test_a_tail_that_was_rewritten_costs_ds4_all_that_is_live() -> None:
    """Two tokens differ, and all 39,998 in common are recomputed: the server's part, and no change worth naming."""
    causes = found(prompt(0, 39000) + miss(40000, 40500, 39998) + prompt(0, 40500))
    assert list(causes) == ["CD705"]
    assert "39,998 cached tokens" in causes["CD705"].claim


def test_a_side_request_takes_the_one_live_conversation() -> None:
    """10 tokens of a title, then 23,446 of the conversation against 20 live ones: the log does not show whose they were."""
    log = prompt(0, 23000) + miss(23050, 10, 1) + prompt(0, 10) + miss(20, 23446, 1) + prompt(0, 23446)
    causes = found(log)
    assert list(causes) == ["CD707"]
    assert "after the first prompt, 23,456 of 23,456 prompt tokens" in causes["CD707"].claim
    assert any("one conversation in memory" in remedy.text for remedy in causes["CD707"].remedies)
    assert causes["CD707"].confidence == "low"


def test_a_reason_in_other_words_is_not_repeated() -> None:
    causes = found(prompt(0, 39000) + miss(40000, 40500, 20000, "ignore-all-rules") + prompt(0, 40500))
    assert "ignore" not in causes["CD105"].claim


def test_ds4_begins_another_life() -> None:
    start = ds4("listening on http://127.0.0.1:8080")
    log = start + prompt(0, 5000) + miss(5100, 5200, 5000) + start + prompt(0, 5200)
    assert [numbers(session) for session in sessions_of(log)] == [[(5000, 0, 2)], [(5200, 0, 5)]]


def computed(cached: int, length: int, flags: str = "") -> str:
    return ds4(f"chat ctx={cached}..{length}:{length - cached} {flags}prompt done 1.857s")


def test_a_prompt_is_one_request_where_its_start_and_its_end_are_printed() -> None:
    log = prompt(0, 5000) + computed(0, 5000) + prompt(5000, 5100, "TOOLS ") + computed(5000, 5100, "TOOLS ")
    assert numbers(sessions_of(log)[0]) == [(5000, 0, 1), (5100, 5000, 3)]
    assert numbers(sessions_of(computed(0, 5000) + computed(0, 5000))[0]) == [(5000, 0, 1), (5000, 0, 2)]


def test_lines_that_are_quoted_without_what_begins_them() -> None:
    """antirez/ds4 issue 609: 8,238 - 5,779 = 2,459 tokens were common, and were recomputed."""
    log = (
        "live kv cache miss live=6213 prompt=8238 common=6128 reason=token-mismatch\n"
        "chat ctx=5779..8238:2459 TOOLS prompt done 9.231s\n"
        "live kv cache miss live=8633 prompt=14903 common=8238 reason=token-mismatch\n"
        "chat ctx=5779..14903:9124 TOOLS prompt done 31.253s\n"
    )
    assert numbers(sessions_of(log)[0]) == [(8238, 5779, 2), (14903, 5779, 4)]
    assert "2,459 cached tokens recomputed in 1 request" in found(log)["CD705"].claim


def test_a_miss_is_not_of_a_prompt_of_another_length() -> None:
    """The lines between them are left out: of the second prompt nothing is known but what was reused."""
    assert found(miss(15139, 20460, 14903) + computed(5779, 14903)) == {}


def test_a_miss_alone_does_not_show_what_the_disk_had() -> None:
    log = miss(25847, 25829, 25816) + miss(90041, 89444, 27)
    [session] = sessions_of(log)
    assert (session.answers[0].requests, session.answers[0].told) == (2, 0)
    causes = found(log)
    assert (causes["CD705"].severity, causes["CD705"].confidence) == ("note", "low")
    assert "had 25,816 of 25,829 tokens of a prompt in its cache" in causes["CD705"].claim
    assert list(causes) == ["CD705"]


# ---- vllm-mlx and Rapid-MLX


def lookup(request: str, words: str) -> str:
    return f"INFO:vllm_mlx.scheduler:[cache_fetch] request={request} {words}\n"


def scheduled(request: str, length: int, computed: int) -> str:
    more = f", {length - computed} cached" if computed < length else ""
    return (
        f"INFO:rapid_mlx.scheduler:[schedule] request={request} uid=7 prompt_tokens={length} tokens_to_prefill={computed}{more} "
        "max_tokens=160 running=1 waiting=0\n"
    )


def test_what_is_computed_in_the_end_counts() -> None:
    """A hit of the whole prompt computes its last token; a miss in memory is found on disk; a hit is dropped."""
    log = (
        lookup("a", "HIT prompt_tokens=58 cached=58 remaining=0 time=0.002s") + scheduled("a", 58, 1)
        + lookup("b", "MISS prompt_tokens=9000 time=0.002s entries=4") + scheduled("b", 9000, 1000)
        + lookup("c", "HIT prompt_tokens=700 cached=640 remaining=60 time=0.002s") + scheduled("c", 700, 700)
        + scheduled("d", 500, 100)
    )  # fmt: skip
    [session] = sessions_of(log)
    assert (session.engine, session.program) == ("vllm-mlx", "vllm-mlx or Rapid-MLX")
    assert numbers(session) == [(58, 57, 1), (9000, 8000, 3), (700, 0, 5), (500, 400, 7)]
    [answers] = session.answers
    assert (answers.requests, answers.prompt_tokens, answers.cached_tokens) == (4, 10258, 8457)


STUCK = "INFO:rapid_mlx.memory_cache:[cache_fetch] LCP unavailable: shared=5679 entry_len=5760 {}\n"


@pytest.mark.parametrize(
    "words", ["requested_len=5710 non_trimmable=True", "cache could not rewind exactly by 81 tokens"]
)
def test_an_entry_that_cannot_be_cut_back_is_the_servers_part(words: str) -> None:
    causes = found(STUCK.format(words) + lookup("a", "MISS prompt_tokens=5710 time=0.002s entries=1"))
    assert list(causes) == ["CD705"]
    assert "5,679 cached tokens recomputed in 1 request: 0 of 5,679 matching tokens reused" in causes["CD705"].claim
    assert "--hybrid-cache-entries" in causes["CD705"].remedies[0].text


@pytest.mark.parametrize(
    ("words", "of"),
    [("requested_len=19485 non_trimmable=True", " of 19,485"), ("cache could not rewind exactly by 22 tokens", "")],
)
def test_the_line_of_an_entry_alone_is_enough_for_a_note(words: str, of: str) -> None:
    """raullenchai/Rapid-MLX issue 2061 quotes nothing else, and not what begins the line."""
    causes = found(f"LCP unavailable: shared=19322 entry_len=19344 {words}\n")
    assert (list(causes), causes["CD705"].confidence) == (["CD705"], "low")
    assert f"had 19,322{of} tokens of a prompt in its cache but could not continue from there" in causes["CD705"].claim


def test_what_comes_after_it_takes_its_place() -> None:
    stuck = STUCK.format("requested_len=5710 non_trimmable=True")
    log = stuck + stuck + lookup("a", "HIT prompt_tokens=5710 cached=5600 remaining=110 time=0.002s")
    [session] = sessions_of(log)
    assert numbers(session) == [(5710, 5600, 3)]
    assert (session.answers[0].requests, session.incidents.keys() & {"match_alone"}) == (1, set())


CANDIDATE = (
    "DEBUG:vllm_mlx.memory_cache:[cache_fetch] LCP candidate: lcp=29424 entry_len=79812 excess=50388 non_trimmable={} "
    "cache_layers=40 layer_types=['ArraysCache', 'KVCache']\n"
)


@pytest.mark.parametrize(
    ("stuck", "computed", "codes"),
    [("True", 79863, {"CD105", "CD705"}), ("True", 400, set()), ("False", 79863, set())],
)
def test_a_candidate_counts_where_the_prompt_was_computed_after_all(stuck: str, computed: int, codes: set[str]) -> None:
    """Of a miss in memory that the disk has, nothing was lost; a single prompt alone shows no cause."""
    log = CANDIDATE.format(stuck) + lookup("a", "MISS prompt_tokens=79863 time=0.003s entries=5")
    assert set(found(log + scheduled("a", 79863, computed))) == codes


def test_a_miss_without_more_is_undecided() -> None:
    log = "".join(lookup(name, "MISS prompt_tokens=61256 time=0.002s entries=6") for name in "abc")
    causes = found(log)
    assert list(causes) == ["CD707"]
    assert "after the first prompt, 122,512 of 122,512 prompt tokens" in causes["CD707"].claim


# ---- mlx-vlm


def prefill(length: int, cached: int, seconds: float) -> str:
    return (
        f"2026-08-27 11:54:27,120 - INFO - Prefill completed: request=6c9587c50 prompt_tokens={length} cached_tokens={cached} "
        f"elapsed={seconds:.3f}s rate={length / seconds:.1f} tok/s\n"
    )


def test_a_zero_that_its_time_contradicts_is_unknown() -> None:
    """1,166 tokens in 13 s are 90 in a second, 1,158 in 0.42 s are 2,757: 30 times as many."""
    log = prefill(1166, 0, 13) + prefill(1158, 0, 0.42) + prefill(1200, 0, 0.5)
    [session] = sessions_of(log)
    assert numbers(session) == [(1166, 0, 1), (1158, None, 2), (1200, None, 3)]
    [answers] = session.answers
    assert (answers.requests, answers.told, answers.prompt_tokens, answers.cached_tokens) == (3, 1, 1166, 0)
    causes = found(log)
    assert list(causes) == ["CD706"]
    assert "wrong for 2 requests: 1,200 tokens took 0.50 s; earlier 1,166 tokens took 13.00 s" in causes["CD706"].claim


@pytest.mark.parametrize(
    "fast",
    [
        prefill(1158, 1100, 0.42),  # the counter says what was reused
        prefill(1158, 0, 1.7),  # 7.6 times as fast
        prefill(511, 0, 0.1),  # too short to be compared
        prefill(4665, 0, 1.0),  # more than four times as long
    ],
)
def test_what_may_be_true_is_believed(fast: str) -> None:
    assert "CD706" not in found(prefill(1166, 0, 13) + fast)


def test_most_of_it_computed_is_not_an_all_clear() -> None:
    """All 1,290 tokens after the first; of 2,580 half is still much, and one token less than half is not."""
    causes = found(prefill(1166, 0, 13) + prefill(1290, 0, 14))
    assert list(causes) == ["CD707"]
    assert any("APC_ENABLED=1" in remedy.text for remedy in causes["CD707"].remedies)
    assert list(found(prefill(1166, 0, 13) + prefill(2580, 1290, 14))) == ["CD707"]
    assert list(found(prefill(1166, 0, 13) + prefill(2580, 1291, 14))) == []


def test_one_request_alone_cannot_tell() -> None:
    view = ReportView(report_of(prefill(1166, 0, 13)))
    assert view.cannot_tell is not None
    assert view.report.findings == []


# ---- mlx_lm.server


def test_mlx_lm_says_nothing_of_its_prompts() -> None:
    line = "2026-08-22 17:01:12,003 - INFO - {}\n"
    log = "".join(
        line.format(words)
        for words in ("Prompt Cache: 0 sequences, 0.00 GB", "Prompt processing progress: 9011/9011",
                      "Prompt Cache: 1 sequences, 0.81 GB", "- user: 1 sequences, 0.81 GB")
    )  # fmt: skip
    report = report_of(log)
    [session] = report.sessions
    assert (session.engine, session.program, numbers(session)) == ("mlx-lm", "mlx_lm.server", [])
    assert (session.answers[0].requests, session.answers[0].told) == (2, 0)
    assert report.findings == []
    assert ReportView(report).cannot_tell is not None


# ---- all of them


def test_quoted_in_a_prompt_they_are_not_requests() -> None:
    for line in (
        restored(A, 1, 2),
        miss(5, 6, 1),
        prompt(0, 5),
        lookup("a", "MISS prompt_tokens=9 time=0.0s entries=1"),
    ):
        assert sessions_of(f'it says "{line.strip()}"\n') == []
