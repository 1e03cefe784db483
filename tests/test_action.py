"""action.yml: what stands in its inputs is no shell, and a check without anything to check fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml
from conftest import ROOT


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))["runs"]["steps"]
    return found


def test_inputs_reach_the_shell_by_its_environment_alone() -> None:
    assert [step["name"] for step in steps() if "${{" in step["run"]] == []
    assert all("${{ inputs." in value for step in steps() for value in step["env"].values())


def test_without_bodies_and_log_it_fails(tmp_path: Path) -> None:
    output = tmp_path / "output"
    values = {"BODIES": "", "LOG": "", "RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(output)}
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", steps()[-1]["run"]], env={**os.environ, **values},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "there is nothing to check" in done.stdout
