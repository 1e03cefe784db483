"""Text of the HTML report can be read on every background that it is on, by light and in the dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT

CSS = Path(ROOT / "cachedoctor" / "report" / "html" / "templates" / "report.css").read_text("utf-8")
BACKGROUNDS = ("paper", "card", "sunk")
TINTED = ("same", "old", "fresh")
"""After text that two prompts share, or that differs."""
LEAST = 4.5
"""WCAG 2.2, 1.4.3, AA: text of any size."""


def variables(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3}(?:[0-9a-f]{3})?);", text))


def block(head: str) -> str:
    """What stands between the braces after ``head``."""
    at = CSS.index(head) + len(head)
    depth, end = 1, CSS.index("{", at) + 1
    while depth:
        depth += {"{": 1, "}": -1}.get(CSS[end], 0)
        end += 1
    return CSS[at:end]


LIGHT = variables(block(":root"))
SCHEMES = {
    "light": LIGHT,
    "dark": LIGHT | variables(block("(prefers-color-scheme: dark)")),
    "print": LIGHT | variables(block("@media print")),
}


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def texts() -> set[str]:
    """Variables that colour text, in pages and in charts."""
    return set(re.findall(r"(?<![-\w])color: var\(--([a-z-]+)\)", CSS)) | set(
        re.findall(r"(?m)^[^{}]*\btext\b[^{}]*\{[^}]*fill: var\(--([a-z-]+)\)", CSS)
    )


def test_the_measure_is_right() -> None:
    """Black on white has 21; #767676 is the lightest grey that may be on white."""
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#fff") == pytest.approx(4.54, abs=0.01)
    assert contrast("#777777", "#fff") < LEAST


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_has_contrast(scheme: str) -> None:
    colours = SCHEMES[scheme]
    assert {"ink", "soft", "link", "error", "warning", "note", "bad"} <= texts() - {"card"}
    found = {
        (text, ground): contrast(colours[text], colours[ground])
        for text in texts() - set(BACKGROUNDS)
        for ground in BACKGROUNDS
    }
    found |= {(text, ground): contrast(colours[text], colours[ground]) for text in ("ink", "soft") for ground in TINTED}
    found |= {(text, "ink"): contrast(colours[text], colours["ink"]) for text in texts() & set(BACKGROUNDS)}
    assert {pair: round(value, 2) for pair, value in found.items() if value < LEAST} == {}


def test_the_dark_scheme_and_the_print_change_something() -> None:
    """The blocks were found."""
    assert SCHEMES["dark"]["paper"] != LIGHT["paper"] != SCHEMES["print"]["paper"]
    assert SCHEMES["dark"]["ink"] != LIGHT["ink"]
