"""The account: every prompt token in one row, the rows add up, nobody is blamed for what lengths alone say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made
import pytest
from conftest import CASES, content_of, given_of, json_of, prompts_of
from hypothesis import given
from hypothesis import strategies as st

from cachedoctor.diagnosis.account.from_numbers import place, rows_of
from cachedoctor.diagnosis.account.ledger import Ledger
from cachedoctor.model import Dropped, Judged, Mark, Request, Verdict

COUNT = st.none() | st.integers(0, 5000)
START = {"start": Mark(1, b"start")}


def turn(**fields: Any) -> Request:
    """The second turn of a conversation whose first left 2,000 tokens in the slot."""
    known: dict[str, Any] = {
        "prompt_tokens": 2300, "cached_tokens": 2000, "thread": 0, "thread_turn": 1, "held_thread": 0,
        "reference_tokens": 2000, "lost_tokens": 0, "common_prefix_tokens": 2000, "outcome": "reused",
    }  # fmt: skip
    return made.request(**{"marks": START, **known, **fields})


def rows(request: Request, *codes: str, **verdict: Any) -> dict[str, int]:
    return {row: tokens for row, _, tokens in rows_of(place(Judged(request, Verdict(codes, **verdict))))}


# ---- a request


def test_a_turn_that_only_continues() -> None:
    assert rows(turn()) == {"reused": 2000, "new": 300}


def test_after_what_the_client_changed() -> None:
    """58 tokens match: 1,942 of the turn before come after the change, 300 are new."""
    changed = turn(cached_tokens=58, common_prefix_tokens=58, lost_tokens=1942, outcome="reprocessed")
    assert rows(changed, "CD101", avoidable_tokens=1942) == {"reused": 58, "new": 300, "client": 1942}


def test_a_prompt_shorter_than_the_one_before() -> None:
    """Of the 2,000 tokens before no more than 1,500 could be asked for again."""
    cut = turn(prompt_tokens=1500, cached_tokens=58, common_prefix_tokens=58, lost_tokens=1942, outcome="reprocessed")
    assert rows(cut, "CD101", avoidable_tokens=1442) == {"reused": 58, "client": 1442}
    assert rows(turn(prompt_tokens=1500, cached_tokens=9, held_thread=1)) == {"reused": 9, "undecided": 1491}


def test_a_prompt_that_ends_within_the_one_before_changed_nothing() -> None:
    """Its last tokens end otherwise, as the opening of a reply does."""
    begun = turn(prompt_tokens=1500, cached_tokens=0, common_prefix_tokens=1497, lost_tokens=2000)
    assert rows(begun, "CD202") == {"new": 3, "server": 1497}


def test_a_single_edit_may_be_a_new_conversation() -> None:
    """The rule gives it no cost, as long as it does not happen again."""
    changed = turn(cached_tokens=58, common_prefix_tokens=58, lost_tokens=1942, outcome="reprocessed")
    assert rows(changed, "CD105") == {"reused": 58, "new": 300, "undecided": 1942}
    assert rows(changed, "CD105", avoidable_tokens=1942) == {"reused": 58, "new": 300, "client": 1942}


def test_the_same_numbers_without_a_cause_blame_nobody() -> None:
    """Lengths say that it may continue what the slot held; that the client changed it, they do not."""
    changed = turn(cached_tokens=58, common_prefix_tokens=58, lost_tokens=1942, outcome="reprocessed")
    assert rows(changed) == {"reused": 58, "new": 300, "undecided": 1942}


def test_a_prefix_that_the_server_did_not_give_back() -> None:
    lost = turn(cached_tokens=0, lost_tokens=2000, outcome="reprocessed")
    assert rows_of(place(Judged(lost, Verdict(("CD202",))))) == [("new", None, 300), ("server", "CD202", 2000)]


def test_each_side_has_a_cause_of_its_own() -> None:
    """58 tokens match, of which the server gave back 30; what only says that the log lacks something is not a cause."""
    both = turn(cached_tokens=30, common_prefix_tokens=58, lost_tokens=1970, outcome="reprocessed")
    for codes in (("CD202", "CD101"), ("CD901", "CD101", "CD202")):
        assert rows_of(place(Judged(both, Verdict(codes, avoidable_tokens=1970)))) == [
            ("reused", None, 30), ("new", None, 300),
            ("client", "CD101", 1942), ("server", "CD202", 28),
        ]  # fmt: skip
    lost = turn(cached_tokens=0, lost_tokens=2000, outcome="reprocessed")
    assert rows_of(place(Judged(lost, Verdict(("CD901",))))) == [("new", None, 300), ("server", None, 2000)]


def test_what_the_build_had_to_reuse_is_unexplained() -> None:
    lost = turn(cached_tokens=0, lost_tokens=2000, outcome="reprocessed")
    found = rows(lost, "CD202", expected_cached=1500)
    assert found == {"new": 300, "server": 500, "unexplained": 1500}
    less = turn(cached_tokens=0, common_prefix_tokens=1500, lost_tokens=2000, outcome="reprocessed")
    found = rows(less, "CD202", expected_cached=1900)
    assert found == {"new": 300, "undecided": 500, "unexplained": 1500}, "no more than the server lost"


def test_a_slot_that_another_conversation_held() -> None:
    """What the slot held says nothing of the client; where no cause was found, nobody lost it."""
    taken = turn(cached_tokens=9, common_prefix_tokens=9, held_thread=1, lost_tokens=1991, outcome="reprocessed")
    assert rows(taken) == {"reused": 9, "new": 300, "undecided": 1991}
    assert rows(taken, "CD302", slot_lost=True) == {"reused": 9, "new": 300, "server": 1991}


def test_a_cause_of_the_server_takes_of_what_is_open_what_it_cost() -> None:
    unknown = turn(cached_tokens=9, common_prefix_tokens=None, lost_tokens=1991, outcome="reprocessed")
    assert rows(unknown, "CD302", avoidable_tokens=1500) == {"reused": 9, "new": 300, "server": 1500, "undecided": 491}
    assert rows(unknown, "CD302", avoidable_tokens=5000) == {"reused": 9, "new": 300, "server": 1991}
    assert rows(unknown, "CD302", "CD101", avoidable_tokens=1500) == {"reused": 9, "new": 300, "undecided": 1991}


def test_a_cause_of_the_client_takes_of_what_is_open_what_it_cost_unless_it_is_a_guess() -> None:
    """The text of the header shows that it changed, though the log does not print where the prompts diverge."""
    unknown = turn(cached_tokens=9, common_prefix_tokens=None, lost_tokens=1991, outcome="reprocessed")
    assert rows(unknown, "CD101", avoidable_tokens=1500) == {"reused": 9, "new": 300, "client": 1500, "undecided": 491}
    assert rows(unknown, "CD101", avoidable_tokens=5000) == {"reused": 9, "new": 300, "client": 1991}
    open_ = {"reused": 9, "new": 300, "undecided": 1991}
    assert rows(unknown, "CD108", avoidable_tokens=1991, guessed=True) == open_
    assert rows(unknown, "CD108", avoidable_tokens=1991, undecided=True) == open_


def test_what_a_rule_of_the_client_leaves_open_is_undecided_beside_a_cause_of_the_server() -> None:
    """The memory could not go back, which is certain; that the client changed its prompt is not."""
    changed = turn(cached_tokens=0, common_prefix_tokens=500, lost_tokens=2000, outcome="reprocessed")
    decided = rows(changed, "CD108", "CD201", avoidable_tokens=2000)
    assert decided == {"new": 300, "client": 1500, "server": 500}
    left_open = rows(changed, "CD108", "CD201", avoidable_tokens=500, left_open=("CD108",))
    assert left_open == {"new": 300, "undecided": 1500, "server": 500}


def test_the_copy_in_the_ram_cache_tells_who_changed_what() -> None:
    """1,500 tokens of it are in the prompt; or 5, where the 9 that were reused are another conversation's."""
    taken: dict[str, Any] = {"cached_tokens": 9, "common_prefix_tokens": 9, "held_thread": 1, "lost_tokens": 1991}
    assert rows(turn(**taken, reference_lcp=1500)) == {"reused": 9, "new": 300, "client": 500, "server": 1491}
    assert rows(turn(**taken, reference_lcp=5)) == {"reused": 9, "new": 300, "client": 1991}


