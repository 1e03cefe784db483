"""The cuts of the excerpt benchmark hold the lines that they name, and its table of honest answers holds real names."""

from __future__ import annotations

import json
import sys

import pytest
from conftest import CASES, ROOT, content_of
from loops import each

from cachedoctor.diagnosis.rules import registry
from cachedoctor.model import Confidence, Cost, Finding, RuledOut, Severity

sys.path.insert(0, str(ROOT / "benchmarks"))
import cutting
import excerpts
import honest

FORCING = "forcing full prompt re-processing due to lack of cache data (likely due to SWA or hybrid/recurrent memory)"
LOG = [
    "slot get_availabl: id  1 | task -1 | selected slot by LRU, t_last = -1",
    "slot launch_slot_: id  1 | task 3 | processing task, is_child = 0",
    "slot update_slots: id  1 | task 3 | n_tokens = 0, memory_seq_rm [0, end)",
    "srv  update_slots: all slots are idle",
    "slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = 71",
    "srv  get_availabl: updating prompt cache",
    "srv          load:  - looking for better prompt, base f_keep = 0.031, sim = 0.030",
    "slot launch_slot_: id  0 | task 9 | processing task, is_child = 0",
    "slot update_slots: id  0 | task 9 | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 1966",
    "slot update_slots: id  0 | task 9 | n_past = 58, slot.prompt.tokens.size() = 1901, seq_id = 0, pos_min = 1900",
    "slot update_slots: id  1 | task 3 | n_tokens = 64, memory_seq_rm [64, end)",
    "slot update_slots: id  0 | task 9 | Checking checkpoint with [1891, 1891] against 58...",
    f"slot update_slots: id  0 | task 9 | {FORCING}",
    "slot update_slots: id  0 | task 9 | erased invalidated context checkpoint (pos_min = 1891, pos_max = 1891)",
    "srv  log_server_r: done request: GET /health 127.0.0.1 200",
    "slot update_slots: id  0 | task 9 | n_tokens = 0, memory_seq_rm [0, end)",
    "slot update_slots: id  0 | task 9 | n_tokens = 1450, memory_seq_rm [1450, end)",
    "slot print_timing: id  0 | task 9 | ",
    "prompt eval time =     341.03 ms /  1966 tokens (    0.17 ms per token,  5764.96 tokens per second)",
    "       eval time =      28.35 ms /     6 tokens (    4.72 ms per token,   211.66 tokens per second)",
    "slot      release: id  0 | task 9 | stop processing: n_tokens = 1971, truncated = 0",
]
ASKED = cutting.Asked(slot=0, task=9, first_line=8, last_line=21)
OWN = cutting.own_lines(LOG, ASKED)


def lines(*numbers: int) -> list[str]:
    return [LOG[number - 1] for number in numbers]


def test_all_lines_of_a_request() -> None:
    """From the choice of its slot on; neither another slot's nor the server's later ones."""
    assert lines(5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 17, 18, 19, 20, 21) == OWN


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("A choice..batch", (5, 6, 7, 8, 9, 10, 12, 13, 14, 16)),
        ("B choice..FORCED", (5, 6, 7, 8, 9, 10, 12, 13)),
        ("C search..batch", (10, 12, 13, 14, 16)),
        ("D memory lines", (12, 13, 14)),
        ("E FORCED alone", (13,)),
        ("G choice and RAM", (5, 6, 7)),
    ],
)
def test_a_cut_has_the_lines_of_its_name(name: str, numbers: tuple[int, ...]) -> None:
    assert cutting.CUTS[name](OWN) == lines(*numbers)


def test_a_request_without_the_lines_of_a_cut_has_none() -> None:
    healthy = cutting.own_lines(LOG, cutting.Asked(slot=1, task=3, first_line=2, last_line=11))
    assert healthy == lines(1, 2, 3, 11)
    assert {name for name, cut in cutting.CUTS.items() if not cut(healthy)} == {
        "B choice..FORCED",
        "C search..batch",
        "D memory lines",
        "E FORCED alone",
        "F C without prefix",
    }


