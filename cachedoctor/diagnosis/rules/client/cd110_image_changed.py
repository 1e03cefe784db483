"""CD110: an image of the conversation is sent with other bytes than before."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.client import changes
from cachedoctor.diagnosis.rules.client.changes import from_prompts, prompts_prove, seen_in_prompts

_WHY = "The server compares images by a hash of their bytes. The same picture is a different image if it was scaled, re-encoded or stripped of metadata. Nothing after a changed image can be reused."
_KEEP = [
    kit.Remedy(
        "In the client: keep the encoded bytes of an image and send the same bytes in every turn. Do not scale, convert or re-compress the image again."
    ),
    kit.Remedy("Put a new screenshot into the newest message instead of replacing the old one."),
]


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the prompts given beside the log first differ in an image."""
    first = s.changed("image")
    return from_prompts(s, first) if first is not None and s.lost else None


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say which image, and that the bytes must stay."""
    f = g.numbers
    where = f" ({f['place']})" if f["place"] else ""
    return kit.FindingText(
        f"an image of the conversation changed{where} at {kit.token(f['lcp'])}: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        _WHY,
        _KEEP,
        [
            kit.RuledOut("history-rewritten", "the text before the image is the same"),
            seen_in_prompts(f["lcp"]),
        ],
    )


def of_bodies(_: kit.Session, difference: kit.PromptDiff) -> kit.ChangeText | None:
    """Report it from two given bodies."""
    first = difference.first
    if first is None or first.kind != "image":
        return None
    where = f" ({first.place})" if first.place else ""
    head = f"an image of the conversation changed{where} at {changes.place(difference)}"
    return changes.of_bodies(difference, head, _WHY, _KEEP)


RULE = kit.rule(
    __name__,
    "An image of the conversation is sent with different bytes",
    decide,
    prompts_prove,
    say,
    on=("text",),
    needs=advice.needs_bodies,
    of_bodies=of_bodies,
)
