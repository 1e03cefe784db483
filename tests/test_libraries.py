"""What extras install: the hint where a library is missing names what ``pyproject.toml`` declares."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from conftest import ROOT

from cachedoctor.knowledge import libraries
from cachedoctor.knowledge.libraries import LIBRARIES, Installation, install, installation


def test_the_libraries_are_those_that_are_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    needed = {
        extra: tuple(library for library in libraries if not library.startswith("uvloop"))
        for extra, libraries in declared.items()
    }
    assert needed == LIBRARIES


def command(record: dict[str, object] | None, *extras: str, installer: str = "pip") -> list[str]:
    """Split the hint for a copy with this ``direct_url.json`` into words."""
    copy = Installation(None if record is None else json.dumps(record), installer)
    return shlex.split(install(*extras, copy=copy))


PIP = [sys.executable, "-m", "pip", "install"]


def test_a_copy_without_record_gets_the_libraries_alone() -> None:
    """And nothing by the name of this package, which an index may have from somebody else."""
    assert command(None, "proxy", "exporter") == [*PIP, "aiohttp>=3.14", "prometheus-client>=0.21"]
    for extra in LIBRARIES:
        assert "cachedoctor" not in install(extra, copy=Installation()).removeprefix(shlex.quote(sys.executable))


def test_each_way_to_install_has_its_command(tmp_path: Path) -> None:
    clone = tmp_path / "a clone"
    clone.mkdir()
    wheel = tmp_path / "cachedoctor-1.0.0-py3-none-any.whl"
    wheel.touch()
    address, commit = "https://example.org/r.git", "0123abc"
    assert command({"url": clone.as_uri(), "dir_info": {}}, "tables", "kv") == [*PIP, f"{clone}[tables,kv]"]
    assert command({"url": clone.as_uri(), "dir_info": {"editable": True}}, "kv") == [*PIP, "-e", f"{clone}[kv]"]
    assert command({"url": wheel.as_uri(), "archive_info": {}}, "kv") == [*PIP, f"{wheel}[kv]"]
    vcs = {"url": address, "vcs_info": {"vcs": "git", "commit_id": commit}}
    assert command(vcs, "kv") == [*PIP, f"cachedoctor[kv] @ git+{address}@{commit}"]
    archive = {"url": "https://example.org/c.whl", "archive_info": {}}
    assert command(archive, "kv") == [*PIP, "cachedoctor[kv] @ https://example.org/c.whl"]
    with_uv = ["uv", "pip", "install", "--python", sys.executable, f"{clone}[kv]"]
    assert command({"url": clone.as_uri(), "dir_info": {}}, "kv", installer="uv") == with_uv


@pytest.mark.parametrize("url", ["file:///nowhere/clone", "", 7, None])
def test_a_source_that_is_gone_or_unreadable_is_not_named(url: object) -> None:
    assert command({"url": url, "dir_info": {}}, "kv") == [*PIP, "pyzmq>=26"]


def test_a_registered_name_is_used_where_there_is_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "INDEX_NAME", "some-name")
    assert command(None, "tables", "kv") == [*PIP, "some-name[tables,kv]"]


def test_the_copy_that_runs_is_asked_how_it_was_installed() -> None:
    """A distribution of Linux leaves no record, pip and uv do."""
    record = installation().record
    source = "pyzmq>=26" if record is None else f"{url2pathname(urlsplit(json.loads(record)['url']).path)}[kv]"
    assert shlex.split(install("kv"))[-1] == source


def test_no_page_and_no_hint_installs_the_package_from_an_index() -> None:
    folders = ("docs", "cachedoctor", "contrib", "scripts", ".github", "fixtures", "benchmarks")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.iterdir() if path.is_file()]
    assert len(files) > 1000
    install_by_name = re.compile(
        rb"(?:pipx?|uv|uvx)[\w ]* (?:install|run|add) [-\w= ]*[\"']?cachedoctor\b(?!-\d)|uvx cachedoctor"
    )
    assert install_by_name.search(b"pip install -U 'cachedoctor[tables]'")
    assert install_by_name.search(b"pipx install cachedoctor")
    named = [(path, data) for path in files if b"cachedoctor" in (data := path.read_bytes())]
    assert [path for path, data in named if install_by_name.search(data)] == []
