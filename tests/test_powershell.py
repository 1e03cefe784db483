"""Commands for PowerShell: what sets the environment of a shell has another form there."""

from __future__ import annotations

import pytest
from command import run
from conftest import FIXTURES

from cachedoctor.report.words.powershell import in_powershell

LOG = FIXTURES / "cases" / "billing-header-swa-b9713" / "server.log"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("export X=0", ["$env:X = '0'"]),
        ("export A=1 B='two words'", ["$env:A = '1'; $env:B = 'two words'"]),
        ("export A='it'\"'\"'s'", ["$env:A = 'it''s'"]),
        ("export A='$HOME `x` ’'", ["$env:A = '$HOME `x` ’’'"]),  # nothing in it is replaced
        ("export A=", ["$env:A = ''"]),
        ("unset A", ["Remove-Item Env:A"]),
        ("unset A B", ["Remove-Item Env:A, Env:B"]),
        ("--cache-ram 8192", []),  # the same in both
        ("export 'A;calc'=1", []),  # no variable has such a name
        ("unset 'A;calc'", []),
        ("export A='open", []),
        ("exporter --metrics x", []),
    ],
)
def test_what_sets_the_environment(command: str, expected: list[str]) -> None:
    assert in_powershell([command]) == expected


def test_other_rows_stay_beside_it() -> None:
    assert in_powershell(["export X=0", "llama-server -m m.gguf"]) == ["$env:X = '0'", "llama-server -m m.gguf"]
    assert in_powershell([]) == []


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_each_report_for_people_has_both(form: str) -> None:
    shown = run("analyze", LOG, "-f", form).stdout.decode().replace("&#39;", "'")
    assert "export CLAUDE_CODE_ATTRIBUTION_HEADER=0" in shown
    assert "$env:CLAUDE_CODE_ATTRIBUTION_HEADER = '0'" in shown


def test_the_fix_has_it_as_a_comment() -> None:
    shown = run("fix", LOG).stdout.decode().splitlines()
    assert shown[-2:] == [
        "export CLAUDE_CODE_ATTRIBUTION_HEADER=0",
        "# in PowerShell: $env:CLAUDE_CODE_ATTRIBUTION_HEADER = '0'",
    ]


def test_variables_that_do_not_fit_one_row_have_a_row_each() -> None:
    command = "export FIRST=1 'SECOND=a; b'"
    assert in_powershell([command], 40) == ["$env:FIRST = '1'; $env:SECOND = 'a; b'"]
    assert in_powershell([command], 36) == ["$env:FIRST = '1'", "$env:SECOND = 'a; b'"]
