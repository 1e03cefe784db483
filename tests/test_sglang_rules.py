"""Rules about SGLang over sessions made by hand: what each needs to fire, what it leaves to others, how sure it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cachedoctor.diagnosis.rules import registry
from cachedoctor.diagnosis.rules.kit import SessionFinding, SessionRule
from cachedoctor.diagnosis.rules.measured.batch_periods import strategy
from cachedoctor.model import (
    Answer,
    Answers,
    BatchPeriod,
    Counters,
    Mark,
    SentBodies,
    Session,
    Setting,
)

RULES = {rule.code: rule for rule in registry.load()[0] if rule.engine == "sglang"}

BILLING = next(rule for rule in registry.load()[0] if rule.code == "CD101")
SENT = SentBodies(
    bodies=12, complete=True, size=60_000, shared=600, endless=None, kept=None, repeated=50_000, changed=11,
    salted=0, resumed=0, salts=0, with_salt=0, senders=1,
)  # fmt: skip
"""Bodies of which eleven repeat what an earlier one had behind a difference."""
HEALTHY = BatchPeriod(
    rank=None,
    since="start",
    first_line=10,
    last_line=99,
    batches=12,
    seqs=12,
    new_tokens=6_000,
    cached_tokens=40_000,
    wholes=12,
    cold=1,
    cached_least=2_900,
    cached_most=4_800,
    best_share=0.97,
    whole_tokens=46_000,
    whole_cached=40_000,
    smallest_prompt=3_000,
    largest_prompt=4_950,
    token_usage=0.05,
    marks={
        name: Mark(at, b"Prefill batch, ...") for at, name in enumerate(("first", "whole", "usage", "cold", "last"), 20)
    },
)
"""Twelve turns of one chat: only the first is cold."""
UNSHARED = msgspec.structs.replace(
    HEALTHY,
    new_tokens=45_960,
    cached_tokens=44,
    cold=1,
    cached_least=4,
    cached_most=4,
    best_share=0.002,
    whole_tokens=46_004,
    whole_cached=44,
)
"""The same twelve, and each reuses the four tokens of the template's head."""
STATES = msgspec.structs.replace(UNSHARED, mamba_usage=0.1, usage_at_mamba=0.05)


def period(base: BatchPeriod = HEALTHY, **changes: Any) -> BatchPeriod:
    """A period like ``base``, and its own."""
    return msgspec.structs.replace(base, **changes)


def session(
    *periods: BatchPeriod, version: str | None = "0.5.19", answers: tuple[Answer, ...] = (), **settings: Any
) -> Session:
    """A session of a dense model with the cache on and room for 500,000 tokens, unless ``settings`` say otherwise."""
    known = {"radix_cache": True, "kv_tokens": 500_000, "page_size": 1, "hybrid_ssm": False, **settings}
    made = Session(0, "server.log", engine="sglang", version=version)
    made.settings = {k: Setting(v, 3, b"server_args=...") for k, v in known.items() if v is not None}
    made.periods = list(periods)
    if answers:
        made.answers = [Answers("server.log", "log", each=list(answers))]
    return made


def notes(code: str, one: Session) -> list[SessionFinding]:
    """What a rule says of a session."""
    rule = RULES[code]
    assert isinstance(rule, SessionRule)
    return rule.inspect(one)


def note(code: str, one: Session) -> SessionFinding:
    (found,) = notes(code, one)
    return found


def codes(one: Session) -> set[str]:
    """The rules that fire, asked in their order as a report does."""
    fired: set[str] = set()
    for rule in registry.load()[0]:
        if isinstance(rule, SessionRule) and rule.engine == "sglang" and fired.isdisjoint(rule.unless):
            fired |= {rule.code for _ in rule.inspect(one)}
    return fired


def commands(found: SessionFinding) -> str:
    return "\n".join(command for remedy in found.words.remedies for command in remedy.commands)


# ---- healthy


