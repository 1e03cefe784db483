"""What holds for rules as such: their order, who gives way to whom, and that every finding has a line."""

from __future__ import annotations

import ast
import re
from typing import Any, get_args

import made
import msgspec
import pytest
from conftest import ROOT, report_of

from cachedoctor.diagnosis.rules import registry
from cachedoctor.diagnosis.rules.kit import (
    FindingText,
    Match,
    Proof,
    RequestRule,
    RuleContext,
    SessionFinding,
    SessionRule,
)
from cachedoctor.diagnosis.rules.replaying import Setup
from cachedoctor.diagnosis.rules.slots import cd304_cache_ram_too_small
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.spool import Spool
from cachedoctor.doctor.findings.diagnosis import Diagnosis
from cachedoctor.engines.llamacpp.messages import ROWS
from cachedoctor.model import Answers, Counters, Judged, Mark, MarkName, Request, Session, Shows, Verdict
from cachedoctor.report.wire.report_v1 import encode_request

WORDS = FindingText("it happened", "so it is", [])


def rule(code: str, match: Match | None = None, **fields: Any) -> RequestRule:
    """A rule that always fires."""

    def prove(s: RuleContext, _: Match) -> Proof:
        return Proof((Mark(s.request.first_line, b"line"), "label"))

    return RequestRule(code, "spy", "", lambda _: match or Match(10, "high"), prove, lambda _: WORDS, **fields)


def codes(*rules: RequestRule) -> tuple[str, ...]:
    """What is said of a request that lost tokens."""
    diagnosis = Diagnosis(registry.in_order(list(rules)), [])
    lost = made.request(outcome="partial", prompt_tokens=5000, lost_tokens=900)
    return diagnosis.examine(lost, Session(0, "server.log")).verdict.codes


def test_a_rule_comes_after_those_it_gives_way_to() -> None:
    rules = [rule("CD901", unless=("CD902", "CD903")), rule("CD902", only_with=("CD903",)), rule("CD903")]
    assert [found.code for found in registry.in_order(list(rules))] == ["CD903", "CD902", "CD901"]


def test_rules_that_give_way_to_each_other_are_an_error() -> None:
    with pytest.raises(ValueError, match="CD901, CD902"):
        registry.in_order([rule("CD901", unless=("CD902",)), rule("CD902", weak_unless=("CD901",))])


def test_one_that_fired_silences_those_that_give_way_to_it() -> None:
    assert codes(rule("CD901", unless=("CD902",)), rule("CD902"), rule("CD903")) == ("CD902", "CD903")


def test_a_weak_match_gives_way_to_more_causes_than_a_strong_one() -> None:
    assert codes(rule("CD901"), rule("CD902", weak_unless=("CD901",))) == ("CD901", "CD902")
    assert codes(rule("CD901"), rule("CD902", Match(10, "low", weak=True), weak_unless=("CD901",))) == ("CD901",)
    assert codes(rule("CD902", Match(10, "low", weak=True), weak_unless=("CD901",))) == ("CD902",)


def test_what_is_said_only_with_another_cause() -> None:
    assert codes(rule("CD902", only_with=("CD901",))) == ()
    assert codes(rule("CD902", only_with=("CD901",)), rule("CD901")) == ("CD901", "CD902")


def test_only_the_request_that_shows_a_finding_is_proved() -> None:
    """The others are decided on, and counted."""
    asked: list[int] = []

    def decide(s: RuleContext) -> Match:
        return Match(s.lost, "high")

    def prove(s: RuleContext, _: Match) -> Proof:
        asked.append(s.request.index)
        return Proof((Mark(s.request.first_line, b"line"), "label"))

    diagnosis = Diagnosis([RequestRule("CD901", "spy", "", decide, prove, lambda _: WORDS)], [])
    for index, tokens in enumerate([300, 200, 900, 100, 900]):
        lost = made.request(
            index=index, first_line=index + 1, outcome="partial", prompt_tokens=5000, lost_tokens=tokens
        )
        diagnosis.examine(lost, Session(0, "server.log"))
    (finding,) = diagnosis.findings()
    assert (finding.count, finding.cost.tokens, finding.evidence[0].line) == (5, 2400, 3)
    assert asked == [0, 2]
    diagnosis.findings()
    assert asked == [0, 2], "a proof is asked for once"


