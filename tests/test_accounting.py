"""The arithmetic of requests, conversations and builds, with expectations computed by hand."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import FIXTURES, content_of, report_of
from made import joined, observed, recorded, request
from msgspec.structs import replace

from cachedoctor.engines.llamacpp import accounting, startup
from cachedoctor.engines.llamacpp.accounting import NEAR, CommonPrefix, Loss, TokenCounts
from cachedoctor.engines.llamacpp.conversations.join import MAX_THREADS, Conversations
from cachedoctor.knowledge import builds
from cachedoctor.model import Check, Facts, Session, Setting


def counts(*, shifted: bool = False, **fields: object) -> TokenCounts:
    """Prompt, cached and processed tokens of a request of which this was printed."""
    return accounting.counts(observed(**fields), shifted=shifted)


def prefix(
    *, shown: bool, memory: str | None = None, known: dict[str, Any] | None = None, **fields: object
) -> CommonPrefix:
    """Its common prefix, where the numbers are all there; ``known``: more facts of the server."""
    seen = observed(**fields)
    numbers = TokenCounts(seen.prompt_tokens, seen.cached_tokens, seen.processed_tokens, {})
    facts = Facts(0, "x", memory=memory, **(known or {}))  # type: ignore[arg-type]
    held = accounting.held_content(seen)
    if seen.choice.found_keep is not None:  # the conversation that came back from RAM is found by its length
        held = replace(held, tokens=seen.held_tokens)
    shares = accounting.shares(held, seen.prompt_tokens)[0]
    return accounting.prefix(seen, held, numbers, shares, facts, shown=shown)


def judge(reference: int | None, *, cold: bool = False, **fields: object) -> Loss:
    """Outcome and lost tokens: in all, by the client, by the server."""
    r = request(**fields)
    return accounting.judge(
        r.seen.error, r.seen.cancelled, r.prompt_tokens, r.cached_tokens, r.common_prefix_tokens, reference, cold=cold
    )


def session(**fields: object) -> Session:
    return Session(0, "x", **fields)  # type: ignore[arg-type]


def test_moved_chunks_that_were_given_up_do_not_count_as_common_prefix() -> None:
    """--cache-reuse moves 541 tokens to the end of 1,838, n_past is 2,379; the memory goes back to a checkpoint at
    1,774. Where nothing is given up the moved ones count as reused."""
    fields = {"prompt_tokens": 2379, "lcp": 2379, "held_tokens": 2476, "reused_chunks": 541}
    assert prefix(shown=True, cached_tokens=1774, **fields).tokens == 1838
    assert prefix(shown=True, cached_tokens=2378, **fields).tokens == 2379


# ---- prompt, cached, processed


def test_the_identity_gives_prompt_and_cached() -> None:
    """release 2109, 6 generated, 65 processed: prompt 2109 - 5 = 2104, cached 2104 - 65 = 2039."""
    r = counts(released_tokens=2109, generated_tokens=6, processed_tokens=65)
    assert (r.prompt, r.cached, r.processed) == (2104, 2039, 65)
    assert list(r.derived) == ["prompt_tokens", "cached_tokens"]


def test_one_generated_token_never_enters_the_slot() -> None:
    """max_tokens 1: release is the prompt."""
    r = counts(released_tokens=1838, generated_tokens=1, processed_tokens=1838)
    assert (r.prompt, r.cached) == (1838, 0)


def test_what_was_read_is_not_derived() -> None:
    """Printed numbers stay what they are, and are not called derived."""
    r = counts(prompt_tokens=2104, cached_tokens=2039, processed_tokens=65, released_tokens=2109, generated_tokens=6)
    assert (r.prompt, r.cached, list(r.derived)) == (2104, 2039, [])


@pytest.mark.parametrize(("printed", "reused"), [(1899, 1899), (1901, None), (5000, None)])
def test_more_reused_than_the_prompt_is_long_is_of_another_request(printed: int, reused: int | None) -> None:
    """Lines of two requests, where those between them are missing: what was reused is unknown."""
    (only,) = report_of(
        "slot launch_slot_: id  0 | task 7 | processing task\n"
        "slot update_slots: id  0 | task 7 | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 1900\n"
        f"slot update_slots: id  0 | task 7 | n_tokens = {printed}, memory_seq_rm [{printed}, end)\n"
        "slot release: id  0 | task 7 | stop processing: n_tokens = 1905, truncated = 0\n"
    )["requests"]
    assert (only["prompt_tokens"], only["cached_tokens"]) == (1900, reused)


def test_chunks_that_were_moved_are_not_common_prefix() -> None:
    """``reusing chunk with size 507, shifting KV cache [1964, 2471) -> [1872, 2379)``: 1,872 tokens stayed in front."""
    log = content_of(FIXTURES / "cases" / "option-without-effect-dense-b8672")
    last = report_of(log)["requests"][-1]
    assert (last["prompt_tokens"], last["cached_tokens"]) == (2379, 2378)
    assert 1871 <= last["common_prefix_tokens"] <= 1873, "a share of three decimals leaves one token open"


def test_the_second_witness_wins() -> None:
    """A truncation that failed in silence: 1,863 said to be cached, but all 1,951 were processed."""
    r = counts(prompt_tokens=1951, cached_tokens=1863, processed_tokens=1951)
    assert r.cached == 0


@pytest.mark.parametrize("second_batch", [None, 2048])
def test_a_forced_reprocessing_reuses_nothing(second_batch: int | None) -> None:
    """An excerpt ends at the forcing, or lacks the first batch: whatever matched, all 1,966 tokens are processed."""
    r = counts(prompt_tokens=1966, common_prefix_tokens=58, forced=True, cached_tokens=second_batch)
    assert (r.cached, r.processed, list(r.derived)) == (0, 1966, ["cached_tokens", "processed_tokens"])


def test_processed_follows_from_cached() -> None:
    """No timing line: 1951 - 1863 = 88."""
    r = counts(prompt_tokens=1951, cached_tokens=1863)
    assert (r.processed, list(r.derived)) == (88, ["processed_tokens"])


@pytest.mark.parametrize("broken", [{"cancelled": True}, {"error": "context-overflow"}])
def test_nothing_is_made_up_for_a_request_that_did_not_end(broken: dict[str, object]) -> None:
    """How much was processed before the end is not known."""
    r = counts(prompt_tokens=1951, cached_tokens=1863, **broken)
    assert r.processed is None


def test_a_context_shift_breaks_the_identity() -> None:
    """The slot's length at the end says nothing about the prompt."""
    r = counts(released_tokens=1374, generated_tokens=1300, processed_tokens=1098, shifted=True)
    assert (r.prompt, r.cached, r.processed) == (None, None, 1098)


