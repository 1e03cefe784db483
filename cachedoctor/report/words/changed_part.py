"""The part of a prompt that changed, where the prompts were given: ``tools[6] (description), at token 1,813``.

Its place and kind only, no text of a prompt: every format may say it.
"""

from __future__ import annotations

from typing import Any

from cachedoctor.model import Finding
from cachedoctor.report.words.numbers import number


def changed_part(finding: Finding) -> str:
    """Name the place where the prompts part, and what differs there; empty where the prompts were not given."""
    first: Any = None if finding.diff is None else finding.diff["first"]
    if first is None:
        return ""
    named = ", ".join(filter(None, (first.place, first.field)))
    about = "" if finding.diff["exact"] else "about "
    at = f"at token {about}{number(first.token)}"
    return ": ".join(filter(None, (named, f"{first.kind}, {at}")))
