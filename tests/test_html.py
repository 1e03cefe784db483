"""The HTML report: whole, the same numbers as the JSON report, of a bounded size, and deaf to what a log shows."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from command import one_line, run
from conftest import CASES, content_of, given_of, json_of, prompts_of
from html_pages import Page, example, page_of, report, row
from test_hostile_text import PAYLOADS, analyzed, harmless

from cachedoctor.model import CheckpointRow, RequestRow, Session
from cachedoctor.report.base import Appearance
from cachedoctor.report.html import html_report, request_table
from cachedoctor.report.html.checkpoints_chart import CheckpointsChart
from cachedoctor.report.html.request_columns import MOST_COLUMNS, Columns, Lanes, PromptTokens, added, tokens
from cachedoctor.report.html.reuse_chart import Speed, over_time
from cachedoctor.report.wire.stored import read

SOME = CASES[::3]
"""A page takes long to read; the others differ in what is said, not in how it is drawn."""
ALL_PAYLOADS = pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)


def page_of_case(folder: Path) -> tuple[Page, dict[str, Any]]:
    """The page that is written from the JSON report of a case, and that report."""
    data = json_of([content_of(folder)], prompts=prompts_of(folder), given=given_of(folder))
    out = io.BytesIO()
    html_report.write(read(data, "report.json"), out, Appearance())
    return Page(out.getvalue().decode()), json.loads(data)


def check_whole(page: Page) -> None:
    """Hold what every page holds."""
    ids = [e.attrs["id"] for e in page.all if "id" in e.attrs]
    assert len(ids) == len(set(ids))
    for e in page.all:
        assert not [name for name in e.attrs if name.startswith("on") or name in ("style", "src", "srcset", "action")]
        for name in ("aria-labelledby", "href"):
            for target in e.attrs.get(name, "").split():
                if name == "aria-labelledby" or target.startswith("#"):
                    assert target.lstrip("#") in ids, target
                else:
                    assert target.startswith(("https://", "http://")), target
    levels = [int(e.tag[1]) for e in page.all if re.fullmatch("h[1-6]", e.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels
    for svg in page.tagged("svg"):
        assert svg.attrs.get("aria-hidden") == "true" or svg.attrs.get("role") == "img"


def check_policy(page: Page) -> None:
    """Only the style and the script of the page pass the policy, and nothing is loaded."""
    (policy,) = page.tagged("meta", **{"http-equiv": "Content-Security-Policy"})
    rules = dict(part.strip().split(" ", 1) for part in policy.attrs["content"].split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    scripts = [e for e in page.tagged("script") if "type" not in e.attrs]
    for elements, rule in ((page.tagged("style"), "style-src"), (scripts, "script-src")):
        (element,) = elements
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"


@pytest.mark.spread(9)
@pytest.mark.sample(3)
@pytest.mark.parametrize("case", SOME, ids=lambda folder: folder.name)
def test_the_page_of_a_case(case: Path) -> None:
    """It is whole, holds every finding with claim, evidence and commands, and every request."""
    page, found = page_of_case(case)
    check_whole(page)
    check_policy(page)
    harmless(page.source)
    cards = page.tagged("article")
    assert len(cards) == len(found["findings"])
    first = page.by_id("cause").text if 'id="cause"' in page.source else ""
    for card, finding in zip(cards, found["findings"], strict=True):
        assert finding["claim"][1:] in card.text
        assert finding["code"] in card.text
        assert f"confidence {finding['confidence']}" in card.text
        assert all(line["label"] in card.text for line in finding["evidence"])
        if found["inputs"][0]["launcher"] is None:  # else they have its form
            assert all(command in first + card.text for remedy in finding["remedies"] for command in remedy["commands"])
    text = page.by_id("blind").text if found["not_evaluated"] else ""
    assert all(rule["code"] in text for rule in found["not_evaluated"])
    if found["requests"]:
        assert [dict(zip(page.data["columns"], r, strict=True))["task"] for r in page.data["rows"]] == [
            r["task"] for r in found["requests"]
        ]
        assert len(page.tagged("td", **{"data-key": "task"})) == len(found["requests"])


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", SOME, ids=lambda folder: folder.name)
def test_the_numbers_of_the_headline_are_the_totals(case: Path) -> None:
    page, found = page_of_case(case)
    totals = found["totals"]
    tiles = {e.text for e in page.tagged("dd")}
    title = page.tagged("h1")[0].text
    if not totals["prompt_tokens"]:
        assert title.startswith("No requests") or "does not say how long" in title
        return
    for key in ("prompt_tokens", "cached_tokens", "processed_tokens", "avoidable_tokens"):
        assert any(tile.startswith(f"{totals[key]:,}") for tile in tiles), key
    if totals["avoidable_tokens"]:
        assert title.startswith(f"{totals['avoidable_tokens']:,} prompt token")
    else:
        assert "unnecessarily" not in title
    legend = page.tagged("ul", **{"class": "legend"})[0].text
    said = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) \(", legend)]
    assert sum(said) == totals["prompt_tokens"]
    if totals["cached_tokens"]:
        assert said[0] == totals["cached_tokens"]


@pytest.mark.sweep
def test_analyze_and_report_write_the_same(tmp_path: Path) -> None:
    """The log is not needed for the page."""
    log = CASES[0] / "server.log"
    stored = tmp_path / "report.json"
    assert run("analyze", log, "-f", "json", "-o", stored).returncode == 0
    for source, page in ((log, "log.html"), (stored, "report.html")):
        done = run("analyze", source, "-f", "html", "-o", tmp_path / page)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "log.html").read_bytes() == (tmp_path / "report.html").read_bytes()


@pytest.mark.sweep
def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    old = tmp_path / "report.html"
    old.write_text("old")
    done = run("analyze", tmp_path / "missing.json", "-f", "html", "-o", old)
    assert done.returncode == 2
    assert b"cachedoctor: error: " in done.stderr
    assert old.read_text() == "old"
    log = CASES[0] / "server.log"
    done = run("analyze", log, "-f", "html", "-o", tmp_path / "missing" / "x.html")
    assert done.returncode == 2
    one_line(done, "create it")


@pytest.mark.sample(1)
@ALL_PAYLOADS
def test_hostile_text_of_a_log_adds_nothing_to_the_page(payload: str) -> None:
    """The page has the elements that it has with letters in its place (a bar is a sign of the log itself)."""
    page = page_of(analyzed(payload, f"{payload}.log").finish())
    assert len(page.tagged("article")) == 1
    usual = page_of(analyzed(re.sub(r"[^ |]", "x", payload), "harmless.log").finish())
    assert page.shape == usual.shape
    check_whole(page)
    check_policy(page)
    harmless(page.source)


_FREE = {
    "path", "origin", "model", "error", "name", "claim", "text", "label", "why", "reason", "enable", "summary", "url",
    "client", "endpoint", "version", "place", "field", "kind", "a", "b", "code", "command", "time",
}  # fmt: skip


def poisoned(value: Any, payload: str, key: str = "") -> Any:
    """Put ``payload`` into all texts that are free."""
    if isinstance(value, dict):
        program = "token" in value  # of a first difference, whose client is a program: an object, or none
        return {
            name: inner if program and name == "client" and inner is None else poisoned(inner, payload, name)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [poisoned(inner, payload, key) for inner in value]
    hit = (isinstance(value, str) and key in _FREE) or key in ("client", "endpoint", "commands", "references", "codes")
    return payload if hit else value


@pytest.mark.spread(9)
@pytest.mark.sample(1)
@ALL_PAYLOADS
@pytest.mark.parametrize("name", ["requests-timestamp", "checkpoints-bunched-b9713"])
def test_a_hostile_report_adds_nothing_to_the_page(payload: str, name: str) -> None:
    """A stored report may come from anybody: in every free text of it."""
    case = next(folder for folder in CASES if folder.name == name)
    found = json.loads(json_of([content_of(case)], prompts=prompts_of(case)))
    pages = []
    for text in (payload, "javascript:alert(1)"):
        data = json.dumps(poisoned(found, text)).encode()
        out = io.BytesIO()
        html_report.write(read(data, "x.json"), out, Appearance(pages="javascript:"))
        pages.append(Page(out.getvalue().decode()))
    page, usual = pages
    for one in pages:
        check_whole(one)
        check_policy(one)
        harmless(one.source)
        assert not [e for e in one.tagged("a") if not e.attrs["href"].startswith("#")]
    assert set(page.shape) == set(usual.shape)
    assert re.search(r"<script type=\"application/json\" id=\"data\">[^<>&]*</script>", page.source)


def test_secrets_of_a_client_are_hidden() -> None:
    page = page_of(report([row(0, client="10.0.0.7", endpoint="/v1/chat?api_key=abcdefgh12345678abcdefgh")]))
    assert "abcdefgh12345678" not in page.source
    assert "10.0.0.7" in page.source


def test_only_addresses_are_links() -> None:
    finding = example(references=["https://example.org/a?b=1&c=2", "ftp://x", "javascript:alert(1)", "plain"])
    page = page_of(report([row(0)], [finding]), "https://example.org/")
    away = [e.attrs["href"] for e in page.tagged("a") if not e.attrs["href"].startswith("#")]
    assert away == ["https://example.org/a?b=1&c=2"]


def test_the_strip_takes_its_numbers_from_the_request_of_the_proof() -> None:
    """Its texts from the lines of the log; the shared part is that of the printed lines."""
    rows = [row(0, common_prefix_tokens=250, cached_tokens=0, lost_tokens=500, outcome="reprocessed"), row(1)]
    page = page_of(report(rows, [example(requests=[1, 0])]))
    card = page.tagged("article")[0]
    assert "The prompts share 250 of 1,000 tokens (25.0 %)" in card.text
    assert [e.text for e in page.tagged("del")] == ["A text"]
    assert [e.text for e in page.tagged("ins")] == ["B text"]
    (bar,) = [e for e in page.all if e.attrs.get("class") == "k-parted"]
    assert bar.attrs["d"].startswith("M250.0 ")


@pytest.mark.sweep
def test_ten_thousand_requests() -> None:
    """Below 5 MB; all of them for the script, 500 as rows, and few nodes in each drawing."""
    rows = [
        row(i, lost_tokens=i % 90, outcome="partial" if i % 90 else "reused", session=i // 5000, codes=["CD105"],
            checkpoints=CheckpointRow(4, 0, 2, 1, [(i, i + 9), (i + 30, i + 40)]),
            time=f"2026-01-01T00:{i // 200:02d}:00")
        for i in range(10_000)
    ]  # fmt: skip
    lives = [Session(0, "server.log"), Session(1, "server.log")]
    page = page_of(report(rows, [example(count=9_000, requests=list(range(25)))], lives))
    assert len(page.source.encode()) < 5_000_000
    assert len(page.data["rows"]) == 10_000
    plain = [e for e in page.tagged("tr") if e.parents[-1].tag == "tbody" and e.parents[-2].attrs.get("id") == "table"]
    assert len(plain) == 500
    assert "9,500 more are shown only with JavaScript" in page.by_id("shown").text
    for svg in page.tagged("svg"):
        assert sum(svg in e.parents for e in page.all) < 3 * MOST_COLUMNS
    assert len(page.tagged("ol", **{"class": "rulers"})) == 2
    assert "20 of 9,888 with known positions" in page.by_id("memory").text  # every 90th lost nothing
    assert len([e for e in page.all if e.attrs.get("class") == "restart"]) == 1
    check_whole(page)


def test_of_too_many_requests_those_stay_that_lost_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_table, "MOST", 10)
    page = page_of(report([row(i, lost_tokens=100 if i % 5 == 0 else 0) for i in range(50)]))
    at = page.data["columns"].index("index")
    assert [r[at] for r in page.data["rows"]] == list(range(0, 50, 5))
    assert "40 more are not in this page" in page.by_id("shown").text


def test_no_requests() -> None:
    page = page_of(report([], sessions=[]))
    check_whole(page)
    assert page.tagged("h1")[0].text == "No requests in this log"
    assert not page.tagged("table", id="table")
    assert not page.tagged("script", type="application/json")


def test_unknown_is_not_zero() -> None:
    """Neither in the headline nor in the table nor in the drawing."""
    unknown: dict[str, Any] = {
        "prompt_tokens": None, "cached_tokens": None, "processed_tokens": None, "lost_tokens": None, "prompt_ms": None,
        "outcome": "unknown", "thread": None, "checkpoints": CheckpointRow(None, None, None, None),
    }  # fmt: skip
    page = page_of(report([row(i, **unknown) for i in range(20)]))
    assert page.tagged("h1")[0].text == "20 requests, but the log does not show the length of their prompts"
    for key in ("thread", "prompt", "reused", "recomputed", "new", "ms"):
        assert [e.text for e in page.tagged("td", **{"data-key": key})] == ["unknown"] * 20, key
    text = page.by_id("timeline").text
    assert "how much was reused is unknown" in text
    assert "Unknown: the log does not show how much was reused" in text
    assert "Unknown: the log has no prompt times" in text
    assert "does not show what happened to context checkpoints" in text
    check_whole(page)


def test_slots_of_two_servers_are_kept_apart() -> None:
    """By their origin, and a restart is marked for the one that restarted; rotated files are one server."""
    lives = [
        Session(0, "x.log.1", origin="a"), Session(1, "x.log.1", origin="b"), Session(2, "x.log", origin="a"),
    ]  # fmt: skip
    rows = [row(i, slot=0, session=s) for i, s in enumerate([0, 1, 2, *[1, 2] * 9])]
    page = page_of(report(rows, sessions=lives))
    assert page.data["slots"] == ["a slot 0", "b slot 0"]
    assert "1 restart" in page.by_id("t-desc").text
    words = [e.text for e in page.tagged("title") if e.text.startswith("request #")]
    assert sum("restarted before this request" in text for text in words) == 2  # one in each of two drawings
    assert all("restarted before this request" not in text for text in words if not text.startswith("request #2,"))


def test_charts_are_drawn_from_twenty_requests_on() -> None:
    """Of fewer the table says as much."""
    for count, drawn in ((19, 0), (20, 1)):
        page = page_of(report([row(i) for i in range(count)]))
        assert len([e for e in page.all if e.attrs.get("id") == "timeline"]) == drawn
        assert len(page.tagged("a", href="#timeline")) == drawn


@pytest.mark.parametrize(
    ("confidence", "words"),
    [
        (["high"], "were recomputed unnecessarily"),
        (["medium", "high"], "were recomputed unnecessarily"),
        (["medium"], "were probably recomputed unnecessarily"),
        (["low"], "may have been recomputed unnecessarily"),
    ],
)
def test_the_headline_claims_no_more_than_its_findings(confidence: list[str], words: str) -> None:
    found = [example(code=f"CD10{at}", confidence=sure, requests=[0]) for at, sure in enumerate(confidence)]
    assert page_of(report([row(0)], found)).tagged("h1")[0].text == f"{500 * len(found):,} prompt tokens {words}"


def test_when_a_request_began() -> None:
    """Time of day, else the time since the start; the column is left out where neither is known."""
    at = page_of(report([row(0, time="2026-01-01T10:20:30.5"), row(1, uptime_ms=90_000.0), row(2)]))
    cells = [e.text for e in at.tagged("td", **{"data-key": "when"})]
    assert cells == ["2026-01-01T10:20:30.5", "1 min 30 s", "unknown"]
    many = page_of(report([row(0, time="2026-01-01T10:20:30.5"), *(row(i) for i in range(1, 20))]))
    assert "10:20:30" in many.by_id("timeline").text
    assert not page_of(report([row(0)])).tagged("th", **{"data-key": "when"})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, PromptTokens(900, 0, 100, 0)),
        ({"lost_tokens": 60}, PromptTokens(900, 60, 40, 0)),
        ({"lost_tokens": 5000}, PromptTokens(900, 100, 0, 0)),  # a shorter prompt cannot compute all that was lost
        (
            {"cached_tokens": 0, "processed_tokens": 1000, "lost_tokens": None, "outcome": "cold"},
            PromptTokens(0, 0, 1000, 0),
        ),
        ({"lost_tokens": None, "outcome": "unknown"}, PromptTokens(900, 0, 0, 100)),
        ({"processed_tokens": None}, PromptTokens(900, 0, 100, 0)),
        ({"cached_tokens": None}, None),
    ],
)
def test_what_became_of_a_prompt(values: dict[str, Any], expected: PromptTokens | None) -> None:
    assert tokens(row(0, **values)) == expected


@pytest.mark.parametrize("count", [1, MOST_COLUMNS, MOST_COLUMNS + 1, 7 * MOST_COLUMNS + 3])
def test_folding_columns_keeps_all_sums(count: int) -> None:
    lanes = Lanes([Session(0, "server.log")])
    columns = Columns(lanes)
    for i in range(count):
        columns.add(row(i, saved_to_ram=i % 3 == 0, lost_tokens=i % 100))
    assert len(columns.all) <= MOST_COLUMNS
    assert sum(c.count for c in columns.all) == count
    assert sum(c.events["created"] for c in columns.all) == count
    assert sum(c.events["saved"] for c in columns.all) == -(-count // 3)
    lost = sum(i % 100 for i in range(count))
    assert added(c.tokens for c in columns.all) == PromptTokens(900 * count, lost, 100 * count - lost, 0)
    assert [c.first.index for c in columns.all] == list(range(0, count, columns.width))


def test_the_reuse_of_unknown_requests_is_a_gap() -> None:
    columns = Columns(Lanes([Session(0, "server.log")]))
    for i in range(4):
        columns.add(row(i, cached_tokens=None if i == 1 else 500, processed_tokens=500))
    chart = over_time(columns, 0.5)
    assert chart is not None
    assert chart.line.count("M") == 2  # two lines: before and after the gap
    half = (chart.top + chart.bottom) / 2
    assert {float(y) for y in re.findall(r" ([\d.]+)", chart.line)} == {half}
    assert chart.level == half


def test_the_sample_of_speeds_is_bounded_and_even() -> None:
    speed = Speed()
    for i in range(50_000):
        speed.add(row(i, prompt_tokens=1000 + i, processed_tokens=100, prompt_ms=100.0 + i / 1000))
    speed.add(row(1, processed_tokens=5))
    chart = speed.draw()
    assert chart is not None
    assert Speed.MOST / 2 <= chart.dots.count("M") <= Speed.MOST
    assert chart.notes == ("every 64th request is drawn", "1 request with fewer than 32 computed tokens left out")
    assert float(chart.xs[-1][0]) == chart.right


@pytest.mark.parametrize(
    ("prefix", "back", "said"),
    [
        (50, None, "Both checkpoints of the slot end after the point where the prompts diverge (50 tokens)"),
        (150, None, "A checkpoint at position 99 is inside the common prefix, but the server did not use it"),
        (150, (99, 99), "The slot went back to the checkpoint at position 99"),
        (None, None, "where the prompts diverge is unknown"),
    ],
)
def test_why_the_server_could_not_go_back(prefix: int | None, back: tuple[int, int] | None, said: str) -> None:
    memory = CheckpointsChart()
    held = CheckpointRow(2, 0, 0, 0, [(99, 99), (499, 499)], back)
    memory.add(row(0, outcome="partial", lost_tokens=900, common_prefix_tokens=prefix, checkpoints=held))
    memory.add(row(1, outcome="reused", lost_tokens=900, checkpoints=held))  # nothing to explain
    (ruler,) = memory.draw()
    assert said in ruler.words
    assert "M500.0 2v14" in ruler.checkpoints
    assert ("M100.0 0v22" in ruler.restored) == (back is not None)


def test_the_worst_rulers_are_kept() -> None:
    memory = CheckpointsChart()
    held = CheckpointRow(1, 0, 0, 0, [(99, 99)])
    rows: list[RequestRow] = [
        row(i, outcome="partial", processed_tokens=1000, lost_tokens=1 + (i * 37) % 1000, checkpoints=held)
        for i in range(1000)
    ]
    for one in rows:
        memory.add(one)
    assert [r.row.lost_tokens for r in memory.draw()] == list(range(1000, 980, -1))
    assert memory.total == 1000


def test_a_stored_report_may_hold_a_request_twice() -> None:
    """Rows that lost as much at the same place are not compared any further."""
    twice = [row(3, lost_tokens=500), row(3, lost_tokens=500)]
    assert len(page_of(report(twice)).data["rows"]) == 2


def test_a_table_has_a_row_for_each_client() -> None:
    """By address, and those of which the log does not show who asked."""
    page, found = page_of_case(next(case for case in CASES if case.name == "slot-erased-b8672"))
    (section,) = (e for e in page.all if e.attrs.get("id") == "clients")
    rows = [e for e in page.tagged("tr") if section in e.parents]
    cells = [[e.text for e in page.tagged("td") if row in e.parents] for row in rows[1:]]
    assert [row[0] for row in cells] == ["address 127.0.0.1", "unknown"]
    assert sum(int(row[1].split()[0]) for row in cells) == found["totals"]["requests"]
    assert all(len(row) == 7 for row in cells)
