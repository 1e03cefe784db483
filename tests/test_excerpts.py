"""A few pasted lines: what they determine is said with its bounds, and what they leave open is not."""

from __future__ import annotations

import io
import json
import re
import tomllib
from functools import cache
from typing import Any

import pytest
from conftest import FIXTURES, json_of

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.engines.llamacpp.excerpts import ExcerptReader
from cachedoctor.engines.llamacpp.pasted_issue import without_repeats
from cachedoctor.engines.llamacpp.tracker import PLAN, catalogue
from cachedoctor.model import Segment
from cachedoctor.report.base import Appearance, write

FOLDER = FIXTURES / "excerpts"
EXCERPTS: list[dict[str, Any]] = tomllib.loads((FOLDER / "cases.toml").read_text("utf-8"))["case"]

NOT_YET: frozenset[str] = frozenset()
"""Excerpts that the program gets wrong; one that it gets right by now fails until it is taken out."""

NOT_YET_CLEAR: frozenset[str] = frozenset()
"""Excerpts with a cause of which the report still says that nothing is wrong."""

ENTRY = re.compile(
    r"(?P<severity>[a-z|]+) (?P<names>[a-z0-9|&-]+) (?P<confidence>[a-z|]+)"
    r"(?: (?P<limit>at most )?(?P<tokens>[\d,]+)(?: to (?P<last>[\d,]+))? tokens)?"
)
ALWAYS = "note log-cut any"
"""An excerpt is a part of a log; to say so is not a diagnosis."""


