"""Rules that are switched off, and thresholds: what a report leaves out, and what stays as it was."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from command import LOG
from conftest import CASES, FIXTURES, content_of, given_of, prompts_of

from cachedoctor.diagnosis.rules import names
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import AnalysisOptions
from cachedoctor.redaction import sanitize
from cachedoctor.report.text import text_report
from cachedoctor.report.wire import report_v1, stored

EVICTED = FIXTURES / "cases" / "checkpoint-evicted-three-depths-b8672"
INPUT = {"CD901", "CD902", "CD903", "CD904", "CD905"}
ALL = frozenset(code for code, _ in names.names())


def report_of(log, options, prompts=None, given=None):
    analyzer = Analyzer(prompts=prompts, given=given, options=options)
    analyzer.open("server.log")
    analyzer.feed(log)
    report = analyzer.finish()
    out = io.BytesIO()
    report_v1.render(sanitize.report(report), out)
    return json.loads(out.getvalue()), report


def case(folder, options):
    return report_of(content_of(folder), options, prompts_of(folder), given_of(folder))[0]


@pytest.mark.spread(9)
@pytest.mark.sample(4)
@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_nothing_takes_the_place_of_a_rule_that_is_switched_off(folder):
    whole = case(folder, AnalysisOptions())
    code = whole["findings"][0]["code"] if whole["findings"] else "CD105"
    rest = case(folder, AnalysisOptions(ignored=frozenset({code})))
    assert rest["findings"] == [f for f in whole["findings"] if f["code"] != code]
    assert rest["not_evaluated"] == [r for r in whole["not_evaluated"] if r["code"] != code]
    assert rest["ignored"] == [code]
    assert whole["ignored"] == []
    for before, after in zip(whole["requests"], rest["requests"], strict=True):
        same = {"avoidable_tokens": after["avoidable_tokens"], "avoidable_ms": after["avoidable_ms"]}
        assert after == {**before, **same, "codes": [c for c in before["codes"] if c != code]}
        assert after["avoidable_tokens"] <= before["avoidable_tokens"]
    assert rest["totals"]["avoidable_tokens"] <= whole["totals"]["avoidable_tokens"]


def test_what_is_avoidable_is_what_the_other_causes_cost():
    whole, left = case(EVICTED, AnalysisOptions()), case(EVICTED, AnalysisOptions(ignored=frozenset({"CD203"})))
    assert {f["code"]: f["cost"]["tokens"] for f in whole["findings"]} == {"CD203": 7230, "CD105": 0}
    assert whole["totals"]["avoidable_tokens"] == 7230
    assert left["totals"]["avoidable_tokens"] == 0
    none = case(EVICTED, AnalysisOptions(ignored=ALL))
    assert (none["findings"], none["not_evaluated"], none["restart"]) == ([], [], None)
    assert (none["totals"]["avoidable_tokens"], none["totals"]["avoidable_ms"]) == (0, 0.0)
    assert {**none["totals"], "avoidable_tokens": 0, "avoidable_ms": 0.0} == none["totals"]
    assert not any(request["codes"] for request in none["requests"])


def test_an_unknown_input_says_nothing_when_its_rule_is_switched_off():
    assert [f["code"] for f in report_of(b"hello\n", AnalysisOptions())[0]["findings"]] == ["CD903"]
    assert report_of(b"hello\n", AnalysisOptions(ignored=frozenset({"CD903"})))[0]["findings"] == []


@pytest.mark.parametrize("step", ["decide", "prove", "say"])
def test_a_rule_that_fails_does_not_matter_when_it_is_switched_off(monkeypatch, step):
    from cachedoctor.diagnosis.rules import registry

    rules, _ = registry.load()
    broken = next(rule for rule in rules if rule.code == "CD101")
    monkeypatch.setattr(broken, step, lambda *_: 1 / 0)
    for ignored, crashed in [(frozenset(), True), (frozenset({"CD101"}), False)]:
        analyzer = Analyzer(options=AnalysisOptions(ignored=ignored))
        analyzer.open("server.log")
        analyzer.feed(LOG)
        report = analyzer.finish()
        assert analyzer.crashed is crashed
        assert ("CD101" in {rule.code for rule in report.not_evaluated}) is crashed


def test_thresholds():
    (finding,) = report_of(LOG, AnalysisOptions())[0]["findings"]
    assert (finding["severity"], finding["cost"]["tokens"]) == ("warning", 1900)  # what the slot held
    assert report_of(LOG, AnalysisOptions(warn_tokens=1901))[0]["findings"][0]["severity"] == "note"
    assert report_of(LOG, AnalysisOptions(warn_tokens=1900))[0]["findings"][0]["severity"] == "warning"
    assert report_of(LOG, AnalysisOptions(min_prompt_tokens=2036))[0]["findings"] == []  # the second prompt has 2,035
    assert report_of(LOG, AnalysisOptions(min_prompt_tokens=2035))[0]["findings"] != []


def test_the_text_report_says_how_many():
    def footer(count):
        shown = io.StringIO()
        text_report.render(report_of(LOG, AnalysisOptions(ignored=frozenset(sorted(ALL)[:count])))[1], shown, 200)
        rows = shown.getvalue().splitlines()
        return next((row for row in rows if "switched off" in row), "")

    assert footer(1) == "1 rule switched off: CD101 and not reported."
    assert footer(2) == "2 rules switched off: CD101, CD102 and not reported."
    assert footer(9) == "9 rules switched off and not reported."
    assert footer(0) == ""


def test_a_stored_report_keeps_what_was_switched_off():
    out = io.BytesIO()
    report_v1.render(report_of(LOG, AnalysisOptions(ignored=frozenset({"CD101"})))[1], out)
    assert stored.read(out.getvalue(), "r").ignored == ["CD101"]
    old = {key: value for key, value in json.loads(out.getvalue()).items() if key != "ignored"}
    assert stored.read(json.dumps(old).encode(), "r").ignored == []


@pytest.mark.parametrize(
    ("word", "codes"),
    [
        ("CD101", {"CD101"}), ("cd101", {"CD101"}), ("billing-header", {"CD101"}), ("Billing_Header", {"CD101"}),
        ("CD90", INPUT), ("cd9", INPUT), ("CD", ALL),
        ("CD999", set()), ("CD1011", set()), ("billing", set()), ("", set()), ("C", set()), ("CD8", set()),
    ],
)  # fmt: skip
def test_how_rules_may_be_called(word, codes):
    assert names.matching(word) == codes


def test_the_more_precise_word_decides():
    off = names.switched_off
    assert off(None, []) == set()
    assert off(["CD"], []) == set()
    assert off(None, ["CD9"]) == INPUT
    assert off(["CD9"], []) == ALL - INPUT
    assert off(["CD901"], ["CD9"]) == ALL - {"CD901"}
    assert off(["CD"], ["CD9", "log-cut"]) == INPUT
    assert off(["CD", "log-cut"], ["CD9"]) == INPUT - {"CD902"}
    assert off(["CD901"], ["log-too-terse"]) == ALL


def test_a_former_code_selects_its_successors_and_ignores_nothing():
    off = names.switched_off
    for word in ("CD609", "cd511", "billing_header_kept"):
        assert off([word], []) == ALL - {"CD101"}
        assert off(None, [word]) == set()
    assert off(["prompt-parted"], []) == ALL - {"CD105", "CD108"}
    assert off(["CD704"], ["CD108"]) == ALL - {"CD105"}
    assert off(["CD609", "CD9"], ["CD1"]) == ALL - INPUT - {"CD101"}
    names.refuse_unknown(["CD511", "CD609", "CD704", "Prompt_Parted"])


def test_former_codes_lead_to_rules_and_are_used_for_no_other():
    assert {gone.code for gone in names.FORMER} == {"CD511", "CD609", "CD704"}
    for gone in names.FORMER:
        assert not names.matching(gone.code)
        assert not names.matching(gone.name)
        assert gone.now
        assert ALL.issuperset(gone.now)


def test_words_without_end_read_the_folders_of_the_rules_once(monkeypatch):
    names.modules.cache_clear()
    read, glob = [], Path.glob

    def counted(folder, pattern):
        read.append(folder)
        return glob(folder, pattern)

    monkeypatch.setattr(Path, "glob", counted)
    words = [f"CD{1 + at % 6}" for at in range(90_000)]
    names.refuse_unknown(words)
    assert names.switched_off(words, ["log-cut"] * 90_000) == {code for code in ALL if code >= "CD7"}
    assert len(read) == 1
