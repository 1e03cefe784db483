"""CD404: the server was restarted in between, and its caches were empty again."""

from __future__ import annotations

from cachedoctor.model import Remedy
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof


def check(s: Situation) -> Hit | None:
    """Fire on the first request of a later life of the server."""
    r = s.request
    if (
        not s.session.setting("restarted")
        or s.slot_before is not None
        or s.history
        or r.outcome != "cold"
        or (r.prompt_tokens or 0) < s.min_prompt
    ):
        return None
    return Hit(
        0,
        "high",
        (r.marks["start"], "the first request after the restart"),
        proof(r, ("timing", "all of it computed")),
        {"prompt": r.prompt_tokens},
    )


def words(g: Group) -> Words:
    """Say what a restart costs and how to soften it."""
    f = g.worst.facts
    return Words(
        f"the server started anew; the first prompt after it ({n(f['prompt'])} tokens) had nothing to reuse",
        "Slots and the RAM prompt cache live in the process and end with it.",
        [
            Remedy("If a model swapper or an idle timeout stops the server, keep it loaded for longer."),
            Remedy(
                "Slots can be saved to files and restored through POST /slots/ID?action=save and restore.",
                ["llama-server ... --slot-save-path DIR"],
            ),
        ],
    )


RULE = Rule(
    "CD404",
    "server-restarted",
    "The server was restarted; its caches were empty",
    check,
    words,
    severity="note",
    on=("restarted",),
)
