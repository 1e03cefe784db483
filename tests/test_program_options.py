"""Options that advice names for programs with numbers of each request stand in those programs' own sources."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from cachedoctor.diagnosis.rules.measured import own_settings
from cachedoctor.engines.detect import programs
from cachedoctor.model import Session

KNOWN = tomllib.loads((Path(__file__).parent.parent / "fixtures/options/programs.toml").read_text("utf-8"))
NAMED = re.compile(r"--[a-z][\w-]+|\b[A-Z][A-Z_]{6,}\b|\b(?:cache_size|max_seq_len|LlamaRAMCache)\b")
ENGINES = sorted({program.tracker.engine for program in programs()})


@pytest.mark.parametrize("engine", ENGINES)
def test_each_named_option_has_its_source(engine: str) -> None:
    session = Session(0, "x", engine=engine)
    texts = [remedy.text for remedy in own_settings.room(session)]
    if engine in own_settings.BACK:
        why, remedy = own_settings.back(session)
        texts += [why, remedy.text]
    named = {name for text in texts for name in NAMED.findall(text)}
    assert named <= KNOWN.get(engine, {}).keys(), "enter where the option stands in fixtures/options/programs.toml"


def test_a_program_that_is_judged_has_a_setting_or_says_that_there_is_none() -> None:
    without = {engine for engine in ENGINES if not own_settings.room(Session(0, "x", engine=engine))}
    assert without == {"mlx-lm"}, "its log has no numbers to judge"


def test_what_is_entered_is_named() -> None:
    for engine, options in KNOWN.items():
        session = Session(0, "x", engine=engine)
        said = " ".join(remedy.text for remedy in own_settings.room(session))
        said += " ".join(own_settings.BACK.get(engine, ()))
        assert [option for option in options if option not in said] == []
