"""The manual page: it is that of these commands, complete, and good roff."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib

import pytest
import typer.main
from conftest import ROOT
from scripts_here import checked

from cachedoctor.cli import make_app

PAGE = ROOT / "docs" / "man" / "cachedoctor.1"
TEXT = PAGE.read_text("utf-8")


def test_it_is_up_to_date():
    assert checked("make-man") == (0, "")


def test_it_has_the_sections_of_a_manual_page():
    assert re.findall(r"^\.SH (.*)$", TEXT, re.MULTILINE) == [
        "NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES",
        "SEE ALSO",
    ]  # fmt: skip


def test_it_has_every_command_and_every_option():
    commands = vars(typer.main.get_command(make_app()))["commands"]
    found = re.findall(r"^\.SS (\S+)$(.*?)(?=^\.S[SH])", TEXT, re.MULTILINE | re.DOTALL)
    sections = {name.replace("\\-", "-"): text for name, text in found}
    assert list(sections) == list(commands)
    for name, command in commands.items():
        shown = sections[name].replace("\\-", "-")
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else ():
                assert option == "--help" or option == "-h" or f"\\fB{option}\\fR" in shown, (name, option)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "command", [["mandoc", "-T", "lint"], ["groff", "-man", "-ww", "-z"], ["man", "--warnings", "-l"]], ids=" ".join
)
def test_it_is_rendered_without_a_warning(command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    done = subprocess.run([*command, PAGE], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert command[0] == "man" or done.stdout == ""


def test_it_is_part_of_the_wheel():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-data"] == {"docs/man/cachedoctor.1": "share/man/man1/cachedoctor.1"}
