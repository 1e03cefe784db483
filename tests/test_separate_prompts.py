"""Separate prompts behind one instruction, which only their lengths make turns of a conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made
import pytest
from conftest import FIXTURES
from prompt_forms import body

import cachedoctor
from cachedoctor.diagnosis.rules import lengths as forms
from cachedoctor.diagnosis.rules.client import cd105_history_rewritten as cd105
from cachedoctor.diagnosis.rules.client import cd108_prefix_diverges_early as cd108
from cachedoctor.diagnosis.rules.input import cd901_log_too_terse as cd901
from cachedoctor.diagnosis.rules.kit import Match, RuleContext
from cachedoctor.diagnosis.rules.replaying import Setup
from cachedoctor.diagnosis.rules.slots import cd308_shared_prefix_steal as cd308
from cachedoctor.diagnosis.rules.slots import taken
from cachedoctor.doctor.findings import groups
from cachedoctor.doctor.findings.history import FindingHistory
from cachedoctor.model import Facts, First, Judged, Mark, PromptDiff, Report, Request, Setting, Side, Verdict
from cachedoctor.prompts import separate_prompts
from cachedoctor.prompts.compare_prompts import DiffOptions, compare
from cachedoctor.prompts.model_files import ModelFiles

INSTRUCTION = 276
RAM_ON = {"cache_ram_mib": Setting(8192, 1)}


def turn(index: int, **fields: Any) -> Request:
    plain = {"thread": 0, "held_thread": 0, "thread_turn": index, "prompt_tokens": 1500 + 200 * index}
    return made.request(index=index, **{**plain, **fields})


def context(request: Request, *history: Request, before: Request | None = None, **more: Any) -> RuleContext:
    settings, threads = more.get("settings", RAM_ON), more.get("threads", 1)
    facts = Facts(0, "log", build=11549, settings=settings)
    judged = [Judged(one, Verdict(())) for one in history]
    return RuleContext(request, Setup(facts), judged, before, threads, 1)


@pytest.mark.parametrize(
    ("listed", "separate"),
    [
        ([(1505, INSTRUCTION), (1367, INSTRUCTION), (3459, 8)], True),
        ([(1505, INSTRUCTION), (1367, 8), (3459, 8)], False),
        ([(1505, 8), (1367, 8)], False),
    ],
)
def test_prompts_of_others_that_share_as_much_follow_one_instruction(
    listed: list[tuple[int, int]], separate: bool
) -> None:
    """What alone shares more than the others is this conversation's; a frame is common to all."""
    last = turn(0, released_tokens=1505)
    request = turn(1, reference_tokens=1505, reference_lcp=listed[0][1], common_prefix_tokens=8)
    request.seen.choice.candidates = listed
    assert cd108._others_share(context(request, last)) is separate


@pytest.mark.parametrize(("shared", "separate"), [(249, True), (120, False)])
def test_another_first_prompt_that_parts_at_the_same_place_is_a_form(shared: int, separate: bool) -> None:
    other = turn(1, thread=1, thread_turn=0, common_prefix_tokens=shared)
    request = turn(2, common_prefix_tokens=249, reference_tokens=1505)
    assert cd108._others_share(context(request, turn(0), before=other)) is separate


@pytest.mark.parametrize(
    ("outcome", "settings", "pinned", "chance"),
    [
        ("reused", RAM_ON, False, True),
        ("reprocessed", RAM_ON, False, False),
        ("reused", {"cache_ram_mib": Setting(0, 1)}, False, False),
        ("reused", RAM_ON, True, False),
    ],
)
def test_a_slot_lost_once_though_ram_keeps_all_may_be_chance(
    outcome: str, settings: dict[str, Setting], pinned: bool, chance: bool
) -> None:
    """The RAM cache would have brought it back; it is not asked for a slot that a request names."""
    request = turn(1, reference_tokens=1505, cached_tokens=0, selected_by="id" if pinned else "lru")
    assert taken._by_chance(context(request, turn(0, outcome=outcome), settings=settings)) is chance


