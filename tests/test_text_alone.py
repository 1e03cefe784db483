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
    assert "this log does not show the cost" in claim


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<path> | /srv/a.py", "<path> | /srv/b.py"),
        ("cat /logs/app-2026-11- | 21.log", "cat /logs/app-2026-11- | 22.log"),  # the newest tool call
        ("; cc_entrypoint=cli; cch= | 77b21;", "; cc_entrypoint=cli; cch= | 77b21;"),  # the same
        ("; cc_entrypoint=cli; cch=77b21; |", "; cc_entrypoint=cli; cch=77b21; | You are"),  # text was only added
        ("; cc_entrypoint=cli; cch= | 77b21;", "and then it said | cch=0d9aa;"),  # the other is not a header
        ("I have | 3 apples", "I have | 4 apples"),  # a number may be anything
        ("and then | the rest", "and then | another end"),
    ],
)
def test_other_text_at_the_bar_says_nothing(old: str, new: str) -> None:
    assert findings(pair(old, new)) == []


CLI = "cc_version=2.1.177.b07; cc_entrypoint=cli; cch="


@pytest.mark.parametrize(
    ("log", "confidence", "named"),
    [
        (f"-x-anthropic-billing-header: {CLI}9f3c2;\n+x-anthropic-billing-header: {CLI}41d08;\n", "high", "(cch)"),
        (f"< x-anthropic-billing-header: {CLI}9f3c2;\n---\n> x-anthropic-billing-header: {CLI}41d08;\n", "high", "(cch)"),
        (f"x-anthropic-billing-header: {CLI}9f3c2;\nYou are\nx-anthropic-billing-header: {CLI}41d08;\nYou are\n", "high", "(cch)"),
        (f'  "text": "x-anthropic-billing-header: {CLI}9f3c2;"\n  "text": "x-anthropic-billing-header: {CLI}41d08;"\n', "high", "(cch)"),
        (
            "x-anthropic-billing-header: cc_version=2.1.177.b07; cc_entrypoint=cli;\n"
            "x-anthropic-billing-header: cc_version=2.1.177.e51; cc_entrypoint=cli;\n",
            "medium", "(cc_version)",
        ),
    ],
)  # fmt: skip
def test_two_headers_that_differ_name_the_field(log: str, confidence: str, named: str) -> None:
    ((code, sure, claim, tokens),) = findings(log)
    assert (code, sure, tokens) == ("CD101", confidence, 0)
    assert named in claim


@pytest.mark.parametrize(
    "log",
    [
        f"-x-anthropic-billing-header: {CLI}9f3c2;\n+x-anthropic-billing-header: {CLI}9f3c2;\n",  # the same
        f"x-anthropic-billing-header: {CLI}9f3c2;\n",  # one alone
        f"x-anthropic-billing-header: {CLI}9f3c2;\n"
        "x-anthropic-billing-header: cc_version=2.1.177.b07; cc_entrypoint=sdk-py; cch=41d08;\n",  # two programs
        f"x-anthropic-billing-header: {CLI}9f3c2;\nWhat does x-anthropic-billing-header: {CLI}41d08; mean?\n",  # a user asks
    ],
)
def test_headers_that_prove_nothing(log: str) -> None:
    """They are not lines of a server either: the input is as unknown as before."""
    analyzer = Analyzer()
    analyzer.open("server.log")
    analyzer.feed(log.encode())
    report = analyzer.finish()
    assert [f.code for f in report.findings] == ["CD903"]
    assert (report.sessions, report.inputs[0].recognised) == ([], 0)


def test_headers_in_a_log_with_requests_are_left_to_its_numbers() -> None:
    """A log at debug level prints prompts, and the server may have replaced what differs."""
    whole = (
        "slot launch_slot_: id  0 | task 0 | processing task, is_child = 0\n"
        "slot update_slots: id  0 | task 0 | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 2110\n"
        "slot update_slots: id  0 | task 0 | n_tokens = 0, memory_seq_rm [0, end)\n"
        "slot print_timing: id  0 | task 0 |\n"
        "prompt eval time =     205.77 ms /  2110 tokens (    0.10 ms per token, 10254.17 tokens per second)\n"
        "       eval time =       1.64 ms /     5 tokens (    0.33 ms per token,  3048.78 tokens per second)\n"
        "slot      release: id  0 | task 0 | stop processing: n_tokens = 2114, truncated = 0\n"
    )
    assert findings(f"x-anthropic-billing-header: {CLI}9f3c2;\n{whole}x-anthropic-billing-header: {CLI}41d08;\n") == []