def test_a_slot_whose_content_came_back_from_ram_was_not_taken() -> None:
    back = turn(cached_tokens=58, common_prefix_tokens=58, held_thread=1, lost_tokens=1942, restored_from_ram=True)
    assert rows(back, "CD101", avoidable_tokens=1942) == {"reused": 58, "new": 300, "client": 1942}
    assert rows(back, "CD302", slot_lost=True) == {"reused": 58, "new": 300, "undecided": 1942}


def test_a_request_that_failed_lost_nothing() -> None:
    failed = turn(cached_tokens=0, lost_tokens=2000, outcome="failed", error="too long")
    assert rows(failed, "CD401") == {"new": 2300}


def test_the_last_tokens_are_rounding() -> None:
    assert rows(turn(cached_tokens=1990, lost_tokens=10)) == {"reused": 1990, "new": 300, "rounding": 10}


def test_what_lies_after_the_checkpoint_that_was_restored_is_rounding() -> None:
    """Memory of an agent whose notes change after token 1,663: the server goes back to 1,193, and nobody is to blame
    for the 470 tokens between."""
    back = {"prompt_tokens": 3744, "reference_tokens": 3342, "common_prefix_tokens": 1663, "cached_tokens": 1193,
            "lost_tokens": 2149, "lost_client": 1679, "lost_server": 470, "outcome": "partial"}  # fmt: skip
    found = {"reused": 1193, "new": 402, "client": 1679}
    said = {"avoidable_tokens": 1679}
    assert rows(turn(**back, restored_at=(1192, 1192)), "CD105", **said) == {**found, "rounding": 470}
    for other in (
        {"restored_at": None},  # no line shows what was restored
        {"restored_at": (991, 991)},  # it ends before what was reused
        {"restored_at": (1192, 1192), "forced": True},
        {"restored_at": (1192, 1192), "dropped": Dropped(1600, 1599, 1599, None, 32, False, False, 1, b"x")},
    ):
        assert rows(turn(**back, **other), "CD105", **said) == {**found, "server": 470}
    assert rows(turn(**back, restored_at=(1192, 1192)), "CD105", "CD203", **said) == {**found, "server": 470}
    other = {**back, "held_thread": 1, "text_lcp": 2100, "restored_at": (1192, 1192)}  # the slot held another's text
    assert rows(turn(**other), "CD105", **said) == {
        "reused": 1193,
        "new": 402,
        "client": 1242,
        "rounding": 470,
        "server": 437,
    }
    far = {**back, "cached_tokens": 700, "lost_tokens": 2642, "lost_server": 963}
    assert rows(turn(**far, restored_at=(699, 699)), "CD105", **said) == {**found, "reused": 700, "server": 963}


