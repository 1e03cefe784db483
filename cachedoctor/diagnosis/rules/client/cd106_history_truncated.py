"""CD106: the client dropped its oldest messages."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.client import changes
from cachedoctor.diagnosis.rules.client.changes import (
    from_prompts,
    prompts_prove,
    references,
    seen_in_prompts,
    why_client,
    with_client,
)

_WHY = "The later part of the old prompt now directly follows the start of the prompt. This part moved, and moved tokens cannot be reused."
_RARELY = kit.Remedy(
    "In the client: truncate rarely and in large pieces instead of a little in every turn, or give the server a larger context."
)


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the prompts given beside the log differ by a dropped front."""
    first = s.changed("front-truncated")
    return None if first is None or not s.lost else from_prompts(s, first)


def _what(place: str | None) -> str:
    """Name what was dropped: a prompt of ``/v1/completions`` is one text."""
    return "text was" if (place or "").startswith("prompt") else "messages were"


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what a rolling window costs and how to cut."""
    f = g.numbers
    what = _what(f["place"])
    return kit.FindingText(
        f"the oldest {what} dropped after {kit.token(f['lcp'])}: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        _WHY + why_client(g),
        with_client(
            g,
            [
                _RARELY,
                kit.Remedy(
                    "Or try --cache-reuse N, which can shift the later part with full-attention models, but not with hybrid, recurrent or sliding-window models."
                ),
            ],
        ),
        [seen_in_prompts(f["lcp"])],
        references(g),
    )


def of_bodies(_: kit.Session, difference: kit.PromptDiff) -> kit.ChangeText | None:
    """Report it from two given bodies."""
    if difference.first is None or difference.first.kind != "front-truncated":
        return None
    head = f"the oldest {_what(difference.first.place)} dropped after {changes.place(difference)}"
    return changes.of_bodies(difference, head, _WHY, [_RARELY])


RULE = kit.rule(
    __name__,
    "The client dropped its oldest messages",
    decide,
    prompts_prove,
    say,
    on=("text",),
    needs=advice.needs_prompts,
    of_bodies=of_bodies,
)
