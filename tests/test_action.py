"""action.yml: what is in its inputs is not a shell, and a check without anything to check fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import LOG
from conftest import ROOT


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))["runs"]["steps"]
    return found


def test_inputs_reach_the_shell_by_its_environment_alone() -> None:
    assert [step["name"] for step in steps() if "${{" in step["run"]] == []
    values = {value for step in steps() for value in step["env"].values()}
    assert {value for value in values if "${{ inputs." not in value} == {"${{ github.action_path }}"}


def test_the_checkout_of_the_action_is_installed() -> None:
    """And no package of that name from an index, which may be somebody else's."""
    first = steps()[0]
    assert first["run"] == 'pipx install "$CHECKOUT"'
    assert first["env"] == {"CHECKOUT": "${{ github.action_path }}"}


def run(folder: Path, **values: str) -> subprocess.CompletedProcess[str]:
    """Run the last step as GitHub does, with the cachedoctor of this checkout."""
    command = folder / "bin" / "cachedoctor"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cachedoctor "$@"\n')
    command.chmod(0o755)
    env = os.environ | {"RUNNER_TEMP": str(folder), "GITHUB_OUTPUT": str(folder / "output"), "FAIL_ON": "warning"}
    env |= {"PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "BODIES": "", "LOG": ""} | values
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps()[-1]["run"]], env=env, cwd=folder,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def written(folder: Path) -> dict[str, list[str]]:
    """Rules of the results in each file of the folder that the step names."""
    found = (folder / "output").read_text().splitlines()[-1].removeprefix("sarif=")
    runs = {path.name: json.loads(path.read_text())["runs"][0]["results"] for path in Path(found).iterdir()}
    return {name: [result["ruleId"] for result in results] for name, results in runs.items()}


@pytest.mark.sweep
def test_bodies_and_a_log_are_checked_and_said_on_the_page(tmp_path: Path) -> None:
    system = [{"role": "system", "content": f"It is 12:0{minute}. You help with all of the work."} for minute in (1, 2)]
    turns = [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "2?"},
    ]
    (tmp_path / "server.log").write_bytes(LOG)
    for name, second in (("-good.jsonl", system[0]), ("bad one.jsonl", system[1])):
        bodies = [{"messages": [system[0], *turns[:1]]}, {"messages": [second, *turns]}]
        (tmp_path / name).write_text("".join(json.dumps(body) + "\n" for body in bodies))

    done = run(tmp_path, BODIES="-good.jsonl")
    assert (done.returncode, written(tmp_path), "::" in done.stdout) == (0, {"lint.sarif": []}, False)
    done = run(tmp_path, BODIES="bad one.jsonl", LOG="server.log", FAIL_ON="never")
    assert (done.returncode, written(tmp_path)["lint.sarif"]) == (1, ["timestamp"])
    assert "CD101" in written(tmp_path)["analyze.sarif"]
    assert "::error file=bad one.jsonl,line=2,title=timestamp::" in done.stdout
    assert "title=CD101 billing-header::" in done.stdout
    done = run(tmp_path, BODIES="-good.jsonl", LOG="server.log")
    assert (done.returncode, "title=CD101" in done.stdout) == (1, True)
    done = run(tmp_path, BODIES="none.jsonl")
    assert (done.returncode, done.stderr.count("cachedoctor: error:"), written(tmp_path)) == (2, 1, {})


def test_without_bodies_and_log_it_fails(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 2
    assert "there is nothing to check" in done.stdout
