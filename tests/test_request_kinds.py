"""Kinds of requests: what bodies say they are for, their share, and what they evict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.doctor.whatif.evidence import Asking, gather
from cachedoctor.doctor.whatif.request_kinds import request_kinds
from cachedoctor.model.whatif import RequestKind
from cachedoctor.report.forms import kind_forms

pytestmark = pytest.mark.usefixtures("child_here")
TEXT = " ".join(f"word{n}" for n in range(300))


def chat(system: str, *said: str) -> dict[str, object]:
    messages = [{"role": "system", "content": system}]
    messages += [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(said)]
    return {"messages": messages}


def kinds(tmp_path: Path, *bodies: dict[str, object]) -> dict[str, RequestKind]:
    path = tmp_path / "bodies.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in bodies))
    given = gather(Asking([str(path)]))
    given.settings = replace(given.settings, slots=1, kv_unified=False, cache_ram_mib=0)
    return {row.kind: row for row in request_kinds(given, serve(given.traffic, given.settings))}


TURNS = [chat(TEXT, "first question " + TEXT), chat(TEXT, "first question " + TEXT, "reply", "and the next one")]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("title", chat("You are a title generator.", "Some question")),
        ("title", chat("Help.", f"Generate a concise title for the chat: {TEXT[:200]}")),
        ("title", chat("Help.", "Suggest three follow-up questions and give tags")),
        ("summary", chat("You summarize.", f"{TEXT}\nPlease write a summary of the conversation so far")),
        ("summary", chat("Help.", "Compact the history of this session")),
        ("tool search", chat("Help.", "Select the relevant tools for the task from this list")),
        ("autocomplete", {"prompt": "def f(x):\n    return"}),
    ],
)
def test_a_request_says_what_it_is_for(tmp_path: Path, kind: str, body: dict[str, object]) -> None:
    """It is sent between two turns on the only slot, and evicts the first one, of which 600 words come again."""
    found = kinds(tmp_path, TURNS[0], body, TURNS[1])
    assert set(found) == {"main turn", kind}
    assert found[kind].requests == 1
    assert found["main turn"].requests == 2
    # without it the second turn reuses the first: two texts of 300 words of two pieces each
    assert found[kind].displaced_tokens > 2 * 600
    assert found["main turn"].displaced_tokens == 0


def test_turns_that_speak_of_titles_stay_turns(tmp_path: Path) -> None:
    """A conversation of several requests is one, whatever its words are."""
    first = chat("You are a title generator.", "Generate a title for my book " + TEXT)
    more = chat("You are a title generator.", "Generate a title for my book " + TEXT, "A Book", "Another title please")
    assert kinds(tmp_path, first, more) == {}


def test_a_few_short_requests_are_not_told_apart(tmp_path: Path) -> None:
    long = " ".join(f"long{n}" for n in range(4_000))
    turns = [chat(long, "hello"), chat(long, "hello", "yes", "go on " + long)]
    assert kinds(tmp_path, chat("Help.", "Generate a title for the chat"), *turns) == {}


def test_kinds_read_as_sentences() -> None:
    found = [
        RequestKind("main turn", 10, 40_000, 6000, 6000.0),
        RequestKind("title", 5, 4000, 4000, 2000.0, 9000),
        RequestKind("summary", 1, 4000, 4000, 2000.0),
    ]
    first, second, third = kind_forms.kinds(found)
    assert first == "main turn: 60.0 % of the prompt time (10 requests, 6.0 s)"
    assert second.startswith(
        "title: 20.0 % of the prompt time (5 requests, 2.0 s); without these requests the others would "
        "reuse 9,000 tokens more; "
        "send these requests to a separate small model, or switch them off (Claude Code: ANTHROPIC_DEFAULT_HAIKU_MODEL"
    )
    assert third.endswith("and compact rarely")