def test_a_choice_has_no_accounting_of_its_own() -> None:
    """``n > 1``: the parent has it."""
    r = counts(parent=7, prompt_tokens=1838, cached_tokens=0, processed_tokens=1838)
    assert (r.prompt, r.cached, r.processed) == (None, None, None)


def test_numbers_that_do_not_fit_give_nothing() -> None:
    """More processed than the prompt has: a line is missing, not a negative cache."""
    r = counts(prompt_tokens=100, processed_tokens=120)
    assert r.cached is None


# ---- the common prefix


def test_shares_bound_the_common_prefix() -> None:
    """similarity 0.959 of 2,049 lies in [1963.97, 1966.02], f_keep 0.882 of 2,229 in [1964.9, 1967.1]: 1965 or 1966."""
    found = prefix(
        shown=False,
        memory="attention",
        prompt_tokens=2049,
        cached_tokens=1966,
        processed_tokens=83,
        similarity=0.959,
        f_keep=0.882,
        held_tokens=2229,
    )
    assert found.tokens == 1966
    found = prefix(
        shown=False,
        memory="hybrid",
        prompt_tokens=2049,
        cached_tokens=0,
        processed_tokens=2049,
        similarity=0.959,
        f_keep=0.882,
        held_tokens=2229,
    )
    assert found.tokens in (1965, 1966)
    assert found.source == "similarity and f_keep"


def test_a_slot_kept_whole_is_the_common_prefix() -> None:
    """f_keep 1.000 of 1,913 means [1912.04, 1913]: the slot's length is within, and the most likely."""
    found = prefix(
        shown=False,
        memory="hybrid",
        prompt_tokens=2007,
        cached_tokens=1909,
        similarity=0.953,
        f_keep=1.0,
        held_tokens=1913,
    )
    assert found.tokens == 1913


def test_shares_that_contradict_each_other_say_nothing() -> None:
    """90 % of 1,000 and 10 % of 1,000 cannot both be the prefix."""
    found = prefix(shown=False, prompt_tokens=1000, cached_tokens=0, similarity=0.9, f_keep=0.1, held_tokens=1000)
    assert found.tokens is None


