"""CD304: the RAM prompt cache threw out, or never took, a prompt that came back."""

from __future__ import annotations

from cachedoctor.model import RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, times
from cachedoctor.rules.taken import other_held


def check(s: Situation) -> Hit | None:
    """Fire when prompts were evicted, or too large to be taken, and a conversation came back in vain."""
    r = s.request
    evictions = s.session.settings.get("ram_evictions")
    if evictions is None or s.fired & {"CD308", "CD309"} or s.session.setting("cache_ram_mib") == 0:
        return None
    returned = other_held(s) or (
        bool(s.lost) and s.own_slot is None and r.thread_turn > 0 and not r.restored_from_ram and not s.fired
    )
    if not returned:
        return None
    shown = proof(
        r,
        ("evicted", "a prompt left the RAM cache"),
        ("ram", "the search in the RAM cache"),
        ("select", "the slot's content does not match"),
        ("timing", "tokens recomputed"),
    )
    limit = s.session.setting("cache_ram_mib")
    return Hit(
        s.lost,
        "high" if s.own_slot is False and r.ram_looked else "medium",
        shown[0],
        shown[1:4],
        {"limit": limit, "line": evictions.line},
    )


def words(g: Group) -> Words:
    """Say how large the cache is and which line shows that it is full."""
    f = g.worst.facts
    limit = f" of {n(f['limit'])} MiB" if f["limit"] else ""
    return Words(
        f"the RAM prompt cache{limit} was too small for the conversations: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        f"Prompts were thrown out or not taken (first at line {f['line']}), and a conversation that came back found neither slot nor RAM copy.",
        [advice.cache_ram(g.session), advice.more_slots(g.session)],
        [
            RuledOut("cache-ram-disabled", "the cache is on: it evicts"),
            RuledOut("prefix-diverges-early", "the slot held another conversation"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/16391", "https://github.com/ggml-org/llama.cpp/pull/25070"],
    )


RULE = Rule(
    "CD304",
    "cache-ram-too-small",
    "The RAM prompt cache is too small for the conversations",
    check,
    words,
    after=("CD108", "CD109", "CD201", "CD205", "CD308", "CD309"),
)
