"""The table of clients: each habit is named where its text and its client are, and a look-alike is not."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from loops import each
from prompt_forms import A1, A2, SYSTEM, U1, U2, U3, anthropic, between, chatml, openai, tool
from scripts_here import checked

from cachedoctor.knowledge import clients
from cachedoctor.knowledge.clients import Client, Habit, known, printed, table
from cachedoctor.model.diff import DIFFERENCES

HABITS = [found.handle for found in clients._all()]
RULES = " Be careful. Answer in full sentences. Use the tools that you have."


class Case(NamedTuple):
    """Two pairs of prompts: in the first one the client is at work, the second one looks like it."""

    kind: str
    a: Any
    b: Any
    like_a: Any
    like_b: Any


def chat(system: str, *more: tuple[str, str], **fields: Any) -> dict[str, Any]:
    return openai(("system", system), U1, *more, **fields)


def heads(kind: str, text: str, like: str, old: str, new: str) -> Case:
    """A value in the system prompt: ``text`` and ``like`` have a place for it."""
    pair = [chat(text.replace("@", value) + RULES, A1, U2) for value in (old, new)]
    alike = [chat(like.replace("@", value) + RULES, A1, U2) for value in (old, new)]
    return Case(kind, *pair, *alike)


def tools(kind: str, system: str, a: list[str], b: list[str], like: str = "You are Marlow.") -> Case:
    lists = [[tool(name, f"Does {name}.") for name in names] for names in (a, b)]
    return Case(kind, *(chat(says, tools=names) for says in (system, like) for names in lists))


def compaction(system: str, like: str) -> Case:
    held = [chat(says, A1, U2, A2, tools=[tool("read")]) for says in (system, like)]
    asks = ("user", "Summarize the conversation so far for another model.")
    asked = [openai(("system", "You summarize conversations."), U1, A1, U2, A2, asks)] * 2
    return Case("compaction-request", held[0], asked[0], held[1], asked[1])


CLAUDE, OPENCODE = "You are Claude Code, a CLI.", "You are opencode, a CLI."
GOOSE, HERMES = "You are a general-purpose AI agent called goose.", "You are Hermes Agent."
CODEX = "You are a coding agent running in the Codex CLI."
TOTALS = "<total_tokens>14931235 tokens left</total_tokens>"
BLOCK = "\n<environment_details>\n# Current Time\n@\n</environment_details>"
NOTICE = "[[NOTE] This file read has been removed to save space in the context window. Refer to the latest file read.]"
READ = ("user", "[read_file for 'a.py'] Result: print(1)")
MAP = "Here are summaries of some files present in my git repository.\nDo not propose changes.\n\na.py:\n@"
START = "This is the Qwen Code. We are setting up the context for our chat.\nToday's date is @.\nMy system is linux."
FOUND = "### Task:\nRespond to the user query using the provided context.\n<source id=1>x</source>\n"
DAYS, DATES = ("12", "13"), ("2026-11-20", "2026-11-21")
CLOCK = ("2026-11-20T10:00:01.123Z", "2026-11-20T10:00:07.456Z")


def users(kind: str, system: str, old: str, new: str, like: str = "You are Marlow.") -> Case:
    """The first user message differs; the look-alike is another client's."""
    pairs = [openai(("system", says), ("user", text), A1, U2) for says in (system, like) for text in (old, new)]
    return Case(kind, *pairs)


