"""Prompts of different conversations that share text, and one text that separate prompts ask about, by their bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import FIXTURES
from prompt_forms import body

import cachedoctor
from cachedoctor.doctor.extras import prompt_matching
from cachedoctor.model import Report
from cachedoctor.prompts import separate_prompts
from cachedoctor.prompts.compare_prompts import DiffOptions, compare
from cachedoctor.prompts.conversations import outline
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt

RULES = {"role": "system", "content": "Judge the letter by one criterion, and answer with one number from one to nine."}
LETTER = (
    "Dear neighbour, the old pear tree on your side has dropped its fruit on our path since August. "
    "We have swept it away nine times. Twice somebody slipped, and once it was my mother. "
    "Please have the tree cut before the next summer, or let us have it cut. "
    "We would share the bill with you, and keep the wood. "
)
OTHER = (
    "To the editor: your paper wrote on Monday that the bridge would open in spring. "
    "The mayor said in June that nobody could know this before the piers had been tested. "
    "I drive across the ferry twice a day, and ask for a correction. "
    "A photograph of the empty piers is enclosed, with my name and address. "
)
CRITERION, SECOND = "Is the letter polite throughout, and why?", "Does the letter say what is to be done?"


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def of(*messages: dict[str, str], **more: Any) -> Prompt:
    return body({"messages": list(messages), **more})


def changed(a: Prompt, b: Prompt) -> Any:
    found = compare(a, b, ModelFiles().cutter, DiffOptions())
    assert found.first is not None
    return found


@pytest.mark.parametrize("head", [[RULES], []], ids=["instructions", "none"])
def test_another_document_before_one_question_is_another_prompt(head: list[dict[str, str]]) -> None:
    a, b = (of(*head, user(text), user(CRITERION)) for text in (LETTER, OTHER))
    found = changed(a, b)
    assert separate_prompts.is_asked_anew(found, a, b)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([user(LETTER), user(CRITERION)], [user(LETTER.replace("nine", "ten")), user(CRITERION)]),
        (
            [user(LETTER), {"role": "assistant", "content": "7"}, user(CRITERION)],
            [user(OTHER), {"role": "assistant", "content": "7"}, user(CRITERION)],
        ),
        ([user("Of today. " + LETTER + OTHER)], [user("Of May. " + LETTER + OTHER)]),
    ],
    ids=["a-word", "in-a-conversation", "before-the-text"],
)
def test_text_that_is_sent_again_after_a_change_is_lost(
    before: list[dict[str, str]], after: list[dict[str, str]]
) -> None:
    a, b = of(RULES, *before), of(RULES, *after)
    found = changed(a, b)
    assert not separate_prompts.is_asked_anew(found, a, b)


def _tools(*names: str) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name, "description": LETTER}} for name in names]


@pytest.mark.parametrize(
    ("question", "separate"), [("Where is the ferry timetable kept?", True), ("Who wrote to us in August?", False)]
)
def test_tools_change_within_one_conversation_only(question: str, separate: bool) -> None:
    """Two users have tools of their own behind one system prompt; a change loses only what one of them had."""
    first = user("Who wrote to us in August?")
    a = of(RULES, first, tools=_tools("read_file", "list_files"))
    b = of(RULES, user(question), tools=_tools("read_file"))
    found = changed(a, b)
    assert found.first.kind == "tool-removed"
    told = prompt_matching._Told(a, outline(a), None, 0, 0, 0)
    assert prompt_matching._is_separate(found, told, b, outline(b)) is separate


def test_a_new_mark_on_both_sides_of_a_message_does_not_change_the_conversation() -> None:
    """Programs write random marks around what users say, in each request others."""
    a = of(RULES, user(f"<2c8ae7bc18>{LETTER[:150]}</2c8ae7bc18>"))
    reply = {"role": "assistant", "content": "7"}
    b = of(
        RULES, user(f"<314494ea3d>{LETTER[:150]}</314494ea3d>"), reply, user(f"<314494ea3d>{CRITERION}</314494ea3d>")
    )
    other = of(RULES, user(f"<314494ea3d>{OTHER[:150]}</314494ea3d>"), reply, user(CRITERION))
    assert separate_prompts.has_its_reply(a, b)
    assert not separate_prompts.has_its_reply(a, other)


@pytest.mark.parametrize(
    ("before", "after", "reasoning", "kind"),
    [
        ({"preserve_thinking": True}, {"preserve_thinking": False}, "It is polite.", "reasoning-dropped"),
        ({"preserve_thinking": False}, {"preserve_thinking": True}, "It is polite.", "reasoning-added"),
        ({"clear_thinking": False}, {"clear_thinking": True}, "It is polite.", "reasoning-dropped"),
        ({"preserve_thinking": True}, {"preserve_thinking": False}, "", "template"),
        ({"enable_thinking": True}, {"enable_thinking": False}, "It is polite.", "template"),
        ({"preserve_thinking": True}, "none", "It is polite.", "template"),
    ],
)
def test_a_switch_that_drops_old_reasoning_is_said_as_that(before: Any, after: Any, reasoning: str, kind: str) -> None:
    replied = {"role": "assistant", "content": "7"} | ({"reasoning_content": reasoning} if reasoning else {})
    said = [RULES, user(LETTER), replied, user(CRITERION)]
    a, b = (of(*said, chat_template_kwargs=switch) for switch in (before, after))
    assert changed(a, b).first.kind == kind


def _analysed(day: str, tmp_path: Path) -> Report:
    """What is said of a day with its bodies and the answers recorded with them."""
    run = FIXTURES / "days" / day
    sent, answers = (
        [json.loads(line) for line in (run / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("requests", "responses")
    )
    recorded = tmp_path / "recorded.jsonl"
    rows = (json.dumps(one | {"response": answer}) for one, answer in zip(sent, answers, strict=True))
    recorded.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return cachedoctor.analyze(run / "server.log", prompts=[recorded])


@pytest.mark.parametrize(
    ("day", "names", "tokens"),
    [
        ("dense-questions_outer-b10566-default", ["slot-contention"], 17_144),
        ("dense-two_editors-b10566-lv4", ["cache-ram-disabled"], 19_241),
        ("dense-readers_in_one_memory-b8352-default", ["kv-purged"], 20_879),
        ("dense-three_ideas_beside-b11549-default", ["slot-held-other-prompt"], 17_639),
    ],
)
def test_what_the_server_once_had_is_counted(tmp_path: Path, day: str, names: list[str], tokens: int) -> None:
    """Documents that come three times, files of two editors, slots that were emptied, or taken by further answers: near
    what the fix saved."""
    report = _analysed(day, tmp_path)
    found = [finding for finding in report.findings if finding.severity != "note"]
    assert [finding.name for finding in found] == names
    assert sum(finding.cost.tokens for finding in found) == pytest.approx(tokens, rel=0.05)


@pytest.mark.parametrize(
    ("day", "severity", "advice"),
    [
        ("dense-abandoned_drafts-b9713-default", "note", "Let the client stop the earlier request"),
        ("dense-criteria_at_once-b9294-default", "warning", "Send the first request alone"),
    ],
)
def test_a_draft_beside_one_that_was_given_up_is_noted(tmp_path: Path, day: str, severity: str, advice: str) -> None:
    """Nobody waits for the answer of a stopped request, so that the next one cannot come after it."""
    found = _analysed(day, tmp_path).findings[0]
    assert (found.name, found.severity) == ("computed-together", severity)
    assert found.remedies[0].text.startswith(advice)
