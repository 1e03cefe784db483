"""A log that is pasted into a terminal, and one that is named without a command."""

from __future__ import annotations

import os
import pty
import time
from pathlib import Path

import pytest
from command import one_line, run, start
from test_pastes import FORCED, LINES

from cachedoctor.inputs.sources.base import IDLE_SECONDS

ASKED = b"Paste the log, then Ctrl-D (20 lines are enough, two turns are better)\n"
LOG = "".join(f"{line}\n" for line in LINES).encode()


def paste(*args: str, parts: tuple[bytes, ...]) -> tuple[int, bytes, bytes]:
    """Type the parts into a terminal, with silence between them, then Ctrl-D; gives status, output and errors."""
    above, below = pty.openpty()
    with start(*args, stdin=below) as process:
        os.close(below)
        for number, part in enumerate(parts):
            if number:
                time.sleep(1.5 * IDLE_SECONDS)
            os.write(above, part)
        os.write(above, b"\x04")
        assert process.stdout is not None
        assert process.stderr is not None
        shown, said = process.stdout.read(), process.stderr.read()
    os.close(above)
    return process.returncode, shown, said


def test_a_terminal_is_asked_for_a_paste() -> None:
    """Without a name as with ``-``; the report is that of a pipe."""
    whole = run("analyze", "-", "-f", "concise", stdin=LOG).stdout
    assert b"billing-header" in whole
    assert paste("analyze", "-f", "concise", parts=(LOG,)) == (0, whole, ASKED)
    assert paste("analyze", "-", "-f", "concise", parts=(LOG,)) == (0, whole, ASKED)


@pytest.mark.sweep
@pytest.mark.parametrize("form", ["text", "concise"])
def test_a_paste_is_read_to_its_end(form: str) -> None:
    """Who pastes in two steps gives one excerpt, and no finding comes between what is typed."""
    cut = FORCED.index("cache data")
    parts = (f"```\n{FORCED[:cut]}\n".encode(), f"{FORCED[cut:]}\n```\n".encode())
    piped = run("analyze", "-", "-f", form, stdin=b"".join(parts)).stdout
    assert paste("analyze", "-f", form, parts=parts) == (0, piped, ASKED)


def test_quiet_asks_for_nothing() -> None:
    status, _, said = paste("analyze", "-q", parts=(LOG,))
    assert (status, said) == (0, b"")


def test_a_log_needs_no_command(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(LOG)
    named = run("server.log", "-f", "concise", folder=str(tmp_path))
    assert named.stdout == run("analyze", "server.log", "-f", "concise", folder=str(tmp_path)).stdout
    assert (named.returncode, named.stdout[:13]) == (0, b"server.log:10")
    piped = run("-", "-f", "concise", stdin=LOG)
    assert (piped.returncode, piped.stdout[:10]) == (0, b"<stdin>:10")


def test_a_command_comes_before_a_log_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "rules").write_bytes(LOG)
    assert b"billing-header" in run("explain", folder=str(tmp_path)).stdout
    assert b"CD101" in run("./rules", "-f", "concise", folder=str(tmp_path)).stdout


@pytest.mark.parametrize(
    ("word", "hint"), [("anlyze", "cachedoctor analyze --help"), ("missing.log", "cachedoctor --help")]
)
def test_a_word_that_is_neither_has_a_hint(word: str, hint: str, tmp_path: Path) -> None:
    done = run(word, folder=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, f"no such command '{word}'", f"(hint: {hint})")


def test_a_folder_without_logs_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    done = run("logs", folder=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, "logs: contains no log of llama-server, vLLM or SGLang", "first lines look like a server log")
