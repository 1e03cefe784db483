"""CD106: the client dropped its oldest messages."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice
from cachedoctor.diagnosis.rules.client.changes import (
    from_prompts,
    prompts_prove,
    references,
    seen_in_prompts,
    why_client,
    with_client,
)
from cachedoctor.diagnosis.rules.kit import FindingText, Group, Match, RequestRule, RuleContext, n, times, token
from cachedoctor.model import Remedy


def decide(s: RuleContext) -> Match | None:
    """Fire when the prompts given beside the log differ by a dropped front."""
    first = s.changed("front-truncated")
    return None if first is None or not s.lost else from_prompts(s, first)


def say(g: Group) -> FindingText:
    """Say what a rolling window costs and how to cut."""
    f = g.numbers
    return FindingText(
        f"the oldest messages were dropped behind {token(f['lcp'])}: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        "What follows the head is the later part of the old prompt; it moved, and moved tokens cannot be reused."
        + why_client(g),
        with_client(
            g,
            [
                Remedy(
                    "In the client: cut rarely and in large pieces instead of a little in every turn, or give the server a larger context."
                ),
                Remedy(
                    "On plain attention memory --cache-reuse N can shift the later part; hybrid, recurrent and SWA memory cannot."
                ),
            ],
        ),
        [seen_in_prompts(f["lcp"])],
        references(g),
    )


RULE = RequestRule(
    "CD106",
    "history-truncated",
    "The client dropped its oldest messages",
    decide,
    prompts_prove,
    say,
    on=("text",),
    needs=advice.needs_prompts,
)
