"""CD314: the RAM cache held the conversation, and the server did not search it for this request."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit

ISSUES = [
    "https://github.com/ggml-org/llama.cpp/issues/28139",
    "https://github.com/ggml-org/llama.cpp/issues/28276",
]


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when tokens were lost that the RAM cache held: proven when the prompt is saved, else by its length."""
    r = s.request
    if "ram_unsearched" not in r.marks or not s.lost or r.restored_from_ram:
        return None
    is_proven = r.reference_lcp is not None
    return kit.Match(s.lost, "high" if is_proven else "low", key="empty" if r.held_tokens == 0 else "restored")


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the choice without a search, and the entry of the RAM cache."""
    r = s.request
    is_proven = r.reference_lcp is not None
    found = (
        r.marks["ram_unsearched"],
        "the prompt begins with the text of an entry in the RAM cache" if is_proven else "the entry",
    )
    shown = kit.marked(r, ("ram_copy", "when that entry was made"), kit.REUSED, kit.RECOMPUTED)
    choice = (r.marks["select"], "no search in the RAM cache follows this choice")
    return kit.Proof(choice, [found, *shown], {"empty": match.key == "empty", "proven": is_proven})


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say in which case the server does not search, and how to avoid that."""
    f, r = g.numbers, g.worst_request
    why = (
        f"The request named slot {r.slot}, which was empty. Up to b11549 the server then skips the search in the RAM cache."
        if f["empty"]
        else f"Slot {r.slot} held a shorter text, for example from a slot file. The new prompt begins with this whole text, so up to b11549 the server does not look for the longer copy in the RAM cache."
    )
    return kit.FindingText(
        f"the RAM cache held this conversation, but was not searched: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        why,
        [_remedy(is_empty=f["empty"])],
        []
        if f["proven"]
        else [kit.RuledOut("new-conversations", "not excluded: a new conversation of this length looks the same")],
        ISSUES,
    )


def _remedy(*, is_empty: bool) -> kit.Remedy:
    if is_empty:
        return kit.Remedy(
            "In the client: remove id_slot, so the server searches the RAM cache, or send each conversation to its previous slot."
        )
    return kit.Remedy(
        "Save the slot (action=save) after the last turn of a conversation, so the file is as long as the copy in the RAM cache. Or do not restore files while the server runs: the RAM cache restores conversations by itself."
    )


RULE = kit.rule(
    __name__, "The RAM cache held the conversation, but was not searched", decide, prove, say, on=("ram_unsearched",)
)
