"""Look-alikes of a cause: those that something excludes, and those that the log leaves open. Knows no format."""

from __future__ import annotations

from cachedoctor.model import Finding, RuledOut

_OPEN = "not excluded"


def excluded(finding: Finding) -> list[RuledOut]:
    """Return the look-alikes that something in the log excludes."""
    return [other for other in finding.ruled_out if not other.why.startswith(_OPEN)]


def still_possible(finding: Finding) -> list[RuledOut]:
    """Return the look-alikes that the log leaves open, and why."""
    left = [other for other in finding.ruled_out if other.why.startswith(_OPEN)]
    return [RuledOut(other.name, other.why.partition(": ")[2]) for other in left]