@pytest.mark.parametrize(("held", "chance"), [(0, False), (2, True)])
def test_only_who_took_the_slot_from_this_conversation_left_it_without_a_copy(held: int, chance: bool) -> None:
    """What takes a slot without timings, as embeddings do, saves nothing; it had been taken from another one before."""
    request = turn(1, reference_tokens=1505, cached_tokens=0, selected_by="lru")
    last = turn(0, thread=3, thread_turn=0, held_thread=held, processed_tokens=None)
    assert taken._by_chance(context(request, turn(0, outcome="reused"), before=last)) is chance


def test_what_kept_half_of_a_slot_did_not_save_it() -> None:
    request = turn(1, reference_tokens=1505, cached_tokens=866, common_prefix_tokens=866)
    assert not taken._by_chance(context(request, turn(0, outcome="reused")))


@pytest.mark.parametrize(
    ("outcome", "threads", "severity"), [("partial", 12, "note"), ("reused", 12, None), ("partial", 1, None)]
)
def test_sessions_that_never_continued_may_be_separate_prompts(
    outcome: str, threads: int, severity: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cd308, "other_held", lambda s: True)
    request = turn(
        1, reference_tokens=1135, cached_tokens=860, common_prefix_tokens=866, outcome="partial", lost_tokens=275,
        f_keep=0.67, selected_by="lcp",
    )  # fmt: skip
    match = cd308.decide(context(request, turn(0, outcome=outcome), threads=threads))
    assert match is not None
    assert match.severity == severity


@pytest.mark.parametrize(("shared", "held", "another"), [(8, 1505, True), (700, 1505, False), (8, 1367, False)])
def test_what_shares_less_than_the_slot_kept_of_a_conversation_is_another(
    shared: int, held: int, another: bool
) -> None:
    """Two begin alike, and the second kept that much of the first: who continues the first shares it as well."""
    thief = turn(1, thread=1, thread_turn=0, held_thread=0, held_tokens=held, common_prefix_tokens=700)
    request = turn(2, reference_tokens=1505, held_thread=1, common_prefix_tokens=shared)
    assert taken._shares_less(context(request, turn(0), before=thief)) is another


class AtWork:
    """What other slots served, by the number of the request that was at work meanwhile."""

    returns = False
    doubts = strict = files = False
    in_turn = True

    def __init__(self, **beside: Request) -> None:
        self._beside = beside

    def beside(self, request: Request) -> list[Request]:
        found = self._beside.get(f"at{request.index}")
        return [] if found is None else [found]

    def ended_at(self, length: int, slack: int, before: int) -> bool:
        return False

    def is_settled(self, thread: int | None, code: str) -> bool:
        return False


def remembering(remembered: AtWork, request: Request, *history: Request, **more: Any) -> RuleContext:
    judged = [Judged(one, Verdict(())) for one in history]
    return RuleContext(request, Setup(Facts(0, "log", build=11549, settings=RAM_ON)), judged, None, 3, 1, **more,
                       remembered=remembered)  # fmt: skip


@pytest.mark.parametrize(("at", "length", "drafts"), [(1, 1700, True), (0, 1500, True), (1, 1699, False)])
def test_prompts_of_one_length_at_once_are_drafts(at: int, length: int, drafts: bool) -> None:
    """The one that ends first is not known to have any beside it; the one before it had."""
    other = turn(5, thread=1, prompt_tokens=length)
    request = turn(1, common_prefix_tokens=316, reference_tokens=1505)
    assert cd108._drafts(remembering(AtWork(**{f"at{at}": other}), request, turn(0))) is drafts


@pytest.mark.parametrize(("adds", "times", "drafts"), [(200, 4, False), (200, 3, True), (900, 4, True)])
def test_conversations_of_one_length_at_once_are_not_drafts(adds: int, times: int, drafts: bool) -> None:
    """Two clients that do the same grow by a turn each time; drafts of another prompt by anything, and not for long."""
    *before, request = (turn(at, prompt_tokens=3000 + adds * at) for at in range(times + 1))
    other = turn(9, thread=1, prompt_tokens=request.prompt_tokens)
    assert cd108._drafts(remembering(AtWork(**{f"at{times}": other}), request, *before)) is drafts