@pytest.mark.parametrize(
    ("what", "bounds"),
    [
        ({"prompt_tokens": 2104, "held_tokens": 2109, "similarity": 1.0, "f_keep": 0.998}, (2104, 2104)),
        ({"prompt_tokens": 2800, "held_tokens": 2000, "similarity": 0.714, "f_keep": 1.0}, (1999, 2000)),
    ],
)
def test_a_common_prefix_is_no_longer_than_either(what: dict[str, Any], bounds: tuple[int, int]) -> None:
    """1.000 of 2,104 reaches to 2,105.05 and 1.000 of 2,000 to 2,001: rounding makes no tokens."""
    found = prefix(shown=False, memory="hybrid", cached_tokens=0, **what)
    assert found.between == bounds
    assert found.tokens == bounds[1]


def test_what_came_back_from_ram_is_bounded_by_both_shares() -> None:
    """0.911 of a prompt of 2,047 is 1,864 or 1,865, 0.911 of what came back, 2,046, is 1,863 or 1,864."""
    found = prefix(
        shown=False, prompt_tokens=2047, cached_tokens=0, held_tokens=2046, found_keep=0.911, found_sim=0.911
    )
    assert (found.tokens, found.between) == (1864, (1864, 1864))


@pytest.mark.parametrize(
    ("memory", "known", "threshold", "expected"),
    [
        ("hybrid", {"build": 9713}, 1773, 1773),
        ("recurrent", {"build": 9713, "window": 0}, 1773, 1773),
        ("swa", {"build": 9713, "window": 128}, 1645, 1773),
        ("swa", {"build": 9713, "settings": {"n_swa": Setting(128, 1)}}, 1645, 1773),
        ("swa", {"build": 9294, "window": 128}, 1645, 1774),
        ("swa", {"build_min": 9538, "build_max": 9713, "window": 128}, 1645, 1773),
        ("swa", {"build_min": 9294, "build_max": 9713, "window": 128}, 1645, None),
        ("swa", {"build": 9713}, 1645, None),
        ("swa", {"build": 9713, "window": 128}, 1300, None),
        ("hybrid", {"build": 9713}, 0, None),
        ("hybrid", {"build": 9713, "shows": frozenset({"images"})}, 1773, None),
    ],
)
def test_a_threshold_is_the_common_prefix_less_the_window(
    memory: str, known: dict[str, Any], threshold: int, expected: int | None
) -> None:
    """Up to b9537 one token more. Shares of 0.654 and 0.656 leave 1,773 and 1,774 open, as do two builds, a window that
    is not known, a threshold that the shares exclude, and images, which may take fewer positions than tokens."""
    found = prefix(
        shown=True, memory=memory, known=known, prompt_tokens=2711, cached_tokens=0, forced=True,
        checks=[Check(2116, 2694, threshold, 360)], similarity=0.654, f_keep=0.656, held_tokens=2704,
    )  # fmt: skip
    assert found.exact == (expected is not None)
    assert found.tokens == (1774 if expected is None else expected)
    assert found.between == ((1773, 1774) if expected is None else (expected, expected))
    assert found.source == ("similarity and f_keep" if expected is None else "checkpoint threshold + n_swa")


@pytest.mark.parametrize(
    ("full", "more", "expected"),
    [(True, {}, 2263), (False, {}, 2264), (True, {"checks": [Check(0, 2300, 0, 1)]}, 2264),
     (True, {"found_keep": 0.543, "found_sim": 0.965}, 2264)],
)  # fmt: skip
def test_a_window_of_full_size_reuses_the_whole_prefix(full: bool, more: dict[str, Any], expected: int) -> None:
    """0.965 of 2,346 and 0.543 of 4,171 leave 2,263 to 2,265; 2,263 were reused.

    A prompt from RAM brings its window only.
    """
    found = prefix(
        shown=False, memory="swa", known={"settings": {"swa_full": Setting(full, 1)}}, prompt_tokens=2346,
        cached_tokens=2263, similarity=0.965, f_keep=0.543, held_tokens=4171, **more,
    )  # fmt: skip
    assert found.tokens == expected


def test_nothing_reused_proves_no_prefix() -> None:
    """cache_prompt = false looks the same."""
    found = prefix(shown=True, memory="attention", prompt_tokens=1000, cached_tokens=0)
    assert found.tokens is None


def test_attention_reuses_the_whole_prefix() -> None:
    """Full attention cuts anywhere; other memory may have gone back to a checkpoint, unless the log would show that."""
    for memory, shown, forced, expected in [
        ("attention", False, False, 1966), ("hybrid", False, False, None),
        ("hybrid", True, False, 1966), ("hybrid", True, True, None),
    ]:  # fmt: skip
        found = prefix(shown=shown, memory=memory, prompt_tokens=2049, cached_tokens=1966, forced=forced)
        assert found.tokens == expected, (memory, shown, forced)


