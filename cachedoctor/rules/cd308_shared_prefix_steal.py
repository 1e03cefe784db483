"""CD308: sessions with one system prompt are put into one slot, because they are similar, and overwrite each other."""

from __future__ import annotations

from cachedoctor.knowledge import flags
from cachedoctor.model import Confidence, Remedy, RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import MIN_LOST, Group, Hit, Rule, Situation, Words, n, proof, times
from cachedoctor.rules.taken import other_held

KEEP = 0.5
"""Share of the slot's content from which on the server does not save it to RAM before it is overwritten (b6751)."""


def _grew(s: Situation) -> bool:
    """The bodies show that this conversation only grew, further than what the slot shares with it."""
    found = s.request.difference
    if s.changed("appended") is None or found is None or s.lcp is None:
        return False
    return found.common_prefix_tokens >= s.lcp + MIN_LOST


def check(s: Situation) -> Hit | None:
    """Fire when a slot of another conversation was chosen for its common head, and what this one had is gone."""
    r = s.request
    given = _grew(s)
    if not (given or other_held(s)) or not s.lost or r.selected_by != "lcp" or s.lcp is None or r.restored_from_ram:
        return None
    ram_would_help = s.session.at_least(6751) is not False and (r.f_keep or 0) < KEEP
    if ram_would_help or (r.reference_tokens or 0) - s.lcp < MIN_LOST:
        return None
    shown = proof(
        r,
        ("select", "chosen for the head that both share"),
        ("n_past", "common prefix with what the slot held"),
        ("cached", "tokens reused"),
        ("timing", "tokens recomputed"),
    )
    sure: Confidence = "high" if given else "medium" if s.steals >= 1 else "low"
    facts = {
        "lcp": s.lcp, "held": r.held_tokens, "reference": r.reference_tokens, "prompt": r.prompt_tokens,
        "given": given, "threads": s.threads,
    }  # fmt: skip
    return Hit(s.lost, sure, shown[0], shown[1:4], facts)


def _slots(g: Group) -> int:
    """Slots that the sessions need."""
    threads: int = g.worst.facts["threads"]
    return max(2, threads, g.session.n_slots or 1)


def _apart(g: Group) -> list[Remedy]:
    """A slot for every session, and what keeps the sessions in them: slots alone do not, nor does the rest without."""
    f = g.worst.facts
    foreign, own = f["lcp"] / f["prompt"], min(1.0, f["reference"] / f["prompt"])
    slots = _slots(g)
    new = slots > (g.session.n_slots or 1)
    if own - foreign < 0.1:
        name = (
            "Let the client name its slot: send id_slot with each request, a number of its own per session. A higher -sps cannot part "
            f"them here: another session's prompt matches {foreign:.0%}, its own {own:.0%}."
        )
        return [advice.slots(g.session, slots, f"{name} That takes {slots} slots.") if new else Remedy(name)]
    value = f"{(foreign + own) / 2:.2f}"
    what = (
        f"ask for more similarity before a slot in use is taken: another session's prompt matches {foreign:.0%} of the new one here, the "
        f"session's own {own:.0%}. Below the threshold the slot unused for longest is taken."
    )
    if not new:
        return [advice.option(g.session, flags.SIMILARITY, value, f"{what[0].upper()}{what[1:]}")]
    options, cost = advice.slot_options(g.session, slots)
    what = f"Give every session a slot, {slots} here, and {what} {cost}"
    return [advice.option(g.session, flags.SIMILARITY, f"{value} {options}", what)]


def words(g: Group) -> Words:
    """Offer slots and a threshold that keeps the sessions apart."""
    f, r = g.worst.facts, g.worst_request
    why_not = (
        "the bodies show that this conversation only grew"
        if f["given"]
        else f"by their lengths the prompts belong to {f['threads']} conversations in turn; only the text would prove it"
    )
    return Words(
        f"sessions that share their first {n(f['lcp'])} tokens take slot {r.slot} from each other: "
        f"{n(g.tokens)} tokens recomputed over {times(g.count)}",
        f"The server chose the slot because the head is the same ({n(f['lcp'])} of {n(f['prompt'])} tokens), but behind it stood another "
        f"session; the {n(f['reference'])} tokens of this one were overwritten. The RAM cache saves a prompt only if less than half of it "
        "is kept.",
        _apart(g),
        [RuledOut("history-rewritten", why_not)],
        ["https://github.com/ggml-org/llama.cpp/issues/22083"],
    )


RULE = Rule(
    "CD308",
    "shared-prefix-steal",
    "Sessions with one system prompt take a slot from each other",
    check,
    words,
    on=("taken",),
    after=("CD108",),
)