CASES = {
    "claude-code/billing-header": heads(
        "billing-header",
        "x-anthropic-billing-header: cc_version=2.1.36; cch=@;\n" + CLAUDE,
        "X-Billing: version=2; sum=@;\nYou are Marlow.",
        "a1b2c",
        "d3e4f",
    ),
    "claude-code/token-totals": Case(
        "system-hoisted",
        chat(CLAUDE),
        chat(f"{CLAUDE}\n{TOTALS}", A1, U2),
        chat("You are Marlow."),
        chat("You are Marlow.\nThe user likes short answers.", A1, U2),
    ),
    "claude-code/git-status": heads(
        "git-state", CLAUDE + "\ngitStatus: Current branch: @\n", "You are Marlow.\nCurrent branch: @\n", "main", "next"
    ),
    "claude-code/date-in-system-prompt": heads(
        "timestamp", CLAUDE + "\nToday's date: @\n", CLAUDE + "\nBuilt on: @\n", *DATES
    ),
    "claude-code/date-on-resume": users(
        "timestamp", CLAUDE, f"Today's date is {DATES[0]}. {U1[1]}", f"Today's date is {DATES[1]}. {U1[1]}"
    ),
    "claude-code/tool-schemas": Case(
        "tool-edited",
        *(
            chat(f"x-anthropic-billing-header: cc_version=2.1.88; x=1;\n{CLAUDE}", tools=[tool("read", says)])
            for says in ("Reads a file.", "Reads one of the files.")
        ),
        *(
            chat(f"x-anthropic-billing-header: cc_version=2.1.89; x=1;\n{CLAUDE}", tools=[tool("read", says)])
            for says in ("Reads a file.", "Reads one of the files.")
        ),
    ),
    "claude-code/memory-age": users(
        "message-edited",
        CLAUDE,
        f"This memory is 12 days old. Check it. {U1[1]}",
        f"This memory is 13 days old. Check it. {U1[1]}",
    ),
    "opencode/plan-exit": tools("tool-removed", OPENCODE, ["bash", "plan_exit", "read"], ["bash", "read"]),
    "opencode/moved-reminder": Case(
        "message-moved",
        *(
            openai(("system", says), *turns)
            for says in (OPENCODE, "You are Marlow.")
            for turns in (
                [("user", U1[1] + "\n<system-reminder>Plan mode.</system-reminder>"), A1],
                [U1, A1, ("user", U2[1] + "\n<system-reminder>Plan mode.</system-reminder>")],
            )
        ),
    ),
    "opencode/lost-reasoning": Case(
        "reasoning-dropped",
        *(
            openai(("system", says), U1, ("assistant", thought + A1[1]), U2)
            for says in (OPENCODE, "You are Marlow.")
            for thought in ("<think>It is a build file.</think>", "")
        ),
    ),
    "opencode/instruction-files": heads(
        "message-edited", OPENCODE + "\n@", "You are Marlow.\n@", "Be brief.", "Write much."
    ),
    "opencode/compaction": compaction(OPENCODE, "You are Marlow."),
    "opencode/memory-plugin-clock": heads(
        "timestamp",
        OPENCODE + "\n<memory_metadata>\n- The time is @\n</memory_metadata>",
        OPENCODE + "\n<session>\n- The time is @\n</session>",
        *CLOCK,
    ),
    "oh-my-openagent/clock": heads(
        "timestamp",
        "Be good.\n<omo-env>\n  Current time: @\n</omo-env>",
        "Be good.\n<env>\n  Current time: @\n</env>",
        *CLOCK,
    ),
    "goose/clock": heads(
        "timestamp", GOOSE + "\n\nThe current date is @.\n", "You are Marlow.\n\nThe current date is @.\n", *DATES
    ),
    "goose/info-message": users(
        "timestamp",
        GOOSE,
        f"{U1[1]}\n<info-msg>\nIt is {CLOCK[0]}\n</info-msg>",
        f"{U1[1]}\n<info-msg>\nIt is {CLOCK[1]}\n</info-msg>",
    ),
    "goose/turn-context": users(
        "timestamp",
        GOOSE,
        f"{U1[1]}\n<turn-context><current-time>{CLOCK[0]}</current-time></turn-context>",
        f"{U1[1]}\n<turn-context><current-time>{CLOCK[1]}</current-time></turn-context>",
    ),
    "goose/tool-order": tools("tools-reordered", GOOSE, ["a", "b", "c"], ["b", "a", "c"]),
    "hermes-agent/clock": heads(
        "timestamp",
        HERMES + "\nConversation started: Sunday, April 26, 2026 10:@ AM\n",
        "You are Marlow.\nConversation started: Sunday, April 26, 2026 10:@ AM\n",
        "04",
        "05",
    ),
    "hermes-agent/memory-usage": heads(
        "message-edited",
        HERMES + "\nMEMORY (your personal notes) [@ chars]\nIt rains.",
        "You are Marlow.\nMEMORY (your personal notes) [@ chars]\nIt rains.",
        "49% — 1,085/2,200",
        "51% — 1,131/2,200",
    ),
    "open-webui/clock": heads("timestamp", "This is Open WebUI. It is @.", "This is a web page. It is @.", *CLOCK),
    "open-webui/memory-order": heads(
        "message-edited",
        "Be good.\n[User Memory]\n- x\n[Memory Neighborhood]\n@",
        "Be good.\n[User Memory]\n- x\n[Streets]\n@",
        "- likes tea\n- has a cat",
        "- has a cat\n- likes tea",
    ),
    "open-webui/documents": Case(
        "message-edited",
        chat("Be good."),
        openai(("system", "Be good."), ("user", FOUND + U1[1]), A1, U2),
        chat("Be good."),
        openai(("system", "Be good."), ("user", "### Task:\nRespond to the user.\n" + U1[1]), A1, U2),
    ),
    "open-webui/titles": Case(
        "other",
        openai(U1, A1, U2),
        openai(("user", "### Task:\nGenerate a concise, 3-5 word title with an emoji."), A2, U3),
        openai(U1, A1, U2),
        openai(("user", "### Task:\nWrite a poem about the sea, in two verses."), A2, U3),
    ),
    "librechat/clock": heads(
        "timestamp", "# `web_search`:\nCurrent Date & Time: @\n", "# `lookup`:\nCurrent Date & Time: @\n", *CLOCK
    ),
    "sillytavern/clock": heads("timestamp", "[Start a new Chat]\nIt is @.", "[Start]\nIt is @.", *CLOCK),
    "sillytavern/insertions": users(
        "message-edited", "Write Ada's next reply in a fictional chat between Ada and Ben.", "Hi", "Ho"
    ),
    "cline/file-reads": Case(
        "message-edited",
        *(
            openai(("system", says), U1, A1, turn, A2, U3)
            for says in ("You are Cline, a highly skilled engineer.", "You are Marlow.")
            for turn in (READ, ("user", f"[read_file for 'a.py'] Result: {NOTICE}"))
        ),
    ),
    "roo-code/environment-details": users(
        "timestamp", "You are Roo, a highly skilled engineer.", *(U1[1] + BLOCK.replace("@", value) for value in CLOCK)
    ),
    "aider/repository-map": Case(
        "message-edited",
        *(openai(SYSTEM, ("user", MAP.replace("@", text)), A1, U2) for text in ("class A", "class A\n  def b")),
        *(
            openai(SYSTEM, ("user", "Files of mine:\na.py:\n" + text), A1, U2)
            for text in ("class A", "class A\n  def b")
        ),
    ),
    "qwen-code/startup-context": Case(
        "timestamp",
        *(openai(SYSTEM, ("user", START.replace("@", date)), A1, U2) for date in DATES),
        *(openai(SYSTEM, ("user", START.replace("@", date).replace("Qwen Code", "shell")), A1, U2) for date in DATES),
    ),
    "codex/tool-order": tools("tools-reordered", CODEX, ["a", "b", "c"], ["b", "a", "c"]),
    "codex/compaction": compaction(CODEX, "You are a coding agent."),
    "pi/date-and-folder": heads(
        "timestamp",
        "You are an expert coding assistant operating inside pi, a harness.\nCurrent date: @\n",
        "You are an expert coding assistant in a pipeline.\nCurrent date: @\n",
        *DATES,
    ),
    "openclaw/tool-order": tools(
        "tools-reordered", "You are a personal assistant running inside OpenClaw.", ["a", "b", "c"], ["b", "a", "c"]
    ),
    "nanobot/clock": heads(
        "timestamp",
        "You are nanobot, a helpful AI assistant.\n\n## Current Time\n@\n",
        "You are a robot.\n\n## Current Time\n@\n",
        *CLOCK,
    ),
    "home-assistant/clock": heads(
        "timestamp",
        "Current time is 20:37:@. Today's date is 2024-12-20.\nYou are a voice assistant for Home Assistant.",
        "Current time is 20:37:@. Today's date is 2024-12-20.\nYou are a voice assistant.",
        "19",
        "42",
    ),
    "kai/clock": heads(
        "timestamp",
        "Be good.\n## Context\n- Local time: noon\n- UTC: @\n- Platform: Android",
        "Be good.\n## Context\n- UTC: @\n- Platform: Android",
        *CLOCK,
    ),
}


