"""How much there is of each package and of the docs: growth is decided in a commit, with its reason."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from conftest import ROOT

from cachedoctor.report.base import FORMATS

CODE = ROOT / "cachedoctor"
BUDGETS = ROOT / "tests" / "budgets.toml"
GROWTH = 1.02
"""Times the number in the file that a package may have before that must be changed."""
IMPORT = re.compile(r"^ *from (cachedoctor[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
WORDS = 40_000
"""Words of all pages for users: README.md and docs, without the reports among the examples, which scripts write."""
PAGES = {"docs/performance.md": 2_326, "docs/usage/formats.md": 1_024}
"""Words of two pages that had four times as many; what was measured, and how, is in benchmarks."""
SMALL = 60
"""Lines under which a module with one importer belongs into that."""
LOOKED_FOR = (
    "cli/", "diagnosis/rules/", "engines/programs/", "inputs/captures/", "report/wire/", "report/forms/",
    *(f"report/{format.module.replace('.', '/')}.py" for format in FORMATS.values()),
)  # fmt: skip
"""What is found by its name, whoever imports it: commands, rules, programs, recordings, formats."""


class Size(NamedTuple):
    files: int
    lines: int


def sizes() -> dict[str, Size]:
    """Files and lines of Python in each package; ``top`` is what is in none."""
    found: dict[str, Size] = {}
    for path in CODE.rglob("*.py"):
        first, *rest = path.relative_to(CODE).parts
        name, old = (first if rest else "top"), Size(0, 0)
        old = found.get(name, old)
        found[name] = Size(old.files + 1, old.lines + path.read_text("utf-8").count("\n"))
    return found


def importers() -> dict[Path, set[Path]]:
    """Which modules of ours import a module."""
    found: dict[Path, set[Path]] = {}
    for path in CODE.rglob("*.py"):
        for module, names in IMPORT.findall(path.read_text("utf-8")):
            whole = ROOT.joinpath(*module.split("."))
            for target in (whole.with_suffix(".py"), *(whole / f"{name}.py" for name in re.findall(r"\w+", names))):
                if target.is_file():
                    found.setdefault(target, set()).add(path)
    return found


def test_no_package_outgrows_its_budget() -> None:
    budgets = {name: Size(**size) for name, size in tomllib.loads(BUDGETS.read_text("utf-8")).items()}
    found = sizes()
    assert found.keys() == budgets.keys()
    over = {
        name: (size, budgets[name])
        for name, size in found.items()
        if size.files > budgets[name].files * GROWTH or size.lines > budgets[name].lines * GROWTH
    }
    assert over == {}, "change the numbers in tests/budgets.toml in this commit, and say why in its message"


def test_budgets_follow_what_shrinks() -> None:
    """A budget that is far above what there is lets the next growth pass unseen."""
    budgets = tomllib.loads(BUDGETS.read_text("utf-8"))
    slack = {name for name, size in sizes().items() if budgets[name]["lines"] > size.lines * 1.1 + 20}
    assert slack == set(), "lower the numbers in tests/budgets.toml"


def test_the_docs_stay_short() -> None:
    """Cut as much as you add; measurements belong into benchmarks, internals into docstrings."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    words = {
        path.relative_to(ROOT).as_posix(): len(path.read_text("utf-8").split())
        for path in pages
        if path.parent.parent.name != "examples"
    }
    assert len(words) > 40
    assert sum(words.values()) <= WORDS
    assert {page: words[page] for page, most in PAGES.items() if words[page] > most} == {}


def test_small_modules_with_one_importer_are_few() -> None:
    """They belong into their importer; this list only shrinks."""
    used = importers()
    found = {
        path.relative_to(CODE).as_posix()
        for path in CODE.rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py") and path.read_text("utf-8").count("\n") < SMALL
        if len(used.get(path, ())) <= 1 and not path.relative_to(CODE).as_posix().startswith(LOOKED_FOR)
    }
    assert found == {
        "doctor/extras/prometheus_counters.py",  # asks a server, which nothing else of extras does
        "model/errors.py",  # the error of the public API
        "live/proxy/proxy_metrics.py",  # the only importer of prometheus_client
    }
