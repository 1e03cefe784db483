"""What extras install: the hint where a library is missing names what ``pyproject.toml`` declares."""

from __future__ import annotations

import shlex
import sys
import tomllib

from conftest import ROOT

from cachedoctor.knowledge.libraries import LIBRARIES, install


def test_the_libraries_are_those_that_are_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    needed = {
        extra: tuple(library for library in libraries if not library.startswith("uvloop"))
        for extra, libraries in declared.items()
    }
    assert needed == LIBRARIES


def test_the_command_installs_them_for_the_python_that_runs() -> None:
    """And nothing by the name of this package, which an index may have from somebody else."""
    words = shlex.split(install("proxy", "exporter"))
    assert words == [sys.executable, "-m", "pip", "install", "aiohttp>=3.14", "prometheus-client>=0.21"]
    for extra in LIBRARIES:
        assert "cachedoctor" not in install(extra).removeprefix(shlex.quote(sys.executable))


def test_no_page_and_no_hint_installs_the_package_from_an_index() -> None:
    pages, code = (ROOT / "docs").rglob("*.md"), (ROOT / "cachedoctor").rglob("*.py")
    files = [ROOT / "README.md", ROOT / "action.yml", *pages, *code]
    assert len(files) > 400
    found = [
        path.relative_to(ROOT).as_posix()
        for path in files
        for words in ("pip install cachedoctor", "pip install 'cachedoctor", 'pipx install "cachedoctor')
        if words in path.read_text("utf-8")
    ]
    assert found == []