def test_the_two_requests_around_a_loss_are_all_lines_between() -> None:
    before = cutting.Asked(slot=1, task=3, first_line=2, last_line=11)
    assert cutting.two_requests(LOG, before, ASKED) == LOG


def test_bare_lines_are_messages() -> None:
    stamped = (
        "[54021] 12.07.310.402 W slot   operator(): id  0 | task 880 | cached n_tokens = 0, memory_seq_rm [0, end)"
    )
    assert cutting.bare([stamped]) == ["cached n_tokens = 0, memory_seq_rm [0, end)"]
    assert cutting.bare(lines(7)) == [" - looking for better prompt, base f_keep = 0.031, sim = 0.030"]


@pytest.mark.parametrize("form", cutting.FORMS)
def test_a_form_loses_no_character(form: str) -> None:
    """Wrapped text is the lines again when it is put together; what is shipped has them in one string."""
    made = cutting.FORMS[form](OWN)
    if form.startswith("JSON"):
        assert [next(iter(json.loads(line).values())) for line in made] == [f"{line}\n" for line in OWN]
    elif form.startswith("wrapped"):
        assert max(map(len, made)) <= 140
        assert "".join(made).replace(" ", "") == "".join(OWN).replace(" ", "")
    else:
        assert len(made) == len(OWN)
        assert all(short.removeprefix("> ") in line for short, line in zip(made, OWN, strict=True))


def test_eras_by_their_words() -> None:
    assert cutting.era_of(LOG) == "b6751-b9093"
    assert cutting.era_of(["slot update_slots: id  0 | task 0 | kv cache rm [0, end)"]) == "b6628-"
    assert cutting.era_of(["slot update_slots: id  0 | task 0 | cached n_tokens = 0, memory_seq_rm"]) == "b9294-b9713"
    assert cutting.era_of(["slot   operator(): id  0 | task 0 | cached n_tokens = 0, memory_seq_rm"]) == "b9873+"


# ---- which answers are honest


def test_the_names_are_those_of_rules() -> None:
    names = {rule.name for rule in registry.load()[0]}
    tables = (honest.LESS, honest.LESS_AT_LOW, honest.LESS_WITHOUT_CHECKS)
    used = {name for table in tables for cause, less in table.items() for name in (cause, *less)}
    assert used | set(honest.PAIRS) | honest.STATED | honest.NO_ANSWER | {honest.TERSE, honest.UNKNOWN} <= names


def a_finding(name: str, confidence: Confidence, not_excluded: str = "", severity: Severity = "warning") -> Finding:
    ruled_out = [RuledOut("billing-header", "excluded by line 3")]
    if not_excluded:
        ruled_out.append(RuledOut(not_excluded, "not excluded: the log does not show it"))
    return Finding("CD100", name, severity, confidence, "", [0], 1, [], Cost(1_000, None), "", ruled_out, None, [], [])


