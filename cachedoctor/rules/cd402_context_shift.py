"""CD402: the server moved the context to make room, and no later prompt matches what is left."""

from __future__ import annotations

from cachedoctor.model import Remedy
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, times


def check(s: Situation) -> Hit | None:
    """Fire on the shift itself, and on the loss of the conversation's next turn."""
    r = s.request
    if s.lost and s.history and s.history[-1].shifted:
        marks = proof(
            r,
            ("select", "the shifted content no longer matches"),
            ("timing", "tokens recomputed"),
            ("start", "the next turn"),
        )
        before = proof(s.history[-1], ("shift", "the shift"), ("release", "truncated = 1"))
        return Hit(s.lost, "high", (before or marks)[0], marks, {"limit": s.session.n_ctx_slot})
    if not r.shifted:
        return None
    return Hit(
        0,
        "high",
        proof(r, ("shift", "the shift"), ("release", "truncated = 1"), ("cut", "the prompt was cut"))[0],
        [],
        {"limit": s.session.n_ctx_slot},
    )


def words(g: Group) -> Words:
    """Say what the shift did."""
    limit = f" of {n(g.worst.facts['limit'])} tokens" if g.worst.facts["limit"] else ""
    return Words(
        f"the context{limit} was full and was shifted: {times(g.count)}"
        + (f", {n(g.tokens)} tokens recomputed" if g.tokens else ""),
        "A context shift drops the older half behind the kept head. The next prompt still has it, so it matches nothing.",
        [
            Remedy(
                "Raise the context, or let the client compact its history before the limit.",
                ["llama-server ... -c <tokens>"],
            ),
            Remedy(
                "Or switch the shift off, so that the limit is reported instead.",
                ["llama-server ... --no-context-shift"],
            ),
        ],
    )


RULE = Rule(
    "CD402", "context-shift", "The context was shifted to make room", check, words, severity="note", on=("shift",)
)
