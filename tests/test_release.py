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
import zipfile
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


def test_links_of_the_readme_work_on_the_page_of_an_index() -> None:
    """There are no files beside it; each link leads to the same file in the repository, at the tag of this version."""
    script = loaded("index_readme.py")
    metadata = PROJECT | {"version": "7.8.9"}
    script.IndexReadme(str(ROOT), {}).update(metadata)
    text, kind = metadata["readme"]["text"], metadata["readme"]["content-type"]
    assert kind == "text/markdown"
    site, raw = PROJECT["urls"]["Repository"] + "/blob/v7.8.9/", "https://raw.githubusercontent.com/"
    links = re.findall(r"(!?)\[[^\[\]]*\]\(([^()]*)\)", text)
    assert len(links) > 20
    for picture, link in links:
        assert link.startswith(raw if picture else site)
        assert (ROOT / link.partition("/v7.8.9/")[2].partition("#")[0]).is_file(), link
    assert re.sub(re.escape(site) + "|" + raw + "[^/]*/[^/]*/v7.8.9/", "", text) == (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("[a](docs/b.md#c)", "[a](https://github.com/o/r/blob/v1/docs/b.md#c)"),
        ("![a](docs/b.svg)", "![a](https://raw.githubusercontent.com/o/r/v1/docs/b.svg)"),
        ("[a](#c) [b](https://x.y/z) [c](mailto:a@b.c)", "[a](#c) [b](https://x.y/z) [c](mailto:a@b.c)"),
    ],
)
def test_a_link_to_a_file_gets_its_whole_address(given: str, whole: str) -> None:
    assert loaded("index_readme.py").with_whole_addresses(given, "https://github.com/o/r", "v1") == whole


def test_the_oldest_libraries_are_the_lower_bounds() -> None:
    project = '[project]\ndependencies = ["a>=0.20,<0.29", "b.c>=2025.7.34; python_version < \'3.14\'"]'
    assert loaded("artefacts").oldest_libraries(project) == ["a==0.20", "b.c==2025.7.34"]


def test_a_command_that_does_not_end_is_an_error_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    script = loaded("artefacts")
    monkeypatch.setattr(script, "SECONDS", 0.05)
    with pytest.raises(script.ReleaseError, match=r"^sleep 30 did not end within 0\.05 seconds$"):
        script.run("sleep", "30")


def test_links_without_an_address_are_noticed(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a-1.dist-info/METADATA", "Name: a\n\n[a](docs/a.md) [b](#b) [c](https://x.y)\n")
    assert loaded("artefacts").relative_links(wheel) == ["docs/a.md"]


def test_what_others_wrote_is_named_with_its_licence() -> None:
    """For whoever passes the sources on; every licence has its text."""
    notes = tomllib.loads((ROOT / "REUSE.toml").read_text("utf-8"))["annotations"]
    licences = {one for note in notes for one in note["SPDX-License-Identifier"].split(" AND ")}
    assert {f"{one}.txt" for one in licences} == {path.name for path in (ROOT / "LICENSES").iterdir()}
    assert (ROOT / "LICENSES" / "Apache-2.0.txt").read_bytes() == (ROOT / "LICENSE").read_bytes()
    named = {path for note in notes for path in ([note["path"]] if isinstance(note["path"], str) else note["path"])}
    theirs = {
        f"fixtures/{folder}/{name}"
        for folder, row in (
            ("templates", r"^\| (\S+\.jinja) \|.* [0-9a-f]{64} \|$"),
            ("schemas", r"^\| `(\S+\.json)` \|"),
        )
        for name in re.findall(row, (ROOT / "fixtures" / folder / "README.md").read_text("utf-8"), re.MULTILINE)
    }
    assert len(theirs) == 12
    assert theirs <= named


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
