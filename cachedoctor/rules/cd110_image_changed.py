"""CD110: an image of the conversation is sent with other bytes than before."""

from __future__ import annotations

from cachedoctor.model import Remedy, RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, times
from cachedoctor.rules.changes import from_prompts, seen_in_prompts


def check(s: Situation) -> Hit | None:
    """Fire when the prompts given beside the log first differ in an image."""
    first = s.changed("image")
    return from_prompts(s, first) if first is not None and s.lost else None


def words(g: Group) -> Words:
    """Say which image, and that the bytes must stay."""
    f = g.worst.facts
    where = f" ({f['place']})" if f["place"] else ""
    return Words(
        f"an image of the conversation changed{where} at token {n(f['lcp'])}: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        "The server compares images by a hash of their bytes. The same picture, scaled, encoded or stripped of its metadata anew, is "
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


RULE = Rule(
    "CD110", "image-changed", "An image of the conversation is sent with other bytes", check, words,
    on=("text",),
    needs=advice.needs_bodies,
)  # fmt: skip
