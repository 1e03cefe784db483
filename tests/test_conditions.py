"""Conditions of rules that bundled logs meet on one side only: a number on either side of each, worked out by hand."""

from __future__ import annotations

from typing import Any

import made
import pytest

from cachedoctor.diagnosis.account.from_numbers import GrownPrompts, SameLengths
from cachedoctor.diagnosis.rules.client import cd111_lora_changed as cd111
from cachedoctor.diagnosis.rules.input import cd904_reuse_undecided as cd904
from cachedoctor.diagnosis.rules.kit import RuleContext, SessionFinding
from cachedoctor.diagnosis.rules.programs import cd701_restore_cut as cd701
from cachedoctor.diagnosis.rules.replaying import Setup
from cachedoctor.diagnosis.rules.slots import cd310_idle_slots_cleared as cd310
from cachedoctor.diagnosis.rules.slots import cd311_ram_entry_consumed as cd311
from cachedoctor.diagnosis.rules.slots import cd312_computed_together as cd312
from cachedoctor.diagnosis.rules.vllm import cd514_drafting_finds_nothing as cd514
from cachedoctor.diagnosis.rules.vllm import cd515_window_flushed as cd515
from cachedoctor.diagnosis.rules.vllm import kv_flow
from cachedoctor.diagnosis.rules.vllm.kv_flow import RequestGroups
from cachedoctor.model import (
    Answer,
    Answers,
    Facts,
    Judged,
    Mark,
    PromptDiff,
    Request,
    RequestSetting,
    SentBodies,
    Session,
    Setting,
    Side,
    Undecided,
)

LINE = Mark(7, b"line")


def asked(*history: Request, **fields: Any) -> RuleContext:
    request = made.request(**{"thread": 0, "outcome": "reprocessed", **fields})
    return RuleContext(request, Setup(Facts(0, "x")), [Judged(one) for one in history], None, 2, 0)


# ---- CD111: the bodies name other adapters


@pytest.mark.parametrize(("place", "fires"), [("lora", True), ("model", False)])
def test_adapters_that_only_the_bodies_show(place: str, fires: bool) -> None:
    """No line shows that the slot was cleared; nothing was reused of a slot that was chosen for its content."""
    request = made.request(
        thread=0, outcome="reprocessed", prompt_tokens=2872, cached_tokens=0, common_prefix_tokens=2542,
        reference_tokens=2542, lost_tokens=2542, selected_by="lcp", similarity=0.885,
        marks={"select": LINE, "start": LINE},
    )  # fmt: skip
    difference = PromptDiff(
        False, Side("a", "body", 1, 1), Side("b", "body", 1, 1), "words", True, None, "", True, 0, 0, {}, None, None,
        None, settings=[RequestSetting(place, "0", "1", "")],
    )  # fmt: skip
    found = cd111.decide(RuleContext(request, Setup(Facts(0, "x")), [], None, 1, 0, difference=difference))
    assert (found is not None) is fires
    if found is not None:
        assert found.confidence == "high"


# ---- CD310: whose slot was cleared


def cleared(*left: int, passed_over: tuple[int, ...], text_lcp: int | None = None) -> tuple[int, int | None] | None:
    """Tokens that CD310 names of a turn after others that left so many: 2,140 by its length, none reused."""
    facts = Facts(0, "x", settings={"ram_evictions": Setting(2, 5)})
    request = made.request(
        thread=0, thread_turn=len(left), outcome="reprocessed", prompt_tokens=2168, cached_tokens=0,
        reference_tokens=2140, lost_tokens=2140, passed_over=passed_over, text_lcp=text_lcp,
         marks={"idle_cleared": LINE, "start": LINE},
    )  # fmt: skip
    before = [Judged(made.request(thread=0, released_tokens=tokens)) for tokens in left]
    found = cd310.decide(RuleContext(request, Setup(facts), before, None, 1, 0))
    return None if found is None else (found.tokens, found.at_most)


