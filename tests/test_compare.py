"""Two reports side by side: what is sure is said, what is not is called so, and hidden is not gone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command import FIRST, HEAD, LOG, SECOND, TURN, one_line, run
from conftest import CASES, ROOT, log_of
from test_frames import request

import cachedoctor
from cachedoctor.doctor.compare import tally
from cachedoctor.doctor.compare.compare import compare
from cachedoctor.model import (
    Comparison,
    Cost,
    Finding,
    InputInfo,
    NotEvaluated,
    Report,
    RequestRow,
    RuleInfo,
    Session,
    Totals,
)
from cachedoctor.report.forms import compare_forms
from cachedoctor.report.wire.stored import StoredRequests

VALIDATOR = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs/schemas/compare-v1.schema.json").read_text("utf-8"))
)
RULES = [RuleInfo(code, "a-rule", "", "") for code in ("CD101", "CD201", "CD902")]


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer here is near its border; tests/test_intervals.py draws as often as the program."""
    monkeypatch.setattr(tally, "_DRAWS", 400)


def finding(code: str = "CD101", count: int = 1, tokens: int = 500) -> Finding:
    return Finding(
        code, "a-rule", "warning", "high", "it happened", [0], count, [], Cost(tokens, None), "", [], None, [], []
    )  # fmt: skip


def report(
    rows: list[RequestRow],
    findings: list[Finding] | None = None,
    left: list[NotEvaluated] | None = None,
    **session: Any,
) -> Report:
    import msgspec

    lines = [msgspec.json.encode(msgspec.structs.replace(row, index=n)) for n, row in enumerate(rows)]
    totals = Totals(requests=sum(row.parent is None for row in rows))
    sessions = [Session(0, "a.log", **session)]
    inputs = [InputInfo("a.log", "llama.cpp", 1, 1, 1)]
    return Report("1", inputs, sessions, totals, StoredRequests(lines), findings or [], left or [], RULES)


def turns(conversations: int, cached: int, prompt: int = 1000, ms: float | None = 100.0) -> list[RequestRow]:
    """Conversations of a first request that reuses nothing, and two that reuse ``cached`` tokens, more or less."""
    rows = []
    for thread in range(conversations):
        shift = thread % 5 - 2
        for turn, reused in enumerate((0, cached + shift, cached - shift)):
            known = {"prompt_tokens": prompt, "cached_tokens": reused, "processed_tokens": prompt - reused}
            rows.append(request(thread=thread, turn=turn, prompt_ms=ms, **known))
    return rows


def both(before: Report, after: Report) -> Comparison:
    found = compare(before, after, ("a", "b"))
    assert found is not None
    return found


def test_what_helped_is_better_and_the_other_way_round_worse() -> None:
    few, much = report(turns(8, 100)), report(turns(8, 900))
    helped, hurt = both(few, much), both(much, few)
    first = helped.measures[0]
    assert (first.scope, first.name) == ("later", "reuse")
    assert (first.before, first.after) == (0.1, 0.9)
    assert first.low == pytest.approx(0.8, abs=0.01)
    assert first.high == pytest.approx(0.8, abs=0.01)
    assert (helped.verdict, hurt.verdict) == ("better", "worse")
    assert hurt.measures[0].difference == pytest.approx(-0.8)
    every = {m.name: m.verdict for m in helped.measures if m.scope == "all"}
    assert every["reuse"] == every["computed per request"] == "better"
    assert every["prompt time per request"] == "same"


def test_first_requests_count_in_all_but_not_in_later_ones() -> None:
    shown = both(report(turns(6, 900)), report(turns(6, 900)))
    assert {m.scope: m.before for m in shown.measures if m.name == "reuse"} == {
        "later": 0.9,
        "all": pytest.approx(0.6),
    }


def test_the_same_report_twice_makes_no_difference() -> None:
    for rows in (turns(8, 500), turns(1, 500)):
        shown = both(report(rows), report(rows))
        assert shown.verdict == "same"
        assert {m.difference for m in shown.measures} == {0.0}
        assert {m.verdict for m in shown.measures} == {"same"}
        assert shown.differences == []
        assert "No difference" in compare_forms.comparison_verdict(shown)


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES[::9], ids=lambda folder: folder.name)
def test_a_real_log_against_itself(case: Path) -> None:
    one = cachedoctor.analyze(log_of(case))
    shown = both(one, one)
    assert {c.change for c in shown.findings} <= {"stayed"}
    assert {m.difference for m in shown.measures} <= {0.0, None}
    assert shown.differences == []