def test_what_came_back_from_ram_is_the_conversation_itself() -> None:
    """The slot had held another one's text; the copy that came back shares all of the turn before."""
    back = {"cached_tokens": 1500, "held_thread": 1, "lost_tokens": 500, "outcome": "partial"}
    assert rows(turn(**back, restored_from_ram=True)) == {"reused": 1500, "new": 300, "server": 500}
    assert rows(turn(**back, restored_from_ram=False)) == {"reused": 1500, "new": 300, "undecided": 500}


def test_a_first_prompt_is_new() -> None:
    first = turn(cached_tokens=8, thread_turn=0, held_thread=1, outcome="cold", lost_tokens=None)
    assert rows(first) == {"reused": 8, "new": 2292}


def test_a_first_prompt_that_may_continue_another_conversation() -> None:
    first = turn(cached_tokens=8, thread_turn=0, held_thread=1, outcome="cold", lost_tokens=None, other_candidates=2)
    assert rows(first) == {"reused": 8, "undecided": 2292}


def test_texts_decide() -> None:
    """All of the turn before is in the prompt: the server lost what it did not reuse, whoever held the slot."""
    lost = turn(
        cached_tokens=8, common_prefix_tokens=8, held_thread=1, lost_tokens=1992, outcome="reprocessed", text_lcp=2000
    )
    assert rows(lost) == {"reused": 8, "new": 300, "server": 1992}
    changed = turn(
        cached_tokens=8, common_prefix_tokens=8, held_thread=1, lost_tokens=1992, outcome="reprocessed", text_lcp=8
    )
    assert rows(changed, "CD102", avoidable_tokens=1992) == {"reused": 8, "new": 300, "client": 1992}


def test_a_reply_that_was_sent_in_other_words_is_new() -> None:
    """The bodies only grew; they do not have what the server wrote. Its slot shows that 240 tokens are gone: how many
    of them were sent again, nothing says."""
    edited = turn(cached_tokens=1760, common_prefix_tokens=1760, lost_tokens=240, outcome="partial", text_lcp=2000)
    assert rows(edited, "CD105") == {"reused": 1760, "new": 540}
    assert rows(edited) == {"reused": 1760, "new": 300, "server": 240}


