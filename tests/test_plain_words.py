"""Text that people read has no phrases that made it hard: calques, riddles and second words for one thing."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
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
SHOWN_PHRASES = {
    "diverge": r"\bthey part\b|\bthat parts? (?:at|before|between|after|from)\b|\bprompts? parts?\b",
    "restore": r"\b(?:put|gave|given) back\b",
    "truncate": r"\b(?:can|could|cannot) (?:not )?be cut\b|\bcut (?:back|off|out)\b",
    "beginning": r"\b(?:its|the|a) begin\b",
    "a client, a user, nothing": r"\b(?:[Ss]ome|[Nn]o|[Aa]ny)body\b",
    "client address": r"\b(?:who|clients) asked\b",
    "requested": r"\b(?:was|were|is) asked for\b",
    "space": r"\bblanks?\b(?! lines?)",
    "previous": r"\bsince the \w+ before\b",
    "is, is not": r"\b(?:stands?|stood) (?:nowhere|around|in (?:one|none))\b",
    "shows": r"\b(?:finding|configuration|class|usage|number|option|row) (?:says?|tells?)\b|\blog tells\b",
    "does not concern, does not exclude": r"\b(?:says?|tells?) nothing (?:about|of)\b|\bsilence about\b",
    "useful": r"\b(?:is|are|be) of use\b",
    "unnecessarily": r"\bwithout need\b",
    "recomputed": r"\b[Cc]omputed again\b",
    "with the log": r"\bbeside (?:the|a) logs?\b",
    "including": r"\b(?:one|ones|part|tokens|cache|checkpoints) included\b",
}
"""The same for what users read alone: pages, reports, help, explanations of lines; docstrings may have them."""
_EACH = [
    one for phrases in (PHRASES, SHOWN_PHRASES) for text in phrases.values() for one in re.split(r"\|(?=\\b)", text)
]
_BEGIN = re.compile(r"^(?:\(\?<![^)]*\))*\\b")
ANY = re.compile(r"\b(?:" + "|".join(_BEGIN.sub("", one) for one in _EACH) + ")")
"""Most texts have none: one search at the beginnings of words says so, whatever comes before them."""

ALLOWED = {
    ("tests/test_plain_words.py", ""): "names the phrases",
    ("cachedoctor/redaction/redact_lines.py", "cc_version=0; behind it"): "stands in for text of a client",
    ("docs/words.md", ""): "lists other spellings, so that a search finds them",
    ("cachedoctor/prompts/compare_prompts.py", "|blanks|"): "names of fields, as diff-v1 has them",
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


def texts(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and text of every string with a space in it, docstrings among them."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def shown(nodes: Sequence[ast.AST], meanings: bool) -> Iterator[tuple[int, str]]:
    """The same without docstrings; ``meanings``: only what explains a message, beside the words of servers."""
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    explained = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "meaning"]
    for node in [part for value in explained for part in ast.walk(value)] if meanings else nodes:
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docs
            and " " in node.value
        ):
            yield node.lineno, node.value


def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a module; to go through them takes longer than to parse it."""
    return list(ast.walk(ast.parse(path.read_text("utf-8"))))


def docstrings(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings, and of the names of tests in words."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield 1, ast.get_docstring(node) or ""
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield node.lineno, node.name.replace("_", " ")


def is_server_text(path: Path) -> bool:
    """Whether the strings of a file are messages of servers, in their words."""
    return path.name == "messages.py" or "programs" in path.parts


def found(path: Path, parts: Iterator[tuple[int, str]], phrases: dict[str, str] = PHRASES) -> list[str]:
    """A row for each phrase of a file."""
    name = path.relative_to(ROOT).as_posix()
    return [
        f"{name}:{line}: {match[0]!r}: write {better!r}"
        for line, text in ((at, " ".join(words.split())) for at, words in parts)
        if ANY.search(text)
        for better, phrase in phrases.items()
        for match in re.finditer(phrase, text)
        if not any(name == file and (not part or part in text) for file, part in ALLOWED)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_is_plain(page: Path) -> None:
    if "examples" not in page.parts:
        assert found(page, iter([(1, prose(page.read_text("utf-8")))])) == []


USERS = [page for page in PAGES if page.relative_to(ROOT).parts[0] in ("README.md", "docs", "cachedoctor")]
TEMPLATES = sorted((ROOT / "cachedoctor").rglob("*.j2"))


@pytest.mark.parametrize("page", USERS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_for_users_is_plain(page: Path) -> None:
    if "examples" not in page.parts:
        assert found(page, iter([(1, prose(page.read_text("utf-8")))]), SHOWN_PHRASES) == []


def test_texts_and_docstrings_of_the_package_are_plain() -> None:
    """And what it shows for users: reports, help, errors, explanations of lines."""
    both, rows = PHRASES | SHOWN_PHRASES, list[str]()
    for path in CODE:
        nodes, is_server = nodes_of(path), is_server_text(path)
        rows += found(path, docstrings(nodes) if is_server else texts(nodes))
        rows += found(path, shown(nodes, is_server), both)
    assert rows == []


def test_templates_and_the_glossary_are_plain() -> None:
    both = PHRASES | SHOWN_PHRASES
    rows = [row for path in TEMPLATES for row in found(path, iter([(1, path.read_text("utf-8"))]), both)]
    glossary = ROOT / "cachedoctor" / "knowledge" / "glossary.toml"
    words = tomllib.loads(glossary.read_text("utf-8"))["term"]
    assert len(words) > 30
    assert rows + found(glossary, iter([(1, word["meaning"]) for word in words]), both) == []


@pytest.mark.sweep
def test_docstrings_and_names_of_tests_are_plain() -> None:
    assert [row for path in TESTS for row in found(path, docstrings(nodes_of(path)))] == []


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
    assert ANY.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "then they part (token 9)", "a later prompt that parts at it", "it could not be put back",
        "memory cannot be cut", "cut off at 12 characters", "moved to its begin", "somebody called it",
        "no log shows who asked",
        "although it was asked for", "a blank was added", "since the line before", "it stands in one row",
        "the finding says so", "it says nothing about eviction", "going back is of use", "recomputed without need",
        "Computed again", "reused ones included", "give bodies beside the log",
    ],
)  # fmt: skip
def test_each_phrase_for_users_is_found(text: str) -> None:
    assert sum(bool(re.search(phrase, text)) for phrase in SHOWN_PHRASES.values()) == 1
    assert ANY.search(text)


def test_plain_sentences_are_not_found() -> None:
    text = (
        "There is no proxy behind the server, and the log is no longer written; the page is not part of it. "
        "A blank line begins it: prompts that are part of a log go back, and the first part is included."
    )
    assert not any(re.search(phrase, text) for phrase in (*PHRASES.values(), *SHOWN_PHRASES.values()))
