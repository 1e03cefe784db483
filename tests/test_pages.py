"""What the pages and docstrings name is there: paths, files, modules."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import ROOT
from loops import each

PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
PACKAGES = {path.name for path in (ROOT / "cachedoctor").iterdir() if path.is_dir()}
TOPS = ("cachedoctor", "tests", "docs", "fixtures", "scripts", "benchmarks", ".ci")
FILES = {path.name for top in TOPS for path in (ROOT / top).rglob("*.*")}
PLACEHOLDER = re.compile(r"[A-Z]{3,}|NNN|<|\*|\.\.\.")
"""``docs/usage/COMMAND.md`` stands for many."""
THEIRS = (
    "inputs/captures",
    "engines/vllm",
    "engines/sglang",
    "engines/programs",
    "diagnosis/rules/sglang",
    "diagnosis/rules/vllm",
    "engines/catalogue/logger.py",
    "engines/wrapped_rows.py",
    "inputs/metrics/kv_messages.py",
    "diagnosis/replay/radix_cache.py",
    "diagnosis/replay/block_cache.py",
    "prompts/tokenizers/from_gguf.py",
)
"""Docstrings there name files of the servers and of ggml."""


def named(text: str) -> list[str]:
    """Words in backticks that look like paths of the repository, or like modules; commands give their words."""
    words = [word for span in re.findall(r"`+([^`]+)`+", text) for word in span.split()]
    kept = [word for word in words if not PLACEHOLDER.search(word)]
    paths = [word for word in kept if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", word)]
    return [
        word for word in paths if (word.split("/")[0] in (*TOPS, *PACKAGES) and "/" in word) or word.endswith(".py")
    ]


def missing(word: str, beside: Path) -> bool:
    """No such file, from the root, from the package, or from ``beside``; a file name alone may be anywhere."""
    if "/" not in word and word in FILES:
        return False
    return not any((start / word).exists() for start in (ROOT, ROOT / "cachedoctor", beside))


@each("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_on_a_page_exist(page: Path) -> None:
    """In the recipes above all, where a reader opens what is named."""
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert [word for word in named(prose) if missing(word, page.parent)] == []


def test_modules_named_in_docstrings_exist() -> None:
    """``settle.py`` is searched for anywhere, ``redact/holes.py`` in its folder."""
    found = []
    for path in sorted((ROOT / "cachedoctor").rglob("*.py")):
        where = path.relative_to(ROOT / "cachedoctor").as_posix()
        if where.startswith(THEIRS):
            continue
        said = re.match(r'"""(.+?)"""', path.read_text("utf-8"), re.S)
        text = said[1] if said else ""
        words = {*named(text), *re.findall(r"[\w/]+\.py\b", text)}
        found += [f"{where}: {word}" for word in sorted(words) if missing(word, path.parent)]
    assert found == []


def test_what_is_gone_is_noticed() -> None:
    """A page that names a module of another time, and what is not a path."""
    text = "`choosing.py`, `cli/diff.py`, `docs/gone.md`, `docs/usage/COMMAND.md`, `llama-server`, `cd docs/usage`"
    assert named(text) == ["choosing.py", "cli/diff.py", "docs/gone.md", "docs/usage"]
    assert [word for word in named(text) if missing(word, ROOT)] == ["choosing.py", "docs/gone.md"]
