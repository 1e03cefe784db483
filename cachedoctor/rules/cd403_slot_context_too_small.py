"""CD403: the prompt would fit into the context, had it not been divided between the slots."""

from __future__ import annotations

from cachedoctor.knowledge import flags
from cachedoctor.model import Remedy, RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, times


def check(s: Situation) -> Hit | None:
    """Fire on a refusal whose prompt is shorter than all slots' contexts together."""
    r, session = s.request, s.session
    limit = r.error_limit or session.n_ctx_slot
    tokens, slots = r.error_tokens or r.prompt_tokens, session.n_slots or 1
    if r.error != "context-overflow" or limit is None or tokens is None or slots < 2:
        return None
    if session.setting("kv_unified") is not False or tokens > limit * slots:
        return None
    facts = {"tokens": tokens, "limit": limit, "slots": slots}
    return Hit(0, "high", proof(r, ("error", "the refusal"))[0], [], facts)


def words(g: Group) -> Words:
    """Say how the context is divided."""
    f = g.worst.facts
    return Words(
        f"a prompt of {n(f['tokens'])} tokens did not fit into a slot of {n(f['limit'])}, one of {f['slots']} that divide the context: {times(g.count)} refused",
        f"Without unified KV memory each of the {f['slots']} slots gets an equal part of -c.",
        [
            Remedy("Use one slot, and it gets all of the context.", ["llama-server ... -np 1"]),
            advice.option(g.session, flags.KV_UNIFIED, "", "Or let the slots share it."),
        ],
        [RuledOut("context-overflow", f"all slots together hold {n(f['limit'] * f['slots'])} tokens")],
    )


RULE = Rule(
    "CD403", "slot-context-too-small", "The context is divided between too many slots", check, words,
    severity="error", on=("error",),
)  # fmt: skip
