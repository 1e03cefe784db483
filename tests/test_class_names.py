"""Class names say one thing: no two classes have the same name."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import cachedoctor

PACKAGE = Path(cachedoctor.__file__).parent
DECLARED = re.compile(r"^ *class (\w+)", re.MULTILINE)
ROLES = {"Tracker"}
"""What several engines have one of each, under one name."""
TWICE: set[str] = set()
"""Names that still stand twice; this list only shrinks."""


def class_names(sources: list[str]) -> Counter[str]:
    """How often each class name is declared."""
    return Counter(name for source in sources for name in DECLARED.findall(source))


def test_no_two_classes_have_one_name() -> None:
    found = class_names([path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))])
    assert len(found) > 300
    assert {name for name, times in found.items() if times > 1} - ROLES == TWICE


def test_a_name_in_two_files_is_seen() -> None:
    assert class_names(["class A: ...\nclass B: ...\n", "class A: ...\n"]) == {"A": 2, "B": 1}