@pytest.mark.parametrize(("other", "parallel"), [(0, True), (1, False)])
def test_a_conversation_whose_other_request_is_at_work_lost_no_slot(other: int, parallel: bool) -> None:
    request = turn(1, common_prefix_tokens=316, reference_tokens=1505, held_thread=4)
    side = Side("bodies.jsonl#1", "openai-chat", 1500, 1500)
    same = PromptDiff(True, side, side, "exact", True, None, "the same", True, 1500, 0, {}, None, None, None)
    context = remembering(AtWork(at1=turn(2, thread=other)), request, turn(0), difference=same)
    assert taken._in_parallel(context) is parallel


@pytest.mark.parametrize(("shared", "changed"), [(1500, True), (1300, False)])
def test_a_reply_that_no_body_has_may_have_been_changed(shared: int, changed: bool) -> None:
    """The bodies only grew; the log shows that the last prompt was kept, and not the reply to it."""
    side = Side("bodies.jsonl#1", "openai-chat", 1500, 1500)
    first = First(1500, 1500, 1, 1, "messages[2].content", "appended", None, "", "Well.", [])
    grew = PromptDiff(False, side, side, "exact", True, first, "more", True, 1500, 0, {}, None, None, None)
    request = turn(
        1, prompt_tokens=2000, reference_tokens=1760, common_prefix_tokens=shared, cached_tokens=shared, lcp_exact=True,
        lost_tokens=1760 - shared, lost_client=1760 - shared, outcome="partial",
    )  # fmt: skip
    found = cd105.decide(remembering(AtWork(), request, turn(0), difference=grew))
    assert (found is not None) is changed


@pytest.mark.parametrize(
    ("lengths", "separate"),
    [((1300, 1430, 1310), True), ((1430, 1310, 1480), True), ((1300, 1390, 1480), False), ((1480, 1390, 1300), False)],
)
def test_prompts_of_one_instruction_that_grow_and_shrink_are_separate(lengths: tuple[int, ...], separate: bool) -> None:
    """A conversation grows, and a client that drops more and more of it sends less each time."""
    *before, last = (turn(at, prompt_tokens=n, common_prefix_tokens=640) for at, n in enumerate(lengths))
    assert forms.one_form(context(last, *before)) is separate


@pytest.mark.parametrize(
    ("prompts", "separate"),
    [
        (((1170, 710), (1170, 1150), (1169, 1150), (1169, 1151)), True),
        (((1170, 710), (1190, 1150), (1160, 1150), (1180, 1152)), True),
        (((1170, 710), (1170, 1150), (1169, 1150)), False),  # two ends, as an answer that is asked for again
        (((1170, 710), (1170, 1150), (1169, 1150), (1169, 1151), (1400, 1169)), False),  # a conversation goes on
        (((1170, 710), (1170, 710), (1169, 710), (1169, 710)), False),  # parts in the instruction each time
        (((1170, 710), (1200, 1150), (1290, 1150), (1380, 1150)), False),  # grows after one place
        (((1170, 710), (1290, 1150), (1410, 1270), (1530, 1390)), False),  # the place moves
    ],
)
def test_one_text_with_several_ends_is_not_a_conversation(prompts: tuple[tuple[int, int], ...], separate: bool) -> None:
    *before, last = (
        turn(at, prompt_tokens=length, common_prefix_tokens=place)
        for at, (length, place) in enumerate([*prompts, (1515, 716)])
    )
    assert forms.in_variants(context(last, *before)) is separate


@pytest.mark.parametrize(("length", "separate"), [(1600, False), (1400, True)])
def test_a_session_whose_prompt_is_shorter_than_the_one_before_is_none(length: int, separate: bool) -> None:
    first, second = turn(0, released_tokens=1505), turn(1, prompt_tokens=length, released_tokens=length + 5)
    request = turn(2, reference_tokens=length + 5)
    assert cd308._shrank(context(request, first, second)) is separate


@pytest.mark.parametrize(
    ("times", "known", "few"),
    [(2, {}, True), (3, {}, False), (0, {"new_text": "Now it is 10:14"}, False), (0, {"text_lcp": 300}, False)],
)
def test_prompts_that_grew_few_times_may_have_grown_by_chance(times: int, known: dict[str, Any], few: bool) -> None:
    """Of any five prompts in turn each is longer than the last in one of 120 cases; of any four in one of 24."""
    request = turn(times + 1, reference_tokens=1505, common_prefix_tokens=300, cached_tokens=300, **known)
    said = [Judged(turn(0), Verdict(())), *(Judged(turn(at + 1), Verdict(("CD108",))) for at in range(times))]
    context = RuleContext(request, Setup(Facts(0, "log", build=11549, settings=RAM_ON)), said, None, 1, 1)
    assert cd108._few(context) is few


