"""CD303: the RAM prompt cache is off, and a conversation came back to a slot that another had taken."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.slots.taken import ALTERNATE, CHANGED_HEAD, other_held

_STRICT = kit.RuledOut(
    "similarity-threshold",
    "not excluded: slots were chosen as least recently used although they held most of the prompt, so -sps is high, and a conversation does not always get its own slot",
)


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the cache is known to be off and its absence cost a returning conversation."""
    if not other_held(s) or s.setup.ram != "off" or s.facts.at_least(6629) is False or s.by_answer:
        return None
    sure = s.facts.said("cache_ram_mib") is not None and s.steals >= 1 and not s.is_strict
    return kit.Match(s.lost, "high" if sure else "medium")


def prove(s: kit.RuleContext, _: kit.Match) -> kit.Proof:
    """Show that the slot's content does not match, and the line that switches the cache off."""
    off = s.facts.said("cache_ram_mib")
    said = off if off is not None and off.value == 0 else None  # with mmproj it may be announced and yet not used
    return kit.proof(
        s.request,
        ("select", "the slot's content does not match"),
        kit.PREFIX,
        kit.REUSED,
        kit.RECOMPUTED,
        most=2,
        also=kit.said_by(said, "the RAM prompt cache is switched off"),
        numbers={"line": said.line if said else None, "strict": s.is_strict},
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Name the option."""
    f, r = g.numbers, g.worst_request
    how = (
        f"Line {f['line']} shows that the prompt cache is disabled."
        if f["line"]
        else "The command line switches the cache off."
        if g.session.setting("cache_ram_mib") == 0
        else "This build announces the cache but does not use it while a multimodal projector is loaded."
        if g.session.setting("mmproj") is True and g.session.at_least(7965) is False
        else "At this log level the cache's updates would be visible, and there are none."
    )
    return kit.FindingText(
        f"the RAM prompt cache is off and slot {r.slot} had been taken by another conversation: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"The slot held {kit.n(r.held_tokens)} tokens of another conversation; without the RAM cache the {kit.n(r.reference_tokens)} tokens of this conversation were lost. {how}",
        [advice.cache_ram(g.session), advice.more_slots(g.session)],
        [_STRICT if f["strict"] else ALTERNATE],
        ["https://github.com/ggml-org/llama.cpp/pull/16391"],
    )


RULE = kit.rule(
    __name__,
    "The RAM prompt cache is off, and conversations take each other's slots",
    decide,
    prove,
    say,
    on=("taken",),
    unless=(*CHANGED_HEAD, "CD302", "CD308", "CD309", "CD314"),
)