def test_a_slot_that_still_held_the_last_turn_was_not_the_one_cleared() -> None:
    """Four chats in turn of 1,840 to 2,140 tokens; the last one's slot was not cleared yet: it is another."""
    assert cleared(1840, 1940, 2040, 2140, passed_over=()) == (2140, None)
    assert cleared(1840, 1940, 2040, 2140, passed_over=(0,)) == (1840, 2140)
    assert cleared(1840, 1940, 2040, 2140, passed_over=(1,)) == (2140, None)
    assert cleared(1840, 2140, passed_over=(0,), text_lcp=2140) == (2140, None), "its text is known"
    assert cleared(2140, passed_over=(0,)) is None, "there is no other"


# ---- CD311: another conversation took the copy


def taken(*history: Request, **fields: Any) -> RuleContext:
    """The third turn comes back to another's content; 1,516 of its 4,282 tokens are left."""
    known: dict[str, Any] = {
        "thread_turn": 2, "held_thread": 1, "prompt_tokens": 4400, "cached_tokens": 1516, "common_prefix_tokens": 1516,
        "reference_tokens": 4282, "lost_tokens": 2766, "marks": {"ram_taken": LINE, "start": LINE},
    }  # fmt: skip
    return asked(*history, **{**known, **fields})


def test_a_copy_that_was_taken() -> None:
    """What was reused before it was taken speaks for that; without a turn before, lengths alone do."""
    before = made.request(thread=0, outcome="reused")
    found, alone = cd311.decide(taken(before)), cd311.decide(taken())
    assert found is not None
    assert alone is not None
    assert (found.tokens, found.confidence) == (2766, "medium")
    assert (alone.tokens, alone.confidence) == (2766, "low")


def test_the_texts_say_how_much_of_a_copy_the_owner_could_use() -> None:
    """All but the last 782 tokens are in the new prompt: 3,500 - 1,516 were lost by the server."""
    found = cd311.decide(taken(text_lcp=3500))
    assert found is not None
    assert (found.tokens, found.confidence) == (1984, "high")
    assert cd311.decide(taken(text_lcp=1520)) is None  # the client changed what follows


@pytest.mark.parametrize(
    "other",
    [{"held_thread": 0}, {"thread_turn": 0}, {"marks": {"start": LINE}}, {"common_prefix_tokens": 4270}],
    ids=["its own slot", "a first prompt", "nobody took it", "nothing was missing"],
)
def test_a_copy_that_was_not_taken(other: dict[str, Any]) -> None:
    assert cd311.decide(taken(**other)) is None


# ---- CD312: computed together


def first(**fields: Any) -> RuleContext:
    """A first prompt of 2,820 tokens, of which 2,622 are those of a request that was at work."""
    known: dict[str, Any] = {
        "thread_turn": 0, "prompt_tokens": 2820, "cached_tokens": 0, "outcome": "cold", "together_tokens": 2622,
    }  # fmt: skip
    return asked(**{**known, **fields})


def test_what_was_computed_together_is_what_was_not_reused() -> None:
    found, part = cd312.decide(first()), cd312.decide(first(cached_tokens=1000))
    assert found is not None
    assert part is not None
    assert (found.tokens, part.tokens) == (2622, 1622)
    short = cd312.decide(first(prompt_tokens=2000))
    assert short is not None
    assert short.tokens == 2000


@pytest.mark.parametrize(
    "other", [{"outcome": "cancelled"}, {"cached_tokens": 2600}, {"cached_tokens": None}, {"prompt_tokens": None}]
)
def test_what_was_not_computed_together(other: dict[str, Any]) -> None:
    assert cd312.decide(first(**other)) is None


def test_a_turn_that_was_sent_twice_is_its_new_text_once_more() -> None:
    """It reused its own conversation; what came after that was computed by the other as well."""
    found = cd312.decide(first(thread_turn=1, outcome="reused", cached_tokens=1600, together_tokens=2820))
    assert found is not None
    assert (found.tokens, found.key) == (1220, "twice")


# ---- prompts of one length at once


