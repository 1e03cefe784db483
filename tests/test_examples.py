"""docs/examples is what scripts/make-examples would write, and stays small."""

from __future__ import annotations

from conftest import ROOT
from scripts_here import checked

EXAMPLES = ROOT / "docs" / "examples"


def test_the_examples_are_up_to_date() -> None:
    assert checked("make-examples") == (0, "")


def test_the_examples_are_small() -> None:
    """In all, what people read stays below a megabyte and a quarter."""
    texts = [path for path in EXAMPLES.rglob("*") if path.is_file() and path.suffix != ".html"]
    assert len(texts) > 20
    assert sum(path.stat().st_size for path in texts) < 1_250_000
