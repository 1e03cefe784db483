"""Scripts that write pages, run in the process of the tests: a Python of its own would take most of the time."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from unittest import mock

from forks import ROOT


def checked(name: str) -> tuple[object, str]:
    """Exit status and errors of a script that compares what it would write with what is there."""
    said = io.StringIO()
    with mock.patch.object(sys, "argv", [name, "--check"]), contextlib.redirect_stderr(said):
        try:
            runpy.run_path(str(ROOT / "scripts" / name), run_name="__main__")
        except SystemExit as end:
            return end.code, said.getvalue()
    return 0, said.getvalue()