def test_too_few_lengths_that_grow_are_nobodys_fault() -> None:
    """Four prompts in one slot, each longer than the last: chance, or a client that changes its head each time."""
    request = turn(
        2, reference_tokens=1705, common_prefix_tokens=300, cached_tokens=300, lost_tokens=1405, lost_client=1405,
        outcome="reprocessed", lcp_exact=True,
    )  # fmt: skip
    match = cd108.decide(context(request, turn(0), turn(1)))
    assert match is not None
    assert (match.severity, match.confidence, match.undecided) == ("note", "low", True)


def test_the_turn_that_decides_speaks_for_those_before_it() -> None:
    """Conversation 0 grows four times; its earlier requests, and no other's, are asked about again."""
    history = FindingHistory()
    left_open = Verdict(("CD108",), undecided=True, left_open=("CD108",))
    first, *perhaps, last = (turn(at) for at in range(5))
    other = turn(9, thread=1, thread_turn=1)
    for one in (first, *perhaps, other):
        history.remember(Judged(one, Verdict() if one is first else left_open))
    assert not history.is_settled(0, "CD108")
    assert history.settle(last, "CD108") == perhaps
    assert history.is_settled(0, "CD108")
    assert not history.is_settled(1, "CD108")
    assert history.settle(turn(5), "CD108") == []


def test_what_no_longer_changes_is_not_asked_about_again() -> None:
    history = FindingHistory()
    for one in (turn(1), turn(40)):
        history.remember(Judged(one, Verdict(("CD108",), undecided=True, left_open=("CD108",))))
    assert [one.index for one in history.settle(turn(70), "CD108")] == [40]


def test_a_log_that_goes_on_decides_what_was_left_open(tmp_path: Path) -> None:
    """One of two chats has a clock in its head: 8 tokens of the template stay the same.

    Its prompts left 1,927, 2,213, 2,499 and 2,785 tokens. The first of its losses alone may be chance, after the
    fourth all are the client's. A request of the other chat, 1,641 tokens, is not among them.
    """
    log = FIXTURES / "days" / "dense-clock_beside_one-b11549-default" / "server.log"
    whole = cachedoctor.analyze(log)
    *early, last = list(whole.requests)[:8]
    assert [row.index for row in early if row.avoidable_tokens] == [4, 6]
    cut = tmp_path / "cut.log"
    cut.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[: last.last_line]))
    perhaps, found = charged(cachedoctor.analyze(cut)), charged(whole)
    assert perhaps == {"undecided": 1633 + 1919 + 2205, "avoidable": 0, "said": [("note", [1, 4, 6])]}
    assert found == {
        "client": 2205 + 2491 + 2777, "undecided": 1633 + 1919, "avoidable": 1919 + 2205 + 2491 + 2777,
        "said": [("warning", [4, 6, 8, 10]), ("note", [1])],
    }  # fmt: skip


def charged(report: Report) -> dict[str, Any]:
    """Recomputed tokens of the log, by whom; what is avoidable, and the requests of CD108."""
    again = {one.row: one.tokens for one in report.accounts[0].entries if one.row in ("client", "undecided")}
    said = [(one.severity, one.requests) for one in report.findings if one.code == "CD108"]
    return {**again, "avoidable": report.totals.avoidable_tokens, "said": said}


@pytest.mark.parametrize(("lengths", "few"), [((1900, 1966, 2035, 2104), False), ((1900, 1966, 2035, 2600), True)])
def test_turns_that_add_little_are_seldom_chance(lengths: tuple[int, ...], few: bool) -> None:
    *said, request = (turn(at, prompt_tokens=n, released_tokens=n + 5) for at, n in enumerate(lengths))
    assert cd108._few(context(request, *said)) is few


