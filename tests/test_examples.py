"""docs/examples is what scripts/make-examples would write, and stays small."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import ROOT

EXAMPLES = ROOT / "docs" / "examples"


@pytest.mark.sweep
def test_the_examples_are_up_to_date() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "make-examples"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_examples_are_small() -> None:
    """In all, what people read stays below a megabyte and a quarter."""
    texts = [path for path in EXAMPLES.rglob("*") if path.is_file() and path.suffix != ".html"]
    assert len(texts) > 20
    assert sum(path.stat().st_size for path in texts) < 1_250_000
