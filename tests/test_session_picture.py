"""docs/images/session.svg is what scripts/make-session would write, says what the program prints, and loads nothing."""

from __future__ import annotations

import re
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import ROOT
from test_html_colours import LEAST, contrast

PICTURE = ROOT / "docs" / "images" / "session.svg"
SCRIPT = ROOT / "scripts" / "make-session"
_LOADER = SourceFileLoader("make_session", str(SCRIPT))
_SPEC = spec_from_file_location("make_session", SCRIPT, loader=_LOADER)
assert _SPEC is not None
MAKER: Any = module_from_spec(_SPEC)
_LOADER.exec_module(MAKER)
SVG = "{http://www.w3.org/2000/svg}"


def test_it_is_up_to_date(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["make-session", "--check"])
    assert (MAKER.main(), capsys.readouterr().err) == (0, "")
    monkeypatch.setattr(MAKER, "TARGET", tmp_path / "session.svg")
    assert MAKER.main() == 1
    assert "out of date" in capsys.readouterr().err


def test_it_says_what_the_program_prints() -> None:
    """The expected text of the case whose log it is; the picture has a row with the command before it."""
    rows: dict[float, str] = {}
    for text in ElementTree.parse(PICTURE).iter(f"{SVG}text"):
        rows[float(text.attrib["y"])] = rows.get(float(text.attrib["y"]), "") + (text.text or "").replace("\xa0", " ")
    shown = [row.rstrip() for row in rows.values()]
    assert shown[0] == "$ cachedoctor analyze server.log"
    assert "fix    export CLAUDE_CODE_ATTRIBUTION_HEADER=0" in shown
    readme = re.findall(r"^\$ cachedoctor analyze \S+\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    assert {row for row in readme[0].splitlines() if row.strip() not in ("", "...")} <= set(shown)
    assert max(map(len, shown)) <= 80


def test_it_loads_nothing_and_can_be_read() -> None:
    """It is in the README, where a picture that loads something is not shown; it is read on its own black."""
    text = PICTURE.read_text("utf-8")
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"@import|@font-face|<script|<image|href|url\((?!#)|\son\w+=", text)
    colours = re.findall(r"\.session-r\d+ \{ fill: (#[0-9a-f]{6})", text)
    assert len(colours) > 3
    assert {colour for colour in colours if contrast(colour, "#000000") < LEAST} == set()
    assert 'fill="#000000"' in text
