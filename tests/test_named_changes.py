"""What changed is named in every format where the bodies were given, and its place has one token number."""

from __future__ import annotations

import io
import re

import pytest
from conftest import FIXTURES, content_of

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
from cachedoctor.doctor.findings.diagnosis import _changed
from cachedoctor.report.base import Appearance, write

CASE = FIXTURES / "cases" / "requests-tool-added"


@pytest.mark.sample(3)
@pytest.mark.parametrize("format", ["text", "concise", "markdown", "github", "sarif", "html", "json"])
def test_every_format_names_the_tool_and_one_token(format: str) -> None:
    """The tool is the seventh; the log counts 2,609 tokens before it, which the text alone cannot count."""
    analyzer = Analyzer(prompts=GivenPrompts([str(CASE / "requests.jsonl")], None, None))
    analyzer.open("server.log")
    analyzer.feed(content_of(CASE))
    report = analyzer.finish()
    assert report.findings[0].diff["common_prefix_tokens"] != 2609
    out = io.BytesIO()
    write(format, report, out, Appearance(300))  # type: ignore[arg-type]
    text = out.getvalue().decode().replace("\\", "").replace("%5B", "[").replace("&#95;", "_")
    assert "tools[6].function.name" in text
    assert "ask_user" in text
    assert "2,609" in text
    if format != "json":  # there each number is beside what counted it
        assert not re.search(r"\b671\b", text)


@pytest.mark.parametrize(
    ("claim", "count", "said"),
    [
        ("a tool was added", 1, "; changed: tools[6].function.name, ask_user"),
        ("a tool was added (ask_user)", 3, "; changed in the costliest request: tools[6].function.name"),
        ("tools[6].function.name is new", 1, ""),
    ],
)
def test_nothing_is_said_twice(claim: str, count: int, said: str) -> None:
    analyzer = Analyzer(prompts=GivenPrompts([str(CASE / "requests.jsonl")], None, None))
    analyzer.open("server.log")
    analyzer.feed(content_of(CASE))
    analyzer.finish()
    (group,) = [g for key, g in analyzer._diagnosis.groups.items() if key[0] == "CD103"]
    assert group.proof is not None
    assert _changed(claim, group.proof.difference, count) == said
    assert _changed(claim, None, count) == ""
