"""CD311: a sibling, which shares only the beginning, took this conversation's copy out of the RAM cache."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.slots.taken import CHANGED_HEAD


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when a conversation came back whose copy another one had taken, and found less than it had."""
    r = s.request
    if "ram_taken" not in r.marks or s.own_slot is not False or not r.thread_turn:
        return None
    if not s.lost or (r.reference_tokens or 0) - (s.lcp or 0) < kit.MIN_LOST:
        return None
    if r.text_lcp is None:
        sure: kit.Confidence = "medium" if s.history and s.history[-1].outcome == "reused" else "low"
        return kit.Match(s.lost, sure)
    kept = min(s.lost, r.text_lcp - (r.cached_tokens or 0))  # after that the client changed it
    return kit.Match(kept, "high") if kept >= kit.MIN_LOST else None


PROOF = kit.lines(
    ("ram", "the search in the RAM cache"),
    kit.REUSED,
    kit.RECOMPUTED,
    first=("ram_taken", "another conversation took this conversation's RAM copy"),
    most=3,
    numbers=lambda s: {
        "threads": s.threads,
        "given": s.request.text_lcp is not None,
    },
)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Offer a slot to each conversation: no size of the RAM cache prevents it."""
    f, r, session = g.numbers, g.worst_request, g.session
    count = max(2, f["threads"], session.n_slots or 1)
    name = f"by id_slot in its requests (0 to {count - 1})"
    return kit.FindingText(
        "a conversation with the same beginning took the RAM copy of another conversation: "
        f"{kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"The {kit.n(r.reference_tokens)} tokens of this conversation were saved in main memory. The RAM cache restores a copy for any prompt that matches at least "
        f"a quarter of it, and then deletes the copy. When this conversation continued, only {kit.n(r.cached_tokens)} of its tokens were left.",
        [
            advice.slots(
                session,
                count,
                f"Give every conversation a slot ({count} here), and let the client choose its slot {name}. With more slots alone, prompts that begin alike may still get the same slot. A larger RAM cache does not help either, because this copy was not evicted.",
            )
        ],
        [
            kit.RuledOut("cache-ram-too-small", "this copy was not evicted: another conversation took it"),
            kit.RuledOut(
                "history-rewritten",
                "the texts show that this conversation kept its history"
                if f["given"]
                else "this prompt and the other conversation diverge from their RAM copies at the same token",
            ),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/16391"],
    )


RULE = kit.rule(
    __name__,
    "A conversation with the same beginning took another conversation's RAM copy",
    decide,
    PROOF,
    say,
    on=("ram_taken",),
    unless=(*CHANGED_HEAD, "CD305", "CD404", "CD405", "CD314"),
)