def test_few_conversations_cannot_tell_however_many_requests_they_have() -> None:
    shown = both(report(turns(1, 100) * 50), report(turns(8, 900)))
    assert shown.verdict == "unsure"
    assert shown.measures[0].low is None
    assert shown.why == "only 1 conversation on the side BEFORE, at least 5 are needed"
    assert compare_forms.comparison_verdict(shown).startswith("Cannot tell: ")


def test_what_is_alike_but_not_the_same_cannot_be_told_from_few_conversations() -> None:
    """Nothing is reused by three conversations of other prompts either: nobody knows what the fourth would show."""
    shown = both(report(turns(3, 500)), report([*turns(3, 500)[3:], *turns(3, 500)[:3]]))
    assert shown.measures[0].difference == 0
    assert shown.measures[0].low is None
    assert shown.verdict == "unsure"
    assert shown.why == "only 3 conversations on each side, at least 5 are needed"


def test_what_rounds_to_nothing_has_no_sign() -> None:
    shown = both(report(turns(8, 500, prompt=100_000)), report(turns(8, 501, prompt=100_000))).measures[0]
    assert shown.difference == pytest.approx(1e-5)
    assert compare_forms.change(shown, shown.difference) == "0.0 points"
    assert compare_forms.change(shown, -0.0004) == "0.0 points"
    assert compare_forms.change(shown, -0.0006) == "-0.1 points"
    tokens, times = both(report(turns(8, 500)), report(turns(8, 501))).measures[2:4]
    assert compare_forms.change(tokens, -0.4) == "0"
    assert compare_forms.change(tokens, 0.6) == "+1"
    assert compare_forms.change(times, 0.01) == "0.0 ms"
    assert compare_forms.change(times, 0.0) == "0 ms"


def test_what_may_be_chance_is_called_so() -> None:
    """Half of the conversations lose everything, before and after: the rest is luck."""
    before = turns(6, 900)[:9] + turns(6, 0)[9:]
    after = turns(6, 900)[:12] + turns(6, 0)[12:]
    shown = both(report(before), report(after))
    low, high = shown.measures[0].low, shown.measures[0].high
    assert low is not None
    assert high is not None
    assert low < 0 < high
    assert shown.verdict == "unsure"
    assert "may be chance" in compare_forms.comparison_verdict(shown)


def test_requests_without_conversation_decide_by_all() -> None:
    alone = [request(prompt_tokens=1000, cached_tokens=100 + n, processed_tokens=900 - n) for n in range(9)]
    better = [request(prompt_tokens=1000, cached_tokens=800 + n, processed_tokens=200 - n) for n in range(9)]
    shown = both(report(alone), report(better))
    assert shown.before.conversations == 9
    assert shown.measures[0].scope == "all"
    assert shown.verdict == "better"


def test_requests_of_which_the_log_does_not_show_are_left_out() -> None:
    rows = [*turns(8, 500), request(prompt_tokens=9000), request(**{**_known(), "parent": 3})]
    shown = both(report(rows), report(rows))
    assert (shown.before.requests, shown.before.unknown_requests) == (25, 1)
    assert shown.before.prompt_tokens == 24_000


def _known() -> dict[str, Any]:
    return {"prompt_tokens": 5000, "cached_tokens": 0, "processed_tokens": 5000}


# ---- findings


def change(before: Report, after: Report) -> tuple[str, bool, str]:
    (found,) = both(before, after).findings
    return found.change, found.sure, found.note


def test_findings_go_come_and_stay() -> None:
    rows = turns(30, 500)
    with_it, without = report(rows, [finding(count=40)]), report(rows)
    assert change(with_it, without) == ("went", True, "")
    assert change(without, with_it) == ("came", True, "")
    (stayed,) = both(with_it, report(rows, [finding(count=2, tokens=50), finding(count=1, tokens=7)])).findings
    assert stayed.change == "stayed"
    assert stayed.before is not None
    assert stayed.after is not None
    assert (stayed.before.count, stayed.after.count, stayed.after.tokens) == (40, 3, 57)


def test_what_cannot_be_seen_any_more_is_not_gone() -> None:
    rows = turns(30, 500)
    hidden = NotEvaluated("CD101", "a-rule", "this build hides it", "llama-server ... -lv 4")
    blind, seeing = report(rows, left=[hidden]), report(rows, [finding(count=40)])
    (gone,) = both(seeing, blind).findings
    assert (gone.change, gone.sure, gone.enable) == ("hidden", False, "llama-server ... -lv 4")
    assert gone.note == "AFTER could not show this finding: this build hides it"
    (new,) = both(blind, seeing).findings
    assert (new.change, new.sure) == ("revealed", False)
    assert new.note.startswith("BEFORE could not show this finding")


