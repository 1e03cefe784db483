"""CD404: the server was restarted in between, and its caches were empty again."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on the first request of a later run of the server."""
    r = s.request
    if not s.facts.setting("restarted") or s.slot_before is not None or s.before or r.outcome != "cold":
        return None
    return kit.Match(0, "high") if (r.prompt_tokens or 0) >= s.min_prompt else None


PROOF = kit.lines(("timing", "the whole prompt computed"), first=("start", "the first request after the restart"))


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what a restart costs and how to soften it."""
    r = g.worst_request
    keep = kit.Remedy("If a model swapper or an idle timeout stops the server, keep it loaded for longer.")
    return kit.FindingText(
        f"the server restarted; the first prompt after it ({kit.n(r.prompt_tokens)} tokens) had nothing to reuse",
        "Slots and the RAM prompt cache are lost when the process ends.",
        [
            advice.memory_short(g.session) or keep,
            kit.Remedy(
                "To save slots to files and restore them, use POST /slots/ID?action=save and action=restore.",
                options=kit.as_typed("--slot-save-path slots"),
                purpose="depends",
            ),
        ],
    )


RULE = kit.rule(
    __name__, "The server was restarted; its caches were empty", decide, PROOF, say, severity="note", on=("restarted",)
)