def test_a_cause_of_a_session_is_silenced_by_one_of_its_requests() -> None:
    noted = SessionRule("CD902", "spy", "", lambda _: [SessionFinding(WORDS, "x", of_cmdline=True)])
    partly = SessionRule(
        "CD903",
        "spy",
        "",
        lambda _: [SessionFinding(WORDS, key, unless=key and ("CD901",), of_cmdline=True) for key in ("", "x")],  # type: ignore[arg-type]
    )
    session = Session(0, "server.log")
    lost = made.request(outcome="partial", prompt_tokens=5000, lost_tokens=900)
    for silenced in (("CD901",), ("CD999",)):
        whole = SessionRule("CD902", "spy", "", noted.inspect, unless=silenced)
        diagnosis = Diagnosis([rule("CD901"), whole, partly], [])
        diagnosis.examine(lost, session)
        found = [(finding.code, finding.key) for finding in diagnosis.inspect([session])]
        assert found == ([] if silenced == ("CD901",) else [("CD902", "x")]) + [("CD903", "")]


@pytest.mark.parametrize(
    ("finding", "counters", "answers", "reported"),
    [
        (SessionFinding(WORDS, "key"), [], [], False),
        (SessionFinding(WORDS, "key"), [], [Answers("server.log", "log", 1)], False),
        (SessionFinding(WORDS, "key"), [Counters("metrics.txt", None, "vllm")], [], True),
        (SessionFinding(WORDS, "key"), [], [Answers("usage.json", "responses", 1)], True),
        (SessionFinding(WORDS, "key", [(Mark(1, b""), "")]), [], [], True),
        (SessionFinding(WORDS, "key", of_cmdline=True), [], [], True),
    ],
)
def test_no_finding_is_without_a_line(
    finding: SessionFinding, counters: list[Counters], answers: list[Answers], reported: bool
) -> None:
    """Unless what was given beside the log proves it; a rule that says it all the same has failed."""
    session = Session(0, "server.log", engine="llama.cpp", counters=counters, answers=answers)
    diagnosis = Diagnosis([SessionRule("CD901", "spy", "", lambda _: [finding])], [])
    assert len(diagnosis.inspect([session])) == reported
    assert diagnosis.crashed is not reported


def test_the_lines_that_prove_a_match_are_not_option() -> None:
    with pytest.raises(TypeError):
        Proof()  # type: ignore[call-arg]


# ---- a request is read, and not written


ASSIGNS = re.compile(r"\b(?:r|request|worst_request)\.\w+ (?:[-+*/%&|^@]|//|\*\*|<<|>>)?= ")
"""Stands in a file that writes to a request; to parse all files would take most of the time."""


