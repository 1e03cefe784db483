"""Text that people read has no phrases that made it hard: calques, riddles and second words for one thing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

PHRASES = {
    "fix": r"\bmend(?:s|ed|ing)?\b|\bcure[sd]?\b",
    "recompute": r"\bcomputed (?:again|anew|once more)\b",
    "comes after, comes before, is in": r"\b(?:stands?|stood) (?:behind|before|beside|in front of|in the|in a|there)\b",
    "is not a": r"(?<!there )(?<!There )\b(?:is|are) no (?!longer\b|more\b|such\b|less\b|one\b|part\b|need\b)[a-z]+\b",
    "unknown client, who caused it": r"\bof nobody\b|\bwhose doing\b",
    "almost nothing": r"\bnext to (?:nothing|none)\b",
    "checked": r"\b(?:is|are|was|were|be|been|not) looked at\b",
    "shows": r"\b(?:log|logs|line|lines) (?:does not |do not |cannot )?(?:tells?|says?)\b",
    "not checked": r"\b(?:not|be) evaluated\b",
    "evict, discard": r"\b(?:thrown|throws|threw) (?:out|away)\b|\bpush(?:ed|es)? out\b",
    "evict each other": r"\bpush(?:es|ed|ing)? each other out\b",
    "computed in full": r"\bcomputed whole\b",
    "for lack of": r"\bfor want of\b",
    "again": r"\banew\b",
    "continue": r"\b(?:go|goes|went) on with\b",
    "alternate": r"\b(?:take|takes|took|taking) turns\b",
    "is fine": r"\bnothing is wrong with\b",
    "after": r"\bbehind (?:it|them|that|what|which)\b",
    "high, medium, low": r"\bconfidence (?:sure|likely|possible)\b",
}
"""What to write, and what not to."""
ANY = re.compile("|".join(PHRASES.values()))
"""Most texts have none: one search says so."""

ALLOWED = {
    ("tests/test_plain_words.py", ""): "names the phrases",
    ("cachedoctor/redaction/redact_lines.py", "cc_version=0; behind it"): "stands in for text of a client",
    ("docs/words.md", ""): "lists other spellings, so that a search finds them",
}
"""File, and a part of the text; why it may."""

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(
        path
        for folder in ("docs", "cachedoctor", "benchmarks", "contrib")
        for path in sorted((ROOT / folder).rglob("*.md"))
    ),
    *(ROOT / name / "README.md" for name in ("fixtures", "tests/e2e")),
]
CODE = sorted((ROOT / "cachedoctor").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def prose(page: str) -> str:
    """The text of a page without code: what a program printed is its own."""
    return re.sub(r"^ *(```+|~~~+).*?^ *\1|`[^`\n]*`", "", page, flags=re.MULTILINE | re.DOTALL)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string with a space in it, docstrings among them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings, and of the names of tests in words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield 1, ast.get_docstring(node) or ""
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield node.lineno, node.name.replace("_", " ")


def is_server_text(path: Path) -> bool:
    """Whether the strings of a file are messages of servers, in their words."""
    return path.name == "messages.py" or "programs" in path.parts


def found(path: Path, parts: Iterator[tuple[int, str]]) -> list[str]:
    """A row for each phrase of a file."""
    name = path.relative_to(ROOT).as_posix()
    return [
        f"{name}:{line}: {match[0]!r}: write {better!r}"
        for line, text in ((at, " ".join(words.split())) for at, words in parts)
        if ANY.search(text)
        for better, phrase in PHRASES.items()
        for match in re.finditer(phrase, text)
        if not any(name == file and (not part or part in text) for file, part in ALLOWED)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_is_plain(page: Path) -> None:
    if "examples" not in page.parts:
        assert found(page, iter([(1, prose(page.read_text("utf-8")))])) == []


def test_texts_and_docstrings_of_the_package_are_plain() -> None:
    rows = [
        row
        for path in CODE
        for source in (path.read_text("utf-8"),)
        for row in found(path, docstrings(source) if is_server_text(path) else texts(source))
    ]
    assert rows == []


@pytest.mark.sweep
def test_docstrings_and_names_of_tests_are_plain() -> None:
    assert [row for path in TESTS for row in found(path, docstrings(path.read_text("utf-8")))] == []


@pytest.mark.parametrize(
    "text",
    [
        "no option mends it", "it was computed again", "what stands behind the head", "a line that is no message",
        "requests of nobody", "next to nothing was reused", "that was not looked at", "the log does not tell",
        "rules not evaluated",
        "they push each other out", "it was computed whole", "a kill for want of memory",
        "pushed out of the cache", "written anew", "it goes on with the prompt",
        "they take turns", "nothing is wrong with that", "everything behind it", "confidence likely",
    ],
)  # fmt: skip
def test_each_phrase_is_found(text: str) -> None:
    assert sum(bool(re.search(phrase, text)) for phrase in PHRASES.values()) == 1


def test_plain_sentences_are_not_found() -> None:
    text = "There is no proxy behind the server, and the log is no longer written; the page is not part of it."
    assert not any(re.search(phrase, text) for phrase in PHRASES.values())