def test_a_rule_that_the_other_version_did_not_have_and_a_log_without_requests() -> None:
    seeing = report(turns(30, 500), [finding("CD999", 40)])
    assert change(seeing, report(turns(30, 500)))[0] == "hidden"
    assert change(report(turns(30, 500), [finding(count=40)]), report([]))[0] == "hidden"


@pytest.mark.sweep
def test_a_rule_that_was_switched_off_is_neither_gone_nor_new(tmp_path: Path) -> None:
    """And no reason for --fail-on."""
    log = ROOT / "fixtures/cases/billing-header-hybrid/server.log"
    whole, rest = tmp_path / "whole.json", tmp_path / "rest.json"
    assert run("analyze", log, "-f", "json", "-o", whole).returncode == 0
    assert run("analyze", log, "-f", "json", "-o", rest, "--ignore", "CD1,CD2").returncode == 0
    for before, after, kind, side in ((whole, rest, "hidden", "AFTER"), (rest, whole, "revealed", "BEFORE")):
        done = run("compare", before, after, "--fail-on", "worse", "-f", "json")
        assert done.returncode == 0
        changes = {c["code"]: c for c in json.loads(done.stdout)["findings"]}
        assert (changes["CD101"]["change"], changes["CD101"]["sure"]) == (kind, False)
        assert (
            changes["CD101"]["note"]
            == f"{side} could not show this finding: the rule was switched off when the report was written"
        )


def test_a_rare_finding_may_be_missed_by_chance() -> None:
    """It hit 3 of 90 requests: 6 requests miss it in 82 of 100 cases, 300 in none."""
    rare = report(turns(30, 500), [finding(count=3)])
    seen, sure, note = change(rare, report(turns(2, 500)))
    assert (seen, sure) == ("went", False)
    assert note == "may be chance: the finding affected 3 of 90 requests, and AFTER has only 6 requests"
    assert change(rare, report(turns(100, 500))) == ("went", True, "")


def test_findings_of_whole_servers_are_not_share_of_requests() -> None:
    whole = finding("CD902", 3)
    whole.requests = []
    (found,) = both(report(turns(2, 500), [whole]), report(turns(1, 500))).findings
    assert (found.change, found.sure) == ("went", True)
    assert found.before is not None
    assert found.before.of == "servers"
    assert compare_forms.finding(found) == "seen 3 times, 500 tokens"


def test_children_are_among_the_requests_of_a_finding() -> None:
    """A finding counts them: never 12 of 10 requests."""
    rows = [*turns(1, 500), *[request(parent=2, **_alone()) for _ in range(2)]]
    (found,) = both(report(rows, [finding(count=4)]), report(turns(30, 500))).findings
    assert compare_forms.finding(found) == "4 of 5 requests, 500 tokens"
    (odd,) = both(report(turns(1, 500), [finding(count=12)]), report(turns(30, 500))).findings
    assert compare_forms.finding(odd) == "seen 12 times, 500 tokens"


def _alone() -> dict[str, Any]:
    return {"prompt_tokens": 1000, "cached_tokens": 0, "processed_tokens": 1000}


def test_a_server_of_another_build_is_named_beside_one_of_the_same() -> None:
    """Builds are compared server by server: one that is surely new on one side differs."""
    rows = turns(8, 500)

    def of(*builds: tuple[int, int | None]) -> Report:
        made = report(rows)
        made.sessions = [Session(n, "a.log", build_min=low, build_max=high) for n, (low, high) in enumerate(builds)]
        return made

    (found,) = both(of((6900, 6999), (9713, None)), of((9713, None))).differences
    assert (found.name, found.before) == ("build", "b6900 to b6999, b9713 or newer")
    assert both(of((6900, 7000), (9713, None)), of((9800, None), (6950, 6960))).differences == []


def test_what_else_differs_is_named() -> None:
    before = report(turns(8, 500), model="a.gguf", build=6900, n_slots=1)
    after = report(turns(8, 500, prompt=4000, ms=50.0), model="b.gguf", build=9713, n_slots=4)
    found = {d.name: d for d in both(before, after).differences}
    assert set(found) == {"model", "build", "slots", "median prompt", "computed prompt tokens per second"}
    assert (found["build"].before, found["build"].after) == ("b6900", "b9713")
    assert found["median prompt"].caveat
    assert not found["slots"].caveat