@pytest.mark.parametrize(
    "healthy",
    [
        session(period()),
        session(period(token_usage=0.99, full_new_tokens=3_000, full_cached_tokens=20_000)),
        session(period(mamba_usage=0.95, states_new_tokens=3_000, states_cached_tokens=20_000), hybrid_ssm=True),
        session(period(rank="DP0 TP0"), period(rank="DP1 TP0"), data_parallel=2),
        session(period(), anthropic_requests=12),
        session(period(mamba_usage=0.1), hybrid_ssm=True, mamba_strategy="no_buffer"),
        session(period(mamba_usage=0.1), hybrid_ssm=True, mamba_strategy="extra_buffer"),
        session(),
    ],
)
def test_nothing_is_said_of_a_healthy_server(healthy: Session) -> None:
    """Whatever its model, ranks and clients are: most tokens are reused, so nothing was lost."""
    assert codes(healthy) == set()


def test_three_requests_prove_nothing() -> None:
    """Each may begin a conversation of its own."""
    assert codes(session(period(UNSHARED, wholes=4, seqs=4))) == set()
    assert codes(session(period(UNSHARED, wholes=5, seqs=5))) == {"CD610"}


# ---- CD601


def test_radix_cache_off_by_flag() -> None:
    one = session(period(UNSHARED, cached_tokens=0), radix_cache=False)
    one.settings["radix_cache"].text = b"server_args=ServerArgs(disable_radix_cache=True)"
    found = note("CD601", one)
    assert (found.severity, found.confidence) == ("warning", "high")
    assert "45,960 prompt tokens of 12 requests" in found.words.claim
    assert "was started with --disable-radix-cache" in found.words.why
    assert codes(one) == {"CD601"}


def test_radix_cache_that_reuses_is_not_off() -> None:
    """Whatever a line of the start says."""
    assert notes("CD601", session(period(), radix_cache=False)) == []


@pytest.mark.parametrize(
    ("cause", "version", "words"),
    [
        ("off_trtllm", "0.5.9", "--attention-backend triton"),
        ("off_trtllm", "0.5.9", "--mamba-scheduler-strategy extra_buffer"),
        ("off_deterministic", "0.5.19", "--attention-backend triton"),
        ("off_multimodal", "0.5.12", "--model-impl sglang"),
    ],
)
def test_radix_cache_off_for_a_reason(cause: str, version: str, words: str) -> None:
    """The line that says why leads, and the fix is the one for it."""
    one = session(period(UNSHARED, cached_tokens=0), version=version, radix_cache=False, radix_off_because=cause)
    one.settings["radix_off_because"].line = 2
    found = note("CD601", one)
    assert words in commands(found)
    assert found.evidence[0][0].line == 2


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("Qwen3NextForCausalLM", "--mamba-scheduler-strategy extra_buffer --page-size 64"),
        ("Qwen3_5MoeForConditionalGeneration", "--mamba-scheduler-strategy extra_buffer --page-size 64"),
        ("NemotronHForCausalLM", ""),
    ],
)
def test_radix_cache_off_for_speculation(architecture: str, options: str) -> None:
    """Versions with this line refuse extra_buffer to all models but Qwen's, and lose their states with the variable."""
    settings = {"radix_cache": False, "radix_off_because": "off_spec"}
    one = session(period(UNSHARED, cached_tokens=0), version="0.5.9", **settings)
    line = f"Disabling radix cache since speculative decoding for {architecture} is not supported with radix cache yet."
    one.settings["radix_off_because"] = Setting("off_spec", 2, line.encode())
    found = note("CD601", one)
    assert commands(found) == options
    assert any("0.5.14 or newer" in remedy.text for remedy in found.words.remedies)


@pytest.mark.parametrize("settings", [{"radix_off_because": "off_whisper"}, {"disaggregation": "decode"}])
def test_radix_cache_off_by_design_is_a_note(settings: dict[str, str]) -> None:
    """There is nothing to be fixed."""
    assert note("CD601", session(period(UNSHARED, cached_tokens=0), radix_cache=False, **settings)).severity == "note"


# ---- CD602