def test_what_was_reused_is_common() -> None:
    """A printed prefix shorter than what was reused describes the slot before a swap."""
    found = prefix(shown=True, prompt_tokens=1912, cached_tokens=1846, lcp=9)
    assert found.tokens == 1846


# ---- outcome and loss


@pytest.mark.parametrize(
    ("reference", "cached", "prompt", "outcome"),
    [
        (2000, 2000, 2100, "reused"),
        (2000, 2000 - NEAR, 2100, "reused"),
        (2000, 2000 - NEAR - 1, 2100, "partial"),
        (2000, 101, 2100, "partial"),
        (2000, 100, 2100, "reprocessed"),  # 5 % of the reference
        (100, 8, 400, "reprocessed"),  # 8 tokens
        (100, 9, 400, "partial"),
        (2000, 0, 2100, "reprocessed"),
        (2000, 1837, 1838, "reused"),  # the prompt is shorter: all but its last token can be reused
        (2000, 1838 - NEAR - 2, 1838, "partial"),
    ],
)
def test_outcomes(reference: int, cached: int, prompt: int, outcome: str) -> None:
    """reused: within 64 tokens of the reference; reprocessed: at most 8 tokens or 5 %; partial between."""
    assert judge(reference, prompt_tokens=prompt, cached_tokens=cached)[0] == outcome


def test_outcomes_that_are_not_comparison() -> None:
    """Failed, cancelled, cold, unknown."""
    for fields, reference, cold, outcome in [
        ({"error": "context-overflow"}, 2000, False, "failed"),
        ({"cancelled": True, "cached_tokens": 0}, 2000, False, "cancelled"),
        ({"cached_tokens": 0, "prompt_tokens": 100}, None, True, "cold"),
        ({"prompt_tokens": 100}, None, True, "unknown"),
        ({"cached_tokens": 0, "prompt_tokens": 100}, None, False, "unknown"),
        ({"prompt_tokens": 100}, 2000, False, "unknown"),
    ]:
        assert judge(reference, cold=cold, **fields)[0] == outcome, fields  # type: ignore[arg-type]


def test_the_loss_is_split_between_client_and_server() -> None:
    """Slot 2,229, common 1,966, reused 1,947: the client changed 263, the server could not reuse 19."""
    assert judge(2229, prompt_tokens=2049, cached_tokens=1947, common_prefix_tokens=1966)[1:] == (282, 263, 19)


def test_without_a_common_prefix_the_loss_has_no_side() -> None:
    """Unknown is null."""
    assert judge(2229, prompt_tokens=2049, cached_tokens=0)[1:] == (2229, None, None)


def test_more_than_the_reference_is_not_a_loss() -> None:
    """A foreign prefix that happened to be longer."""
    assert judge(1900, prompt_tokens=2049, cached_tokens=2000, common_prefix_tokens=2000) == ("reused", 0, 0, 0)


# ---- conversations


def turn(threads: Conversations, total: int, **fields: object) -> int:
    """Join and record one request; gives the number of its conversation."""
    r = request(**fields)
    return recorded(threads, r, joined(threads, r), total).id


def test_a_growing_prompt_is_one_conversation() -> None:
    """Each turn keeps what the slot holds."""
    threads = Conversations()
    first = turn(threads, 1843, prompt_tokens=1838, first_line=1, last_line=5)
    second = turn(threads, 1913, index=1, prompt_tokens=1908, cached_tokens=1843, held_thread=first, held_tokens=1843,
                  common_prefix_tokens=1843, first_line=6, last_line=9)  # fmt: skip
    assert first == second


def test_two_conversations_alternate() -> None:
    """The prompt of 1,912 extends the 1,846 of A, not the 1,621 of B that the slot holds."""
    threads = Conversations()
    a = turn(threads, 1846, prompt_tokens=1841, first_line=1, last_line=5)
    b = turn(threads, 1621, index=1, prompt_tokens=1616, cached_tokens=9, common_prefix_tokens=9, held_thread=a,
             held_tokens=1846, first_line=6, last_line=9)  # fmt: skip
    assert a != b
    back = request(index=2, prompt_tokens=1912, cached_tokens=9, common_prefix_tokens=9, held_thread=b,
                   held_tokens=1621, first_line=10, last_line=12)  # fmt: skip
    found = joined(threads, back)
    assert found is not None
    assert found.id == a