def lengths(*of: tuple[int, int, int, int]) -> list[int]:
    """Lengths that may have been sent twice, of requests (slot, prompt tokens, first line, last line)."""
    seen = SameLengths()
    for index, (slot, tokens, first_line, last_line) in enumerate(of):
        known = asked(
            index=index, slot=slot, prompt_tokens=tokens, processed_tokens=tokens, first_line=first_line,
            last_line=last_line, marks={"start": Mark(first_line, b"launch")}, thread=None,
        )  # fmt: skip
        seen.add(known.request)
    return [twins.length for twins in seen.twins()]


def test_prompts_of_one_length_that_were_at_work_at_once() -> None:
    assert lengths((0, 4037, 1, 9), (1, 4037, 2, 10), (0, 5572, 11, 20), (1, 5572, 21, 30)) == [4037]
    assert lengths((0, 4037, 1, 9), (0, 4037, 2, 10)) == []
    assert lengths((0, 4037, 1, 9), (1, 4037, 2, 10), (0, 4037, 11, 20)) == [], "they come again"
    assert lengths((0, 40, 1, 9), (1, 40, 2, 10)) == [], "short ones have one length by chance"


# ---- prompts that grow like the turns of a conversation


def grown(*prompts: int, outcome: str = "cold", cached: int = 0) -> tuple[int, int]:
    """Tokens and number of prompts that may be turns; each request leaves its prompt and five tokens of a reply."""
    found = GrownPrompts()
    for line, prompt in enumerate(prompts, 1):
        seen = made.observed(released_tokens=prompt + 5)
        marks = {"start": Mark(line, b"launch")}
        found.add(made.request(seen=seen, marks=marks, outcome=outcome, prompt_tokens=prompt, cached_tokens=cached))
    return found.tokens, found.requests


def test_prompts_each_as_long_as_the_next_turn() -> None:
    assert grown(1000, 1100, 1200, 1300) == (1005 + 1105 + 1205, 3)
    assert grown(1000, 1100, 1200, 1300, 1400) == (1005 + 1105 + 1205 + 1305, 4)
    assert grown(1000, 1100, 1200) == (0, 0), "two steps are chance"
    assert grown(1000, 1100, 1200, 1100, 1200, 1300) == (0, 0), "each time two"
    assert grown(1000, 1015, 1030, 1045) == (0, 0), "a turn adds more"
    assert grown(1000, 2030, 3560, 5400) == (0, 0), "a turn adds less"
    assert grown(1000, 1100, 1200, 1300, outcome="reused") == (0, 0)
    assert grown(1000, 1100, 1200, 1300, cached=200) == (0, 0), "their slots had a part of them"


# ---- CD701: the MLX runner goes back to a multiple of its stride


@pytest.mark.parametrize(
    ("matched", "cached", "cut"),
    [
        (21742, 16383, True),
        (16895, 16383, True),  # 512 more matched than were restored
        (16894, 16383, False),
        (21742, 16384, False),
        (21742, 8191, True),
        (600, 0, False),
        (8000, -1, False),
    ],
)
def test_a_restored_length_is_that_of_a_snapshot(matched: int, cached: int, cut: bool) -> None:
    assert cd701.is_cut(matched, cached) is cut


def restored(*each: tuple[int, int], source: str = "log") -> list[SessionFinding]:
    answers = Answers("x", source, each=[Answer(None, cached, prefix=matched) for matched, cached in each])
    line = {"restore_cut": Setting(True, 7, b"line")}
    return cd701.inspect(Session(0, "x", engine="ollama", answers=[answers], settings=line))


def test_what_a_snapshot_costs() -> None:
    """5,359 and 3,853 tokens: a warning from 8,192 on."""
    (found,) = restored((21742, 16383), (36620, 32767))
    assert found.severity == "warning"
    assert "9,212 tokens recomputed, up to 5,359 in one request" in found.words.claim
    assert found.evidence == [(Mark(7, b"line"), "matched and restored")]
    (found,) = restored((21742, 16383))
    assert found.severity == "note"
    assert restored((21742, 21000)) == []
    assert restored((21742, 16383), source="responses") == []


