"""CD306: idle slots were emptied because the shared memory was full."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.slots.taken import is_single
from cachedoctor.knowledge import server_options


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when a thread whose slot was purged comes back, and nothing brought its prompt back."""
    r = s.request
    purged = s.facts.said("kv_purged")
    if "slot_purged" not in r.marks or purged is None or purged.line is None:
        return None  # what was purged is of no use to others
    if not s.lost or r.restored_from_ram or r.thread_turn == 0 or s.own_slot is True or is_single(s):
        return None
    if r.held_tokens:
        return None  # the slot held something: not emptied
    return kit.Match(s.lost, "medium", found=kit.Mark(purged.line, purged.text))


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the first slot that was emptied."""
    return kit.proof(
        s.request,
        ("select", "the slot choice"),
        kit.REUSED,
        kit.RECOMPUTED,
        first=(match.found, "the first slot that was emptied"),
        numbers={"line": match.found.line},
    )


def _own_parts(session: kit.Session) -> kit.Remedy:
    if short := advice.memory_short(session, "the context"):
        return short
    count = max(session.at_once, 2) if session.at_once > 1 else 4
    what = f"Or give every conversation its own slot ({count} slots {'here' if session.at_once > 1 else 'as an example'}). The context is then divided among the slots, so raise -c: a prompt longer than its slot's share is rejected."
    each = advice.context_size(session)  # one conversation may be as long as the pool
    if each is None:
        return kit.Remedy(f"{what} The options are --no-kv-unified, --parallel {count} and --ctx-size.")
    value = kit.as_typed(f"--parallel {count} --ctx-size {count * each}")
    if session.at_least(7964) is False:
        return kit.Remedy(what, options=value)  # unified only where the number of slots is left open
    return advice.option(session, server_options.KV_UNIFIED, "", what, off=True, also=value)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say why slots were emptied and how to give them room."""
    return _text(
        f"idle slots were emptied to make room in the shared KV memory: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        g.session,
        f", first at line {g.numbers['line']}",
    )


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Say what was discarded; it costs something only if its conversation comes back."""
    said = kit.stated(session, "purged")
    if said is None or not kit.unfinished(session):
        return []
    more = f" (the first of {said.count:,})" if said.count > 1 else ""
    claim = f"slot {said.numbers['slot']:.0f} with {kit.n(said.numbers['tokens'])} tokens was emptied to make room in the shared KV memory{more}: its tokens are recomputed if that conversation continues"
    return [kit.SessionFinding(_text(claim, session), "", [(said.mark, "the first slot that was emptied")])]


def _text(claim: str, session: kit.Session, place: str = "") -> kit.FindingText:
    return kit.FindingText(
        claim,
        f"With unified KV memory all slots share one KV cache; if a batch finds no room, the server empties whole idle slots{place}.",
        [
            advice.more_context(session, "Raise the context size, which all slots share.", pool=True),
            _own_parts(session),
            advice.cache_ram(session),
        ],
        [kit.RuledOut("slot-held-other-prompt", "the slot was empty")],
    )


RULE = kit.rule(
    __name__,
    "Idle slots were emptied because memory was full",
    decide,
    prove,
    say,
    on=("slot_purged",),
    unless=("CD305",),
    alone=alone,
    stated=("purged",),
)
