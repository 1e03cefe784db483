"""Markdown as GitHub renders it: our headings, tables and code, and nothing that a log could have put there."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from conftest import every_case
from loops import each
from reports import FINDINGS, ODD, case_named, poisoned, report_of_case, written
from test_hostile_text import PAYLOADS

from cachedoctor.model import Report
from cachedoctor.redaction import sanitize
from cachedoctor.report.base import Appearance
from cachedoctor.report.markdown import markdown_safe

GITHUB = {
    "mention": "@ggerganov/maintainers and @octocat",
    "issue": "see #123, GH-7, owner/repo#9, fixes #1",
    "commit": "0123456789abcdef0123456789abcdef01234567 deadbeef",
    "address": "https://evil.example/x www.evil.example me@evil.example ftp://evil.example mailto:me@evil.example",
    "link": "[click](https://evil.example) [click][1] [1]: https://evil.example ![i](//evil.example) <https://evil.example>",
    "html": "<!-- --> <img src=x> </details> </code></pre> <b>x</b> &amp; &lt;b&gt; &#64;octocat",
    "code": "` `` ``` ```` ~~~ ```sh ` | ` \\` \\",
    "table": "| a | b |\\| --- |",
    "block": "# heading - [ ] task * item 1. one > quote --- === ***",
    "inline": "*a* _b_ **c** __d__ ~~e~~ $x$ $$y$$ [^1] ==m==",
    "emoji": ":rocket: :octocat::tada:",
    "blocks": "\n\n# heading\n\n```\n</details>\n\n- [x] task\n\n| a |\n| - |\n\n[1]: https://evil.example\n",
}
HOSTILE = PAYLOADS | GITHUB
OURS = {
    "h2", "h3", "h4", "p", "ul", "ol", "li", "pre", "code", "strong", "a", "table", "thead", "tbody", "tr", "th", "td",
    "details", "summary",
}  # fmt: skip
_FOUND_BY_GITHUB = re.compile(r"@\w|#\d|\bGH-\d|://|\bwww\.|:\w+:|\$|<|\[\^|\b[0-9a-f]{7,40}\b(?<!\d{7})", re.I)
"""What GitHub looks for in the rendered text outside of code."""


class Rendered(HTMLParser):
    """The tags, links, texts outside of code, blocks of code and rows of tables of a page."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.blocks: list[str] = []
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.html = cmarkgfm.github_flavored_markdown_to_html(markdown, Options.CMARK_OPT_UNSAFE)
        self.feed(self.html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open.append(tag)
        kept = dict(attrs)
        if tag == "a":
            self.links.append(kept.pop("href") or "")
        if tag == "pre":
            self.blocks.append("")
            kept.pop("lang", None)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            kept.pop("align", None)
        assert not kept, (tag, kept)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "pre" in self._open:
            self.blocks[-1] += data
        elif "code" not in self._open and "a" not in self._open:
            self.texts.append(data)
        if self.rows and {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)


def rendered(report: Report, look: Appearance | None = None) -> Rendered:
    """The page as GitHub shows it; what holds for every page holds."""
    page = Rendered(written("markdown", report, look).decode())
    assert set(page.tags) <= OURS
    assert page.tags.count("details") == page.tags.count("summary")
    assert all(link.startswith("https://") for link in page.links)
    for text in page.texts:
        assert not _FOUND_BY_GITHUB.search(text), text
    for row in page.rows:
        assert len(row) == 9
        assert all(re.fullmatch(r"[\d,]+\*?|\d+ ?to [\d,]+|[\d,]+ to [\d,]+|unknown|[a-z ]+", c) for c in row), row
    return page


@pytest.mark.spread(9)
@pytest.mark.sample(7)
@every_case
def test_every_case_renders(case: Path) -> None:
    """An issue holds 65,536 characters; every finding has its heading, every quoted line is in a block."""
    report = report_of_case(case)
    page = rendered(report)
    assert len(written("markdown", report)) < 65_536
    assert page.tags.count("h4") == min(len(report.findings), 8)
    for finding in report.findings[:8]:
        for evidence in finding.evidence:
            assert any(f"{evidence.line} | " in block for block in page.blocks)
        for command in (c for remedy in finding.remedies for c in remedy.commands):
            assert any(command in block.split("\n") for block in page.blocks)


@pytest.mark.parametrize("odd", ODD)
def test_odd_reports_render(odd: str) -> None:
    rendered(ODD[odd]())


@pytest.mark.sample(1)
@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE)
def test_text_of_others_is_text(payload: str) -> None:
    """Wherever it stands: no tag, no link, no mention, no further heading, item, row or block."""
    # Commands after the first line of what enables a rule are rows of a block.
    page, plain = rendered(poisoned(payload)), rendered(poisoned("a\nb" if "\n" in payload else "word"))
    assert page.links == []
    for tag in OURS - {"code", "p", "li"}:
        assert page.tags.count(tag) == plain.tags.count(tag), tag
    assert len(page.rows) == len(plain.rows)


@each("payload", HOSTILE.values())
def test_code_is_what_it_was(payload: str) -> None:
    """Spans and blocks show every character, those that control something as escapes."""
    shown = markdown_safe.cut(payload, 400)
    span = cmarkgfm.github_flavored_markdown_to_html(f"a {markdown_safe.code(payload)} b")
    assert html.unescape(span) == f"<p>a <code>{shown.strip(' ') if shown.isspace() else shown}</code> b</p>\n"
    block = cmarkgfm.github_flavored_markdown_to_html(markdown_safe.fenced([payload, "```", "x"]))
    assert html.unescape(block) == f'<pre lang="text"><code>{markdown_safe.visible(payload)}\n```\nx\n</code></pre>\n'


