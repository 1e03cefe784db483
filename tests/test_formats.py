"""What holds for every format: the log is not needed, odd reports can be written, hostile text stays visible."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import run
from conftest import ROOT, content_of, given_of, json_of, prompts_of
from reports import FINDINGS, ODD, TEXTS, case_named, poisoned, report_of_case, written
from test_hostile_text import PAYLOADS, harmless

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import AnalysisOptions
from cachedoctor.report.base import FORMATS, Appearance
from cachedoctor.report.wire.stored import read

every_format = pytest.mark.parametrize("name", FORMATS)
USAGE = ROOT / "docs" / "usage"


@every_format
def test_it_is_on_the_page_of_formats_and_an_argument_of_the_command(name: str) -> None:
    assert f"`{name}`" in (USAGE / "formats.md").read_text("utf-8")
    (row,) = (row for row in (USAGE / "analyze.md").read_text("utf-8").split("\n") if row.startswith("| `-f`, "))
    assert name in re.findall(r"\w+", row.split(" | ")[0])


@pytest.mark.spread(9)
@pytest.mark.sweep
@every_format
@pytest.mark.parametrize("case", TEXTS)
def test_a_stored_report_gives_the_same_bytes(name: str, case: str) -> None:
    """`report report.json -f X` writes what `analyze -f X` wrote."""
    folder = case_named(case)
    stored = read(json_of([content_of(folder)], prompts=prompts_of(folder), given=given_of(folder)), "report.json")
    assert written(name, stored) == written(name, report_of_case(folder))


@pytest.mark.sweep
@every_format
def test_both_commands_write_it(name: str, tmp_path: Path) -> None:
    """With the exit status of any other format: 1 only where --fail-on was reached."""
    log = str(case_named(FINDINGS) / "server.log")
    stored = tmp_path / "report.json"
    assert run("analyze", log, "-f", "json", "-o", stored).returncode == 0
    done = run("analyze", log, "-f", name)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout
    if name == "jsonl":  # a stored report has no events; tests/test_stream.py compares the rest
        assert run("analyze", stored, "-f", name).stdout.splitlines()[-1:] == done.stdout.splitlines()[-1:]
    else:
        assert run("analyze", stored, "-f", name).stdout == done.stdout
    assert run("analyze", log, "-f", name, "--fail-on", "warning").returncode == 1


@pytest.mark.sample(3)
@every_format
def test_every_format_says_which_rules_are_off(name: str) -> None:
    """Else a report without findings would say more than it knows; concise has nothing but findings."""
    analyzer = Analyzer(options=AnalysisOptions(ignored=frozenset({"CD101", "CD105"})))
    analyzer.open("server.log")
    analyzer.feed(content_of(case_named(FINDINGS)))
    shown = written(name, analyzer.finish()).decode()
    assert ("CD101, CD105" in shown or '"CD101","CD105"' in shown) is (name != "concise")


@pytest.mark.spread(9)
@pytest.mark.sweep
@every_format
@pytest.mark.parametrize("odd", ODD)
def test_odd_reports_can_be_written(name: str, odd: str) -> None:
    """Twice the same bytes, and on an output that knows ASCII only."""
    first = written(name, ODD[odd]())
    assert first.endswith(b"\n") or (name == "concise" and not first)
    assert written(name, ODD[odd]()) == first
    narrow = written(name, ODD[odd](), Appearance(width=20, ascii_only=True, encoding="ascii"))
    assert narrow.isascii() or name not in ("text", "markdown", "github")


@pytest.mark.spread(9)
@pytest.mark.sweep
@every_format
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_no_text_of_others_controls_the_output(name: str, payload: str) -> None:
    """Wherever it is in the report; JSON escapes what would."""
    if name.startswith("json"):
        pytest.skip("a machine reads it; control characters are escaped by JSON, others are data")
    harmless(written(name, poisoned(payload)).decode())
