"""YAML that starts servers, made of bytes: anchors, aliases, merges, tags, and values where none are expected.

Text that is changed at random is seldom YAML any more; here every input is, or nearly.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from cachedoctor.doctor.fixing import patches
from cachedoctor.model import CacheDoctorError, Fix, Launcher, Session, as_typed
from cachedoctor.report.launchers import started_commands
from cachedoctor.report.text.text_safe import visible

_LAUNCHERS: tuple[Launcher, ...] = ("compose", "kubernetes", "llama-swap")
_SCALARS = (
    "llama-server -np 1", "'-np'", '"1"', "-m", "~", "''", "1", "0x" + "f" * 5000, "1:2:3", ".nan", "2026-11-24",
    "!!int ''", "!!bool x", "!!timestamp x", "!!float ''", "!!binary x", "!!set {a}", "!x y", "name", "value",
    "llama.cpp:server", "9" * 5000, "LLAMA_ARG_CACHE_RAM=1", "\u00e9", '"\\x00"', "<<",
    "0001-01-01 00:00:00 +23:00", "---", "|", ">-",
)  # fmt: skip
_KEYS = ("a", "<<", "command", "image", "name", "value", "environment", "containers", "env", "args", "1", "? [x]", "~")
_NAMES = "abcd"
_MOST_DEPTH = 6
_PLACES = ("image", "command", "entrypoint", "environment", "env", "args", "cmd", "name", "labels", "<<")


def text_of(data: bytes) -> tuple[Launcher, str]:
    """A launcher, and a file that it may read."""
    source = iter(data)
    launcher = _LAUNCHERS[next(source, 0) % 3]
    head = "".join(f"x{n}: {_node(source)}\n" for n in range(next(source, 0) % 4))
    rows = [f"{_PLACES[next(source, 0) % len(_PLACES)]}: {_node(source)}" for _ in range(next(source, 0) % 5)]
    server = ["image: x/llama.cpp:server", *rows]
    if launcher == "kubernetes":
        block = "".join(f"{'    - ' if not n else '      '}{row}\n" for n, row in enumerate(["name: llama", *server]))
        return launcher, f"{head}kind: Pod\nspec:\n  containers:\n{block}"
    key = "services" if launcher == "compose" else "models"
    anchor = " &s" if next(source, 0) % 4 == 0 else ""
    return launcher, f"{head}{key}:\n  llama:{anchor}\n" + "".join(f"    {row}\n" for row in server)


def _node(source: Iterator[int], depth: int = 0) -> str:
    """A value in flow style; few bytes are enough for aliases that unfold into very much."""
    byte = next(source, 0)
    kind, name = byte % 8, _NAMES[byte // 8 % len(_NAMES)]
    anchor = f"&{name} " if byte // 32 % 2 else ""
    if kind < 2:
        return f"*{'s' if byte > 250 else name}"
    if kind < 5 or depth > _MOST_DEPTH:
        return anchor + _SCALARS[next(source, 0) % len(_SCALARS)]
    if kind == 5:
        ones = [_node(source, depth + 1) for _ in range(next(source, 0) % 4)]
        return f"{anchor}[{', '.join(ones * (1 + byte // 64 * 3))}]"
    pairs = [f"{_KEYS[next(source, 0) % len(_KEYS)]}: {_node(source, depth + 1)}" for _ in range(next(source, 0) % 4)]
    return f"{anchor}{{{', '.join(pairs)}}}"


_CHANGES = as_typed("--parallel 4 --cache-ram 256")
_FIX = Fix("server.log", None, "llama.cpp", "llama-server", None, ["CD302"], ["x"], _CHANGES, [], [], [], [])
_SESSIONS = [Session(0, "server.log", build=8672)]


def check(data: bytes) -> None:
    """A file is patched, or refused in one line; the patch is one of the file after a symlink, and leaves it alone."""
    launcher, text = text_of(data)
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    try:
        file, link = folder / "real.yaml", folder / "link.yaml"
        file.write_text(text, "utf-8")
        link.symlink_to("real.yaml")
        found = _told(lambda: patches.patch([_FIX], _SESSIONS, str(link), launcher, None)[0])
        assert found is None or not found or found.startswith("--- a/real.yaml\n+++ b/real.yaml\n"), found
        assert file.read_text("utf-8") == text
        assert link.is_symlink()
    finally:
        shutil.rmtree(folder)
    _told(lambda: "\n".join(one.line for one in started_commands.commands(text, launcher)))


def _told(ask: Callable[[], str]) -> str | None:
    try:
        return ask()
    except CacheDoctorError as error:
        refused = error
    assert "\n" not in visible(f"{refused.message} {refused.hint}")
    assert refused.exit_code == 2
    return None
