"""CD902: the log begins or ends inside a request."""

from __future__ import annotations

from cachedoctor.model import Remedy
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, times


def check(s: Situation) -> Hit | None:
    """Fire on a request whose beginning or end is missing."""
    r = s.request
    if not r.partial:
        return None
    return Hit(0, "high", (r.marks["start"], "the first line seen of it"))


def words(g: Group) -> Words:
    """Say what follows from the cut."""
    return Words(
        f"the log lacks the beginning or the end of {times(g.count)}",
        "Lines before or after are missing: the file was cut, rotated, filtered, or the server stopped. Numbers that stood there are unknown.",
        [
            Remedy(
                "Give the whole log, with its start-up lines; several files of one server can be given together.",
                ["cachedoctor analyze server.log.1 server.log"],
            )
        ],
    )


RULE = Rule("CD902", "log-cut", "The log begins or ends inside a request", check, words, severity="note", on="any")
