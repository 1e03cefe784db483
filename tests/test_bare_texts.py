"""Prompts of one text: stories that go on, editors that fill a gap, and separate prompts behind one instruction."""

from __future__ import annotations

import random
from typing import Any

import pytest
from prompt_forms import between

from cachedoctor.prompts.bare_texts import fills_in, takes_up
from cachedoctor.prompts.request_bodies import kind_of, prompts_of

WORDS = [
    "otter",
    "kettle",
    "market",
    "window",
    "copper",
    "winter",
    "map",
    "rain",
    "bridge",
    "river",
    "clock",
    "parser",
    "lantern",
    "paper",
    "harbour",
]


def prose(seed: int, length: int) -> str:
    chance = random.Random(seed)
    return " ".join(chance.choice(WORDS) for _ in range(length // 6))


HEAD, NOTE, ASKED = prose(1, 500), f"[{prose(2, 200)}]", f"{prose(3, 120)}\nAnswer:"
PARTS = [prose(10 + i, 300) for i in range(9)]


def told(*parts: str) -> str:
    return "\n".join([HEAD, *parts])


@pytest.mark.parametrize(
    ("before", "text", "goes_on"),
    [
        (told(*PARTS[:3]), told(*PARTS[:4]), True),
        (told(*PARTS[:2], NOTE, *PARTS[2:5]), told(*PARTS[:4], NOTE, *PARTS[4:7]), True),
        (told(*PARTS[:4]), told(*PARTS[:3], PARTS[3] + "\n"), False),
        (told(*PARTS[:3], ASKED), told(*PARTS[3:6], ASKED), False),
        (told(*PARTS[:3], ASKED), told(*PARTS[:3], PARTS[4], ASKED), False),
        (told(PARTS[0]), told(PARTS[0] + PARTS[1], PARTS[2]), True),
        (told(PARTS[0]), told(PARTS[1]), False),
        ("Answer:", told(PARTS[1], "Answer:", "yes"), False),
    ],
    ids=["longer", "note-moves", "same", "other-documents", "one-document-more", "goes-on", "instruction", "short"],
)
def test_a_text_goes_on_where_another_one_ended(before: str, text: str, goes_on: bool) -> None:
    """A note that moves stands anywhere before; what all prompts end with is not the end of another one."""
    assert takes_up(text, before) is goes_on


@pytest.mark.parametrize(
    ("prompt", "fills"),
    [
        ("<|fim_prefix|>def f():<|fim_suffix|>\n    return 1<|fim_middle|>", True),
        ("<PRE> def f(): <SUF>\n    return 1 <MID>", True),
        ("[SUFFIX]\n    return 1[PREFIX]def f():", True),
        ("<｜fim▁begin｜>def f():<｜fim▁hole｜>\n    return 1<｜fim▁end｜>", True),
        ("What does <|fim_suffix|> mean?", False),
        ("def f():", False),
    ],
)
def test_marks_of_both_sides_of_a_cursor_are_an_editors(prompt: str, fills: bool) -> None:
    assert fills_in(_prompt({"prompt": prompt})) is fills
    assert fills_in(_prompt({"input_prefix": "def f():", "input_suffix": ""}))


def _prompt(body: dict[str, Any]) -> Any:
    kind = kind_of(body)
    assert kind is not None
    return prompts_of(body, kind, "x")[0]


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        (told(*PARTS[:5]), told(*PARTS[2:6]), "front-truncated"),
        (told(*PARTS[:5]), told(*PARTS[4:6]), "front-truncated"),
        (told(*PARTS[:5]), told(*PARTS[2:5]), "other"),
        (told(*PARTS[:5]), told(PARTS[7], *PARTS[2:6]), "other"),
        (told(*PARTS[:2], NOTE, *PARTS[2:4]), told(*PARTS[:4], NOTE, *PARTS[4:6]), "other"),
        (told(*PARTS[:5]), told(*PARTS[:6]), "appended"),
    ],
    ids=["oldest-dropped", "most-dropped", "nothing-new", "one-replaced", "note-moves", "longer"],
)
def test_a_text_without_its_oldest_part(a: str, b: str, kind: str) -> None:
    """What follows the head is the rest of the old text, and new text after it."""
    assert between({"prompt": a}, {"prompt": b}).kind == kind