def test_every_habit_has_its_case():
    """But those that only say how small requests are sent elsewhere, and what takes three prompts to see."""
    without = {h for h in HABITS if not known(h).habit.kinds} | {"opencode/mode-switch"}
    assert set(CASES) == set(HABITS) - without
    assert without == {
        "opencode/mode-switch",
        *(f"{name}/side-requests" for name in ("claude-code", "opencode", "open-webui")),
    }


@each("handle", CASES)
def test_a_habit_is_named_and_its_look_alike_is_not(handle):
    case, habit = CASES[handle], known(handle).habit
    found, alike = between(case.a, case.b), between(case.like_a, case.like_b)
    assert found.kind in habit.kinds
    assert found.advice[0].text.startswith(habit.stop)
    assert found.advice[0].commands == habit.commands
    assert habit.stop not in str(alike.advice)
    if habit.hint:
        assert found.client is None
    else:
        assert found.client is not None
        assert (found.client.habit, found.client.fixed) == (handle, habit.fixed)
        assert habit.fixed is None or habit.fixed in found.advice[0].text
    assert alike.client is None or alike.client.habit != handle


@pytest.mark.parametrize("handle", ["claude-code/token-totals", "goose/clock", "hermes-agent/clock", "kai/clock"])
def test_a_habit_is_named_in_a_rendered_prompt_too(handle):
    case = CASES[handle]
    a, b = (chatml(*((m["role"], m["content"]) for m in body["messages"])) for body in (case.a, case.b))
    found = between(a, b)
    assert found.client is not None
    assert found.client.habit == handle


