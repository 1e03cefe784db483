"""How Sphinx makes a site of the pages. They stay plain Markdown, and links between them are those of the repository.

The source folder is the root of the repository, so that a link to a rule's page or to CONTRIBUTING.md leads there on
the site as well. The tree of pages is read off the links of docs/index.md: a page that it does not link is an error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent

project = "cachedoctor"
author = "the cachedoctor authors"
project_copyright = f"{author}, Apache-2.0"
version = release = re.findall(r'__version__ = "(.+)"', (ROOT / "cachedoctor" / "__init__.py").read_text("utf-8"))[0]

extensions = ["myst_parser"]
include_patterns = [
    "docs/**.md",
    "cachedoctor/diagnosis/rules/*/cd*.md",
    "cachedoctor/diagnosis/rules/blind.md",
    "benchmarks/README.md",
    "benchmarks/accuracy.md",
    "tests/e2e/README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
]
exclude_patterns = ["docs/examples/*/*", "build", "dist", "fixtures", ".*", "**/__pycache__"]
root_doc = "docs/index"
myst_heading_anchors = 4
highlight_language = "text"
smartquotes = False  # two hyphens are an option, not a dash

html_theme = "furo"
html_title = f"cachedoctor {version}"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["site"]
html_css_files = ["site.css"]

# Words behind ``` that are no languages: inputs, with which the tests of the rules' pages do something.
for _name in ("log", "cmdline", "requests", "slots"):
    lexers[_name] = TextLexer()

_PAGE = re.compile(r"\]\(([^)#:]+\.md)\)")
_EXAMPLE = re.compile(r"\[([^\]]+)\]\(((?!\.\./)[^)#:]+/[^)#:]+)\)")
_RULES = "docs/rules"
_USAGE = "docs/usage/index"


def _tree(_: Sphinx, name: str, source: list[str]) -> None:
    """Append the table of pages that Sphinx wants to the pages that list others."""
    if name not in (root_doc, _RULES, _USAGE):
        return
    pages = [page for page in dict.fromkeys(_PAGE.findall(source[0])) if not _elsewhere(name, page)]
    source[0] += "\n```{toctree}\n:hidden:\n\n" + "".join(f"{page}\n" for page in pages) + "```\n"


def _elsewhere(name: str, page: str) -> bool:
    """Whether a page that is linked stands in the table of another one: each page has one place."""
    if name == root_doc:
        return page.startswith("usage/") and page != "usage/index.md"
    return name == _RULES and page.startswith("usage/")


def _examples(_: Sphinx, name: str, source: list[str]) -> None:
    """Links to examples lead to the files as they are, which scripts/docs puts beside the pages."""

    folder = ROOT / Path(name).parent

    def link(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        raw = target.is_relative_to(ROOT / "docs" / "examples") and target.name != "README.md" and target.exists()
        return f'<a href="{found[2]}">{found[1]}</a>' if raw else found[0]

    source[0] = _EXAMPLE.sub(link, source[0])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _tree)
    app.connect("source-read", _examples)