def test_builds_that_may_be_the_same_do_not_differ() -> None:
    """As the wording of a short log leaves more builds open than that of a long one."""
    rows = turns(8, 500)
    short, long, other = (
        report(rows, build_min=low, build_max=high) for low, high in ((9714, None), (10069, 10228), (9094, 9537))
    )
    assert both(short, long).differences == []
    (found,) = both(short, other).differences
    assert (found.name, found.before, found.after) == ("build", "b9714 or newer", "b9094 to b9537")


# ---- the command


@pytest.mark.sweep
def test_json_is_what_its_schema_says(tmp_path: Path) -> None:
    """Of two real logs; every key is described."""
    before, after = (str(log_of(CASES[n])) for n in (1, 4))
    done = run("compare", before, after, "-f", "json")
    assert (done.returncode, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    VALIDATOR.validate(found)
    assert set(found) == set(VALIDATOR.schema["properties"])
    for key, struct in (("measures", "Measure"), ("findings", "FindingChange")):
        assert set(found[key][0]) == set(VALIDATOR.schema["$defs"][struct]["properties"])
    assert found["schema"] == "cachedoctor.compare/1"
    assert found["before"]["path"] == before
    again = run("compare", before, after, "-f", "json")
    assert again.stdout == done.stdout


@pytest.mark.sweep
def test_reports_compare_as_their_logs_do(log: Path, tmp_path: Path) -> None:
    other, stored = tmp_path / "other.log", tmp_path / "report.json"
    other.write_text(FIRST)
    assert run("analyze", log, "-f", "json", "-o", stored).returncode == 0
    of_log, of_report = (json.loads(run("compare", path, other, "-f", "json").stdout) for path in (log, stored))
    assert of_log["before"].pop("path") != of_report["before"].pop("path")
    assert of_log == of_report


@pytest.mark.sweep
def test_text_and_markdown_say_what_happened(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    other.write_text(FIRST.replace("hybrid.gguf", "\x1b[31m[x](mailto:e)|"))
    shown = run("compare", log, other, COLUMNS="80").stdout.decode()
    assert max(map(len, shown.splitlines())) <= 80 + len(str(other))
    assert "CD101 billing-header: 1 of 2 requests, 1,900 tokens" in shown
    assert "Cannot tell" in shown
    assert "\x1b" not in shown
    marked = run("compare", log, other, "-f", "markdown").stdout.decode()
    assert marked.startswith("**Cannot tell")
    assert "| `[x](mailto:e)\\|` |" in marked
    assert "\x1b" not in marked


@pytest.mark.sweep
def test_names_that_are_not_utf_8(log: Path, tmp_path: Path) -> None:
    stored = os.fsencode(tmp_path) + b"/x\xff.json"
    assert run("analyze", log, "-f", "json", "-o", stored).returncode == 0
    for form in ("text", "json", "markdown"):
        done = run("compare", stored, log, "-f", form)
        assert (done.returncode, done.stderr) == (0, b"")
        done.stdout.decode()
    assert json.loads(run("compare", stored, log, "-f", "json").stdout)["before"]["path"].endswith("x\\udcff.json")


@pytest.mark.sweep
def test_fail_on_worse(log: Path, tmp_path: Path) -> None:
    """A warning that surely is new; what may have been missed by chance is not a reason."""
    sound, ill = tmp_path / "sound.log", tmp_path / "ill.log"
    many = [TURN.format(task=n, tokens=1900, similarity="", diff="") for n in range(1, 40)]
    sound.write_text(HEAD + "".join(many))
    ill.write_text(FIRST + SECOND)
    assert run("compare", sound, ill, "--fail-on", "worse").returncode in (0, 1)
    worse = json.loads(run("compare", sound, ill, "-f", "json").stdout)
    new = [c for c in worse["findings"] if c["change"] == "came" and c["sure"] and c["after"]["severity"] != "note"]
    expected = 1 if new or worse["verdict"] == "worse" else 0
    assert expected == 1
    assert run("compare", sound, ill, "--fail-on", "worse").returncode == 1
    assert run("compare", sound, ill).returncode == 0
    assert run("compare", ill, ill, "--fail-on", "worse").returncode == 0


@pytest.mark.sweep
def test_bad_inputs(log: Path, tmp_path: Path) -> None:
    other, target = tmp_path / "other.txt", tmp_path / "out.txt"
    other.write_text("nothing of a server\n")
    target.write_text("old")
    done = run("compare", log, other, "-o", target)
    assert done.returncode == 3
    one_line(done, "other.txt: does not look like a log")
    done = run("compare", tmp_path / "none.log", log, "-o", target)
    assert done.returncode == 2
    one_line(done, "no such file")
    assert target.read_text() == "old"
    assert run("compare", log, log, "-o", log).returncode == 2
    assert log.read_bytes() == LOG