def test_no_buffer_is_sure_only_with_prompts() -> None:
    """Little reuse alone may be the prompts' own doing; prompts whose beginning had been there prove it."""
    settings = {"hybrid_ssm": True, "mamba_strategy": "no_buffer"}
    found = note("CD602", session(STATES, version="0.5.9", **settings))
    assert (found.severity, found.confidence) == ("warning", "medium")  # something was reused, so prompts do share
    found = note(
        "CD602", session(period(STATES, cached_least=0, cached_most=0, cached_tokens=0), version="0.5.9", **settings)
    )
    assert (found.severity, found.confidence) == ("note", "medium")
    known = tuple(Answer(4_000, 0, prefix=12_000) for _ in range(5))
    found = note("CD602", session(STATES, version="0.5.9", answers=known, **settings))
    assert (found.severity, found.confidence) == ("warning", "high")


@pytest.mark.parametrize(
    ("version", "option"),
    [
        ("0.5.6", "(PR 14792)"),
        ("0.5.9", "--mamba-scheduler-strategy extra_buffer"),
        ("0.5.23", "--mamba-radix-cache-strategy extra_buffer"),
    ],
)
def test_no_buffer_advises_what_the_version_has(version: str, option: str) -> None:
    found = note("CD602", session(STATES, version=version, hybrid_ssm=True, mamba_strategy="no_buffer"))
    assert option in commands(found) + found.words.remedies[0].text


@pytest.mark.parametrize(
    ("version", "asked", "pages", "resolved"),
    [
        ("0.5.4", None, 1, "no_buffer"),
        ("0.5.9", "auto", 1, "no_buffer"),
        ("0.5.9", None, 1, None),
        ("0.5.9", "extra_buffer", 64, "extra_buffer"),
        ("0.5.13", "auto", 1, "no_buffer"),
        ("0.5.14", "auto", 1, None),
        ("0.5.15", "auto", 64, "extra_buffer"),
        ("0.5.15", "auto", 1, None),
        ("0.5.15", "no_buffer", 1, "no_buffer"),
        (None, "auto", 1, None),
    ],
)
def test_auto_is_resolved_as_the_version_does(
    version: str | None, asked: str | None, pages: int, resolved: str | None
) -> None:
    """server_args.py: ``auto`` is no_buffer up to 0.5.13; then no_buffer cannot have pages of more than one token."""
    one = session(STATES, version=version, hybrid_ssm=True, mamba_strategy=asked, page_size=pages)
    assert strategy(one) == resolved
    assert bool(notes("CD602", one)) is (resolved == "no_buffer")


def test_a_dense_model_has_no_strategy() -> None:
    """Though server_args names one for every model."""
    assert codes(session(UNSHARED, version="0.5.9", mamba_strategy="no_buffer")) == {"CD610"}


# ---- CD603, CD604, CD605


def test_kv_pressure_is_likely_where_reuse_falls_and_sure_where_prompts_had_been_there() -> None:
    """85 % with room, 10 % without: the pool did it, or the texts that fill it are others."""
    full = period(
        new_tokens=50_000, cached_tokens=84_000, token_usage=0.98, full_new_tokens=36_000, full_cached_tokens=4_000
    )
    found = note("CD603", session(full, kv_tokens=60_000))
    assert (found.severity, found.confidence) == ("warning", "medium")
    known = tuple(Answer(4_000, 0, prefix=12_000) for _ in range(2))
    assert note("CD603", session(full, kv_tokens=60_000, answers=known)).confidence == "high"
    assert "while the pool was full, 10 % of the prompt tokens were reused, otherwise 85 %" in found.words.claim
    assert codes(session(full, kv_tokens=60_000)) == {"CD603"}


def test_main_memory_after_a_full_pool_is_not_for_hybrid_models() -> None:
    """Not in all versions; and not where it is in use."""
    full = period(UNSHARED, cached_tokens=4_000, token_usage=0.98, full_new_tokens=45_960, full_cached_tokens=4_000)
    option = "--enable-hierarchical-cache"
    assert option in commands(note("CD603", session(full)))
    assert option not in commands(note("CD603", session(full, hicache=True)))
    assert option not in commands(note("CD603", session(full, hybrid_ssm=True)))


def test_a_full_pool_that_makes_no_difference_is_none() -> None:
    """Reuse is as low where there was room."""
    same = period(UNSHARED, cached_tokens=4_000, token_usage=0.98, full_new_tokens=20_000, full_cached_tokens=2_000)
    assert notes("CD603", session(same)) == []


