"""CD304: the RAM prompt cache evicted, or never took, a prompt that came back."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.slots.taken import CHANGED_HEAD, other_held

_BETTER = (*(f"CD{number}" for number in range(101, 300)), "CD305", "CD306", "CD402")
"""Causes in the prompt, the memory or the slot: where one is known, a return to a slot of unknown content proves nothing."""


def _proof(s: kit.RuleContext) -> list[kit.Line]:
    """Lines by which the RAM cache may have lost this conversation since its last turn; what left before was not it."""
    since = s.history[-1].last_line if s.history else 0
    marks = s.request.marks
    named: list[tuple[kit.MarkName, str]] = [
        ("too_large", "this conversation did not fit into the RAM cache"),
        ("evicted", "a prompt was evicted from the RAM cache"),
    ]
    return [(marks[name], label) for name, label in named if name in marks and marks[name].line > since][:1]


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when prompts were evicted, or too large to be taken, and a conversation came back in vain."""
    r = s.request
    if not _proof(s) or s.facts.setting("cache_ram_mib") == 0:
        return None
    sure: kit.Confidence = "high" if s.own_slot is False and r.seen.choice.looked else "medium"
    if other_held(s):
        return kit.Match(s.lost, sure)
    if s.lost and s.own_slot is None and r.thread_turn > 0 and not r.restored_from_ram:
        return kit.Match(s.lost, sure, weak=True)
    return None


def prove(s: kit.RuleContext, _: kit.Match) -> kit.Proof:
    """Show that prompts left the cache, and the search in it."""
    first = s.facts.said("ram_evictions")
    return kit.proof(
        s.request,
        ("ram", "the search in the RAM cache"),
        ("select", "the slot's content does not match"),
        kit.RECOMPUTED,
        first=_proof(s)[0],
        numbers={"limit": s.facts.setting("cache_ram_mib"), "line": None if first is None else first.line},
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say how large the cache is and which line shows that it is full."""
    f = g.numbers
    limit = f" of {kit.n(f['limit'])} MiB" if f["limit"] else ""
    return kit.FindingText(
        f"the RAM prompt cache{limit} was too small for the conversations: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"Prompts were evicted or not saved (first at line {f['line']}), so a conversation that continued found neither its slot nor a RAM copy.",
        [advice.cache_ram(g.session), advice.more_slots(g.session)],
        [
            kit.RuledOut("cache-ram-disabled", "the log shows evictions, so the RAM cache is on"),
            kit.RuledOut("prefix-diverges-early", "the slot held another conversation"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/16391", "https://github.com/ggml-org/llama.cpp/pull/25070"],
    )


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Say what left the cache, or never got there, and how many of its size fit: no request after it tells the cost."""
    said = kit.stated(session, "evicted") or kit.stated(session, "oversize")
    limit = session.setting("cache_ram_mib")
    if said is None or limit == 0 or said.followed:
        return []
    size, limit = said.numbers.get("size"), said.numbers.get("limit", limit)
    known = limit is not None and limit > 0
    what = "a prompt" if size is None else f"a prompt of {size:,.1f} MiB"
    within = f"the RAM prompt cache{f' of {kit.n(limit)} MiB' if known else ''}"
    if kit.stated(session, "evicted") is None:
        claim = f"{what} did not fit into {within} and was not saved"
    else:
        fit = f": the cache holds about {limit / size:,.0f} prompts of that size" if known and size else ""
        claim = f"{what} was evicted from {within} to make room{fit}"
    words = kit.FindingText(
        claim,
        "An evicted prompt costs time only if its conversation continues: neither slot nor RAM then has the prompt, which is computed from the start. This log does not show whether the conversation continued.",
        [advice.cache_ram(session), advice.more_slots(session)],
        [
            kit.RuledOut("cache-ram-disabled", "the log shows evictions, so the RAM cache is on"),
            kit.RuledOut("never-came-back", "not excluded: if the conversation had ended, nothing was lost"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/16391", "https://github.com/ggml-org/llama.cpp/pull/25070"],
    )
    return [
        kit.SessionFinding(words, "", [(said.mark, "a prompt that the RAM cache does not keep")], confidence="medium")
    ]


RULE = kit.rule(
    __name__,
    "The RAM prompt cache is too small for the conversations",
    decide,
    prove,
    say,
    on=("evicted", "too_large"),
    unless=(*CHANGED_HEAD, "CD308", "CD309", "CD310", "CD314"),
    weak_unless=_BETTER,
    alone=alone,
    stated=("evicted", "oversize"),
)
