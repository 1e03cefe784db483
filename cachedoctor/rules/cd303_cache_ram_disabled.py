"""CD303: the RAM prompt cache is off, and a conversation came back to a slot that another had taken."""

from __future__ import annotations

from cachedoctor.rules import advice, ram
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, said_by, times
from cachedoctor.rules.taken import ALTERNATE, other_held


def check(s: Situation) -> Hit | None:
    """Fire when the cache is known to be off and its absence cost a returning conversation."""
    r = s.request
    if (
        not other_held(s)
        or ram.state(s.session) != "off"
        or s.session.at_least(6629) is False
        or s.fired & {"CD302", "CD308", "CD309"}
    ):
        return None
    off = s.session.settings.get("cache_ram_mib")
    said = off if off is not None and off.value == 0 else None  # with mmproj it may be announced and yet not used
    shown = proof(
        r,
        ("select", "the slot's content does not match"),
        ("n_past", "common prefix with what the slot held"),
        ("cached", "tokens reused"),
        ("timing", "tokens recomputed"),
    )
    return Hit(
        s.lost,
        "high" if off is not None and s.steals >= 1 else "medium",
        shown[0],
        [*shown[1:3], *said_by(said, "the RAM prompt cache is switched off")],
        {"line": said.line if said else None, "held": r.held_tokens, "reference": r.reference_tokens},
    )


def words(g: Group) -> Words:
    """Name the option."""
    f, r = g.worst.facts, g.worst_request
    how = (
        f"Line {f['line']} says that the prompt cache is disabled."
        if f["line"]
        else "The command line switches it off."
        if g.session.setting("cache_ram_mib") == 0
        else "This build announces it, and does not use it while a multimodal projector is loaded."
        if g.session.setting("mmproj") is True and g.session.at_least(7965) is False
        else "This level would print its updates, and there are none."
    )
    return Words(
        f"the RAM prompt cache is off and slot {r.slot} had been taken by another conversation: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        f"The slot held {n(f['held'])} tokens of another conversation; without the RAM cache the {n(f['reference'])} tokens of this one were lost. {how}",
        [advice.cache_ram(g.session), advice.more_slots(g.session)],
        [ALTERNATE],
        ["https://github.com/ggml-org/llama.cpp/pull/16391"],
    )


RULE = Rule(
    "CD303",
    "cache-ram-disabled",
    "The RAM prompt cache is off and slots change hands",
    check,
    words,
    on=("taken",),
    after=("CD108", "CD302", "CD308", "CD309"),
)
