"""Which builds of llama.cpp can be had as a wheel, and where they lie."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

VERSIONS = {
    7551: "0.2.8",
    8352: "0.2.14",
    8672: "2026.4.8672",
    9294: "2026.5.9294",
    9713: "2026.6.9713",
    9873: "2026.7.9873",
    10566: "2026.8.10566",
    11549: "2026.10.11549",
}
"""Build to version of the wheel; the first two versions do not say their build."""
NEWEST = max(VERSIONS)
"""The one that the dependency group ``e2e`` installs; the others lie in folders of their own."""


def at_least(build: int) -> int:
    """Oldest build with a wheel that is ``build`` or newer: a remedy that names a build is held to it."""
    return min(known for known in VERSIONS if known >= build)


def folder(build: int) -> Path | None:
    """Folder that makes ``import xllamacpp`` this build, fetched on first use; None for the one that is installed."""
    if build == NEWEST:
        return None
    target = Path(sys.prefix) / "llama" / VERSIONS[build]
    if not (target / "xllamacpp" / "__init__.py").exists():
        print(f"fetching llama.cpp b{build} (xllamacpp {VERSIONS[build]}) ...", file=sys.stderr, flush=True)
        wanted = f"xllamacpp=={VERSIONS[build]}"
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), wanted]
        subprocess.run([*command, "--disable-pip-version-check", "--only-binary=:all:"], check=True)
    return target
