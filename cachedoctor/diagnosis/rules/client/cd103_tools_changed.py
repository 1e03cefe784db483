"""CD103: the list of tools in the prompt changed."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.client import changes
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
    "tools-reordered": "the tools are in a different order",
    "tool-edited": "a tool's description or schema changed",
    "json-key-order": "the keys of a tool's JSON are in a different order",
    "mode-switched": "the client switched to a mode with other tools",
    "json-spacing": "the whitespace in a tool's JSON changed",
}


LATER = 1.5
"""Ratio of common prefix to tokens before the change (counted with tools first) above which the tools come later."""
_KEEP = kit.Remedy("In the client: keep the tool list the same for the whole conversation: same order, same JSON.")

_FRONT = "Most templates put the tools before the conversation."
_LOST = "Nothing after the change can be reused."


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the prompts given beside the log first differ in their tools."""
    first = s.changed(*_WHAT)
    return from_prompts(s, first) if s.lost and first is not None and _is_of_tools(first) else None


def _is_of_tools(first: kit.First) -> bool:
    return first.kind.startswith(("tool", "mode")) or (first.place or "").startswith("tools")


def _where(g: kit.MatchGroup) -> str:
    """Say where the template writes the tools, by the common prefix of the log."""
    r, sent = g.worst_request, g.numbers["sent"]
    shared = r.common_prefix_tokens
    if shared is None or r.held_thread != r.thread:
        return _FRONT
    if shared > LATER * sent + kit.MIN_LOST:
        return f"This template puts the tools after {kit.n(shared)} tokens that did not change: before the last messages, not before the whole conversation."
    return f"This template puts the tools before the conversation: {kit.n(shared)} tokens did not change."


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what happened to the tools."""
    f = g.numbers
    return kit.FindingText(
        f"{_WHAT[f['kind']]} at {kit.token(f['lcp'])}: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"{_where(g)} {_LOST}{why_client(g)}",
        by_difference(g, [_KEEP]),
        [seen_in_prompts(f["lcp"])],
        references(g),
    )


def of_bodies(_: kit.Session, difference: kit.PromptDiff) -> kit.ChangeText | None:
    """Report it from two given bodies."""
    first = difference.first
    if first is None or first.kind not in _WHAT or not _is_of_tools(first):
        return None
    return changes.of_bodies(
        difference,
        f"{_WHAT[first.kind]} at {changes.place(difference)}",
        f"{_FRONT} {_LOST}",
        [_KEEP],
    )


RULE = kit.rule(
    __name__,
    "The list of tools in the prompt changed",
    decide,
    prompts_prove,
    say,
    on=("text",),
    needs=advice.needs_prompts,
    of_bodies=of_bodies,
)
