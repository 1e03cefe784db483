"""What a log leaves open is ranked by what its requests show, and one experiment separates the first two."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import FIXTURES
from made import request
from msgspec.structs import replace

import cachedoctor
from cachedoctor.diagnosis.differential.experiments import experiment
from cachedoctor.diagnosis.differential.kinds import ALSO, BY_NAME, KINDS, PRIOR, RULE_OF, Kind
from cachedoctor.diagnosis.differential.votes import SUREST, Vote, excluded, rank, votes
from cachedoctor.diagnosis.rules import registry
from cachedoctor.doctor.fixing import differential
from cachedoctor.model import Facts, Finding, Request, Session, Setting


def setting(value: object) -> Setting:
    return Setting(value, 1, b"")


def facts(**settings: object) -> Facts:
    return Facts(0, "x", n_slots=1, settings={name: setting(value) for name, value in settings.items()})


def chat(lengths: list[int], known: Facts, *, slots: int = 1) -> list[Request]:
    """Requests of these lengths by age of the slot, of which a template of 8 tokens is reused, and nothing is known."""
    found = []
    for at, length in enumerate(lengths):
        held = lengths[at - slots] + 5 if at >= slots else 0
        found.append(
            request(
                index=at, slot=at % slots, first_line=at + 1, last_line=at + 1, selected_by="lru", facts=known,
                prompt_tokens=length, cached_tokens=8 if held else 0, released_tokens=length + 5, held_tokens=held,
                fresh=not held,
            )
        )  # fmt: skip
    return found


def first(requests: list[Request], rotating: frozenset[int] = frozenset()) -> tuple[str, str]:
    """The kind of evidence with most tokens, and the candidate that is ranked first."""
    found = votes(requests, rotating)
    tokens = {vote.kind.name: 0 for vote in found}
    for vote in found:
        tokens[vote.kind.name] += vote.tokens
    return max(tokens, key=lambda name: tokens[name]), rank(found, excluded(requests, rotating))[0].candidate


def test_a_table_names_each_kind_once_and_every_candidate_has_a_rule() -> None:
    names = {rule.name for rule in registry.load()[0]} | {"new-conversations", "one-shot-prompts"}
    assert len(BY_NAME) == len(KINDS)
    assert set(RULE_OF) == set(PRIOR) == set(ALSO)
    assert set(RULE_OF.values()) | {name for also in ALSO.values() for name in also} <= names
    for kind in KINDS:
        assert sum(kind.share(candidate) for candidate in RULE_OF) == pytest.approx(1.0)
        assert set(kind.counts) <= set(RULE_OF)
        assert kind.counts, kind.name


def test_without_a_count_the_base_rate_is_all_that_is_known() -> None:
    nothing = Kind("nothing", "", {})
    assert {name: round(nothing.share(name), 2) for name in ("head", "slots", "none")} == {
        "head": 0.23, "slots": 0.23, "none": 0.23,
    }  # fmt: skip


def test_a_chat_that_grows_alone_and_is_not_found_has_changed_its_head() -> None:
    """300 tokens more each time, in the one slot that held the turn before: no other chat could have taken it."""
    requests = chat([2000, 2305, 2610, 2915, 3220, 3525], facts(cache_ram_mib=8192))
    assert first(requests) == ("its own slot", "head")
    assert excluded(requests) == {"slots", "steal"}
    named = {one.candidate for one in rank(votes(requests), excluded(requests))}
    assert named == set(RULE_OF) - {"slots", "steal"}


def test_chats_without_a_ram_cache_lose_their_prompts_with_the_slot() -> None:
    requests = chat([2000, 3000, 2410, 3390, 2770, 3850], facts(cache_ram_mib=0))
    assert first(requests) == ("lost with its slot", "slots")
    assert first(requests, frozenset(range(2, 6))) == ("in turn", "slots")
    assert excluded(requests) == frozenset()


def test_a_prompt_that_the_slot_kept_and_that_is_not_reused_was_asked_without_cache() -> None:
    kept = request(
        prompt_tokens=3000, cached_tokens=0, selected_by="lcp", similarity=0.9, f_keep=1.0, lost_tokens=2700,
        held_tokens=2700, facts=facts(),
    )  # fmt: skip
    assert first([kept]) == ("same prompt, nothing reused", "nocache")


def parting(growths: list[int], **fields: Any) -> list[Request]:
    """Turns of one conversation, each of which parts in the middle and is longer than the one before by so much."""
    lengths = [2000]
    for growth in growths:
        lengths.append(lengths[-1] + growth)
    found = []
    for at, length in enumerate(lengths):
        reference = lengths[at - 1] if at else 0
        known: dict[str, Any] = {
            "thread": 0, "held_thread": 0, "thread_turn": at, "reference_tokens": reference, "held_tokens": reference,
            "common_prefix_tokens": 1000, "lost_tokens": reference - 1000, "selected_by": "lcp",
        } if at else {}  # fmt: skip
        cached = 1000 if at else 0
        made = {"prompt_tokens": length, "cached_tokens": cached, "facts": facts(), **known, **(fields if at else {})}
        found.append(request(index=at, first_line=at + 1, last_line=at + 1, **made))
    return found


@pytest.mark.parametrize(
    ("growths", "kind", "cause"),
    [
        ([300, 280, 310, 290], ("rest differs, longer", "body"), "a conversation goes on after the change"),
        ([300, -280, 310, -290], ("rest differs", "none"), "one text, and other questions about it"),
        ([300, 280, 310, -290], ("rest differs, longer", "body"), "a client cuts once"),
    ],
)
def test_a_conversation_goes_on_where_each_prompt_is_longer(
    growths: list[int], kind: tuple[str, str], cause: str
) -> None:
    assert first(parting(growths)) == kind, cause


@pytest.mark.parametrize(
    ("growths", "kind"),
    [
        ([-4, 6, 2], ("one place, one length", "body")),  # a window over a long conversation
        ([-4, 6, 900, 600], ("one place", "none")),  # separate documents after one instruction
        ([-4, 6], ("one place", "none")),  # two may agree by chance
        ([190, 210, 230, 250, 270], ("one place", "none")),  # documents that come in the order of their lengths
    ],
)
def test_prompts_that_all_have_one_length_are_cut_to_it(growths: list[int], kind: tuple[str, str]) -> None:
    assert first(parting(growths, thread=None, thread_turn=0, held_thread=None)) == kind


@pytest.mark.parametrize(
    ("moves", "adds", "kind"),
    [(90, 35, ("moving place", "none")), (35, 90, ("rest differs, longer", "body"))],
    ids=["a-cursor", "a-reminder-before-new-text"],
)
def test_text_after_a_cursor_gets_shorter(moves: int, adds: int, kind: tuple[str, str]) -> None:
    """An editor asks for completions of a text that it has; before the end of a conversation comes more and more."""
    turns = parting([adds] * 7)
    for at, turn in enumerate(turns[1:], 1):
        place = 1000 + moves * at
        lost = (turn.reference_tokens or 0) - place
        turns[at] = replace(turn, common_prefix_tokens=place, cached_tokens=place, lost_tokens=lost)
    assert first(turns) == kind


@pytest.mark.parametrize(("turn", "kind"), [(0, "first prompt, RAM on"), (1, "RAM kept others")])
def test_a_first_prompt_cannot_be_in_a_ram_cache_that_works(turn: int, kind: str) -> None:
    known = facts(cache_ram_mib=8192)
    back = request(prompt_tokens=1500, cached_tokens=1490, restored_from_ram=True, facts=known, released_tokens=4000)
    new = request(
        index=1, first_line=3, last_line=4, prompt_tokens=3000, cached_tokens=8, held_tokens=1500, selected_by="lru",
        facts=known, thread=1, thread_turn=turn, held_thread=0,
    )  # fmt: skip
    assert first([back, new])[0] == kind


def test_little_that_is_telling_does_not_stand_for_all() -> None:
    """423 tokens that differ, beside first prompts of 1,500 in empty slots: most of it is fine."""
    known = facts()
    new = [
        request(
            index=at, slot=at, first_line=at + 1, last_line=at + 1, prompt_tokens=1500, cached_tokens=0, facts=known,
            fresh=True, released_tokens=1505, selected_by="lru",
        )
        for at in range(3)
    ]  # fmt: skip
    late = request(
        index=3, first_line=9, last_line=9, thread=0, thread_turn=1, held_thread=0, prompt_tokens=1800, facts=known,
        held_tokens=1505, reference_tokens=1505, common_prefix_tokens=1082, cached_tokens=1082, lost_tokens=423,
        selected_by="lcp",
    )  # fmt: skip
    assert first([*new, late]) == ("empty slot", "none")


def test_few_tokens_are_not_ranked() -> None:
    assert votes(chat([400, 500, 450], facts(cache_ram_mib=0))) == []
    assert rank([]) == []


def test_nothing_that_is_undecided_is_nearly_certain() -> None:
    """Of 1,000 situations with such evidence 999 had one cause: the others share what is left."""
    order = rank([Vote(Kind("a", "", {"slots": 999, "head": 1}), 5000)])
    assert (order[0].candidate, order[0].likelihood) == ("slots", SUREST)
    assert sum(one.likelihood for one in order) == pytest.approx(1.0)
    assert order[1].likelihood > order[2].likelihood > 0


def test_tokens_decide_not_requests() -> None:
    """Three requests of 500 tokens against one of 9,000."""
    small, large = BY_NAME["empty slot"], BY_NAME["lost with its slot"]
    order = rank([Vote(small, 500), Vote(small, 500), Vote(small, 500), Vote(large, 9000)])
    assert (order[0].candidate, order[1].candidate) == ("slots", "none")
    assert [(one.requests, one.tokens) for one in order[0].speaks_for] == [(1, 9000)]
    assert [(one.requests, one.tokens) for one in order[0].speaks_against] == [(3, 1500)]
    assert sum(one.likelihood for one in order) == pytest.approx(1.0)


# ---- the experiment


def session(build: int = 11549, **settings: object) -> Session:
    found = Session(0, "x", build=build, n_slots=1, n_ctx_slot=4096)
    found.settings = {name: setting(value) for name, value in settings.items()}
    return found


def test_the_experiment_is_the_fix_where_the_ram_cache_is_off() -> None:
    (test,) = experiment("slots", "head", session(cache_ram_mib=0))
    assert (test.commands, test.purpose) == (["--cache-ram 8192"], "look")
    assert experiment("head", "slots", session(cache_ram_mib=0)) == [test], "in either order"


def test_with_a_ram_cache_one_chat_alone_tells_without_a_restart() -> None:
    test, then = experiment("slots", "head", session(cache_ram_mib=8192))
    assert test.commands == []
    assert "No restart is needed" in test.text
    assert (then.commands, then.purpose) == (["--parallel 2 --ctx-size 8192"], "depends")


def test_prompts_are_written_to_files_only_where_nothing_cheaper_tells() -> None:
    assert experiment("head", "none", session())[0].commands == ["--verbosity 4 --log-prompts-dir prompts"]
    assert experiment("nocache", "head", session())[0].commands == []
    assert "cache_prompt" in experiment("nocache", "head", session())[0].text


def test_advice_that_was_followed_is_not_repeated() -> None:
    from cachedoctor.diagnosis.rules import advice

    traced = session()
    traced.shows = frozenset({"accounting"})
    assert advice.see_more(traced).commands == ["--log-prompts-dir prompts"]
    old = session(8672, slots_debug=1)
    old.shows = frozenset({"accounting"})
    assert advice.see_more(old).commands == ["cachedoctor analyze server.log --requests bodies.jsonl"]
    written = session()
    written.shows, written.cmdline = frozenset({"accounting"}), "llama-server -m x --log-prompts-dir prompts"
    assert advice.see_more(written).commands == ["cachedoctor analyze server.log --prompts prompts"]


# ---- a report


def undecided(name: str) -> Finding:
    report = cachedoctor.analyze(FIXTURES / name / "server.log", build=11549)
    return next(one for one in report.findings if one.code in ("CD901", "CD904"))


def test_a_finding_names_its_candidates_with_likelihoods_the_first_first() -> None:
    """A chat and infill requests in one slot: they come in turn, which fits a slot taken better than new prompts."""
    found = undecided("days/dense-infill_between-b11549-default")
    ranked = [one for one in found.still_possible if one.likelihood is not None]
    likelihoods = [one.likelihood or 0.0 for one in ranked]
    assert [one.name for one in ranked[:2]] == ["slot-contention", "one-shot-prompts"]
    assert likelihoods == sorted(likelihoods, reverse=True)
    assert all("% likely" in one.why for one in ranked[:2])
    assert "two chats alternate in one slot" in ranked[0].why
    assert "tokens not reused)" in ranked[0].why
    assert found.remedies[0].text.startswith("Run three turns of a single conversation")


def test_two_candidates_that_are_nearly_equal_are_called_so() -> None:
    """A tenth more tokens speak for a changed head than for a slot that was taken; then three times as many."""
    head, slots = Kind("a", "the head differs", {"head": 5}), Kind("b", "the slot was taken", {"slots": 5})
    for tokens, equal in ((1100, True), (3000, False)):
        order = rank([Vote(head, tokens), Vote(slots, 1000)])
        said = [differential._candidate(one, at, order, set()).why for at, one in enumerate(order[:2])]
        words = ["not clearly more likely than", "not clearly less likely than"]
        assert [word in why for word, why in zip(words, said, strict=True)] == [equal, equal]


def test_what_a_small_ram_cache_may_have_evicted_may_have_lost_its_slot() -> None:
    found = undecided("days/dense-eight_auto_ram_small-b11549-default")
    first = found.still_possible[0]
    assert first.name == "slot-held-other-prompt"
    assert 0.3 <= (first.likelihood or 0.0) <= 0.5, "one situation alone was counted"


def test_every_format_shows_the_likelihoods() -> None:
    import command

    log = FIXTURES / "days/dense-infill_between-b11549-default/server.log"
    found = undecided("days/dense-infill_between-b11549-default")
    one = found.still_possible[0]
    percent = f"{100 * (one.likelihood or 0):.0f} %"
    text, markdown, page, as_json = (
        command.run("analyze", log, "--build", "11549", "-f", form).stdout.decode()
        for form in ("text", "markdown", "html", "json")
    )
    assert f"{one.name} {percent}" in " ".join(text.split())
    assert f"{percent} likely" in markdown
    assert f"{percent} likely" in page
    finding = next(f for f in json.loads(as_json)["findings"] if f["code"] == found.code)
    assert finding["still_possible"][0]["likelihood"] == one.likelihood


def test_a_cause_named_by_another_finding_of_a_request_is_not_a_candidate() -> None:
    """The client changed the history; that leaves the memory for what was lost before that place."""
    beside = Finding(**blank("CD105", "history-rewritten", [1, 2]))
    undecided = Finding(**blank("CD901", "log-too-terse", [2, 3]))
    other = Finding(**blank("CD302", "slot-contention", [7]))
    assert differential._named_beside(undecided, [beside, undecided, other]) == {"body"}


def blank(code: str, name: str, requests: list[int]) -> dict[str, Any]:
    known = {"code": code, "name": name, "requests": requests, "ruled_out": [], "still_possible": []}
    return dict.fromkeys(Finding.__struct_fields__) | known
