"""CD902: the log begins or ends inside a request."""

from __future__ import annotations

from cachedoctor.diagnosis.rules.base import FindingText, Group, Match, Proof, RequestRule, RuleContext, n, times
from cachedoctor.model import Remedy, Request


def decide(s: RuleContext) -> Match | None:
    """Fire on a request whose beginning or end is missing."""
    return Match(0, "high") if s.request.partial else None


def prove(s: RuleContext, _: Match) -> Proof:
    """Show the first line that is there."""
    return Proof((s.request.marks["start"], "the first line seen of it"))


def _left_of_it(r: Request) -> str:
    """What an excerpt around ``forcing full prompt re-processing`` tells without the length of the prompt."""
    if not r.seen.forced or not r.lcp_exact or r.prompt_tokens is not None or r.held_tokens is None:
        return ""
    return (
        f" The slot held {n(r.held_tokens)} tokens, and the new prompt begins with {n(r.common_prefix_tokens)} of them: no server could "
        "reuse more. How long the prompt was, and so what it lost, stands in the line with n_ctx_slot."
    )


def say(g: Group) -> FindingText:
    """Say what follows from the cut."""
    return FindingText(
        f"the log lacks the beginning or the end of {times(g.count)}",
        "Lines before or after are missing: the file was cut, rotated, filtered, or the server stopped. Numbers that stood there are unknown."
        + _left_of_it(g.worst_request),
        [
            Remedy(
                "Give the whole log, with its start-up lines; several files of one server can be given together.",
                purpose="look",
            )
        ],
    )


RULE = RequestRule(
    "CD902", "log-cut", "The log begins or ends inside a request", decide, prove, say, severity="note", on=("partial",)
)
