"""One parting alone proves no change of a conversation: a new one with the same beginning looks the same."""

from __future__ import annotations

import made
from answered import report_of

from cachedoctor.diagnosis.rules import lengths
from cachedoctor.diagnosis.rules.client import cd108_prefix_diverges_early as cd108
from cachedoctor.diagnosis.rules.kit import RuleContext
from cachedoctor.diagnosis.rules.replaying import Setup
from cachedoctor.model import Facts, Judged, Verdict


def judged(index: int, prompt: int, *codes: str) -> Judged:
    request = made.request(
        index=index, thread=0, held_thread=0, thread_turn=index, prompt_tokens=prompt, common_prefix_tokens=100,
        lcp_exact=True, ram_looked=True, restored_from_ram=False,
    )  # fmt: skip
    return Judged(request, Verdict(codes))


def context(prompt: int, *before: Judged) -> RuleContext:
    request, served = judged(len(before), prompt).request, before[-1].request if before else None
    return RuleContext(request, Setup(Facts(0, "log")), before, served, 1, 0)


def test_a_changed_head_seen_once_has_low_confidence() -> None:
    assert cd108._confidence(context(2000, judged(0, 1500))) == "low"


def test_a_changed_head_seen_again_has_high_confidence() -> None:
    assert cd108._confidence(context(2500, judged(0, 1500), judged(1, 2000, "CD108"))) == "high"


def test_a_prefix_that_ends_in_the_first_prompt_may_be_a_new_conversation() -> None:
    assert lengths.in_first_prompt(context(2000, judged(0, 1500)))
    assert not lengths.in_first_prompt(context(2000, judged(0, 90)))


def test_the_memory_of_deepseek_v4_is_a_window() -> None:
    """Read from the library of b11549: its raw part is a sliding window, so that it goes back to checkpoints alone."""
    log = (
        "0.00.107.935 I llama_kv_cache_dsv4: creating DSV4 raw KV cache\n"
        "0.00.107.990 I llama_kv_cache_dsv4: creating DSV4 CSA compressed KV cache, size = 4096 cells\n"
        "0.00.190.599 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 16384, kv_unified = 'false'\n"
    )
    (session,) = report_of(log.encode()).sessions
    assert session.memory == "swa"
