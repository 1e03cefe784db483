"""CD206: the server could not cut its memory back to the common prefix and cleared it."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit

_SERVER = b"failed to truncate tokens"
"""Words of the server's own line; a fork has others."""


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on a failed truncation deep in the prompt that no projector explains."""
    at = s.request.seen.truncate_failed_at
    if at is None or not s.lost or s.facts.setting("mmproj") is True:
        return None
    if at < kit.LONG and 2 * at < (s.request.prompt_tokens or 0):
        return None  # a few tokens: another conversation held the slot
    mark = s.request.marks.get("failed")
    own = mark is not None and _SERVER in mark.text
    if not own and s.request.cached_tokens:
        return None  # what a fork could not do was fixed before the first batch
    return kit.Match(min(at, s.lost), "high" if own else "medium")


def prove(s: kit.RuleContext, _: kit.Match) -> kit.Proof:
    """Show the server's message."""
    r = s.request
    at = r.seen.truncate_failed_at
    return kit.proof(
        r,
        ("n_past", "common prefix"),
        ("cached", "where reuse would have ended"),
        kit.RECOMPUTED,
        first=kit.marked(r, ("failed", "the truncation that failed"))[0],
        numbers={"at": at, "again": at == (r.prompt_tokens or 0) - 1},
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what failed and in which builds it ends otherwise."""
    f = g.numbers
    return kit.FindingText(
        f"the memory could not be truncated to position {kit.n(f['at'])} and was cleared: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        "A recurrent state cannot be truncated, not even by the one token that a repeated prompt has to recompute. If the server does not search for a checkpoint, truncation fails and the prompt is computed in full.",
        [
            advice.update(
                g.session,
                "from b9294 on the state is restored from a checkpoint before truncation (and a failed truncation ends the process).",
            ),
            kit.Remedy(
                "In the client: do not send the same prompt again after a reply of one token (probes, max_tokens: 1), because its last token has to be recomputed."
                if f["again"]
                else "In the client: keep the history append-only, so nothing has to be truncated."
            ),
        ],
        [
            kit.RuledOut("mmproj-truncation", "this log shows no multimodal projector"),
            kit.RuledOut("prefix-diverges-early", f"{kit.n(f['at'])} tokens matched"),
        ],
    )


RULE = kit.rule(
    __name__, "The memory could not be truncated and was cleared", decide, prove, say, severity="error", on=("failed",)
)
