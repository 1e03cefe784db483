"""Terminals for tests: a stream that says it is one, and a real one (a pseudo terminal)."""

from __future__ import annotations

import io
import os
import pty
import subprocess
from collections.abc import Callable
from typing import Any, Literal

VARIABLES = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TERM", "FORCE_HYPERLINK")
"""What the environment may say of colours and links."""


class Stream(io.StringIO):
    """A stream that is a terminal, or is none."""

    encoding = "utf-8"  # type: ignore[assignment]

    def __init__(self, tty: bool) -> None:
        super().__init__()
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


def in_terminal(begin: Callable[..., Any], which: Literal["stdout", "stderr"], **env: str) -> tuple[int, bytes, bytes]:
    """``begin`` a process with one of its streams on a terminal; gives its status, the other stream, the terminal."""
    above, below = pty.openpty()
    quiet = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    other = "stderr" if which == "stdout" else "stdout"
    variables = {**quiet, "TERM": "xterm", "COLUMNS": "80", **env}
    process = begin(stdin=subprocess.DEVNULL, **{which: below, other: subprocess.PIPE}, env=variables)
    os.close(below)
    shown = b""
    with process:
        while part := _part(above):
            shown += part
        rest = (process.stdout or process.stderr).read()
    os.close(above)
    return process.returncode, rest, shown.replace(b"\r\n", b"\n")


def _part(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # Linux says so when the last writer has closed its end
        return b""
