"""``cachedoctor explain``: pages of rules as they are printed, words of the reports, rules that were not checked."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from command import one_line, run
from conftest import ROOT
from rich.cells import cell_len
from scripts_here import checked

from cachedoctor.cli import arguments
from cachedoctor.diagnosis.rules import names
from cachedoctor.knowledge import glossary
from cachedoctor.report.text.explain_text import render_page
from cachedoctor.report.text.page import TextPage

PAGES = [*(path for code, _ in names.names() for path in names.pages(code)), names.BLIND]


def printed(text: str, width: int, color: bool = False) -> str:
    out = io.StringIO()
    render_page(text, TextPage(out, width, color))
    return out.getvalue()


PAGE = """\
# CD999 some-cause

## What it means

One sentence that goes on
in the next row.

## How it shows

```log
## no heading: a line of a log, which is longer than forty cells
```

1. first
   and more
2. second

       command --that stays --whole however --long it is

```sh
# a comment
```

## Why the cache could not be used

Because.

## Fix

- one
"""


def test_the_fix_comes_first() -> None:
    """Sections keep their order otherwise; sentences are wrapped, commands are not, a comment is not a heading."""
    assert printed(PAGE, 40).split("\n") == [
        "CD999 some-cause",
        "",
        "Fix",
        "- one",
        "",
        "What it means",
        "One sentence that goes on in the next",
        "row.",
        "",
        "How it shows",
        "|   ## no heading: a line of a log, which",  # no command to a CI either
        "    is longer than forty cells",
        "",
        "1. first and more",
        "2. second",
        "",
        "     command --that stays --whole however --long it is",
        "",
        "  # a comment",
        "",
        "Why the cache could not be used",
        "Because.",
        "",
    ]
    assert printed(PAGE, 40, color=True).startswith("\x1b[1mCD999 some-cause\x1b[0m\n")


@pytest.mark.spread(9)
@pytest.mark.sample(3)
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_pages_lose_nothing(path: Path) -> None:
    """Every word of every page is printed, and in a narrow terminal what may be broken is."""
    text = path.read_text("utf-8")
    words = re.sub(r"(?m)^```.*$|^#+ ", "", text).split()
    assert sorted(printed(text, 4000).split()) == sorted(words)
    narrow = printed(text, 60)
    assert narrow.index("\nFix\n") < narrow.index("\nHow it shows\n")
    whole = {*(line.strip() for line in text.split("\n") if line.startswith("    ")), *code_of(text)}
    assert [r for r in narrow.split("\n") if cell_len(r) > 60 and r.strip() not in whole and " " in r.strip()] == []


def code_of(text: str) -> list[str]:
    """Lines of blocks that may be pasted, and rows of tables."""
    blocks = re.findall(r"(?ms)^```(?:sh|cmdline(?: ok)?)?\n(.*?)^```$", text)
    return [*(line.strip() for block in blocks for line in block.split("\n")), *re.findall(r"(?m)^\|.*$", text)]


@pytest.mark.parametrize("asked", ["slot", "RAM prompt cache", "ram-prompt-cache", "Prefix", "KV_cache"])
def test_a_word_is_explained(asked: str) -> None:
    term = glossary.find(asked)
    assert term is not None


def test_words_take_two_rows() -> None:
    """Each of them, at 80 columns; no spelling stands for two."""
    spellings = [glossary._plain(spelling) for spelling in glossary.spellings()]
    assert len(spellings) == len(set(spellings)) >= 60
    assert [word for word in glossary.spellings() if names.pages(word)] == ["preemption"]  # its page says more
    for term in glossary.terms():
        out = io.StringIO()
        TextPage(out, 80).facts([f"{term.name}: "], term.meaning, 2)
        assert out.getvalue().count("\n") <= 2, term.name
        assert term.meaning.endswith(".")


def test_sample_lines_are_shown_where_they_are_asked_for() -> None:
    """Commands to paste stay; a page without samples names no option for them."""
    brief, whole = run("explain", "CD101").stdout, run("explain", "CD101", "--example").stdout
    for shown, has_lines in ((brief, False), (whole, True)):
        assert (b"memory_seq_rm [58, end)" in shown) is has_lines
        assert (b"\n\nSample lines: cachedoctor explain CD101 --example\n" in shown) is not has_lines
        assert b"cachedoctor analyze server.log --requests bodies.jsonl" in shown
    assert b"--example" not in run("explain", "blind").stdout


def test_explain_prints_words_and_what_was_not_checked() -> None:
    """Asked for as they are spelt anywhere; an unknown one names the nearest."""
    slot = run("explain", "slot")
    assert (slot.returncode, slot.stderr) == (0, b"")
    assert slot.stdout.startswith(b"slot: The part of llama-server's memory for one conversation")
    assert run("explain", "blind").stdout.startswith(b"Rules that could not be checked\n\nFix\n")
    unknown = run("explain", "slto")
    assert unknown.returncode == 2
    one_line(unknown, "no such rule or word", "did you mean slot?")


@pytest.mark.parametrize(
    ("word", "notes", "now"),
    [
        ("CD511", ["CD511 is part of CD101"], ["CD101"]),
        ("cd609", ["CD609 is part of CD101"], ["CD101"]),
        ("billing-header-kept", ["CD511 is part of CD101", "CD609 is part of CD101"], ["CD101"]),
        ("CD704", ["CD704 is part of CD105 and CD108"], ["CD105", "CD108"]),
    ],
)
def test_a_former_code_prints_the_pages_of_what_it_is_part_of(word, notes, now) -> None:
    done = run("explain", word)
    assert done.returncode == 0
    assert done.stderr.decode().splitlines() == [f"cachedoctor: note: {note} since 1.0.0" for note in notes]
    assert done.stdout == b"\n".join(run("explain", code).stdout for code in now)


def test_the_shell_offers_words() -> None:
    """Once something was typed: the list of rules is long enough."""
    assert ("slot", "word") in arguments.explained("sl")
    assert ("blind", "rules that could not be checked") in arguments.explained("bl")
    assert arguments.explained("") == arguments.rule("")


def test_the_page_of_words_is_up_to_date() -> None:
    """docs/words.md is what scripts/make-words-doc would write, and has every word."""
    assert checked("make-words-doc") == (0, "")
    page = Path(ROOT / "docs" / "words.md").read_text("utf-8")
    assert all(f"**{term.name}**" in page and term.meaning in page for term in glossary.terms())
