"""CD308: sessions with one system prompt are put into one slot, because they are similar, and overwrite each other."""

from __future__ import annotations

from itertools import pairwise

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.slots.taken import CHANGED_HEAD, other_held
from cachedoctor.knowledge import server_options

KEEP = 0.5
"""Share of the slot's content from which on the server does not save it to RAM before it is overwritten (b6751)."""


def _grew(s: kit.RuleContext) -> bool:
    """The bodies show that this conversation only grew, further than what the slot shares with it."""
    found, prompt = s.difference, s.request.prompt_tokens
    if s.changed("appended") is None or found is None or s.lcp is None:
        return False
    shared = found.common_prefix_tokens
    if not found.exact:  # words and signs stand for tokens: their share tells, not their number
        shared = round(shared / found.b.tokens * prompt) if found.b.tokens and prompt else 0
    return shared >= s.lcp + kit.MIN_LOST


def _shrank(s: kit.RuleContext) -> bool:
    """Whether a prompt of this session was shorter than what the one before it had left: sessions only grow."""
    turns = [*s.history, s.request]
    return any(
        (turn.prompt_tokens or 0) < (before.seen.released_tokens or 0) - kit.MIN_LOST
        for before, turn in pairwise(turns)
    )


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when a slot of another conversation was chosen for its common head, and what this one had is gone."""
    r = s.request
    if not s.lost or r.seen.choice.selected_by != "lcp" or s.lcp is None or r.restored_from_ram:
        return None
    given = _grew(s)
    if not (given or other_held(s)):
        return None
    ram_would_help = s.facts.at_least(6751) is not False and (r.f_keep or 0) < KEEP
    if ram_would_help or (r.reference_tokens or 0) - s.lcp < kit.MIN_LOST:
        return None
    few = len(s.history) < s.threads and not any(turn.outcome == "reused" for turn in s.history)
    if not given and (few or _shrank(s)):
        # only lengths make a session of it, of few turns: separate prompts behind one instruction look the same
        return kit.Match(s.lost, "low", severity="note", found=False)
    return kit.Match(s.lost, "high" if given else "medium" if s.steals >= 1 else "low", found=given)


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the choice for the head that both share."""
    r = s.request
    return kit.proof(
        r,
        ("select", "slot chosen because its prompt and the new prompt start the same way"),
        kit.PREFIX,
        kit.REUSED,
        kit.RECOMPUTED,
        most=3,
        numbers={
            "lcp": s.lcp,
            "reference": r.reference_tokens,
            "prompt": r.prompt_tokens,
            "given": match.found,
            "threads": s.threads,
        },
    )


def _slots(g: kit.MatchGroup) -> int:
    """Slots that the sessions need."""
    threads: int = g.numbers["threads"]
    return max(2, threads, g.session.n_slots or 1)


def _apart(g: kit.MatchGroup) -> list[kit.Remedy]:
    """A slot for every session, and what keeps the sessions in them: slots alone do not, nor does the rest without."""
    f = g.numbers
    foreign, own = f["lcp"] / f["prompt"], min(1.0, f["reference"] / f["prompt"])
    slots = _slots(g)
    new = slots > (g.session.n_slots or 1)
    if own - foreign < 0.1:
        name = (
            "Let the client choose its slot: send id_slot with each request, one number per session. A higher -sps cannot separate "
            f"the sessions here: another session's prompt matches {foreign:.0%} of the new prompt, and the session's own prompt {own:.0%}."
        )
        return [advice.slots(g.session, slots, f"{name} This needs {slots} slots.") if new else kit.Remedy(name)]
    value = f"{(foreign + own) / 2:.2f}"
    what = (
        f"require more similarity before a slot in use is taken: another session's prompt matches {foreign:.0%} of the new prompt here, and the "
        f"session's own prompt {own:.0%}. Below the threshold the server takes the least recently used slot."
    )
    if not new:
        return [advice.option(g.session, server_options.SIMILARITY, value, f"{what[0].upper()}{what[1:]}")]
    more, cost = advice.slot_options(g.session, slots)
    what = f"Give every session a slot ({slots} here), and {what} {cost}"
    return [advice.option(g.session, server_options.SIMILARITY, value, what, also=more)]


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Offer slots and a threshold that keeps the sessions apart."""
    f, r = g.numbers, g.worst_request
    why_not = (
        "the bodies show that this conversation only grew"
        if f["given"]
        else f"the lengths show that the prompts belong to {f['threads']} alternating conversations"
    )
    return kit.FindingText(
        f"sessions that share their first {kit.n(f['lcp'])} tokens take slot {r.slot} from each other: "
        f"{kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"The server chose the slot because the beginning is the same ({kit.n(f['lcp'])} of {kit.n(f['prompt'])} tokens), but the slot held another "
        f"session; the {kit.n(f['reference'])} tokens of this session were overwritten. The RAM cache saves a slot's prompt only if the "
        "new request keeps less than half of it.",
        _apart(g),
        [kit.RuledOut("history-rewritten", why_not)],
        ["https://github.com/ggml-org/llama.cpp/issues/22083"],
    )


RULE = kit.rule(
    __name__,
    "Sessions with the same system prompt take a slot from each other",
    decide,
    prove,
    say,
    on=("taken",),
    unless=(*CHANGED_HEAD, "CD314"),
)
