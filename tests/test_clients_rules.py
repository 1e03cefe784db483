"""The rules of the first family name the client that caused a change, its setting and its fixed version; or none."""

import json
from pathlib import Path
from typing import Any

import pytest

import cachedoctor
from cachedoctor.knowledge.clients import known
from cachedoctor.model import Finding

CASES = Path(__file__).parent.parent / "fixtures" / "cases"
LOG = CASES / "requests-timestamp" / "server.log"
BODIES = [json.loads(line) for line in (CASES / "requests-timestamp" / "requests.jsonl").read_text().splitlines()]
PLAIN = BODIES[0]["body"]["messages"][0]["content"].partition("\n\n")[2]
TIMES = ("10", "11", "12", "13")


def found(path: Path, systems: list[str], **fields: list[Any]) -> list[Finding]:
    """The findings on the log, whose head was lost in every request, with these system prompts in its bodies."""
    lines = []
    for number, row in enumerate(BODIES):
        messages = [{"role": "system", "content": systems[number]}, *row["body"]["messages"][1:]]
        more = {name: values[number] for name, values in fields.items()}
        lines.append(json.dumps({**row, "body": {**row["body"], "messages": messages, **more}}))
    given = path / "requests.jsonl"
    given.write_text("\n".join(lines))
    return [f for f in cachedoctor.analyze(LOG, prompts=[given]).findings if f.code.startswith("CD10")]


def heads(text: str) -> list[str]:
    return [f"{text.replace('@', time)}\n{PLAIN}" for time in TIMES]


def names(finding: Finding, handle: str) -> None:
    """It says who, what stops it and what proves it, and the difference in it says so, too."""
    client, habit = known(handle)
    assert f"{client.title} {habit.writes}" in finding.why
    assert (finding.remedies[0].text, finding.remedies[0].commands) == (habit.stop, habit.commands)
    assert set(habit.sources) <= set(finding.references)
    assert finding.diff["first"].client.habit == finding.key == handle


GOOSE = "You are a general-purpose AI agent called goose.\n\nThe current date is 2026-11-20 14:00:@.\n"


def test_a_clock_of_a_client_that_is_known(tmp_path):
    (finding,) = found(tmp_path, heads(GOOSE))
    assert (finding.code, finding.count) == ("CD102", 3)
    names(finding, "goose/clock")


def test_a_clock_of_an_unknown_client(tmp_path):
    (finding,) = found(tmp_path, heads(GOOSE.replace("called goose", "called swan")))
    assert (finding.code, finding.count, finding.key) == ("CD102", 3, "")
    assert "goose" not in str(finding)
    assert "Freeze the value" in finding.remedies[0].text


def test_a_system_prompt_that_grows(tmp_path):
    """The lines that a gateway hoists, one more in every turn."""
    totals = [f"<total_tokens>{left} tokens left</total_tokens>" for left in (90_000, 80_000, 70_000)]
    systems = ["\n".join([f"You are Claude Code, a CLI.\n{PLAIN}", *totals[:n]]) for n in range(4)]
    finding = next(f for f in found(tmp_path, systems) if f.code == "CD102")
    assert finding.claim.startswith("the system prompt grew by a message")
    names(finding, "claude-code/token-totals")


def tool(name: str) -> dict[str, Any]:
    about = {"name": name, "description": f"Does {name}. ", "parameters": {"type": "object", "properties": {}}}
    return {"type": "function", "function": about}


@pytest.mark.parametrize(
    ("says", "handle"), [("You are opencode, a CLI.", "opencode/mode-switch"), ("You are Marlow.", None)]
)
def test_modes_that_alternate(tmp_path, says, handle):
    plan, build = [tool("ask"), tool("read")], [tool("edit"), tool("read"), tool("run")]
    findings = found(tmp_path, [f"{says}\n{PLAIN}"] * 4, tools=[plan, build, plan, build])
    back = next(f for f in findings if f.diff["first"].kind == "mode-switched")
    assert {f.code for f in findings} == {"CD103"}
    assert back.claim.startswith("the client switched to a mode with other tools")
    assert "same" in back.remedies[0].text
    if handle is not None:
        names(back, handle)
        assert back.count == 2
    else:
        assert (back.key, back.diff["first"].client) == ("", None)


def test_a_compaction_request_with_another_head(tmp_path):
    tools = [[tool("read")], [tool("read")], [tool("read")], []]
    systems = [f"You are opencode, a CLI.\n{PLAIN}"] * 3 + [
        f"You are an anchored context summarization assistant for sessions.\n{PLAIN}"
    ]
    findings = found(tmp_path, systems, tools=tools)
    asked = next(f for f in findings if f.diff is not None and f.diff["first"].kind == "compaction-request")
    assert asked.code == "CD105"
    assert asked.claim.startswith("the request for a summary of the conversation starts differently")
    assert "append" not in str(asked.remedies)
    names(asked, "opencode/compaction")
    assert "CD108" not in {f.code for f in findings}


def by_text(path: Path, old: str, new: str) -> list[Finding]:
    """The findings on a log whose printed texts differ in a clock, with other texts in their place."""
    log = path / "server.log"
    lines = []
    for line in (CASES / TEXT / "server.log").read_text().splitlines():
        for name, text in (("old: ", old), ("new: ", new)):
            head, mark, _ = line.partition(name + "...")
            line = f"{head}{mark} {text}" if mark else line
        lines.append(line)
    log.write_text("\n".join(lines) + "\n")
    return [f for f in cachedoctor.analyze(log).findings if f.code == "CD102"]


TEXT = "timestamp-text-too-short"


def test_old_and_new_lines_name_the_client(tmp_path):
    (finding,) = by_text(tmp_path, "<omo-env>\\n time: | 10:01:02", "<omo-env>\\n time: | 10:07:03")
    client, habit = known("oh-my-openagent/clock")
    assert f"{client.title} {habit.writes}" in finding.why
    assert finding.remedies[0].text == habit.stop
    assert finding.key == "oh-my-openagent/clock"
    (finding,) = by_text(tmp_path, "<my-env>\\n time: | 10:01:02", "<my-env>\\n time: | 10:07:03")
    assert finding.key == ""
    assert "openagent" not in str(finding)


def test_rules_take_the_settings_from_the_table():
    """One place for the words: the header's switch, and where small requests go."""
    from cachedoctor.diagnosis.rules import advice

    header = known("claude-code/billing-header").habit
    assert advice.client("claude-code/billing-header").commands == header.commands
    assert all(
        k.habit.stop in advice.side_requests().text
        for k in (known(f"{c}/side-requests") for c in ("claude-code", "opencode"))
    )
    rules = Path(advice.__file__).parent
    texts = [
        path
        for path in rules.rglob("*.py")
        if "CLAUDE_CODE_" in path.read_text() or "ANTHROPIC_DEFAULT" in path.read_text()
    ]
    assert texts == []
