"""No pattern of the package backtracks for ever: attacks are made from each. The benchmark measures ratios."""

from __future__ import annotations

import re
import types
from functools import cache

import patterns
import pytest

from cachedoctor.knowledge import texts

compiled = cache(patterns.compiled)
SIZE = 300
"""Repetitions: a cube of it would be felt, an exponential never end."""
PARTS = 32
"""The patterns are known when the package is imported as a whole; the tests alternate with them."""


@pytest.mark.sweep
def test_every_pattern_is_found() -> None:
    """Of modules, of tables and bound methods in them, and of rows of the catalogue."""
    names = set(compiled())
    assert {
        "the catalogue",
        "inputs.envelope.shapes._ESCAPES",
        "engines.llamacpp.fused.READ_CREATED",
        "secrets by shape: AWS key id",
        "secrets by place: password",
    } <= names
    assert any(name.startswith("inputs.envelope.prefixes.TABLE[") for name in names)
    assert sum(name.startswith("row ") for name in names) == len(patterns.ROWS)


def test_a_new_pattern_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from cachedoctor.engines.catalogue import heads

    monkeypatch.setattr(heads, "_NEW", {"a": [re.compile("new(x+)*y")]}, raising=False)
    assert any(pattern.pattern == "new(x+)*y" for pattern in patterns.compiled().values())


@pytest.mark.parametrize(
    ("careless", "attack"),
    [
        (r"(?:a+)+b", "a" * 9 + "\x01!"),
        (r"x: .*?[ \t]*$", "x: " + "a" * 0 + " " * 0),
        (r"\| *[ \t]*\d", "|" + " " * 9 + "\x01!"),
        (r"id +(\d+) *\|", "id 0" + " " * 9 + "\x01!"),
        (r"(?=([a-f]*)\d)x", "a" * 9 + "z z"),
    ],
)
def test_the_attack_on_a_careless_pattern_is_among_those_made(careless: str, attack: str) -> None:
    made = [a.text(n) for a in patterns.attacks(re.compile(careless)) for n in (0, 9)]
    assert attack in made


@pytest.mark.sample(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_pattern_answers_its_attacks(part: int) -> None:
    """The answer to a long attack is that to a short one: what repeats does not decide."""
    for name, pattern in list(compiled().items())[part::PARTS]:
        find = pattern.search if patterns.searched(name) else pattern.match
        bounded = rb"\{\d*,\d+\}" if isinstance(pattern.pattern, bytes) else r"\{\d*,\d+\}"
        for attack in patterns.attacks(pattern)[::4]:
            if (find(attack.text(60)) is None) != (find(attack.text(SIZE)) is None):
                # bounded repeats (a name of at most 255 characters) end somewhere between
                assert re.search(bounded, pattern.pattern), name


def test_methods_and_modules_are_not_patterns() -> None:
    found: dict[str, re.Pattern[str]] = {}
    patterns._collect("x", types.ModuleType("x"), found, 0)
    patterns._collect("x", "text".join, found, 0)
    assert found == {}


@pytest.mark.parametrize(
    ("name", "is_searched"),
    [
        ("live.probe.identity._LABEL", True),
        ("metrics.prometheus._LABEL", False),
        ("engines.llamacpp.excerpts.PREFIXED", False),
        ("inputs.envelope.shapes._NEXT_SHAPED", True),
    ],
)
def test_one_name_in_two_modules_is_two_patterns(name: str, is_searched: bool) -> None:
    assert patterns.searched(name) == is_searched


def test_a_text_without_the_end_of_a_piece_takes_one_look() -> None:
    """A second would be some 10^11 steps."""
    assert texts.pieces(b"a" * 1_000_000) == {}
    assert sum(texts.pieces(b"a" * 30 + b"." + b"a" * 1_000_000).values()) == 31
