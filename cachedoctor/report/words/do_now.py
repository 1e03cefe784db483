"""What to do about a finding, and about all of them: the commands to copy, or the sentence where none does it.

The one place that chooses the command of the second row and of the last one. Knows findings; knows no format.
"""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.model import Finding, Report
from cachedoctor.report.words.sentences import first_sentence


class DoNow(NamedTuple):
    """What to do first."""

    text: str
    """The sentence; with commands it says what they do, or where they belong."""
    commands: list[str]
    """To be copied; none where it is an action in a client."""


def of_finding(finding: Finding) -> DoNow | None:
    """Return the first thing to do about one finding; None where nothing is to be done."""
    if not finding.remedies:
        return None
    remedy = finding.remedies[0]
    return DoNow(remedy.text, list(remedy.commands))


def of_report(report: Report) -> DoNow | None:
    """Return the one thing to do now, in a sentence or in the commands that do it; None without any."""
    found = next((fix for finding in report.findings if (fix := of_finding(finding)) is not None), None)
    return None if found is None else DoNow(first_sentence(found.text), found.commands[:1])
