"""Pages of the rules: complete, true to the code, and their log excerpts do what they say."""

from __future__ import annotations

import re
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from random import Random

import pytest
from conftest import CASES, MEASURED, ROOT, case_of, report_of
from loops import each
from scripts_here import checked

from cachedoctor.diagnosis.rules import advice, registry
from cachedoctor.diagnosis.rules.kit import Rule
from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
from cachedoctor.knowledge.cmdline import parse
from cachedoctor.model import GivenOption

RULES, BROKEN = registry.load()
FOLDER = ROOT / "cachedoctor" / "diagnosis" / "rules"
PAGES = sorted(FOLDER.glob("*/cd[0-9]*.md"), key=lambda page: page.name)
HEADINGS = [
    "What it means",
    "How it shows",
    "Why the cache could not be used",
    "Fix",
    "When it is fine",
    "Builds",
]
EDIT = {code: {"CD105"} for code in ("CD203", "CD204", "CD207", "CD211", "CD212")}
ALONG = {**EDIT, "CD302": {"CD303"}}
"""Codes that the excerpt fires as well: the edit of the history that met the gap; the first loss of a contention, which
is not a pattern yet. Those that a rule fires ``only_with`` need not be here."""

WORDS = ["the", "otter", "walked", "along", "a", "river", "in", "winter", "and", "nobody", "sang"]

by_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
of_every_rule = each("rule", RULES, ids=lambda rule: rule.code)


def page_of(rule: Rule) -> str:
    path = registry.find(rule.code)
    assert path is not None
    return path.read_text("utf-8")