def test_a_first_prompt_like_what_the_slot_held() -> None:
    """It may be a new conversation with the same head, or the same one of which the client dropped the oldest part."""
    alike: dict[str, Any] = {
        "thread_turn": 0, "held_thread": 1, "outcome": "cold", "prompt_tokens": 2350, "held_tokens": 2355,
        "cached_tokens": 1023, "common_prefix_tokens": 1023, "reference_tokens": 2355, "lost_tokens": None,
    }  # fmt: skip
    assert rows(turn(**alike)) == {"reused": 1023, "undecided": 1327}
    assert rows(turn(**alike, text_lcp=0)) == {"reused": 1023, "new": 1327}  # its text says that it is new
    grown = {**alike, "held_tokens": 2200}
    assert rows(turn(**{**grown, "cached_tokens": 587, "common_prefix_tokens": 587})) == {"reused": 587, "new": 1763}
    little = rows(turn(**{**grown, "cached_tokens": 588, "common_prefix_tokens": 588}))
    assert little == {"reused": 588, "new": 150, "undecided": 1612}  # a quarter of the prompt is 587.5
    behind_a_reply = rows(turn(**{**alike, "prompt_tokens": 2125}))
    assert behind_a_reply == {"reused": 1023, "undecided": 1102}  # 1.1 x (2,125 + 16) is 2,355.1
    assert rows(turn(**{**alike, "prompt_tokens": 2124})) == {"reused": 1023, "new": 1101}
    assert rows(turn(**{**alike, "prompt_tokens": 1500})) == {"reused": 1023, "new": 477}  # shorter
    assert rows(turn(**{**alike, "prompt_tokens": 5000})) == {"reused": 1023, "new": 3977}  # much longer


def test_a_first_prompt_as_long_as_what_the_slot_held() -> None:
    """A client that cuts its history keeps the system prompt alone; separate prompts share no more than a few words."""
    level: dict[str, Any] = {
        "thread_turn": 0, "held_thread": 1, "outcome": "cold", "prompt_tokens": 2350, "held_tokens": 2355,
        "cached_tokens": 65, "common_prefix_tokens": 65, "reference_tokens": 2355, "lost_tokens": None,
    }  # fmt: skip
    assert rows(turn(**level)) == {"reused": 65, "undecided": 2285}
    assert rows(turn(**{**level, "cached_tokens": 64, "common_prefix_tokens": 64})) == {"reused": 64, "new": 2286}
    assert rows(turn(**{**level, "held_tokens": 2260})) == {"reused": 65, "new": 90, "undecided": 2195}
    assert rows(turn(**{**level, "held_tokens": 2258})) == {"reused": 65, "new": 2285}  # 1.04 x 2,274 is 2,365.0


def test_what_several_requests_computed_at_once() -> None:
    """Of the 2,622 tokens of others, what was reused was not computed."""
    burst: dict[str, Any] = {
        "thread_turn": 0, "held_thread": None, "outcome": "cold", "prompt_tokens": 2820, "cached_tokens": 0,
        "reference_tokens": 0, "common_prefix_tokens": None, "lost_tokens": None, "text_lcp": 0,
        "together_tokens": 2622,
    }  # fmt: skip
    assert rows_of(place(Judged(turn(**burst), Verdict(("CD312",))))) == [
        ("new", None, 198), ("together", "CD312", 2622),
    ]  # fmt: skip
    assert rows(turn(**{**burst, "cached_tokens": 1000})) == {"reused": 1000, "new": 198, "together": 1622}
    assert rows(turn(**{**burst, "cached_tokens": 2700})) == {"reused": 2700, "new": 120}
    assert rows(turn(**{**burst, "prompt_tokens": 2000})) == {"together": 2000}


def test_what_was_computed_at_once_is_lost_by_nobody_else() -> None:
    """A draft beside another one: of 2,000 tokens of the turn before, 1,500 were being computed for the other."""
    draft = {"cached_tokens": 100, "text_lcp": 2000, "lost_tokens": 1900, "outcome": "partial"}
    assert rows(turn(**draft, together_tokens=1600)) == {"reused": 100, "new": 300, "server": 400, "together": 1500}
    assert rows(turn(**draft, together_tokens=2100)) == {"reused": 100, "new": 200, "together": 2000}


def test_a_child_has_no_prompt_of_its_own() -> None:
    assert rows(turn(parent=3)) == {}


