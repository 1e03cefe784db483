"""CD111: the LoRA adapters or their scales changed, and what another one computed could not be reused."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.measured import sent_changes
from cachedoctor.diagnosis.rules.measured.shared_beginnings import WORTH, given


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the server says that it clears a slot for other adapters, and the slot's content was of use."""
    r = s.request
    if not ("lora" in r.marks or asked(s)) or r.cached_tokens or (r.similarity is not None and r.similarity < 0.1):
        return None
    matched = s.lcp if s.lcp is not None else s.lost
    if not s.lost or not matched:
        return None
    return kit.Match(min(s.lost, matched), "high" if r.seen.choice.selected_by == "lcp" or s.own_slot else "medium")


def asked(s: kit.RuleContext) -> bool:
    """Whether the bodies of a request and the one before it ask for other adapters, or other scales."""
    return s.difference is not None and any(setting.place == "lora" for setting in s.difference.settings)


def prove(s: kit.RuleContext, _: kit.Match) -> kit.Proof:
    """Show the server's message, or else that nothing was reused; the bodies are given beside the log."""
    r = s.request
    shown = kit.marked(
        r,
        ("select", "the slot holds the beginning of this prompt"),
        ("cached", "nothing reused"),
        kit.RECOMPUTED,
    )
    primary, rest = (
        (shown[0], shown[1:]) if "lora" not in r.marks else ((r.marks["lora"], "the server clears the slot"), shown)
    )
    return kit.Proof(primary, rest, {"lcp": s.lcp, "printed": "lora" in r.marks})


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say why a cache belongs to its adapters, and how to keep one for each."""
    f = g.numbers
    held = f"the {kit.n(f['lcp'])} matching tokens of the slot" if f["lcp"] is not None else "the slot's content"
    return kit.FindingText(
        f"the LoRA adapters or their scales changed, so the cache was cleared: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"Keys and values depend on the adapters that computed them, so the server discarded {held}. "
        + (
            "The two numbers in the line count adapters; if they are equal, only a scale changed."
            if f["printed"]
            else "The request bodies select the adapters."
        ),
        [
            kit.Remedy(
                'In the client: send the same "lora" list, with the same scales, in every request of a conversation; requests without this list use the adapters set at start-up or by POST /lora-adapters.'
            ),
            advice.slots(
                g.session,
                max(2, g.session.n_slots or 1),
                "If you need several sets of adapters: give each set a slot; send the slot's number as id_slot.",
            ),
        ],
        [
            kit.RuledOut(
                "cache-prompt-off",
                "the log shows that the server itself cleared the cache"
                if f["printed"]
                else "the bodies show what changed",
            )
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/15327"],
    )


def of_names(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from given bodies whose models are different adapters that the log shows as loaded."""
    said, sent, verdict = kit.stated(session, "adapters"), session.sent, given(session)
    reused = sent_changes.reuse(session)
    if said is None or sent is None or verdict is None or verdict.verdict != "adapted" or reused is None:
        return []
    if not sent_changes.is_on(session):
        return []
    one = sent.share(sent.switched) >= WORTH
    claim = f"{'one conversation asks' if one else 'requests ask'} for different LoRA adapters: in {kit.n(sent.bodies)} requests, {100 * sent.share(sent.adapted):.0f} % of all prompt text repeats the text at the same place in an earlier request for another adapter ({reused[1]})"
    why = (
        "The name of the adapter is part of the hash of every block: tokens computed for one adapter cannot be used for another, even if the text is "
        "the same."
    )
    remedy = kit.Remedy("In the client: use one adapter (the same model name) in all requests of a conversation.")
    return [
        kit.finding(
            claim, why, [remedy], key="sent", evidence=[(said.mark, "adapters of the server"), *reused[2]],
            severity="warning" if one else "note", confidence="high",
        )
    ]  # fmt: skip


RULE = kit.rule(
    __name__,
    "LoRA adapters or scales changed, which clears the cache",
    decide,
    prove,
    say,
    needs=advice.needs_adapters,
    on=("lora",),
    alone=of_names,
    stated=("adapters",),
)
