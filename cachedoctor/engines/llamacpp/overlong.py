"""Error texts inside ``task id = N, error: ...``: the prompt that did not fit."""

from __future__ import annotations

import re
from typing import NamedTuple

# b7710 and newer: "request (5887 tokens) exceeds the available context size (4096 tokens), try increasing it";
# older builds say the same without numbers.
_NUMBERS = re.compile(r"\((\d{1,10}) tokens\)[^(]*\((\d{1,10}) tokens\)")
_OVERLONG = re.compile(r"exceeds? the available context size|larger than the max context size")


class Overlong(NamedTuple):
    """A prompt that did not fit, and the context; None where the error does not say it."""

    tokens: int | None
    limit: int | None


def overlong(text: str) -> Overlong | None:
    """Read the text of an error; None when it is about something else."""
    if not _OVERLONG.search(text):
        return None
    numbers = _NUMBERS.search(text)
    return Overlong(int(numbers[1]), int(numbers[2])) if numbers else Overlong(None, None)