def test_words_that_mean_nothing_stay_words() -> None:
    said = 'the memory could not go back: 7,230 tokens (41.6 %) recomputed, see b8156; 16 GB - that\'s "all"'
    assert markdown_safe.prose(said) == said
    assert markdown_safe.prose("use -np 4 (see n_swa).") == "use `-np` 4 (see `n_swa`)."
    assert markdown_safe.prose("memory_seq_rm [0, end) of #12") == "`memory_seq_rm` `[0, end)` of `#12`"
    assert markdown_safe.prose("1. one") == "`1.` one"
    assert markdown_safe.prose("- item") == "`-` item"


def test_links_are_ours_and_those_of_the_rules() -> None:
    """The page of a rule, where there are pages; addresses that a rule refers to."""
    report = report_of_case(case_named(FINDINGS))
    page = rendered(report, Appearance(pages="https://example.org/"))
    pages = [f"https://example.org/{r.url}" for f in report.findings for r in report.rules if r.code == f.code]
    assert sorted(page.links) == sorted([*pages, *(r for f in report.findings for r in f.references)])
    report.findings[0].references = ["javascript:alert(1)", "https://x.example/> [a](b)", "https://x.example/a#b"]
    assert [link for link in rendered(report).links if "github.com" not in link] == ["https://x.example/a#b"]


# ---- prompts stay at home


def test_no_text_of_a_prompt_is_in_it() -> None:
    """Neither printed by the server nor given beside the log."""
    printed = written("markdown", report_of_case(case_named("billing-header-hybrid"))).decode()
    assert printed.count("new: ... (text withheld)") == printed.count("old: ... (text withheld)") == 1
    assert "cc_entrypoint" not in printed
    assert "ee661" not in printed
    report = poisoned("word")
    for finding in report.findings:
        finding.diff["first"].a = finding.diff["first"].b = "PROMPT"
        finding.evidence[0].text = "slot | old: ... PROMPT | PROMPT"
    shown = written("markdown", report).decode()
    assert "PROMPT" not in shown
    assert shown.count("text withheld") == 2 * len(report.findings)


def test_withheld_keeps_the_rest_of_a_line() -> None:
    assert sanitize.withheld("id 0 | task 3 | n_past = 7") == "id 0 | task 3 | n_past = 7"
    assert sanitize.withheld("task 3 | new: ... a | b") == "task 3 | new: ... (text withheld)"
    assert sanitize.withheld("loading /home/jane/x.gguf") == "loading /home/<user>/x.gguf"


def test_names_of_users_are_hidden_in_names_of_inputs() -> None:
    """It is made to be published."""
    report = report_of_case(case_named(FINDINGS), "/home/jane/server.log")
    shown = written("markdown", report).decode()
    assert "jane" not in shown
    assert "/home/<user>/server.log" in shown


# ---- what a maintainer asks for


def test_a_report_says_what_is_known() -> None:
    """Build, memory, slots, settings with their lines, numbers of the requests, steps; from the log of the case."""
    page = rendered(report_of_case(case_named(FINDINGS)))
    shown = written("markdown", report_of_case(case_named(FINDINGS))).decode()
    for words in (
        "- Version: llama.cpp b8354 to b9293, inferred from its messages",
        "- Model: `hybrid.gguf`, hybrid memory, architecture `qwen35`",
        "- Slots: 1 slot, 16,384 tokens each",
        "- `n_ctx` = `16384` (line 80)",
        "- no-usable-checkpoint: a checkpoint was made, then dropped at line 240",
        "2. Send prompts until slot 0 contains 3,889 tokens.",
        "3. Send a prompt of 3,527 tokens, of which the first 3,182 match the slot's content.",
        "4. The log shows: 0 tokens reused, 3,527 computed.",
    ):
        assert words in shown
    assert page.rows[0] == [
        "task",
        "slot",
        "lines",
        "prompt",
        "cached",
        "processed",
        "common prefix",
        "slot held",
        "lost",
    ]
    assert page.rows[1] == ["49", "0", "250 to 276", "3,527", "0", "3,527", "3,182", "3,889", "3,889"]
    assert len(page.rows) == 8


def test_the_steps_name_the_conversation_that_lost_its_slot() -> None:
    """By construction two slots serve four conversations: task 42 took the 1,917 tokens that task 56 continues."""
    shown = written("markdown", report_of_case(case_named("slot-contention-dense-b8672"))).decode()
    for step in (
        "2. Send the earlier turns of a conversation: 1,917 tokens, including the last reply.",
        "3. Send other prompts until slot 1 contains 1,666 tokens.",
        "4. Send the next turn of the earlier conversation, a prompt of 1,984 tokens, of which the first 9 match",
        "5. The log shows: 9 tokens reused, 1,975 computed.",
    ):
        assert step in shown


def test_many_requests_and_findings_are_few_rows() -> None:
    """The first three and the worst three of a finding; from the ninth finding on a line each."""
    report = report_of_case(case_named("slot-contention-dense-b8672"))
    (finding,) = (f for f in report.findings if f.count == 7)
    page = rendered(report)
    assert "first and worst shown; " in written("markdown", report).decode()
    assert len(page.rows) <= 2 * (1 + 6)
    report.findings = [finding] * 70
    page = rendered(report)
    assert page.tags.count("h4") == 8
    assert any("and 12 more" in text for text in page.texts)
    assert len(written("markdown", report)) < 65_536