def test_a_few_undecided_tokens_are_rounding() -> None:
    assert rows(turn(cached_tokens=1990, common_prefix_tokens=None, lost_tokens=10)) == {
        "reused": 1990, "new": 300, "rounding": 10,
    }  # fmt: skip


def test_what_is_lost_without_a_cause() -> None:
    """A server's loss that a rule names is not a loss without a cause, though only another side's rule named it."""
    lost = turn(cached_tokens=0, lost_tokens=2000, outcome="reprocessed")
    ledger = Ledger()
    for codes in ((), ("CD901",), ("CD111",), ("CD202",)):
        ledger.add(Judged(lost, Verdict(codes, named=codes in {("CD111",), ("CD202",)})))
    found = ledger.undecided(lost.session)
    assert found is not None
    assert (found.lost, found.tokens) == (4000, 0)
    ledger.add(Judged(lost, Verdict(())), -1)
    again = ledger.undecided(lost.session)
    assert again is not None
    assert again.lost == 2000


def test_a_request_that_wished_for_no_cache() -> None:
    wished = turn(cached_tokens=0, lost_tokens=2000, outcome="reprocessed")
    assert rows(wished, "CD109", avoidable_tokens=2000) == {"new": 300, "client": 2000}


@pytest.mark.parametrize("missing", ["prompt_tokens", "cached_tokens"])
def test_what_is_not_known_is_not_placed(missing: str) -> None:
    assert place(Judged(turn(**{missing: None}))) is None


@given(
    prompt=COUNT, cached=COUNT, reference=COUNT, prefix=COUNT, text=COUNT, expected=COUNT, copy=COUNT,
    avoidable=st.integers(0, 9000),
    held=st.sampled_from([None, 0, 1]), number=st.integers(0, 2), others=st.integers(0, 2),
    outcome=st.sampled_from(["cold", "reused", "partial", "reprocessed", "cancelled", "failed", "unknown"]),
    together=st.integers(0, 5000), shared=COUNT,
    codes=st.lists(st.sampled_from(["CD101", "CD105", "CD109", "CD202", "CD302", "CD901"]), unique=True),
)  # fmt: skip
def test_the_rows_add_up(
    prompt: int | None, cached: int | None, reference: int | None, prefix: int | None, text: int | None,
    expected: int | None, copy: int | None, avoidable: int, held: int | None, number: int, others: int, outcome: Any,
    together: int, shared: int | None, codes: list[str],
) -> None:  # fmt: skip
    """Whatever the numbers, also those that contradict each other."""
    request = turn(
        prompt_tokens=prompt, cached_tokens=cached, reference_tokens=reference, common_prefix_tokens=prefix,
        text_lcp=text, held_thread=held, thread_turn=number, other_candidates=others, outcome=outcome,
        together_tokens=together, held_tokens=shared,
        reference_lcp=copy,
    )  # fmt: skip
    placed = rows_of(place(Judged(request, Verdict(tuple(codes), expected, (), avoidable))))
    if prompt is None or cached is None or cached > prompt:
        assert placed == []
    else:
        assert sum(tokens for _, _, tokens in placed) == prompt
        assert all(tokens > 0 for _, _, tokens in placed)
        assert len({(row, code) for row, code, _ in placed}) == len(placed)


# ---- sums


def test_a_request_that_is_judged_again_takes_the_place_of_what_it_was() -> None:
    ledger, first = Ledger(), Judged(turn(cached_tokens=0, outcome="cold", thread_turn=0, other_candidates=1))
    ledger.add(first)
    ledger.add(first, -1)
    ledger.add(Judged(turn()))
    whole = ledger.accounts({})[0]
    assert (whole.requests, whole.prompt_tokens) == (1, 2300)
    assert {entry.row: entry.tokens for entry in whole.entries} == {"reused": 2000, "new": 300}


def test_two_parts_of_a_log_add_up_to_the_whole() -> None:
    judged = [Judged(turn()), Judged(turn(cached_tokens=0, outcome="cold", thread_turn=0, other_candidates=1))]
    whole, part, rest = Ledger(), Ledger(), Ledger()
    for ledger, some in ((whole, judged), (part, judged[:1]), (rest, judged[1:])):
        for one in some:
            ledger.add(one)
    part.merge(rest, 1, 0)
    assert part.accounts({}) == whole.accounts({})
    assert part.undecided(0) == whole.undecided(0)