def test_a_prompt_from_ram_is_known_by_its_length() -> None:
    """1,846 tokens came back although the slot held another conversation."""
    threads = Conversations()
    a = turn(threads, 1846, prompt_tokens=1841, first_line=1, last_line=5)
    b = turn(
        threads,
        1621,
        index=1,
        prompt_tokens=1616,
        common_prefix_tokens=9,
        held_thread=a,
        held_tokens=1846,
        first_line=6,
        last_line=9,
    )
    found = joined(
        threads,
        request(index=2, prompt_tokens=1912, cached_tokens=1846, held_thread=b, held_tokens=1621, first_line=10),
    )
    assert found is not None
    assert found.id == a


def test_a_long_prompt_out_of_nowhere_is_a_new_conversation() -> None:
    """3,518 tokens do not continue 100."""
    threads = Conversations()
    a = turn(threads, 100, prompt_tokens=95, first_line=1, last_line=5)
    r = request(
        index=1,
        prompt_tokens=3518,
        cached_tokens=9,
        common_prefix_tokens=9,
        held_thread=a,
        held_tokens=100,
        first_line=6,
    )
    assert joined(threads, r) is None


def test_a_conversation_that_is_still_running_is_not_continued() -> None:
    """Its end lies after the start of the other request: they ran side by side."""
    threads = Conversations()
    turn(threads, 1846, prompt_tokens=1841, first_line=1, last_line=50)
    assert joined(threads, request(index=1, prompt_tokens=1912, cached_tokens=0, first_line=10)) is None


def test_the_memory_for_conversations_is_bounded() -> None:
    """The one unused for longest is forgotten."""
    threads = Conversations()
    for n in range(MAX_THREADS + 5):
        recorded(threads, request(index=n, first_line=n, last_line=n), None, 1000 + n)
    assert threads.get(4) is None
    assert threads.get(5) is not None
    assert threads.get(None) is None


# ---- builds and options


def test_a_wording_narrows_the_build_up_to_the_neighbouring_samples() -> None:
    """Seen first at 9294, absent at 9093: it may be as old as 9094. Seen last at 9713: gone by 9873."""
    assert builds.oldest(9294) == 9094
    assert builds.oldest(5311) is None
    assert builds.newest(9713) == 9872
    assert builds.newest(11549) is None
    assert list(builds.SAMPLED) == sorted(builds.SAMPLED)


def test_builds_in_words() -> None:
    """Exact, a range, open on one side, unknown."""
    assert builds.describe(8672, None, None) == "b8672"
    assert builds.describe(None, 9094, 9872) == "b9094 to b9872"
    assert builds.describe(None, 9714, None) == "b9714 or newer"
    assert builds.describe(None, None, 6628) == "b6628 or older"
    assert builds.describe(None, None, None) == "unknown build"
    assert builds.describe(12110, None, None) == "b12110 (v0.9.0)"
    assert builds.describe(12111, None, None) == "b12111"


def test_a_build_by_number_and_by_release() -> None:
    """A release whose build is not known is none, and no other text is."""
    known = {"6900": 6900, "b6900": 6900, "v0.6.0": 11429, "0.7.0": 11669, "v0.9.0": 12110}
    assert {text: builds.number(text) for text in known} == known
    for text in ("v1.0.0", "0.9.1", "v0.9", "0", "b0", "", "x", "0.9.0-dev", "v0.9.0.1", "12345678", "\u0663"):
        assert builds.number(text) is None, text
    assert [text for text in ("v1.0.0", "0.8.0", "b6900", "6900", "1.0") if builds.is_release(text)] == [
        "v1.0.0",
        "0.8.0",
    ]


def test_a_log_that_names_a_release() -> None:
    """Mapped to its build where that is known; a build between releases by its number; else the wordings tell."""
    named = {
        "b11549-0a1b2c3": 11549, "v0.9.0": 12110, "0.7.0": 11669, "v0.6.0-0a1b2c3": 11429, "v1.0.0": None,
        "v0.9.0-dev": None,
        "0.6.0-dev (build 11457, commit 5ad1c5da0)": 11457, "1.0.0 (build 12375, commit 5ad1c5da0)": 12375,
        "b0-unknown": None, "v0.9.01234567": None,
    }  # fmt: skip
    assert {text: startup.build_number(text) or None for text in named} == named


def test_a_session_knows_what_it_can_know() -> None:
    """True, false, or open."""
    assert session(build=8672).at_least(8672) is True
    assert session(build=8671).at_least(8672) is False
    assert session(build_min=9094).at_least(8672) is True
    assert session(build_max=8671).at_least(8672) is False
    assert session(build_min=8354, build_max=8928).at_least(8672) is None
