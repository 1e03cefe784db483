"""CD403: the prompt would fit into the context, had it not been divided between the slots."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice
from cachedoctor.diagnosis.rules.base import (
    FindingText,
    Group,
    Match,
    Proof,
    RequestRule,
    RuleContext,
    marked,
    n,
    times,
)
from cachedoctor.knowledge import server_options
from cachedoctor.model import Confidence, Remedy, RuledOut, as_typed


def decide(s: RuleContext) -> Match | None:
    """Fire where a prompt did not fit that is shorter than all slots' contexts together."""
    r, facts = s.request, s.facts
    if r.seen.error != "context-overflow" or facts.setting("kv_unified") is not False:
        return None
    limit, tokens, slots = (
        r.seen.error_limit or facts.n_ctx_slot,
        r.seen.error_tokens or r.prompt_tokens,
        facts.n_slots or 1,
    )
    if limit is None or tokens is None or slots < 2 or tokens > limit * slots:
        return None
    sure: Confidence = "high" if "error" in r.marks else "medium"
    return Match(0, sure, found={"tokens": tokens, "limit": limit, "slots": slots})


def prove(s: RuleContext, match: Match) -> Proof:
    """Show the refusal."""
    line = marked(s.request, ("error", "the refusal"), ("prompt", "the prompt, and what fits into its slot"))[0]
    return Proof(line, numbers=match.found)


def say(g: Group) -> FindingText:
    """Say how the context is divided."""
    f = g.numbers
    return FindingText(
        f"a prompt of {n(f['tokens'])} tokens did not fit into a slot of {n(f['limit'])}, one of {f['slots']} that divide the context: {times(g.count)} refused",
        f"Without unified KV memory each of the {f['slots']} slots gets an equal part of -c.",
        [
            Remedy("Use one slot, and it gets all of the context.", options=as_typed("--parallel 1")),
            advice.option(g.session, server_options.KV_UNIFIED, "", "Or let the slots share it."),
        ],
        [RuledOut("context-overflow", f"all slots together hold {n(f['limit'] * f['slots'])} tokens")],
    )


RULE = RequestRule(
    "CD403", "slot-context-too-small", "The context is divided between too many slots", decide, prove, say,
    severity="error", on=("error",),
)  # fmt: skip