def test_a_pool_that_was_always_full_is_a_guess() -> None:
    always = period(UNSHARED, cached_tokens=4_000, token_usage=0.98, full_new_tokens=45_960, full_cached_tokens=4_000)
    found = note("CD603", session(always))
    assert (found.severity, found.confidence) == ("note", "medium")
    assert "CD610" not in codes(session(always))


@pytest.mark.parametrize(("retracted", "severity"), [(1, "note"), (5, "warning")])
def test_retraction_is_a_warning_when_it_is_not_rare(retracted: int, severity: str) -> None:
    """One in two hundred is the price of the server's bet; five are not."""
    found = note("CD604", session(period(seqs=200, retracted=retracted)))
    assert found.severity == severity
    assert f"{retracted} request" in found.words.claim


def test_states_run_short_before_tokens_do() -> None:
    short = period(
        new_tokens=50_000, cached_tokens=84_000, mamba_usage=0.96, usage_at_mamba=0.2, states_new_tokens=36_000,
        states_cached_tokens=4_000,
    )  # fmt: skip
    found = note("CD605", session(short, hybrid_ssm=True, mamba_strategy="extra_buffer", mamba_states=48))
    assert (found.severity, found.confidence) == ("warning", "medium")
    assert (
        "96 % of the states (48 in total), so almost none were left for reuse, while KV cache usage was 20 %"
        in found.words.claim
    )
    assert notes("CD605", session(period(short, usage_at_mamba=0.97), hybrid_ssm=True)) == []
    assert notes("CD605", session(period(short, mamba_usage=0.8), hybrid_ssm=True)) == []


# ---- CD606


def test_extra_buffer_is_never_more_than_a_candidate() -> None:
    """Some reuse and several that found nothing: perhaps they part after a shared beginning."""
    forks = period(
        STATES, cold=6, cached_least=0, cached_most=1_984, cached_tokens=9_920, whole_cached=9_920, best_share=0.5
    )
    found = note("CD606", session(forks, hybrid_ssm=True, mamba_strategy="extra_buffer"))
    assert (found.severity, found.confidence) == ("note", "medium")
    assert "6 of 12 requests" in found.words.claim
    assert notes("CD606", session(forks, hybrid_ssm=True, mamba_strategy="no_buffer", version="0.5.9")) == []


@pytest.mark.parametrize(("version", "fires"), [("0.5.15", True), ("0.5.17", False)])
def test_extra_buffer_with_hicache_keeps_no_fork_up_to_0_5_16(version: str, fires: bool) -> None:
    """PR 31181: then even nothing at all is explained by it."""
    cold = period(STATES, cold=12, cached_least=0, cached_most=0, cached_tokens=0, whole_cached=0, best_share=0.0)
    one = session(
        cold,
        version=version,
        hybrid_ssm=True,
        mamba_strategy="extra_buffer",
        hicache=True,
        cache_kind="UnifiedRadixCache",
    )
    assert bool(notes("CD606", one)) is fires


# ---- CD607, CD608


def ranks(**changes: Any) -> list[BatchPeriod]:
    half = period(seqs=10, wholes=10, cold=2, new_tokens=20_000, cached_tokens=20_000, whole_cached=20_000, **changes)
    return [period(half, rank="DP0 TP0"), period(half, rank="DP1 TP0")]


def test_ranks_that_alternate() -> None:
    found = note("CD607", session(*ranks()))
    assert (found.severity, found.confidence) == ("note", "medium")
    assert "DP0 2 of 10 prompts, DP1 2 of 10; 50 % of the prompt tokens were reused" in found.words.claim
    known = tuple(Answer(4_000, 0, prefix=12_000) for _ in range(2))
    found = note("CD607", session(*ranks(), answers=known))
    assert (found.severity, found.confidence) == ("warning", "high")


def test_one_rank_or_one_that_idles_is_not_a_spread() -> None:
    one, other = ranks()
    assert notes("CD607", session(one)) == []
    assert notes("CD607", session(one, period(other, seqs=1))) == []
    assert notes("CD607", session(one, period(one, first_line=200, since="reset"))) == []


