"""CD313: something outside of the conversation emptied its slot over the API."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when a conversation continues whose slot had been emptied while nobody asked for it, and nothing had saved it."""
    r = s.request
    if "slot_erased" not in r.marks or not s.lost or r.restored_from_ram or not r.thread_turn:
        return None
    if s.lcp is not None and 2 * s.lcp > s.whole:
        return None  # the slot that it got holds most of it: nothing was missing
    return kit.Match(s.lost, "high" if s.threads == 1 and not r.other_candidates else "medium")


PROOF = kit.lines(
    ("select", "an empty slot, or a slot of another conversation"),
    kit.REUSED,
    kit.RECOMPUTED,
    first=("slot_erased", "the slot is emptied without being saved"),
)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say which requests empty a slot, and who sends them."""
    return kit.FindingText(
        f"the slot of the conversation was erased between two of its requests: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        "The server itself empties an idle slot only after saving its content, or to free memory, and the line before names the reason. Here a client sent POST /slots/N?action=erase: a program that manages the server frees memory, or a script starts every chat with this request.",
        [
            kit.Remedy(
                "Find the program that sends POST /slots/N?action=erase, and let it erase a slot only when a conversation is over. A new conversation does not need an empty slot, because the server keeps only the shared beginning."
            ),
            kit.Remedy(
                "If you need the memory in between: save the slot with action=save, and restore it before the next request."
            ),
        ],
        [
            kit.RuledOut("prefix-diverges-early", "the slot held nothing to compare the prompt with"),
            kit.RuledOut(
                "slot-held-other-prompt", "the slot was emptied while idle, before another conversation took it"
            ),
        ],
        ["https://github.com/lemonade-sdk/lemonade/pull/3565"],
    )


RULE = kit.rule(
    __name__, "The slot of a conversation was erased through the API", decide, PROOF, say, on=("slot_erased",)
)
