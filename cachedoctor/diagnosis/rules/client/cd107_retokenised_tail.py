"""CD107: the end of the last turn comes back as other tokens."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.client.changes import (
    from_prompts,
    prompts_prove,
    references,
    seen_in_prompts,
    why_client,
    with_client,
)

_KINDS = ("retokenised", "whitespace", "template", "special-token")


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the prompts differ in the last few tokens only, and the server lost more than these."""
    first = s.changed(*_KINDS)
    if first is None or not s.lost or not 0 < _behind(s, first) < kit.MIN_LOST:
        return None
    return from_prompts(s, first)


def _behind(s: kit.RuleContext, first: kit.First) -> int:
    """Tokens that the slot held after the difference; 0 when unknown."""
    difference, reference = s.difference, s.request.reference_tokens
    if difference is None or reference is None:
        return 0
    if difference.exact:
        return reference - first.token
    if s.lcp is not None:
        return reference - s.lcp
    # A dump holds the reply as well; after a request body its length is known from the log.
    before = s.history[-1].prompt_tokens if s.history else None
    if difference.a.kind != "slots" and before is None:
        return 0
    reply = 0 if difference.a.kind == "slots" else reference - (before or 0)
    return difference.a.tokens - first.token + reply


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say why so few tokens can cost so many."""
    f = g.numbers
    return kit.FindingText(
        f"the last turn came back as different tokens from {kit.token(f['lcp'])} on: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"Tokenising a reply again may not give the tokens that were generated. Full-attention models lose only these few tokens; hybrid, recurrent and sliding-window models go back to a checkpoint before them.{why_client(g)}",
        with_client(
            g,
            [
                kit.Remedy(
                    "In most clients there is nothing to fix. Newer builds keep a checkpoint before the last user message, so the change costs little."
                )
            ],
        ),
        [seen_in_prompts(f["lcp"])],
        references(g),
    )


RULE = kit.rule(
    __name__,
    "The end of the last turn comes back as different tokens",
    decide,
    prompts_prove,
    say,
    on=("text",),
    needs=advice.needs_prompts,
)
