"""CD403: the prompt would fit into the context, had it not been divided between the slots."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.knowledge import server_options


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire if a prompt did not fit although it is shorter than the contexts of all slots together."""
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
    sure: kit.Confidence = "high" if "error" in r.marks else "medium"
    return kit.Match(0, sure, found={"tokens": tokens, "limit": limit, "slots": slots})


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the refusal."""
    return kit.proof(
        s.request,
        ("error", "the rejection"),
        ("prompt", "the prompt, and the size of its slot"),
        most=0,
        numbers=match.found,
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say how the context is divided."""
    f = g.numbers
    return kit.FindingText(
        f"a prompt of {kit.n(f['tokens'])} tokens did not fit into a slot of {kit.n(f['limit'])} (the context is divided among {f['slots']} slots): {kit.times(g.count)} rejected",
        f"Without unified KV memory each of the {f['slots']} slots gets an equal part of -c.",
        [
            kit.Remedy("Use one slot, which gets the whole context.", options=kit.as_typed("--parallel 1")),
            advice.option(g.session, server_options.KV_UNIFIED, "", "Or let the slots share the context."),
        ],
        [kit.RuledOut("context-overflow", f"all slots together hold {kit.n(f['limit'] * f['slots'])} tokens")],
    )


RULE = kit.rule(
    __name__, "The context is divided among too many slots", decide, prove, say, severity="error", on=("error",)
)
