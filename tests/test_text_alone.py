"""The text at the bar decides by itself where the log has no numbers, and nothing that only looks like a header does."""

from __future__ import annotations

import pytest

from cachedoctor.doctor.analysis.analyzer import Analyzer

HEADER = "x-anthropic-billing-header: cc_version=2.1.140."


def findings(log: str) -> list[tuple[str, str, str, int]]:
    analyzer = Analyzer()
    analyzer.open("server.log")
    analyzer.feed(log.encode())
    found = analyzer.finish().findings
    return [(f.code, f.confidence, f.claim, f.cost.tokens) for f in found if f.code not in ("CD902", "CD903")]


def pair(old: str, new: str) -> str:
    slot = "slot update_slots: id  0 | task 418 |"
    return f"{slot} old: ... {old}\n{slot} new: ... {new}\n"


@pytest.mark.parametrize(
    ("old", "new", "code", "confidence", "named"),
    [
        (".1.140.3fe; cc_entrypoint=cli; cch= | 77b21;", ".1.140.3fe; cc_entrypoint=cli; cch= | 0d9aa;", "CD101", "high", "(cch)"),
        (f"{HEADER} | 3fe; cc_entrypoint=cli;", f"{HEADER} | e51; cc_entrypoint=cli;", "CD101", "medium", "(cc_version)"),
        ("; cc_prompt_id= | 77b21;", "; cc_prompt_id= | 0d9aa;", "CD101", "high", "(cc_prompt_id)"),
        ("Today is 2026-11- | 21 and you", "Today is 2026-11- | 22 and you", "CD102", "medium", "date or time"),
        ("Now: 12:03: | 44 o'clock", "Now: 12:03: | 59 o'clock", "CD102", "medium", "date or time"),
        ("session id: | 9f3c2d", "session id: | 41d08a", "CD102", "medium", "random id"),
    ],
)  # fmt: skip
def test_the_text_at_the_bar_names_the_cause(old: str, new: str, code: str, confidence: str, named: str) -> None:
    ((found, sure, claim, tokens),) = findings(pair(old, new))
    assert (found, sure, tokens) == (code, confidence, 0)
    assert named in claim
    assert "this log does not say what that cost" in claim


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<path> | /srv/a.py", "<path> | /srv/b.py"),
        ("cat /logs/app-2026-11- | 21.log", "cat /logs/app-2026-11- | 22.log"),  # the newest tool call
        ("; cc_entrypoint=cli; cch= | 77b21;", "; cc_entrypoint=cli; cch= | 77b21;"),  # the same
        ("; cc_entrypoint=cli; cch=77b21; |", "; cc_entrypoint=cli; cch=77b21; | You are"),  # text was only added
        ("; cc_entrypoint=cli; cch= | 77b21;", "and then it said | cch=0d9aa;"),  # the other is no header
        ("I have | 3 apples", "I have | 4 apples"),  # a number may be anything
        ("and then | the rest", "and then | another end"),
    ],
)
def test_other_text_at_the_bar_says_nothing(old: str, new: str) -> None:
    assert findings(pair(old, new)) == []
