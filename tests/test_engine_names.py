"""An engine is named by its own package, by rules, and by ``knowledge/engines.py``: other code goes by its record."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

from cachedoctor.diagnosis.rules.measured import own_settings
from cachedoctor.engines.answering import JudgedTracker
from cachedoctor.engines.detect import engines, programs
from cachedoctor.knowledge import engines as knowledge

CODE = ROOT / "cachedoctor"
OWN = re.compile(rf"engines/(?:{knowledge.PATTERN}|llamacpp|programs)/|diagnosis/rules/|knowledge/engines\.py$")
NAMES = re.compile(rf"{knowledge.PATTERN}|llamacpp", re.IGNORECASE)
IMPORTED = re.compile(knowledge.PATTERN, re.IGNORECASE)
"""llama-server has requests, which the whole program is about: its package may be imported."""

NAMING = {
    # forms that these servers write or read
    "inputs/captures/recognise.py", "inputs/captures/sglang_requests.py", "inputs/captures/vllm_requests.py",
    "inputs/envelope/prefixes.py", "inputs/envelope/records.py", "inputs/metrics/dumps.py",
    "inputs/metrics/responses.py", "doctor/redact/rewrite.py", "engines/program_words.py",
    # what a running server is asked, and its options
    "live/probe/identity.py", "live/probe/judging.py", "model/probed.py", "doctor/whatif/block_setup.py",
    # words for one engine
    "cli/analyze.py", "cli/watch.py", "cli/wrong_names.py", "doctor/analysis/resemblance.py",
    "prompts/difference_advice.py", "prompts/request_bodies.py",
}  # fmt: skip
"""Files that name an engine all the same. A new one needs a reason: program_words has rows of the engine vllm_mlx."""


def test_the_rules_about_printed_numbers_know_every_program_that_prints_them() -> None:
    """Else a report says that no rule is about the program."""
    judged = {program.tracker.engine for program in programs() if issubclass(program.tracker, JudgedTracker)}
    assert judged == knowledge.PRINTING, "_PRINTING of knowledge/engines.py"
    assert judged == own_settings._ROOM.keys(), "_ROOM of diagnosis/rules/measured/own_settings.py"


def words(tree: ast.Module) -> Iterator[tuple[re.Pattern[str], str]]:
    """Every identifier and string of a module but docstrings and strings that document a name, with what is sought."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose:
            if isinstance(node.value, bytes):
                yield NAMES, node.value.decode("latin-1")
            elif isinstance(node.value, str):
                yield NAMES, node.value
        elif isinstance(node, ast.alias):
            yield IMPORTED, f"{node.name} {node.asname}"
        elif isinstance(node, ast.ImportFrom):
            yield IMPORTED, node.module or ""
        else:
            for field in ("id", "attr", "name", "arg"):
                if isinstance(name := getattr(node, field, None), str):
                    yield NAMES, name


def names_an_engine(path: Path) -> bool:
    text = path.read_text("utf-8")
    return NAMES.search(text) is not None and any(sought.search(word) for sought, word in words(ast.parse(text)))


@pytest.mark.sweep
def test_no_other_module_names_an_engine() -> None:
    paths = [(path, path.relative_to(CODE).as_posix()) for path in sorted(CODE.rglob("*.py"))]
    found = {name for path, name in paths if OWN.match(name) is None and names_an_engine(path)}
    assert found - NAMING == set(), "ask the record of the engine: knowledge/engines.py, engines/engine_record.py"
    assert NAMING - found == set(), "these name no engine any more: take them off the list"
    assert len(NAMING) <= 21


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("x = 'of vLLM'", True),
        ("if engine == 'sglang': pass", True),
        ("from cachedoctor.engines.vllm import facts", True),
        ("def of_vllm(): pass", True),
        ("PAGE = rb'llamacpp:tokens'", True),
        ("print(f'{n} of SGLang')", True),
        ('"""Lines of vLLM."""\nx = 1\n"""As SGLang has it."""', False),
        ("x = 1  # vLLM", False),
        ("from cachedoctor.engines.llamacpp import slot", False),
    ],
)
def test_what_names_an_engine(tmp_path: Path, code: str, named: bool) -> None:
    path = tmp_path / "module.py"
    path.write_text(code)
    assert names_an_engine(path) is named


def test_each_package_declares_the_engine_that_knowledge_describes() -> None:
    declared = {engine.name: engine for engine in engines() if engine.words is not None}
    assert set(declared) == set(knowledge.ENGINES)
    for name, engine in declared.items():
        assert engine.words is not None
        assert engine.words().engine == name
        assert knowledge.ENGINES[name].title in engine.words().programs.values()