def blocks(text: str, info: str) -> list[str]:
    """Fenced blocks with this info string."""
    return re.findall(rf"^```{info}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def fired(log: str, prompts: GivenPrompts | None = None, given: list[GivenOption] | None = None) -> set[str]:
    return {finding["code"] for finding in report_of(log, prompts, given)["findings"]}


def given_on(text: str, ok: str = "") -> list[GivenOption]:
    """Options of the command line that the page gives beside an excerpt."""
    return [given for block in blocks(text, f"cmdline{ok}") for given in parse(block)]


def beside(text: str, folder: Path, ok: str = "") -> GivenPrompts | None:
    """Bodies or dumps that the page gives beside an excerpt; ``{{filler N}}`` in them stands for N words.

    ``{{words S N}}`` stands for N words in an order of its own for each S.
    """
    found = blocks(text, f"(?:requests|slots){ok}")
    if not found:
        return None
    (block,) = found
    block = re.sub(
        r"\{\{words (\d+) (\d+)\}\}", lambda m: " ".join(Random(int(m[1])).choices(WORDS, k=int(m[2]))), block
    )
    path = folder / "prompts.jsonl"
    path.write_text(
        re.sub(r"\{\{filler (\d+)\}\}", lambda m: " ".join(islice(cycle(WORDS), int(m[1]))), block), "utf-8"
    )
    return GivenPrompts([str(path)])


def test_every_rule_could_be_loaded() -> None:
    """A rule that fails to import is left out of a run; here it fails the tests."""
    assert BROKEN == []
    assert [code for code, _ in registry.names()] == sorted(rule.code for rule in RULES)


def test_every_page_has_its_rule() -> None:
    """Page and code file stand side by side."""
    assert [page.stem for page in PAGES] == [*registry.modules()]


@of_every_rule
def test_code_name_and_file_agree(rule: Rule) -> None:
    """``cd108_prefix_diverges_early`` is CD108 prefix-diverges-early, in the code and on the page."""
    path = registry.find(rule.code)
    assert path in registry.pages(rule.name)
    assert path is not None
    assert path.stem == f"{rule.code.lower()}_{rule.name.replace('-', '_')}"
    assert page_of(rule).splitlines()[0] == f"# {rule.code} {rule.name}"


@of_every_rule
def test_headings(rule: Rule) -> None:
    """The six of them, in order, each with something below it."""
    text = re.sub(r"^```.*?^```$", "excerpt", page_of(rule), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^#+ .*$", text, re.MULTILINE)[1:] == [f"## {h}" for h in HEADINGS]
    assert all(section.strip() for section in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:])


@of_every_rule
def test_what_the_script_left_to_be_written_is_written(rule: Rule) -> None:
    page = registry.find(rule.code)
    assert page is not None
    left = [path.name for path in (page, page.with_suffix(".py")) if "TODO" in path.read_text("utf-8")]
    assert left == [], "scripts/new-rule wrote TODO there"


@pytest.mark.sample(45)
@by_rule
def test_the_first_excerpt_fires_this_rule_alone(rule: Rule, tmp_path: Path) -> None:
    """What the page shows as the rule's look is its look, with the prompts that it gives beside the excerpt."""
    prompts = beside(page_of(rule), tmp_path)
    found = fired(blocks(page_of(rule), "log")[0], prompts, given_on(page_of(rule)))
    only_with = set(getattr(rule, "only_with", ()))
    along = ALONG.get(rule.code, set()) | found & only_with
    assert found == {rule.code} | along, "another cause: shorten the excerpt, or enter what belongs to it in ALONG"
    assert prompts is None or prompts.matched == len(prompts)


@of_every_rule
def test_a_rule_that_needs_prompts_has_some_on_its_page(rule: Rule) -> None:
    """And is silent without them."""
    if rule.needs in (advice.needs_prompts, advice.needs_bodies):
        assert blocks(page_of(rule), "(?:requests|slots)")
        assert rule.code not in fired(blocks(page_of(rule), "log")[0])


@pytest.mark.sample(12)
@by_rule
def test_the_other_excerpt_does_not(rule: Rule, tmp_path: Path) -> None:
    """Fine, or a look-alike; with prompts of its own, or else those of the first excerpt."""
    (fine,) = blocks(page_of(rule), "log ok")
    prompts = beside(page_of(rule), tmp_path, " ok") or beside(page_of(rule), tmp_path)
    assert rule.code not in fired(fine, prompts, given_on(page_of(rule), " ok"))
    assert prompts is None or prompts.matched == len(prompts)


@cache
def shown_by(llama: bool) -> set[str]:
    """Codes that the bundled logs of llama-server show, or those of other servers."""
    cases = [case_of(folder) for folder in CASES] if llama else MEASURED
    return {entry.split()[0] for case in cases for entry in case["expect"]}


@of_every_rule
def test_the_rule_has_a_case(rule: Rule) -> None:
    """A bundled log in which it fires. Where it must be silent, its page shows, and every case of another rule."""
    assert rule.code in shown_by(rule.engine == "llama.cpp")


@each("page", PAGES, ids=lambda page: page.stem)
def test_other_rules_are_named_as_they_are_called(page: Path) -> None:
    """``CD108 prefix-diverges-early``: code and name belong together; a code alone does not help a reader."""
    names = dict(registry.names())
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for code, name in re.findall(r"\b(CD\d{3})\s+([a-z-]+)", prose):
        assert names[code] == name
    assert not re.search(r"\bCD\d{3}\b(?!\s+[a-z])", prose)


def test_the_catalogue_of_rules_is_up_to_date() -> None:
    """docs/rules.md is what scripts/make-rules-doc would write."""
    assert checked("make-rules-doc") == (0, "")


def test_the_catalogue_names_every_rule_once() -> None:
    """With its page, in the order of codes."""
    text = (ROOT / "docs" / "rules.md").read_text("utf-8")
    listed = re.findall(
        r"^\| \[(CD\d{3}) [\w-]+\]\(\.\./cachedoctor/diagnosis/rules/\w+/(\w+)\.md\) ", text, re.MULTILINE
    )
    assert listed == [(path.stem[:5].upper(), path.stem) for path in PAGES]
