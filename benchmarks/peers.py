"""The programs that read a log of the same size in the same run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

INSTALL = "not installed: apt-get install lnav goaccess ripgrep mawk"

HEADS = ("memory_seq_rm", "forcing full", "restored context checkpoint", "prompt eval time")
"""What mawk and rg look for: four of the messages that an analysis needs."""

Command = Callable[[Path, Path], list[str]]
"""The command line for a log and a folder for whatever is written."""


class Peer(NamedTuple):
    """A program, what it does, and how it is called."""

    program: str
    case: str
    command: Command

    @property
    def is_installed(self) -> bool:
        return shutil.which(self.program) is not None


def _mawk(log: Path, _: Path) -> list[str]:
    counts = " ".join(f"/{head}/{{n{i}++}}" for i, head in enumerate(HEADS))
    return ["mawk", counts + " END{print " + ",".join(f"n{i}" for i in range(len(HEADS))) + "}", str(log)]


def _rg(log: Path, _: Path) -> list[str]:
    return ["rg", "-c", *(word for head in HEADS for word in ("-e", head)), str(log)]


def _perline(log: Path, _: Path) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("perline.py")), str(log)]


def _lnav(log: Path, _: Path) -> list[str]:
    asked = ("-c", ";SELECT count(*) FROM access_log", "-c", ":write-csv-to -")
    return ["lnav", "-n", "-q", *asked, str(log)]


def _goaccess(log: Path, folder: Path) -> list[str]:
    return ["goaccess", str(log), "--log-format=COMBINED", "--no-global-config", "-o", str(folder / "goaccess.json")]


OF_LOGS = [
    Peer("mawk", "mawk, 4 patterns counted", _mawk),
    Peer("rg", "rg -c, the same 4", _rg),
    Peer(sys.executable, "perline.py, 8 patterns by line", _perline),
]
"""They read the very log."""

OF_ACCESS_LOGS = [
    Peer("lnav", "lnav, an access log indexed", _lnav),
    Peer("goaccess", "GoAccess, an access log to JSON", _goaccess),
]
"""They read an access log of the same size."""