@cache
def report_of(name: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(json_of([(FOLDER / f"{name}.log").read_bytes()]))
    return report


def params(cases: list[dict[str, Any]], wrong: frozenset[str]) -> list[Any]:
    """Cases as parameters; those that are named as wrong must fail."""
    mark = pytest.mark.xfail(reason="not yet", strict=True)
    return [pytest.param(case, id=case["name"], marks=[mark] if case["name"] in wrong else []) for case in cases]


def in_range(entry: re.Match[str], tokens: int) -> bool:
    """Whether the cost of a finding is what an entry says."""
    if entry["tokens"] is None:
        return True
    first = int(entry["tokens"].replace(",", ""))
    last = int(entry["last"].replace(",", "")) if entry["last"] else first
    return (0 if entry["limit"] else first) <= tokens <= last


def left_open(finding: dict[str, Any], findings: list[dict[str, Any]]) -> set[str]:
    """Names that a finding does not exclude: its look-alikes that it calls so, and the other findings."""
    said = {other["name"] for other in finding["ruled_out"] if other["why"].startswith("not excluded")}
    return said | {other["name"] for other in findings if other is not finding}


def answers(entry: str, finding: dict[str, Any], findings: list[dict[str, Any]]) -> bool:
    """Whether a finding is what an entry of ``expect`` or ``may`` describes."""
    parts = ENTRY.fullmatch(entry)
    assert parts is not None, f"not an entry: {entry}"
    names = set(re.split(r"[|&]", parts["names"]))
    if finding["name"] not in names:
        return False
    if "&" in parts["names"] and not names - {finding["name"]} <= left_open(finding, findings):
        return False
    degrees = all(parts[key] == "any" or finding[key] in parts[key].split("|") for key in ("severity", "confidence"))
    return degrees and in_range(parts, finding["cost"]["tokens"])


def words_of(finding: dict[str, Any]) -> str:
    others = " ".join(f"{other['name']} {other['why']}" for other in finding["ruled_out"])
    fixes = " ".join(remedy["text"] for remedy in finding["remedies"])
    return f"{finding['name']} {finding['claim']} {finding['why']} {others} {fixes}"


@pytest.mark.sample(60)
@pytest.mark.parametrize("case", params(EXCERPTS, NOT_YET))
def test_an_excerpt_says_what_its_lines_determine(case: dict[str, Any]) -> None:
    """Every finding that is expected, none that is not, with its severity, confidence, cost and numbers."""
    report = report_of(case["name"])
    findings = report["findings"]
    shown = [f"{f['severity']} {f['name']} {f['confidence']} {f['cost']['tokens']:,} tokens" for f in findings]
    left = list(findings)
    for entry in case["expect"]:
        matching = [finding for finding in left if answers(entry, finding, findings)]
        assert matching, f"{entry} is not among {shown}"
        left.remove(matching[0])
    for finding in left:
        also = [*case.get("may", ()), ALWAYS]
        assert any(answers(entry, finding, findings) for entry in also), f"{finding['name']} is too much in {shown}"
    assert not set(case.get("absent", ())) & {finding["name"] for finding in findings}
    words = " ".join(words_of(finding) for finding in findings)
    for forms in case.get("says", ()):
        assert any(form in words for form in forms.split("|")), f"{forms} is not named"
    for field, (least, most) in case.get("numbers", {}).items():
        (request,) = report["requests"]
        value = request[field]
        low, high = request["bounds"].get(field, (value, value))
        assert low is not None, f"{field} is unknown"
        assert least <= low <= high <= most, f"{field}: {low} to {high}"


@pytest.mark.sample(15)
@pytest.mark.parametrize("case", params(EXCERPTS, frozenset()))
def test_a_case_does_not_contradict_itself(case: dict[str, Any]) -> None:
    """Its log is there, its entries can be read, and nothing is wanted that must not be there."""
    assert (FOLDER / f"{case['name']}.log").stat().st_size
    wanted = [ENTRY.fullmatch(entry) for entry in (*case["expect"], *case.get("may", ()))]
    assert None not in wanted
    names = {name for parts in wanted if parts for name in re.split(r"[|&]", parts["names"])}
    assert not names & set(case.get("absent", ()))
    assert case["why"]


def test_every_excerpt_has_its_case() -> None:
    names = [case["name"] for case in EXCERPTS]
    assert sorted(names) == sorted(path.stem for path in FOLDER.glob("*.log"))
    assert len(set(names)) == len(names)
    assert set(names) >= NOT_YET | NOT_YET_CLEAR


def text_of(name: str) -> str:
    analyzer, out = Analyzer(), io.BytesIO()
    analyzer.open(f"{name}.log")
    analyzer.feed((FOLDER / f"{name}.log").read_bytes())
    write("text", analyzer.finish(), out, Appearance())
    return out.getvalue().decode()


ALL_CLEAR = re.compile(r"no findings|nothing was checked", re.IGNORECASE)


@pytest.mark.sample(18)
@pytest.mark.parametrize("case", params([case for case in EXCERPTS if case["expect"]], NOT_YET_CLEAR))
def test_no_all_clear_where_something_is_wrong(case: dict[str, Any]) -> None:
    """An excerpt that shows a fault never ends in the words of a healthy log."""
    assert not ALL_CLEAR.search(text_of(case["name"]))


def test_a_log_that_an_answer_quotes_is_read_once() -> None:
    """The turn that is quoted is not another one; two runs of a server that begin alike are two."""
    log = (FIXTURES / "cases/billing-header-without-text/server.log").read_text("utf-8")
    last = log[log.rindex("selected slot") :].partition("\n")[2]
    quoted = "".join(f"> {line}\n" for line in last.splitlines())
    pasted = f"{log}\nLooks like your client:\n\n{quoted}\nThanks!\n"
    alone, answered = (json.loads(json_of([text.encode()])) for text in (log, pasted))
    assert answered["totals"] == alone["totals"]
    assert [f["claim"] for f in answered["findings"]] == [f["claim"] for f in alone["findings"]]
    slot = "slot update_slots: id  0 | task 0 |"
    started = f"{slot} new prompt, n_tokens = 9\n{slot} kv cache rm [0, end)\n{slot} prompt done, n_past = 9\n"
    again = (started * 2 + "prompt eval time = 1.00 ms / 9 tokens\n").encode()
    assert without_repeats(again) == again
    assert without_repeats(b"a\n" * 2000) == b"a\n" * 2000
    assert without_repeats((last * 3).encode()) == (last * 3).encode()  # a log of two runs, not an answer


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        (
            "pos_min = 9675, pos_max = 9675, n_tokens = 9676, size = 81.8",
            {"n_tokens": 9676},
        ),
        ("pos_min = 9675, ..., n_tokens = 96", {}),
    ],
    ids=["the size", "what it covers"],
)
def test_a_number_that_a_cut_may_have_shortened_is_not_believed(fields: str, read: dict[str, int]) -> None:
    line = f"slot update_slots: id  0 | task 9 | erasing context checkpoint too close to an earlier one ({fields}"
    (event,) = ExcerptReader(catalogue(), PLAN).read(Segment(None, f"{line}\n".encode(), 1)).events
    assert {name: value for name, value in event.fields.items() if name[0] != "p"} == read
