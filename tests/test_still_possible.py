"""What is excluded and what is still possible are two lists in every format; nothing open stands under the first."""

from __future__ import annotations

import io
import json
import re

import msgspec
import pytest

from cachedoctor.model import Cost, Evidence, Finding, InputInfo, Report, RuledOut, Totals
from cachedoctor.redaction import sanitize
from cachedoctor.report.base import Appearance, write
from cachedoctor.report.wire.stored import StoredRequests

SHUT = RuledOut("no-usable-checkpoint", "a checkpoint cannot restore more")
OPEN = RuledOut("slot-held-other-prompt", "not excluded: the log does not show whose: nobody knows")
LENGTHS = RuledOut("reasoning-edited", "not excluded by lengths alone: only the text can show which")
SECRET = RuledOut("new-conversation", "not excluded: token=sk-ant-api03-0123456789abcdefghij <b>\x1b[1m")


def found(*others: RuledOut) -> Finding:
    evidence = [Evidence("a.log", 0, 7, "y", "primary", "")]
    return Finding(
        "CD108", "a-name", "note", "low", "it was so", [1], 1, evidence, Cost(5, None), "", list(others), None, [], []
    )


def shown(name: str, *others: RuledOut) -> str:
    report = Report("0", [InputInfo("a.log")], [], Totals(), StoredRequests([]), [found(*others)], [], [])
    out = io.BytesIO()
    write(name, report, out, Appearance(200))
    return out.getvalue().decode()


def test_a_finding_has_two_lists() -> None:
    finding = found(SHUT, OPEN, LENGTHS)
    assert finding.excluded == [SHUT]
    assert [(other.name, other.why) for other in finding.still_possible] == [
        (OPEN.name, "the log does not show whose: nobody knows"),
        (LENGTHS.name, "only the text can show which"),
    ]
    assert finding.ruled_out == [SHUT, OPEN, LENGTHS], "programs that read it find what they found"
    assert found().still_possible == found(SHUT).still_possible == []


def test_a_report_of_an_older_version_has_both_lists() -> None:
    older = msgspec.to_builtins(found(SHUT, OPEN))
    del older["still_possible"]
    read = msgspec.convert(older, Finding)
    assert read == found(SHUT, OPEN)
    assert [other.name for other in read.still_possible] == [OPEN.name]


@pytest.mark.parametrize(
    ("name", "shut", "left_open"),
    [("markdown", "Ruled out:", "Still possible:"), ("html", "Not this</h4>", "Still possible</h4>")],
)
def test_each_stands_under_its_head(name: str, shut: str, left_open: str) -> None:
    said = shown(name, SHUT, OPEN)
    assert "not excluded" not in said
    assert said.index(shut) < said.index(SHUT.name) < said.index(left_open) < said.index(OPEN.name)
    assert left_open not in shown(name, SHUT)
    assert shut not in shown(name, OPEN)


def test_the_text_calls_nothing_open_ruled_out() -> None:
    said = shown("text", SHUT, OPEN)
    assert "not excluded" not in said
    assert not re.search(rf"(?:not this|ruled out)[^\n]*{OPEN.name}", said)


def test_sarif_names_what_is_possible() -> None:
    (result,) = json.loads(shown("sarif", SHUT, OPEN))["runs"][0]["results"]
    assert result["properties"]["stillPossible"] == [OPEN.name]


@pytest.mark.parametrize("name", ["text", "markdown", "html", "json", "sarif"])
def test_the_second_list_is_as_harmless_as_the_first(name: str) -> None:
    said = shown(name, SECRET)
    assert "0123456789abcdefghij" not in said
    assert "\x1b" not in said
    assert "token=" in said or name in ("sarif", "text"), "the reasons stand in the text with -v"
    assert sanitize.mask(found(SECRET)).still_possible != found(SECRET).still_possible