def test_nobody_downstream_writes_a_request() -> None:
    """The engine makes it; what is said of it goes beside it."""
    fields = set(Request.__struct_fields__) - {"session", "path"}
    written = [
        f"{path.name}:{node.lineno} {target.attr}"
        for room in ("rules", "doctor", "report", "cli")
        for path in (ROOT / "cachedoctor" / room).rglob("*.py")
        if ASSIGNS.search(path.read_text("utf-8"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Assign | ast.AugAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name | ast.Attribute)
        if (target.value.id if isinstance(target.value, ast.Name) else target.value.attr)
        in ("r", "request", "worst_request")
        if target.attr in fields
    ]
    assert written == []


def test_rules_of_llama_server_ask_what_lines_show_and_never_for_messages() -> None:
    """``seen`` holds ids of the catalogue, which belong to the engine."""
    asked = [
        path.name
        for path in (ROOT / "cachedoctor" / "diagnosis" / "rules").rglob("*.py")
        if path.stem != "rolling" and not path.stem.startswith("cd5") and ".seen" in path.read_text("utf-8")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr == "seen"
        and ast.unparse(node.value).endswith(("session", "facts"))
    ]
    assert asked == []


def test_every_name_that_lines_show_is_on_a_row_with_all_wordings_of_a_message_alike() -> None:
    shown = {row.id: row.shows for row in ROWS}
    assert all(row.shows == shown[row.id] for row in ROWS)
    assert {name for shows in shown.values() for name in shows} == set(get_args(Shows))


def test_a_request_that_is_seen_otherwise_takes_the_place_of_its_number() -> None:
    spool = Spool(encode_request)
    first, second = (made.request(index=index, thread=0) for index in (0, 2))
    for one in (first, second):
        spool.take([Judged(one)])
    for one in (first, second):
        spool.take([Judged(msgspec.structs.replace(one, thread=7, revision=1), Verdict(("CD105",)))])
    assert [(row.index, row.thread, row.codes) for row in spool] == [(0, 7, ["CD105"]), (2, 7, ["CD105"])]


# ---- the RAM cache, by what is left of a log

EVICTED = """\
0.00.045.925 I srv    load_model: initializing slots, n_slots = 1
0.01.000.000 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1
0.01.000.100 I slot launch_slot_: id  0 | task 0 | processing task, is_child = 0
0.01.000.200 I slot update_slots: id  0 | task 0 | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 1838
0.01.300.000 I slot print_timing: id  0 | task 0 | prompt eval time =     329.50 ms /  1838 tokens \
(    0.18 ms per token,  5578.15 tokens per second)
0.01.300.100 I slot print_timing: id  0 | task 0 |        eval time =      19.16 ms /     6 tokens \
(    3.19 ms per token,   313.23 tokens per second)
0.01.300.200 I slot      release: id  0 | task 0 | stop processing: n_tokens = 1843, truncated = 0
0.02.000.000 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = 1300200
0.02.000.050 W srv        update:  - cache size limit reached, removing oldest entry (size = 1.237 MiB)
0.02.000.100 I slot launch_slot_: id  0 | task 8 | processing task, is_child = 0
0.02.000.200 I slot update_slots: id  0 | task 8 | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 2838
0.02.300.000 I slot print_timing: id  0 | task 8 | prompt eval time =     429.50 ms /  2838 tokens \
(    0.18 ms per token,  5578.15 tokens per second)
0.02.300.100 I slot print_timing: id  0 | task 8 |        eval time =      19.16 ms /     6 tokens \
(    3.19 ms per token,   313.23 tokens per second)
0.02.300.200 I slot      release: id  0 | task 8 | stop processing: n_tokens = 2843, truncated = 0
"""


def test_a_cache_that_evicts_is_on() -> None:
    """b8672: its other lines are lost, those of the prompts are not."""
    assert _session(EVICTED).setting("ram_evictions") == 1
    assert Setup(_session(EVICTED)).ram == "on"
    without = "".join(line for line in EVICTED.splitlines(keepends=True) if "removing oldest" not in line)
    assert Setup(_session(without)).ram == "off", "this level would print its updates, and there are none"


def _session(log: str) -> Session:
    analyzer = Analyzer(8672)
    analyzer.open("server.log")
    analyzer.feed(log.encode())
    (session,) = analyzer.finish().sessions
    return session


@pytest.mark.parametrize(
    ("marks", "line"),
    [
        ({"evicted": 12}, 12),
        ({"evicted": 8}, None),
        ({"too_large": 11, "evicted": 14}, 11),
        ({"too_large": 8}, None),
        ({}, None),
    ],
)
def test_what_left_the_ram_cache_before_the_last_turn_of_a_conversation_was_not_its_own(
    marks: dict[MarkName, int], line: int | None
) -> None:
    """Its last turn ended at line 9: what was saved since can only have left since. Its own refusal proves most."""
    before = Judged(made.request(last_line=9, thread=0))
    lost = made.request(
        index=2, first_line=15, last_line=20, thread=0, thread_turn=1, held_thread=1, outcome="reprocessed",
        prompt_tokens=5000, cached_tokens=0, lost_tokens=4800, reference_tokens=4800,
        marks={"start": Mark(15, b""), **{name: Mark(at, b"") for name, at in marks.items()}},
    )  # fmt: skip
    s = RuleContext(lost, Setup(lost.facts), [before], None, 2, 0)
    match = cd304_cache_ram_too_small.decide(s)
    assert (match is not None) == (line is not None)
    if match is not None:
        assert cd304_cache_ram_too_small.prove(s, match).primary[0].line == line


def test_the_first_line_that_says_a_setting_is_its_proof() -> None:
    """That idle slots cannot be saved only follows from the cache's being off; alone it says so as well."""
    off = "srv    load_model: prompt cache is disabled - use `--cache-ram N` to enable it\n"
    idle = "srv          init: --cache-idle-slots requires --cache-ram, disabling\n"
    for log, line in ((off + idle, 1), (idle, 1), (idle + off, 1)):
        (session,) = report_of(log)["sessions"]
        assert session["settings"]["cache_ram_mib"] == {"value": 0, "line": line}