def test_a_snapshot_off_the_multiple_is_told_by_two_requests_that_went_back_to_it() -> None:
    """7,179 and 7,905 tokens (ollama issue 17829)."""
    (found,) = restored((32112, 24933), (32838, 24933))
    assert "15,084 tokens recomputed, up to 7,905 in one request" in found.words.claim
    assert restored((32112, 24933)) == []
    assert restored((32112, 24933), (32838, 24934)) == []
    assert restored((28000, 24933), (28400, 24933)) == [], "less than half a stride"


# ---- CD514 and CD515: layers with a sliding window on vLLM


def served(**fields: Any) -> Session:
    """vLLM whose responses say that four prompts of 10,000 tokens reused nothing."""
    settings = {
        "architecture": Setting("Gemma4ForCausalLM", 3, b"arch"), "speculative": Setting("mtp", 4, b"drafts"),
        "prefix_caching": Setting(True, 5, b"on"), "kv_tokens": Setting(100_000, 6, b"size"),
    }  # fmt: skip
    settings |= fields.pop("settings", {})
    reused = fields.pop("reused", 0)
    answers = [Answers("x", "responses", 4, 4, 40_000, reused)]
    known: dict[str, Any] = {"engine": "vllm", "version": "0.22.0", "answers": answers, "settings": settings}
    return Session(0, "x", **{**known, **fields})


def bodies(**fields: Any) -> SentBodies:
    """Bodies 80 % of whose text is at the same place in an earlier one; a cache of this size has room for 75 %."""
    known: dict[str, Any] = {
        "bodies": 4, "complete": True, "size": 1000, "shared": 800, "endless": 790, "kept": 750, "repeated": 0,
        "changed": 0, "salted": 0, "resumed": 0, "salts": 0, "with_salt": 0, "senders": 1,
    }  # fmt: skip
    return SentBodies(**{**known, **fields})


def test_a_drafting_model_that_finds_nothing() -> None:
    (found,) = cd514.inspect(served())
    assert (found.severity, found.confidence) == ("warning", "medium")
    assert [line for line, _ in found.evidence] == [Mark(4, b"drafts"), Mark(3, b"arch")]
    (sure,) = cd514.inspect(served(sent=bodies()))
    assert sure.confidence == "high"


@pytest.mark.parametrize(
    "other",
    [
        {"version": "0.20.2"},
        {"version": "0.23.0"},
        {"reused": 400},
        {"sent": bodies(shared=50)},
        {"settings": {"speculative": Setting("ngram", 4)}},
        {"settings": {"architecture": Setting("LlamaForCausalLM", 4)}},
        {"settings": {"prefix_caching": Setting(False, 4)}},
        {"answers": []},
    ],
    ids=["older", "newer", "reused", "nothing shared", "no layers", "no window", "no caching", "no traffic"],
)
def test_a_drafting_model_that_is_not_to_blame(other: dict[str, Any]) -> None:
    assert cd514.inspect(served(**other)) == []


def test_a_window_that_pushes_prompts_out() -> None:
    """40,000 tokens were computed, a fifth of the cache is 20,000; 0 % was reused where 75 % could have been."""
    (found,) = cd515.inspect(served(version="0.27.1", sent=bodies()))
    assert (found.severity, found.confidence) == ("warning", "medium")
    assert "a cache of 100,000 tokens is large enough to reuse 75.0 % of the text in the given" in found.words.claim
    assert len(found.words.remedies) == 2
    (old,) = cd515.inspect(served(version="0.22.1", sent=bodies()))
    assert len(old.words.remedies) == 1  # the variable came with 0.23
    assert cd515.inspect(served(version="0.27.1", sent=bodies(), reused=14_999)) != []  # 37.5 % is half of 75 %
    assert cd515.inspect(served(version="0.27.1", sent=bodies(), reused=15_001)) == []
    assert cd515.inspect(served(version="0.27.1", sent=bodies(kept=500))) != []
    full = {"kv_tokens": Setting(200_000, 6)}
    assert cd515.inspect(served(version="0.27.1", sent=bodies(), settings=full)) != []