@each(
    ("causes", "finding", "wanted"),
    [
        ({"no-usable-checkpoint"}, a_finding("no-usable-checkpoint", "high"), honest.SAME),
        ({"billing-header"}, a_finding("prefix-diverges-early", "medium"), honest.LESS_SAID),
        ({"slot-contention"}, a_finding("slot-held-other-prompt", "low"), honest.LESS_SAID),
        ({"slot-contention"}, a_finding("prefix-diverges-early", "low"), honest.OTHER_LOW),
        ({"slot-contention"}, a_finding("prefix-diverges-early", "medium"), honest.OTHER),
        ({"slot-contention"}, a_finding("prefix-diverges-early", "low", "slot-held-other-prompt"), honest.PAIR),
        ({"billing-header"}, a_finding("slot-held-other-prompt", "low", "prefix-diverges-early"), honest.PAIR),
        ({"cache-ram-disabled"}, a_finding("prefix-diverges-early", "low", "cache-ram-disabled"), honest.PAIR),
        ({"shared-prefix-steal"}, a_finding("history-rewritten", "low", "shared-prefix-steal"), honest.PAIR),
        ({"history-rewritten"}, a_finding("prefix-diverges-early", "low"), honest.LESS_SAID),
        ({"history-rewritten"}, a_finding("prefix-diverges-early", "medium"), honest.OTHER),
        ({"checkpoints-disabled"}, a_finding("log-too-terse", "low"), honest.TOO_TERSE),
        ({"no-usable-checkpoint"}, a_finding("checkpoints-disabled", "high"), honest.OTHER),
        ({"billing-header"}, a_finding("unknown-format", "high"), honest.UNREAD),
        ({"billing-header"}, a_finding("log-cut", "high"), None),
        ({"billing-header"}, a_finding("kv-purged", "high", severity="note"), None),
        ({"kv-purged"}, a_finding("kv-purged", "high", severity="note"), honest.SAME),
    ],
)
def test_a_verdict_follows_from_the_tables(causes: set[str], finding: Finding, wanted: str | None) -> None:
    assert honest.judged([finding], causes, has_checks=True) == wanted


def test_what_a_wrong_finding_says_is_not_outweighed() -> None:
    right, wrong = a_finding("billing-header", "high"), a_finding("rollback-failed", "medium")
    assert honest.judged([right, wrong], {"billing-header"}, has_checks=False) == honest.OTHER


def test_without_check_lines_a_checkpoint_at_hand_cannot_be_told() -> None:
    said = a_finding("no-usable-checkpoint", "medium")
    assert honest.judged([said], {"swa-threshold-misfire"}, has_checks=False) == honest.LESS_SAID
    assert honest.judged([said], {"swa-threshold-misfire"}, has_checks=True) == honest.OTHER


def answered(verdict: str, said: str = "", name: str = excerpts.ALONE) -> excerpts.Answer:
    cut = excerpts.Cut("cases/x", 9, name, excerpts.FORCED, "b9873+", frozenset({"billing-header"}), ["x"])
    return excerpts.Answer(cut, verdict, said)


def test_what_is_wanted_can_be_missed() -> None:
    terse = answered(honest.TOO_TERSE, "note log-too-terse low")
    assert excerpts.misses([terse], []) == []
    assert len(excerpts.misses([terse, answered(honest.UNTOLD)], [])) == 1
    early = excerpts.A_TO_C[0]
    right, wrong = answered(honest.SAME, name=early), answered(honest.UNTOLD, name=early)
    assert excerpts.misses([right] * 9 + [wrong], []) == []
    assert excerpts.misses([right] * 8 + [wrong], []) == [f"{early}: 89% right, wanted 90%"]
    for verdict in (honest.OTHER, honest.UNREAD, honest.ALL_CLEAR):
        assert len(excerpts.misses([right] * 19 + [answered(verdict, name=early)], [])) == 1
    assert len(excerpts.misses([], [answered(excerpts.LOW_WARNING)])) == 1
    assert excerpts.misses([], [answered(excerpts.LOW_NOTE)]) == []


def test_a_case_is_cut_and_answered() -> None:
    """Of a changed header on a hybrid: FORCED is in the cuts, and the cause is that of the whole log."""
    (folder,) = (case for case in CASES if case.name == "billing-header-hybrid")
    log = excerpts.whole("x", content_of(folder).decode().splitlines())
    assert log is not None
    cuts = {cut.name: cut for cut in excerpts.cuts_of(log, everything=False)}
    assert set(cuts) == {*cutting.CUTS, *cutting.FORMS, excerpts.TWO}
    assert {cut.causes for cut in cuts.values()} == {frozenset({"billing-header"})}
    assert {cut.group for cut in cuts.values()} == {excerpts.FORCED}
    assert excerpts.answer(cuts[excerpts.TWO], healthy=False).verdict == honest.SAME