@pytest.mark.parametrize(
    ("taken_by", "shows", "infill"),
    [
        ({"selected_by": "lru"}, True, True),
        ({"selected_by": "lcp", "f_keep": 0.3}, True, True),
        ({"selected_by": "lcp", "f_keep": 0.7}, True, False),
        ({"selected_by": "lru", "ram_saved": True}, True, False),
        ({"selected_by": "lru", "marks": {"ram": Mark(7, b"looking for better prompt")}}, True, False),
        ({"selected_by": "lru"}, False, False),
        ({"selected_by": "id"}, True, False),
    ],
)
def test_what_takes_a_slot_and_saves_nothing_completes_code(
    taken_by: dict[str, Any], shows: bool, infill: bool
) -> None:
    """Every other prompt has what the slot held saved first, and a better one searched for, unless it names the slot or
    keeps half of it."""
    request = turn(1, held_tokens=1505, held_thread=1, processed_tokens=900, **taken_by)
    facts = Facts(0, "log", build=11549, settings=RAM_ON, shows=frozenset({"ram_saves"} if shows else ()))
    assert RuleContext(request, Setup(facts), [], None, 2, 1).is_infill is infill


def test_what_is_more_than_a_note_stands_for_its_group() -> None:
    """One dear request that may be chance does not hide what happened again and again."""
    perhaps, again = Match(3000, "low", severity="note"), Match(900, "low")
    assert max([perhaps, again], key=groups._rank) is again


@pytest.mark.parametrize(("processed", "chance"), [(900, True), (None, False)])
def test_what_leaves_no_copy_in_ram_explains_the_loss(processed: int | None, chance: bool) -> None:
    """Embeddings take a slot without saving what it held; they have no timings."""
    thief = turn(1, thread=1, thread_turn=0, processed_tokens=processed)
    request = turn(2, reference_tokens=1505, cached_tokens=0, selected_by="lru")
    assert taken._by_chance(context(request, turn(0, outcome="reused"), before=thief)) is chance


@pytest.mark.parametrize(("shared", "unexplained"), [(None, 275), (16, None), (1150, 154)])
def test_what_is_another_text_is_not_unexplained(shared: int | None, unexplained: int | None) -> None:
    """Where the bodies are known, only what they share can have been lost by the server."""
    request = turn(
        1, reference_tokens=1271, cached_tokens=996, outcome="partial", lost_tokens=275, lost_client=0, text_lcp=shared
    )
    match = cd901.decide(context(request, turn(0)))
    assert (None if match is None else match.tokens) == unexplained


MOVING_END = ((1569, 0), (1705, 1257), (1785, 1393), (1840, 1473))
"""Prompts and where each parts from the one before: 312 tokens after the cursor stay the same."""
ONE_END = ((2529, 0), (2529, 1616), (2529, 1616), (2529, 1616))
"""Forms of one length after one instruction."""
SEVERAL_ENDS = ((1170, 0), (1170, 1150), (1169, 1150), (1169, 1151), (1515, 716))
"""A text with four ends, and the next text."""
TURNS = ((1170, 0), (1290, 900), (1500, 1100), (1730, 1420))


def prompts_of(lengths: tuple[tuple[int, int], ...], **more: Any) -> RuleContext:
    *before, last = (
        turn(at, prompt_tokens=length, common_prefix_tokens=place) for at, (length, place) in enumerate(lengths)
    )
    return context(last, *before, **more)


@pytest.mark.parametrize(
    ("lengths", "separate"), [(MOVING_END, True), (SEVERAL_ENDS, True), (ONE_END, False), (TURNS, False)]
)
def test_the_server_loses_little_of_what_is_completed_or_ends_in_several_ways(
    lengths: tuple[tuple[int, int], ...], separate: bool
) -> None:
    """Forms lose their instruction each time, which a newer build would keep."""
    said = forms.noted(prompts_of(lengths), "CD201", Match(1433, "high"))
    assert (said.severity, said.key, said.settles) == (("note", forms.KEY, True) if separate else (None, "", False))
    assert (said.tokens, said.confidence) == (1433, "high")


def test_a_whole_prompt_before_another_reply_does_not_stay_the_same_at_its_end() -> None:
    """A reply without its reasoning: each prompt begins with all of the one before."""
    assert not forms.constant_end(prompts_of(((2715, 0), (3160, 2715), (3608, 3160))), 2)