def test_a_burst_is_judged_by_what_comes_after() -> None:
    """Eight at once computed 24,000 tokens; those after them reuse 2,000 each, so that the burst could have."""
    burst = {"bursts": 1, "burst_seqs": 8, "burst_new_tokens": 24_000, "after_burst_seqs": 4}
    found = note("CD608", session(period(**burst, after_burst_cached=8_000)))
    assert (found.severity, found.confidence) == ("note", "medium")
    assert "8 new requests at once" in found.words.claim
    assert "about 2,000 tokens each" in found.words.claim
    assert notes("CD608", session(period(**burst, after_burst_cached=400))) == []
    assert "--schedule-policy lpm" not in commands(
        note("CD608", session(period(**burst, after_burst_cached=8_000), schedule_policy="lpm"))
    )


# ---- CD101


def test_claude_code_is_a_candidate_until_prompts_prove_it() -> None:
    one = session(UNSHARED, anthropic_requests=12)
    (found,) = BILLING.alone(one)
    assert (found.severity, found.confidence) == ("warning", "medium")
    assert "CLAUDE_CODE_ATTRIBUTION_HEADER=0" in commands(found)
    assert "CD101" in note("CD610", one).unless  # and not CD610 beside it
    (found,) = BILLING.alone(session(UNSHARED, anthropic_requests=12, billing_header=True))
    assert (found.severity, found.confidence) == ("warning", "high")


def test_bodies_beside_the_log_take_the_suspicion_off() -> None:
    """What they changed is said by their own words; a header that they do not have is not suspected."""
    one = session(UNSHARED, anthropic_requests=12)
    one.sent = SENT
    assert BILLING.alone(one) == []


def test_other_clients_are_not_claude_code() -> None:
    assert BILLING.alone(session(UNSHARED, anthropic_requests=3)) == []
    assert BILLING.alone(session(UNSHARED, anthropic_requests=12, chat_requests=40)) == []


# ---- CD610


def test_prefix_not_shared_names_what_leaves_no_trace() -> None:
    found = note("CD610", session(UNSHARED))
    assert (found.severity, found.confidence) == ("note", "medium")  # prompts with nothing to share are not fault
    assert "11 requests of 3,000 to 4,950 tokens reused 4 tokens each, always the same" in found.words.claim
    for word in ("cache salt", "LoRA", "image", "router"):
        assert word in found.words.why
    assert "--enable-cache-report" in commands(found)
    assert "cachedoctor diff" in commands(found)
    assert "--log-requests --log-requests-level 2" in commands(found)
    assert {r.name for r in found.words.ruled_out} == {"radix-cache-off", "kv-pressure"}


@pytest.mark.parametrize(
    ("settings", "changes", "word"),
    [
        ({"kv_tokens": 50_000}, {}, "an eviction, if more than 10 conversations"),
        ({"kv_tokens": None}, {}, "an eviction, because the size of the pool is not in the log"),
        ({"hybrid_ssm": True, "version": None}, {"mamba_usage": 0.2}, "states of a hybrid model"),
        ({}, {"rank": "DP1 TP0"}, "another data-parallel rank"),
    ],
)
def test_prefix_not_shared_is_less_sure_where_more_is_possible(
    settings: dict[str, Any], changes: dict[str, Any], word: str
) -> None:
    found = note("CD610", session(period(UNSHARED, **changes), **settings))
    assert word in found.words.why
    sure = "rank" in changes
    assert (found.severity, found.confidence) == ("note", "medium" if sure else "low")


@pytest.mark.parametrize(
    ("evicted", "since", "confidence"),
    [(0, None, "medium"), (900, None, "low"), (0, "before.txt", "low"), (900, "before.txt", "low")],
)
def test_metrics_tell_of_evictions(evicted: int, since: str | None, confidence: str) -> None:
    """None since the start of the server excludes them, though the pool is small; none between two dumps does not."""
    one = session(UNSHARED, kv_tokens=50_000)
    one.counters = [Counters("after.txt", since, "sglang", evicted=evicted)]
    assert note("CD610", one).confidence == confidence


