"""CD103: the list of tools in the prompt changed."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.client.changes import (
    by_difference,
    from_prompts,
    prompts_prove,
    references,
    seen_in_prompts,
    why_client,
)

_WHAT = {
    "tool-added": "a tool was added",
    "tool-removed": "a tool was removed",
    "tools-reordered": "the tools stand in another order",
    "tool-edited": "a tool's description or schema changed",
    "json-key-order": "the keys of a tool's JSON stand in another order",
    "mode-switched": "a mode with other tools took turns",
    "json-spacing": "the JSON of a tool is spaced differently",
}


LATER = 1.5
"""Times the place of a change, counted in a body with the tools in front, from which on they do not stand there."""
_KEEP = kit.Remedy(
    "In the client: keep the tool list the same for the whole conversation, sorted, with the same JSON each time."
)


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the prompts given beside the log first differ in their tools."""
    first = s.changed(*_WHAT)
    if (
        first is None
        or not s.lost
        or not (first.kind.startswith(("tool", "mode")) or (first.place or "").startswith("tools"))
    ):
        return None
    return from_prompts(s, first)


def _where(g: kit.MatchGroup) -> str:
    """Say where the template writes the tools, by the common prefix of the log."""
    r, sent = g.worst_request, g.numbers["sent"]
    shared = r.common_prefix_tokens
    if shared is None or r.held_thread != r.thread:
        return "Most templates write the tools in front of the conversation."
    if shared > LATER * sent + kit.MIN_LOST:
        return (
            f"This template writes the tools behind {kit.n(shared)} tokens that did not change: in front of the last messages, not "
            "of all."
        )
    return f"This template writes the tools in front of the conversation: {kit.n(shared)} tokens did not change."


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what happened to the tools."""
    f = g.numbers
    return kit.FindingText(
        f"{_WHAT[f['kind']]} at {kit.token(f['lcp'])}: {kit.n(g.tokens)} tokens recomputed over {kit.times(g.count)}",
        f"{_where(g)} Nothing behind the change can be reused.{why_client(g)}",
        by_difference(g, [_KEEP]),
        [seen_in_prompts(f["lcp"])],
        references(g),
    )


RULE = kit.rule(
    __name__,
    "The list of tools in the prompt changed",
    decide,
    prompts_prove,
    say,
    on=("text",),
    needs=advice.needs_prompts,
)
