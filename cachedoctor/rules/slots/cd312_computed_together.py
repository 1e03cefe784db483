"""CD312: several requests with one beginning came at once, and each computed it."""

from __future__ import annotations

from cachedoctor.model import Remedy, RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import FindingText, Group, Match, Proof, RequestRule, RuleContext, marked, n, times


def decide(s: RuleContext) -> Match | None:
    """Fire when another request computed the same beginning at the same time, and none had before."""
    r = s.request
    if r.cached_tokens is None or r.prompt_tokens is None or r.outcome != "cold":
        return None
    again = min(r.together_tokens, r.prompt_tokens) - r.cached_tokens
    return Match(again, "high") if again >= s.min_prompt else None


def prove(s: RuleContext, _: Match) -> Proof:
    """Show the request that began before another one had ended."""
    r = s.request
    primary, *related = marked(
        r,
        ("start", "began while another request with the same beginning was at work"),
        ("select", "the slot that was free"),
        ("cached", "tokens reused"),
        ("timing", "tokens computed"),
    )
    return Proof(primary, related[:3], {"shared": r.together_tokens})


def say(g: Group) -> FindingText:
    """Advise an order: more slots or memory do not help."""
    shared = n(g.numbers["shared"])
    return FindingText(
        f"requests with one beginning came at once, and each computed it: {n(g.tokens)} tokens computed over {times(g.count)}",
        f"The first {shared} tokens of this prompt are those of a request that was at work when it came. A slot reuses what it held itself or "
        "what the RAM cache keeps; what another slot is computing is neither.",
        [
            Remedy(
                "Send one of them first and the next when it has answered: each then finds the beginning in the slot. More slots or a larger "
                "RAM cache do not help."
            )
        ],
        [RuledOut("slot-contention", "these are first prompts: nothing of their conversations was in a slot before")],
    )


RULE = RequestRule(
    "CD312",
    "computed-together",
    "Requests with one beginning came at once, and each computed it",
    decide,
    prove,
    say,
    on=("together",),
    needs=advice.needs_prompts,
)