def test_what_completed_code_before_did_not_change_its_head() -> None:
    """The slot was given up, and nothing shows how much is the same."""
    *before, _ = (turn(at, prompt_tokens=n, common_prefix_tokens=place) for at, (n, place) in enumerate(MOVING_END))
    request = turn(3, prompt_tokens=1844, reference_tokens=1790, lost_tokens=1790, outcome="reprocessed")
    assert cd108._perhaps_separate(context(request, *before))
    assert not cd108._perhaps_separate(context(request, turn(0), turn(1), turn(2)))


class Settled(AtWork):
    """A server of which later requests decided what was left open."""

    def is_settled(self, thread: int | None, code: str) -> bool:
        return (thread, code) == (0, "CD105")


@pytest.mark.parametrize(("remembered", "tokens"), [(AtWork(), 602), (Settled(), 0)])
def test_what_turns_out_to_be_one_form_was_one_before(remembered: AtWork, tokens: int) -> None:
    """Questions with passages, each shorter than the last; the fourth is longer: no client drops more and more."""
    first, second = (
        turn(at, prompt_tokens=n, common_prefix_tokens=914, reference_tokens=1700, held_tokens=1700)
        for at, n in ((0, 1722), (1, 1565))
    )
    request = turn(
        2, prompt_tokens=1516, reference_tokens=1575, held_tokens=1575, common_prefix_tokens=914, cached_tokens=914,
        lost_tokens=602, lost_client=602, outcome="partial", selected_by="lcp", lcp_exact=True,
    )  # fmt: skip
    said = [Judged(first, Verdict()), Judged(second, Verdict(("CD105",)))]
    setup = Setup(Facts(0, "log", build=11549, settings=RAM_ON))
    match = cd105.decide(RuleContext(request, setup, said, None, 1, 1, remembered=remembered))
    assert match is not None
    assert (match.tokens, match.undecided) == (tokens, tokens == 0)


@pytest.mark.parametrize(("fresh", "chance"), [(True, True), (False, False)])
def test_who_took_an_empty_slot_took_it_from_nobody(fresh: bool, chance: bool) -> None:
    """Nothing was saved, as there was nothing; what is given to a conversation by its length may be another prompt."""
    thief = turn(1, thread=1, thread_turn=0, held_thread=None, fresh=fresh, processed_tokens=900)
    facts = Facts(0, "log", build=11549, settings=RAM_ON, shows=frozenset({"ram_saves"}))
    request = turn(2, reference_tokens=1505, cached_tokens=8, selected_by="lru", held_thread=1)
    assert taken._by_chance(RuleContext(request, Setup(facts), [Judged(turn(0))], thief, 2, 1)) is chance


RULES = "You answer letters. Be kind and brief, and name the law that decides. Never promise a date."
ASKED = [{"role": "user", "content": "May my neighbour cut the branches of a tree that stands in my garden?"}]
GONE_ON = [*ASKED, {"role": "assistant", "content": "No."}, {"role": "user", "content": "And the fruits?"}]


@pytest.mark.parametrize(
    ("new", "before", "after", "is_new"),
    [
        (RULES.replace("Be kind and brief", "Write as to a friend"), ASKED, ASKED, True),
        (RULES.replace("Be kind and brief", "Write as to a friend"), GONE_ON, GONE_ON, False),
        (RULES.replace("Be kind and brief", "Write as to a friend"), ASKED, GONE_ON, False),
        (RULES.replace("Be kind and brief", "Write as to a friend"), ASKED, GONE_ON[2:], False),
        (RULES.replace("10:31:02", "10:35:44"), ASKED, ASKED, False),
    ],
    ids=["rewritten", "in-a-conversation", "goes-on", "another-question", "a-time"],
)
def test_one_question_behind_rewritten_instructions_is_a_prompt_of_its_own(
    new: str, before: list[dict[str, str]], after: list[dict[str, str]], is_new: bool
) -> None:
    """No reply is continued there; in a conversation, and where a clock changes, the same edit is a loss."""
    clock = "The time is 10:31:02. " if new == RULES else ""
    old, new = clock + RULES, (clock + new).replace("10:31:02", "10:35:44")
    a, b = (body({"messages": [{"role": "system", "content": c}, *t]}) for c, t in ((old, before), (new, after)))
    found = compare(a, b, ModelFiles().cutter, DiffOptions())
    assert separate_prompts.is_asked_anew(found, a, b) is is_new
