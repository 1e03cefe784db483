"""Options that advice names for programs with numbers of each request stand in those programs' own sources."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from cachedoctor.diagnosis.rules import advice
from cachedoctor.diagnosis.rules.measured import own_settings
from cachedoctor.engines.detect import programs
from cachedoctor.model import Session

ROOT = Path(__file__).parent.parent
KNOWN = tomllib.loads((ROOT / "fixtures/options/programs.toml").read_text("utf-8"))
NAMED = re.compile(r"--[a-z][\w-]+|\b[A-Z][A-Z_]{6,}\b|\b(?:cache_size|max_seq_len|LlamaRAMCache|num_ctx)\b")
ENGINES = sorted({program.tracker.engine for program in programs()})
OF_OLLAMA = re.compile(r"\bOLLAMA_[A-Z_]+|\bnum_ctx\b")


def texts(engine: str) -> str:
    """All that rules say of the settings of a program."""
    session = Session(0, "x", engine=engine)
    said = [remedy.text for remedy in own_settings.room(session)]
    if engine in own_settings.BACK:
        why, remedy = own_settings.back(session)
        said += [why, remedy.text]
    if engine in ("ollama", "llama-cpp-python"):
        said.append(advice.more_context(session, "").text)
    return " ".join(said)


@cache
def printed() -> str:
    """All strings of the code except docstrings, and the pages of the rules, of files that name an option of Ollama."""
    found, options = list[str](), [*KNOWN["ollama"], "OLLAMA_"]
    for path in (ROOT / "cachedoctor").rglob("*.*"):
        text = path.read_text("utf-8") if path.suffix in (".py", ".md") else ""
        if not any(option in text for option in options):
            continue
        if path.suffix == ".md":
            found.append(text)
            continue
        tree = ast.parse(text)
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
        ]
    return "\n".join(found)


@pytest.mark.parametrize("engine", ENGINES)
def test_each_named_option_has_its_source(engine: str) -> None:
    named = set(NAMED.findall(texts(engine)))
    assert named <= KNOWN.get(engine, {}).keys(), "enter where the option stands in fixtures/options/programs.toml"


def test_each_variable_of_ollama_has_its_source_wherever_it_is_named() -> None:
    """Rules on its models, forms of what starts it, probe and hints name them as well."""
    named = set(OF_OLLAMA.findall(printed()))
    assert {"OLLAMA_KEEP_ALIVE", "OLLAMA_DEBUG", "num_ctx"} <= named
    assert named <= KNOWN["ollama"].keys()
    assert "num_ctx" in KNOWN["ollama"]  # so that no file which names it is left out


def test_a_program_that_is_judged_has_a_setting_or_says_that_there_is_none() -> None:
    without = {engine for engine in ENGINES if not own_settings.room(Session(0, "x", engine=engine))}
    assert without == {"mlx-lm"}, "its log has no numbers to judge"


def test_what_is_entered_is_named() -> None:
    for engine, options in KNOWN.items():
        said = texts(engine) + (printed() if engine == "ollama" else "")
        assert [option for option in options if option not in said] == []