@pytest.mark.parametrize(
    "other",
    [
        {"version": "0.29.0"},
        {"sent": None},
        {"sent": bodies(complete=False)},
        {"sent": bodies(kept=None)},
        {"sent": bodies(kept=499)},
        {"sent": bodies(shared=50)},
        {"settings": {"kv_tokens": Setting(200_001, 6)}},
        {"settings": {"architecture": Setting("LlamaForCausalLM", 4)}},
        {"settings": {"prefix_caching": Setting(False, 4)}},
    ],
    ids=["newer", "no bodies", "not all", "no size", "little", "nothing shared", "roomy", "no window", "no caching"],
)
def test_a_window_that_pushes_nothing_out(other: dict[str, Any]) -> None:
    assert cd515.inspect(served(**{"version": "0.27.1", "sent": bodies(), **other})) == []


# ---- CD904: what nothing explains


def open_(**fields: Any) -> list[SessionFinding]:
    """10,000 of 40,000 prompt tokens over two of three requests are open, and a quarter of all was reused."""
    known: dict[str, Any] = {
        "tokens": 10_000, "requests": 2, "lost": 0, "alike": 0, "alike_requests": 0, "named": 0, "anew": 0,
        "anew_at": None, "returns": 0, "all_requests": 3, "cached_tokens": 10_000, "prompt_tokens": 40_000,
        "worst": LINE,
    }  # fmt: skip
    return cd904.inspect(Session(0, "x", undecided=Undecided(**{**known, **fields})))


def test_much_of_a_log_is_open() -> None:
    (found,) = open_()
    assert (found.severity, found.confidence, found.unless) == ("note", "low", ("CD109",))
    assert found.words.claim.startswith("10,000 of 40,000 prompt tokens were reused, and this log cannot show why")
    assert found.evidence == [(LINE, "the request with the most tokens that were new text or recomputed")]


@pytest.mark.parametrize("other", [{"tokens": 9_999}, {"requests": 1}, {"all_requests": 2}, {"cached_tokens": 10_001}])
def test_little_of_a_log_is_open(other: dict[str, int]) -> None:
    assert open_(**other) == []


GROWN = {"tokens": 0, "requests": 0, "cached_tokens": 0, "all_requests": 6, "grown": 10_000, "grown_requests": 3}
"""Half of six prompts grew like turns, and nothing was reused."""


def test_prompts_that_grow_like_turns_are_open() -> None:
    (found,) = open_(**GROWN)
    assert (found.severity, found.confidence) == ("note", "low")
    assert "each of 3 prompts in a row is somewhat longer than the previous one" in found.words.claim
    assert "CD108" in found.unless


@pytest.mark.parametrize(
    "other", [{"grown_requests": 2}, {"all_requests": 7}, {"cached_tokens": 10_001}, {"grown": 1_999}]
)
def test_prompts_that_grow_by_chance_are_not(other: dict[str, int]) -> None:
    assert open_(**{**GROWN, **other}) == []


def test_a_loss_without_a_cause_comes_first() -> None:
    (found,) = open_(lost=1000, alike=2000, alike_requests=3)
    assert found.words.claim == "1,000 prompt tokens were lost by the server, and no rule identifies the cause"
    (found,) = open_(lost=999)
    assert "were reused" in found.words.claim


def test_first_prompts_that_begin_alike() -> None:
    """A twentieth of 40,000 is 2,000; of 10,000 it is 500, which is less than a report notes."""
    (found,) = open_(tokens=9_999, alike=2000, alike_requests=3)
    assert found.words.claim.startswith("2,000 prompt tokens in 3 requests were new, changed by the client or lost")
    assert found.unless[:1] == ("CD101",)
    assert found.unless[-1:] == ("CD499",)
    assert open_(tokens=9_999, alike=1999, alike_requests=3) == []
    assert open_(tokens=9_999, alike=2000, alike_requests=2) == []
    assert open_(tokens=999, alike=999, alike_requests=3, prompt_tokens=10_000) == []