def lost(tokens: int, **fields: Any) -> Request:
    """A turn of 2,300 tokens that lost so many of 2,000 in a slot that another conversation held."""
    return turn(**{"cached_tokens": 2000 - tokens, "held_thread": 1, "lost_tokens": tokens, **fields})


def test_the_worst_request_is_the_one_with_most_that_nothing_explains() -> None:
    ledger = Ledger()
    for index, tokens in enumerate((100, 1900, 500)):
        ledger.add(Judged(lost(tokens, index=index, marks={"start": Mark(index + 1, b"start")})))
    ledger.add(Judged(turn(index=3, cached_tokens=0, lost_tokens=2000), Verdict(("CD202",), named=True)))
    found = ledger.undecided(0)
    assert found is not None
    assert (found.requests, found.tokens, found.worst.line) == (3, 2500, 2)
    (open_,) = (entry for entry in ledger.accounts({})[0].entries if entry.row == "undecided")
    assert (open_.requests, open_.tokens) == (3, 2500)


def test_what_a_rule_names_is_not_open() -> None:
    ledger = Ledger()
    ledger.add(Judged(turn(cached_tokens=0, lost_tokens=2000), Verdict(("CD202",), named=True)))
    assert ledger.undecided(0) is None


def test_a_later_part_has_later_sessions_and_requests() -> None:
    part, rest = Ledger(), Ledger()
    part.add(Judged(lost(100, index=4)))
    rest.add(Judged(lost(900, index=1)))
    part.merge(rest, 5, 2)
    worst = {session: server.worst for session, server in part.servers.items()}
    assert {session: found and (found.tokens, found.request) for session, found in worst.items()} == {
        0: (100, 4),
        2: (900, 6),
    }
    assert [account.session for account in part.accounts({}) if account.scope == "server"] == [0, 2]


def test_the_conversations_that_computed_most_again_are_listed() -> None:
    """Of 70 that lost 101 to 170 tokens; one with a long new prompt lost none."""
    ledger = Ledger()
    ledger.add(Judged(turn(thread=99, held_thread=99, prompt_tokens=9000)))
    for number in range(70):
        ledger.add(Judged(lost(101 + number, thread=number, held_thread=98)))
    listed = [account for account in ledger.accounts({}) if account.scope == "conversation"]
    assert [account.thread for account in listed] == [*range(69, 5, -1)]


def test_clients_are_counted_when_requests_are_final() -> None:
    """Those that are not are counted beside them, each time again."""
    ledger, one, other = Ledger(), Judged(turn(client="10.0.0.1")), Judged(turn(client="10.0.0.2"))
    ledger.add(one)
    assert [account.client for account in ledger.accounts({})] == [None, None, None]
    ledger.add_client(one, place(one))
    recent = [(one, place(one)), (other, place(other))]
    for _ in range(2):
        found = [account for account in ledger.accounts({}, recent) if account.scope == "client"]
        assert sorted((account.client, account.requests) for account in found) == [("10.0.0.1", 2), ("10.0.0.2", 1)]
    assert [a.requests for a in ledger.accounts({}) if a.scope == "client"] == [1]


@pytest.mark.sample(4)
@pytest.mark.spread(9)
@pytest.mark.parametrize("case", CASES, ids=lambda folder: folder.name)
def test_the_account_of_a_case(case: Path) -> None:
    """The whole log's rows are those of its servers together, and hold all tokens of the totals."""
    report = json.loads(json_of([content_of(case)], prompts=prompts_of(case), given=given_of(case)))
    whole, *others = report["accounts"] or [None]
    if whole is None:
        assert report["totals"]["requests"] == 0
        return
    assert whole["scope"] == "log"
    assert whole["prompt_tokens"] == report["totals"]["prompt_tokens"]
    assert sum(e["tokens"] for e in whole["entries"] if e["row"] == "reused") == report["totals"]["cached_tokens"]
    assert whole["requests"] + whole["not_placed"] == report["totals"]["requests"]
    servers = [account for account in others if account["scope"] == "server"]
    for row in {entry["row"] for entry in whole["entries"]}:
        of_servers = sum(e["tokens"] for account in servers for e in account["entries"] if e["row"] == row)
        assert of_servers == sum(e["tokens"] for e in whole["entries"] if e["row"] == row)
    for account in report["accounts"]:
        assert sum(entry["tokens"] for entry in account["entries"]) == account["prompt_tokens"]
