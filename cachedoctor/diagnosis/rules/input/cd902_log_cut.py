"""CD902: the log begins or ends inside a request."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on a request whose beginning or end is missing."""
    return kit.Match(0, "high") if s.request.partial else None


PROOF = kit.lines(("start", "the request's first line in the log"))


_MIXED = " Some requests continue after the next request on their slot has begun, so these lines come from several servers, and no finding is certain. Give the log of each server alone."


def _left_of_it(r: kit.Request) -> str:
    """What an excerpt around ``forcing full prompt re-processing`` tells without the length of the prompt."""
    if not r.seen.forced or not r.lcp_exact or r.prompt_tokens is not None or r.held_tokens is None:
        return ""
    return f" The slot held {kit.n(r.held_tokens)} tokens, and the new prompt begins with {kit.n(r.common_prefix_tokens)} of these tokens: no server could reuse more. The line with n_ctx_slot shows the prompt's length, which is needed to calculate the lost tokens."


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Describe the consequences of the cut."""
    return kit.FindingText(
        f"lines of several servers are mixed: {kit.times(g.count)} incomplete"
        if g.session.mixed
        else f"the log lacks the beginning or the end of {kit.times(g.count)}",
        "Lines before or after this part are missing: the file was truncated, rotated or filtered, or the server stopped. The numbers in the missing lines are unknown."
        + _left_of_it(g.worst_request)
        + (_MIXED if g.session.mixed else ""),
        [
            kit.Remedy(
                "Give the whole log, including its start-up lines; several files of one server can be given together.",
                purpose="look",
            )
        ],
    )


RULE = kit.rule(
    __name__, "The log begins or ends inside a request", decide, PROOF, say, severity="note", on=("partial",)
)
