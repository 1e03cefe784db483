"""CD306: idle slots were emptied because the shared memory was full."""

from __future__ import annotations

from cachedoctor.knowledge import flags
from cachedoctor.model import Mark, Remedy, RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, times


def check(s: Situation) -> Hit | None:
    """Fire when a thread comes back to an empty slot after a purge, and nothing brought its prompt back."""
    r = s.request
    purged = s.session.settings.get("kv_purged")
    if purged is None or not s.lost or r.restored_from_ram or r.thread_turn == 0 or s.own_slot is True:
        return None
    if r.held_tokens:
        return None  # the slot held something: not emptied
    if purged.line is None or purged.line > r.first_line or "CD305" in s.fired:
        return None
    shown = proof(r, ("select", "the slot choice"), ("cached", "tokens reused"), ("timing", "tokens recomputed"))
    first = (Mark(purged.line, purged.text), "the first slot that was emptied")
    return Hit(s.lost, "medium", first, shown, {"line": purged.line})


def _own_parts(g: Group) -> Remedy:
    what = "Or use fewer slots, and give each its own part."
    if g.session.at_least(7964) is False:
        return Remedy(what, ["llama-server ... -np 2"])  # unified only where the number of slots is left open
    return advice.option(g.session, flags.KV_UNIFIED, "-np 2", what, off=True)


def words(g: Group) -> Words:
    """Say why slots were emptied and how to give them room."""
    f = g.worst.facts
    return Words(
        f"idle slots were emptied to make room in the shared KV memory (first at line {f['line']}): {n(g.tokens)} tokens recomputed over {times(g.count)}",
        "With unified KV memory all slots share one pool; when a batch finds no room, whole idle slots are purged.",
        [
            Remedy("Raise the context: it is the size of the pool.", ["llama-server ... -c <tokens>"]),
            _own_parts(g),
            advice.cache_ram(g.session),
        ],
        [RuledOut("slot-held-other-prompt", "the slot was empty")],
    )


RULE = Rule(
    "CD306", "kv-purged", "Idle slots were emptied because memory was full", check, words, after=("CD108", "CD305")
)