def test_prefix_not_shared_is_sure_where_prompts_prove_it() -> None:
    """Ten logged prompts share 120 characters, of thousands of tokens."""
    parted = tuple(Answer(4_000, 4, prefix=120) for _ in range(10))
    found = note("CD610", session(UNSHARED, answers=parted))
    assert (found.severity, found.confidence) == ("note", "high")  # whether text repeats after it is not logged
    assert "10 logged prompts share fewer than 1,000 characters" in found.words.claim
    mixed = (*parted[:4], *(Answer(4_000, 4, prefix=9_000) for _ in range(6)))
    assert note("CD610", session(UNSHARED, answers=mixed)).confidence == "medium"
    alike = tuple(Answer(4_000, 4, prefix=9_000) for _ in range(10))
    found = note("CD610", session(UNSHARED, answers=alike))
    assert (found.severity, found.confidence) == ("warning", "medium")  # they begin alike, and nothing is reused
    one = session(UNSHARED)
    one.sent = SENT
    assert notes("CD610", one) == [], "a client's change has a rule of its own"
    one.sent = msgspec.structs.replace(SENT, repeated=0)
    assert note("CD610", one).severity == "note"  # documents of their own: nothing to fix


def test_prefix_not_shared_takes_it_back_where_prompts_do_share() -> None:
    """Then it is the server, or what leaves no trace; and not the client."""
    same = tuple(Answer(4_000, 4, prefix=15_000) for _ in range(10))
    found = note("CD610", session(UNSHARED, answers=same))
    assert found.confidence == "medium"
    assert found.words.why.startswith("The prompts do share their beginning, so the cause leaves no trace")
    assert "cachedoctor diff" not in commands(found)


@pytest.mark.parametrize(
    "other",
    [
        session(UNSHARED, radix_cache=None, page_size=64, version=None),
        session(period(UNSHARED, largest_prompt=900, smallest_prompt=300)),
        session(period(UNSHARED, retracted=3)),
        session(UNSHARED, page_size=1_024),
    ],
    ids=["short of room", "short prompts", "retracted", "large pages"],
)
def test_prefix_not_shared_is_silent_on_look_alikes(other: Session) -> None:
    if other.setting("radix_cache") is None:
        other.periods = [period(UNSHARED, cached_tokens=0)]  # perhaps the cache is off
    assert notes("CD610", other) == []


def test_one_long_document_among_chats_is_not_a_loss() -> None:
    """It alone makes the share small; the others reuse nearly all."""
    mixed = period(
        new_tokens=92_000, cached_tokens=9_000, whole_tokens=101_000, whole_cached=9_000, largest_prompt=90_000
    )
    assert codes(session(mixed)) == set()


def test_responses_beside_the_log_count_where_no_request_was_alone() -> None:
    busy = period(UNSHARED, wholes=0, largest_prompt=None)
    assert notes("CD610", session(busy)) == []
    found = note("CD610", session(busy, answers=tuple(Answer(3_000, 4) for _ in range(6))))
    assert "5 requests of 3,000 to 3,000 tokens" in found.words.claim


# ---- CD611, and what was not checked


def test_flushes_are_counted_once_for_all_ranks() -> None:
    one = session(
        period(rank="DP0"), period(rank="DP1"), *(period(rank=r, since="reset", first_line=50) for r in ("DP0", "DP1"))
    )
    found = note("CD611", one)
    assert "flushed once" in found.words.claim
    assert found.severity == "note"
    assert notes("CD611", session(period())) == []


def needs(code: str, one: Session) -> str:
    return " ".join(RULES[code].needs(one) or ())


def test_what_is_missing_is_said() -> None:
    busy = period(UNSHARED, wholes=0, cached_tokens=0)
    assert "--log-requests" in needs("CD610", session(busy))
    assert "start of the server" in needs("CD601", session(busy, radix_cache=None))
    assert "start of the server" in needs("CD602", session(busy, hybrid_ssm=True))
    for code in RULES:
        assert RULES[code].needs(session(period(), chat_requests=12)) is None, code