def test_first_prompts_of_one_length() -> None:
    """Half of all first prompts, half of what is open; some random prompts are as long as the one before by chance."""
    level = {"tokens": 4000, "level": 2000, "level_requests": 3, "first_requests": 6}
    (found,) = open_(**level)
    assert found.words.claim.startswith("2,000 prompt tokens in 3 requests were new or changed by the client")
    assert [out.name for out in found.words.ruled_out][:1] == ["history-truncated"]
    assert open_(**level | {"first_requests": 7}) == []
    assert open_(**level | {"level_requests": 2, "first_requests": 4}) == []
    assert open_(**level | {"tokens": 4001}) == []
    by_chance = {"tokens": 10_000, "level": 1, "level_requests": 1, "first_requests": 6}
    assert open_(**by_chance) == []


def test_first_prompts_that_may_continue_another_conversation() -> None:
    able = {"able": 10_000, "able_requests": 3, "cached_tokens": 10_001}
    (found,) = open_(**able)
    assert found.words.claim.startswith("10,000 prompt tokens in 3 requests were new text or recomputed")
    assert (found.severity, found.confidence, found.unless) == ("note", "low", ())
    assert open_(**able | {"able": 9_999}) == []
    assert open_(**able | {"able_requests": 2}) == []


def test_prompts_that_may_be_sent_again_after_another_beginning() -> None:
    (found,) = open_(tokens=9_999, anew=1000, returns=3)
    assert found.words.claim.startswith("1,000 prompt tokens may have been sent earlier with a different beginning")
    assert open_(tokens=9_999, anew=999, returns=3) == []
    assert open_(tokens=9_999, anew=1000, returns=2) == []


def test_a_ram_cache_that_is_off_is_offered() -> None:
    known = Undecided(10_000, 3, 0, 0, 0, 0, 0, None, 0, 6, 10_000, 40_000, LINE)
    on, off = Session(0, "x", undecided=known), Session(0, "x", undecided=known)
    off.settings["cache_ram_mib"] = Setting(0, 1)
    (first_of_on,), (first_of_off,) = cd904.inspect(on), cd904.inspect(off)
    assert len(first_of_off.words.remedies) == len(first_of_on.words.remedies) + 1
    assert first_of_off.words.remedies[-1].commands == ["--cache-ram 8192"]


def shares(*cached: float, prompt: int = 2_000) -> list[RequestGroups]:
    """What responses show, by the share that each of them reused."""
    each = [Answer(prompt, int(share * prompt), None) for share in cached]
    told = Answers("usage.json", "responses", len(each), len(each), prompt * len(each), 0, each=each)
    return [groups for groups, _ in kv_flow.groups(served(answers=[told]))]


def test_responses_that_fall_into_two_groups() -> None:
    """Twelve reuse 90 %, ten reuse nothing: 200 tokens at most, and 2,000 at least."""
    (groups,) = shares(*[0.9] * 12, *[0.0] * 10)
    assert (groups.low, groups.low_most, groups.high, groups.high_least) == (12, 200, 10, 2_000)


@pytest.mark.parametrize(
    "cached",
    [
        [0.9] * 10 + [0.0] * 9,  # 19 requests
        [0.9] * 20 + [0.0] * 4,  # first requests of conversations
        [0.9] * 12 + [0.05] * 10,  # a head in common
        [0.5] * 12 + [0.0] * 10,  # half of it is not most of it
    ],
)
def test_responses_that_do_not(cached: list[float]) -> None:
    assert shares(*cached) == []


def test_prompts_that_are_short_are_in_no_group() -> None:
    assert shares(*[0.9] * 12, *[0.0] * 10, prompt=255) == []
    assert shares(*[0.9] * 12, *[0.0] * 10, prompt=256) != []
