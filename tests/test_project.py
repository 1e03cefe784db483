"""What holds for the repository as a whole."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from loops import each
from packaging.requirements import Requirement

import cachedoctor

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:" + "|".join(["work", "root", "home", "Users"]) + r")/\w[^\s\"'`)]*")
SAMPLE_DATA = ("fixtures/", "cachedoctor/engines/llamacpp/messages.py")
"""Log lines as servers printed them may hold any path."""
INVENTED = (
    "tests/secret_places.py",
    "tests/test_redact.py",
    "tests/test_quoted.py",
    "tests/test_cli_redact.py",
    "tests/test_markdown.py",
    "tests/test_frames.py",
)
"""Paths of users that nobody has, to see that they are hidden."""


def tracked() -> list[str]:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def test_no_path_of_a_machine_is_in_the_repository():
    found = []
    for name in tracked():
        if name.startswith((*SAMPLE_DATA, *INVENTED)):
            continue
        data = (ROOT / name).read_bytes()
        if b"\0" in data:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
            found += [f"{name}:{number}: {path}" for path in MACHINE_PATH.findall(line)]
    assert found == []


def needed(requirements: list[str]) -> set[str]:
    """Names of what an installation brings, without extras."""
    names, left = set(), list(map(Requirement, requirements))
    while left:
        entry = left.pop()
        if entry.name in names or not (entry.marker is None or entry.marker.evaluate({"extra": ""})):
            continue
        names.add(entry.name)
        left += map(Requirement, importlib.metadata.requires(entry.name) or [])
    return names


def test_an_installation_without_extras_is_small():
    """Under 20 MB, without what Python compiles of it."""
    names = needed(PROJECT["project"]["dependencies"])
    assert {"msgspec", "pygments"} <= names
    files = [file for name in names for file in importlib.metadata.files(name) or () if file.suffix != ".pyc"]
    files = [path for file in files if (path := Path(file.locate())).is_file()]
    files += [path for path in (ROOT / "cachedoctor").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) < 20_000_000
    assert names.isdisjoint({"polars", "numpy", "duckdb", "rapidfuzz", "pydantic", "pydantic-core"})


def test_every_dependency_has_its_reason_on_its_page():
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    wanted = [*project["dependencies"], *PROJECT["build-system"]["requires"]]
    wanted += [entry for extra in project["optional-dependencies"].values() for entry in extra]
    wanted += [entry for group in groups.values() for entry in group if isinstance(entry, str)]
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    names = [re.match(r"[\w.-]+", entry)[0] for entry in wanted]
    assert [name for name in names if not re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", page)] == []


def test_version_is_the_newest_of_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(\d[^\]]*)\]", changelog, re.MULTILINE)[0] == cachedoctor.__version__


def test_license_is_the_one_that_the_package_names():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_importing_the_package_imports_nothing_heavy():
    """Of others and of ours; a type that is asked for brings the model and nothing else of ours."""
    code = "import sys, cachedoctor; print(*sys.modules); cachedoctor.Report; print(*sys.modules)"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COV", "PYTHONSTARTUP"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=env)
    before, after = (set(line.split()) for line in done.stdout.splitlines())
    assert {m for m in before if m.startswith("cachedoctor")} == {"cachedoctor"}
    assert before.isdisjoint({"polars", "rich", "typer", "msgspec", "regex", "jinja2"})
    assert "cachedoctor.model" in after
    assert {m for m in after if m.startswith("cachedoctor.")} == {m for m in after if m.startswith("cachedoctor.model")}
    assert after.isdisjoint({"polars", "rich", "typer", "regex", "jinja2"})


@each(
    "script",
    [
        "scripts/demo",
        "scripts/test",
        "scripts/check-readme",
        "scripts/make-rules-doc",
        "scripts/make-engines-matrix",
        "scripts/make-examples",
        "scripts/make-tables-doc",
        "scripts/make-clients-doc",
        "scripts/make-words-doc",
        "scripts/make-versions-doc",
        "scripts/make-gallery",
        "scripts/make-readme-accuracy",
        "scripts/make-extras-doc",
        "scripts/artefacts",
        "scripts/release",
        "scripts/make-session",
        "scripts/make-schemas",
        "scripts/make-man",
        "scripts/make-server-options",
        "scripts/make-engine-options",
        "scripts/docs",
        "scripts/catalogue-drift",
        "benchmarks/run",
        ".ci/run",
    ],
)
def test_scripts_can_be_executed(script):
    assert os.access(ROOT / script, os.X_OK)


@each(
    "page",
    [
        "CONTRIBUTING.md",
        "docs/index.md",
        "docs/faq.md",
        "docs/architecture.md",
        "docs/rules.md",
        "docs/performance.md",
        "benchmarks/README.md",
        "benchmarks/accuracy.md",
        "tests/e2e/README.md",
        "docs/examples/README.md",
        "docs/tables.md",
        "docs/clients.md",
        "docs/words.md",
        "README.md",
        "docs/account.md",
        "docs/diff.md",
        "docs/engines.md",
        "docs/dependencies.md",
        "docs/extras.md",
        "docs/versions.md",
        "docs/comparison.md",
        "docs/gallery.md",
        "docs/library.md",
        "SECURITY.md",
        "CHANGELOG.md",
        *(str(page.relative_to(ROOT)) for name in ("tasks", "usage") for page in (ROOT / "docs" / name).glob("*.md")),
    ],
)
def test_links_between_pages_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert [t for t in targets if not ((ROOT / page).parent / t).exists()] == []
