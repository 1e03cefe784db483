"""What is released: pages that scripts write, metadata, workflows, the gallery, and the checks of a release."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from conftest import ROOT

from cachedoctor.diagnosis.rules.names import names

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def loaded(name: str) -> ModuleType:
    """Return a script, which has no ending, as a module."""
    loader = SourceFileLoader(name.replace("-", "_"), str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("script", ["make-versions-doc", "make-gallery", "make-readme-accuracy", "make-extras-doc"])
def test_pages_are_what_their_scripts_write(script: str) -> None:
    command = [sys.executable, ROOT / "scripts" / script, "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# ---- metadata


def test_the_changelog_is_what_users_read() -> None:
    text = (ROOT / "CHANGELOG.md").read_bytes()
    assert len(text) < 8000
    assert b"\n## [1.0.0] - 20" in text


def test_every_address_of_the_repository_is_the_one_of_the_metadata() -> None:
    repository = PROJECT["urls"]["Repository"]
    assert all(address.startswith(repository) for address in PROJECT["urls"].values())
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "scripts").glob("make-*")]
    found = {one for path in files for one in re.findall(r"https://github\.com/[\w-]+/cachedoctor\b", path.read_text())}
    assert found <= {repository}


def test_supported_versions_of_python_are_those_that_are_tested() -> None:
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.fullmatch(r".*:: 3\.\d+", one)]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert named == list(loaded("artefacts").PYTHONS)
    for job in ("test", "build"):
        assert jobs[job]["strategy"]["matrix"]["python"] == named


# ---- workflows


def workflows() -> list[tuple[str, dict[str, Any]]]:
    folder = ROOT / ".github" / "workflows"
    return [(path.name, yaml.safe_load(path.read_text("utf-8"))) for path in sorted(folder.iterdir())]


def test_workflows_read_the_repository_and_nothing_else() -> None:
    assert workflows() != []
    for name, workflow in workflows():
        assert workflow["permissions"] == {}, name
        for job in workflow["jobs"].values():
            assert job["permissions"] == {"contents": "read"}, name


def test_workflows_use_commits_and_keep_no_credentials() -> None:
    steps = [step for _, workflow in workflows() for job in workflow["jobs"].values() for step in job["steps"]]
    used = [step for step in steps if "uses" in step]
    assert used != []
    assert [step["uses"] for step in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"])] == []
    checkouts = [step for step in used if step["uses"].startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    assert [step["run"] for step in steps if "run" in step and "${{" in step["run"]] == []


def test_an_issue_about_a_wrong_answer_asks_for_the_report_and_the_redacted_log() -> None:
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "wrong-answer.yml").read_text("utf-8"))
    required = {part["id"] for part in form["body"] if part.get("validations", {}).get("required")}
    assert {"report", "truth", "log"} <= required
    assert "cachedoctor redact" in form["body"][0]["attributes"]["value"]


# ---- the gallery


ISSUES = tomllib.loads((ROOT / "fixtures" / "gallery" / "issues.toml").read_text("utf-8"))["issue"]


def test_the_gallery_has_many_threads_each_once() -> None:
    links = [issue["link"] for issue in ISSUES]
    assert len(links) == len(set(links)) >= 30
    assert [
        link for link in links if not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", link)
    ] == []


def test_a_conclusion_has_rules_that_exist() -> None:
    known = {name for _, name in names()}
    for issue in ISSUES:
        assert bool(issue["concluded"]) == bool(issue["accept"]), issue["link"]
        assert set(issue["accept"]) <= known, issue["link"]


def test_no_answer_is_confidently_wrong() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text("utf-8")
    assert "confidently wrong in 0." in page
    assert page.count("\n| [") == len(ISSUES)


@pytest.mark.parametrize(
    ("name", "confidence", "expected"),
    [
        ("billing-header", "low", "agrees"),
        ("log-too-terse", "high", "cannot tell"),
        ("tools-changed", "low", "differs"),
        ("tools-changed", "medium", "**wrong**"),
        (None, "", "cannot tell"),
    ],
)
def test_verdicts(name: str | None, confidence: str, expected: str) -> None:
    issue = {"concluded": "a header", "accept": ["billing-header"]}
    finding = None if name is None else SimpleNamespace(name=name, confidence=confidence)
    assert loaded("make-gallery").verdict(issue, finding) == expected
    assert loaded("make-gallery").verdict(issue | {"concluded": ""}, finding) == "open"


# ---- the release


def test_commands_of_the_readme_are_found() -> None:
    commands = loaded("artefacts").readme_commands((ROOT / "README.md").read_text("utf-8"))
    assert "cachedoctor explain slot" in commands
    assert {command.split()[1] for command in commands} >= {"analyze", "fix", "compare", "diff", "redact", "fleet"}


def test_an_sdist_without_a_file_of_the_commit_is_noticed(tmp_path: Path) -> None:
    sdist = tmp_path / "x.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(ROOT / "README.md", "x-1/README.md")
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    missing = loaded("artefacts").missing_files(sdist)
    assert "pyproject.toml" in missing
    assert "README.md" not in missing


def test_builds_that_differ_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = loaded("artefacts")
    answers = iter([{"a.whl": "1", "a.tar.gz": "2"}, {"a.whl": "1", "a.tar.gz": "3"}])
    monkeypatch.setattr(script, "build", lambda out, surroundings: next(answers))
    with pytest.raises(script.ReleaseError, match="differ"):
        script.build_twice(tmp_path)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Make a repository with what the release checks first."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    folder = tmp_path / "clone"
    for name in ("scripts/release", "scripts/venv.sh", "CHANGELOG.md", "cachedoctor/__init__.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "all")
    return folder


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def refused(clone: Path) -> str:
    """Run the release; nothing may be installed or built before it refuses."""
    done = subprocess.run(
        ["sh", "scripts/release", "--no-ci"], cwd=clone, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHON": "/nowhere/python"},
    )  # fmt: skip
    assert done.returncode != 0
    assert not (clone / ".venv").exists()
    return done.stderr


def test_a_release_refuses_an_unclean_tree(clone: Path) -> None:
    (clone / "left.txt").write_text("x")
    assert "not committed" in refused(clone)
    (clone / "left.txt").unlink()
    (clone / "CHANGELOG.md").write_text("x")
    assert "not committed" in refused(clone)


def test_a_release_refuses_a_version_without_a_dated_entry(clone: Path) -> None:
    text = (clone / "cachedoctor" / "__init__.py").read_text()
    (clone / "cachedoctor" / "__init__.py").write_text(re.sub(r'__version__ = "[\d.]+"', '__version__ = "9.9.9"', text))
    git(clone, "commit", "-qam", "version")
    assert "has no entry '## [9.9.9] - DATE'" in refused(clone)


def test_a_release_refuses_a_tag_on_another_commit(clone: Path) -> None:
    version = re.findall(r'^__version__ = "(.+)"', (clone / "cachedoctor" / "__init__.py").read_text(), re.MULTILINE)[0]
    git(clone, "tag", f"v{version}")
    git(clone, "commit", "-q", "--allow-empty", "-m", "more")
    assert "is on another commit" in refused(clone)


def test_a_clean_tree_gets_as_far_as_the_interpreter(clone: Path) -> None:
    assert "/nowhere/python is not Python 3.11" in refused(clone)
