"""What a rule file may import, what the signs of requests mean, and what a new rule on a new sign changes."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import made
import pytest
from conftest import ROOT

from cachedoctor.diagnosis.rules import kit, registry
from cachedoctor.diagnosis.rules.kit import RequestRule, RuleContext
from cachedoctor.diagnosis.rules.replaying import Setup
from cachedoctor.model import Facts, Mark, Request
from cachedoctor.model.signs import MARKS_ALONE, MARKS_OF_LOSS, SIGNS, MarkName, PredicateName

RULES = ROOT / "cachedoctor" / "diagnosis" / "rules"
PACKAGE = "cachedoctor.diagnosis.rules"
SHARED = {"advice", "checkpoints", "kit", "lengths", "measured"}
"""Modules for the rules of several families; a list that only shrinks."""
MOST_FILES = 6


def imported(path: Path) -> Iterator[str]:
    """Full names of what a file imports of the package, ``cachedoctor.diagnosis.rules.kit``."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def is_allowed(module: str, family: str) -> bool:
    """Whether a rule file of ``family`` may import this: the kit, advice, knowledge, what its family shares."""
    if not module.startswith("cachedoctor.") or module.startswith("cachedoctor.knowledge."):
        return True
    if not module.startswith(f"{PACKAGE}."):
        return False
    folder, *rest = module.removeprefix(f"{PACKAGE}.").split(".")
    if folder == family:
        return bool(rest) and not re.match(r"cd\d{3}_", rest[0])
    return folder in SHARED


def test_a_rule_file_imports_the_kit_and_what_its_family_shares() -> None:
    paths = sorted(RULES.glob("*/cd[0-9]*.py"))
    assert len(paths) > 70
    found = [
        f"{path.name}: {module}"
        for path in paths
        for module in imported(path)
        if not is_allowed(module, path.parent.name)
    ]
    assert found == []


@pytest.mark.parametrize(
    "module",
    [
        "cachedoctor.model.Session",
        "cachedoctor.diagnosis.rules.context.RuleContext",
        "cachedoctor.diagnosis.rules.client.changes.texts_prove",
        "cachedoctor.diagnosis.rules.slots.cd301_slot_held_other_prompt.decide",
        "cachedoctor.engines.llamacpp.messages.ROWS",
    ],
)
def test_a_rule_of_slots_may_not_import(module: str) -> None:
    assert not is_allowed(module, "slots")


def test_a_rule_is_asked_about_declared_signs_only() -> None:
    rules = [rule for rule in registry.load()[0] if isinstance(rule, RequestRule)]
    assert {sign for rule in rules for sign in rule.on} - SIGNS.keys() == set()


def test_each_sign_is_a_mark_or_worked_out() -> None:
    worked_out = {
        call.args[0].value
        for call in ast.walk(ast.parse(Path(registry.__file__).read_text("utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "append"
        and isinstance(call.args[0], ast.Constant)
    }
    assert worked_out == set(get_args(PredicateName))
    assert {name for name, sign in SIGNS.items() if not sign.is_mark} == worked_out
    assert {name for name, sign in SIGNS.items() if sign.is_mark} <= set(get_args(MarkName))


def test_each_mark_that_is_a_sign_is_set() -> None:
    paths = [ROOT / "cachedoctor/model/observed.py", *(ROOT / "cachedoctor/engines").rglob("*.py")]
    source = "\n".join(path.read_text("utf-8") for path in paths)
    unset = [
        name
        for name in MARKS_ALONE | MARKS_OF_LOSS
        if not re.search(rf'marks\["{name}"\](, \w+)? = |\*\*marks, "{name}": |record_mark\("{name}", ', source)
    ]
    assert unset == [], "declared in model/signs.py: call record_mark of the request where the engine reads the line"


def test_a_mark_of_a_loss_is_not_a_sign_of_a_request_that_lost_nothing() -> None:
    marks: dict[str, Mark] = {"slept": Mark(1, b"sleeping"), "slot_erased": Mark(2, b"erased")}
    kept = made.request(prompt_tokens=5000, outcome="reused", marks=marks)
    lost = made.request(prompt_tokens=5000, lost_tokens=900, outcome="partial", marks=marks)
    assert signs(kept) == {"slept"}
    assert signs(lost) == {"loss", "slept", "slot_erased"}


def signs(request: Request) -> set[str]:
    """The signs of a request on a server of which nothing is known."""
    context = RuleContext(request, Setup(Facts(0, "server.log")), [], None, threads=1, steals=0)
    return set(registry.signs_of(context))


USE = """
import made
from cachedoctor.diagnosis.rules import registry
from cachedoctor.doctor.findings.diagnosis import Diagnosis
from cachedoctor.model import Mark, Session

rules, broken = registry.load()
assert not broken, broken
marks = {"start": Mark(1, b"start"), "slot_moved": Mark(2, b"moved")}
lost = made.request(prompt_tokens=5000, lost_tokens=900, outcome="partial", marks=marks)
diagnosis = Diagnosis(rules, broken)
print(*diagnosis.examine(lost, Session(0, "server.log")).verdict.codes)
finding = next(finding for finding in diagnosis.findings() if finding.name == "slot-moved")
print(finding.cost.tokens, finding.evidence[0].text)
"""


@pytest.mark.sweep
def test_a_rule_on_a_new_sign_changes_at_most_six_files(tmp_path: Path) -> None:
    """The script writes them all but the engine's, which sets the mark; its rule names only what the kit has."""
    for folder in ("cachedoctor", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs/rules.md", tmp_path / "docs")
    before = contents(tmp_path)
    script = [sys.executable, "scripts/new-rule", "slot-moved", "--family", "3", "--sign", "slot_moved"]
    subprocess.run(script, cwd=tmp_path, check=True, capture_output=True)
    after = contents(tmp_path)
    changed = sorted(path for path, data in after.items() if before.get(path) != data)
    codes = [int(path.name[2:5]) for path in RULES.glob("slots/cd3*.py")]
    stem = f"cachedoctor/diagnosis/rules/slots/cd{max(codes) + 1}_slot_moved"
    assert changed == sorted(
        [
            "cachedoctor/model/signs.py",
            f"{stem}.md",
            f"{stem}.py",
            "docs/rules.md",
            "fixtures/cases/slot-moved/case.toml",
        ]
    )
    assert len(changed) + 1 <= MOST_FILES, "one file of the engine sets the mark"
    code = after[f"{stem}.py"].decode()
    assert [name for name in re.findall(r"\bkit\.(\w+)", code) if not hasattr(kit, name)] == []
    path = f"{tmp_path}:{ROOT / 'tests'}"
    ran = subprocess.run(
        [sys.executable, "-c", USE], cwd=tmp_path, env={"PYTHONPATH": path}, check=True, capture_output=True
    )
    fired, cost = ran.stdout.decode().splitlines()
    assert f"CD{max(codes) + 1}" in fired.split()
    assert cost == "900 moved"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
