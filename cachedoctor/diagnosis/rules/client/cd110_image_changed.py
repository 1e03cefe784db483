"""CD110: an image of the conversation is sent with other bytes than before."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice
from cachedoctor.diagnosis.rules.client.changes import from_prompts, prompts_prove, seen_in_prompts
from cachedoctor.diagnosis.rules.kit import FindingText, Group, Match, RequestRule, RuleContext, n, times, token
from cachedoctor.model import Remedy, RuledOut


def decide(s: RuleContext) -> Match | None:
    """Fire when the prompts given beside the log first differ in an image."""
    first = s.changed("image")
    return from_prompts(s, first) if first is not None and s.lost else None


def say(g: Group) -> FindingText:
    """Say which image, and that the bytes must stay."""
    f = g.numbers
    where = f" ({f['place']})" if f["place"] else ""
    return FindingText(
        f"an image of the conversation changed{where} at {token(f['lcp'])}: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        "The server compares images by a hash of their bytes. The same picture, scaled, encoded or stripped of its metadata again, is "
        "another image, and nothing behind it can be reused.",
        [
            Remedy(
                "In the client: keep the encoded bytes of an image and send the same ones in every turn; do not scale, convert or "
                "re-compress it again."
            ),
            Remedy(
                "Screenshots that are replaced by newer ones belong into the newest message, not in the place of the old."
            ),
        ],
        [
            RuledOut("history-rewritten", "the text in front of the image is the same"),
            seen_in_prompts(f["lcp"]),
        ],
    )


RULE = RequestRule(
    "CD110", "image-changed", "An image of the conversation is sent with other bytes", decide, prompts_prove, say,
    on=("text",),
    needs=advice.needs_bodies,
)  # fmt: skip