def test_what_a_user_writes_names_no_client():
    """The name of a client and its text, in the message of a user and not in the system prompt."""
    said = [
        ("user", f"Why does goose say: You are a general-purpose AI agent called goose. The current date is {d}.")
        for d in DATES
    ]
    for form in (openai, chatml):
        found = between(*(form(SYSTEM, turn, A1, U2) for turn in said))
        assert (found.kind, found.client) == ("timestamp", None)


def test_a_version_that_no_longer_does_it_is_not_named():
    """The header of Claude Code shows the version."""

    def found(version):
        head = f"x-anthropic-billing-header: cc_version={version}.abc; x=1;\n{CLAUDE}\nToday's date: "
        return between(chat(f"{head}{DATES[0]}.\n{RULES}", A1), chat(f"{head}{DATES[1]}.\n{RULES}", A1)).client

    assert found("2.1.41").habit == "claude-code/date-in-system-prompt"
    assert found("2.1.42") is None
    assert found("2.1.220") is None


@pytest.mark.parametrize(
    ("handle", "old", "new"),
    [
        ("claude-code/billing-header", "...; cch= | 1a2b3;", "...; cch= | 4d5e6;"),
        (
            "claude-code/billing-header",
            "header: cc_version=2.1.220. | 473; cc_",
            "header: cc_version=2.1.220. | 111; cc_",
        ),
        ("claude-code/token-totals", "<total_tokens>14 | 931235 tokens left", "<total_tokens>14 | 926828 tokens left"),
        ("claude-code/token-totals", "Be brief. | <|im_end|>", "Be brief. | \n<total_tokens>14926828 tokens left"),
        ("claude-code/token-totals", "Be brief. | <|im_end|>", "Be brief. | \\n<total_tokens>14926828 tokens left"),
        ("oh-my-openagent/clock", "<omo-env>\n time: | 10:01", "<omo-env>\n time: | 10:07"),
        (
            "librechat/clock",
            "# `web_search`:\nCurrent Date & Time: 2026 | -04-12T",
            "# `web_search`:\nCurrent Date & Time: 2026 | -04-13T",
        ),
        (None, "; cch=1a2b3;\nYou are | old", "; cch=1a2b3;\nYou are | new"),
        (None, "14 | 931235 tokens left", "14 | 926828 tokens left"),
        (None, "<total_tokens>14 | 931235", "<total_tokens>14 | 931235"),
        (None, "<env> time: | 10:01", "<env> time: | 10:07"),
        (None, "no bar at all", "<total_tokens>12"),
    ],
)
def test_old_and_new_lines(handle, old, new):
    found = printed(old, new)
    assert (found and found.handle) == handle


def test_the_table_is_sound():
    """Every row has a source, kinds that exist, expressions that compile, and text of its own where it claims some."""
    assert len({client.name for client in table()}) == len(table()) >= 15
    assert len(set(HABITS)) == len(HABITS) >= 15
    for client, habit in clients._all():
        assert set(habit.kinds) <= set(DIFFERENCES)
        assert habit.sources
        assert all(re.fullmatch(r"https://[\w.-]+/[^\s<>\"]+", source) for source in habit.sources)
        for pattern in (client.says, client.version, habit.text, habit.printed):
            assert re.compile(pattern)
        assert habit.own <= bool(habit.text), habit
        assert not habit.kinds or habit.own or client.says, habit
        assert not habit.dated or (habit.fixed and client.version)
        assert habit.writes[0].islower()
        assert not habit.writes.endswith(".")


def test_the_page_is_up_to_date():
    """docs/clients.md is what scripts/make-clients-doc would write, and has every habit."""
    root = Path(__file__).parent.parent
    assert checked("make-clients-doc") == (0, "")
    page = (root / "docs" / "clients.md").read_text("utf-8")
    assert all(f"- **{k.habit.name}**: {k.client.title} {k.habit.writes}." in page for k in clients._all())


def test_a_habit_that_is_not_in_the_table():
    with pytest.raises(KeyError):
        known("claude-code/nothing")
    assert [k.client.name for k in clients.habits_named("side-requests")] == ["claude-code", "opencode", "open-webui"]
    assert isinstance(known(HABITS[0]).client, Client)
    assert isinstance(known(HABITS[0]).habit, Habit)


def test_anthropic_bodies_name_their_client_in_the_system_field():
    a, b = (anthropic(U1, A1, U2) for _ in "ab")
    for body, date in ((a, DATES[0]), (b, DATES[1])):
        body["system"] = [{"type": "text", "text": CLAUDE}, {"type": "text", "text": f"Today's date: {date}\n{RULES}"}]
    found = between(a, b)
    assert found.client is not None
    assert found.client.habit == "claude-code/date-in-system-prompt"
