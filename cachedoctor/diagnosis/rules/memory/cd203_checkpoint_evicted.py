"""CD203: a checkpoint inside the common prefix had existed, and had been dropped from a full list."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.checkpoints import APPEND_ONLY, CLEARED, dropped, same_prefix, too_dense
from cachedoctor.knowledge import server_options


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when a dropped checkpoint at or below the common prefix would have given back more than was reused."""
    r = s.request
    lost = dropped(s)
    if lost is None or too_dense(s, lost):
        return None
    if r.cached_tokens is None:  # the excerpt ends before the outcome
        return kit.Match(0, "medium", found=lost, at_most=lost.tokens)
    sure: kit.Confidence = "high" if s.pinned and (r.seen.forced or r.seen.checks) else "medium"
    return kit.Match(lost.tokens - (r.cached_tokens or 0), sure, found=lost)


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the line that dropped it."""
    lost: kit.Dropped = match.found
    shown = kit.marked(
        s.request,
        kit.PREFIX_AND_CONTENT,
        ("forced", "the symptom"),
        ("check", "a checkpoint that was kept"),
        ("select", "how much matched"),
        kit.REUSED,
        kit.RECOMPUTED,
    )
    numbers = {
        "lcp": s.lcp,
        "tokens": lost.tokens,
        "line": lost.line,
        "size": lost.size_mib,
        "limit": lost.limit if lost.limit is not None else s.facts.setting("ctx_checkpoints"),
        "behind": lost.behind,
        "crowded": lost.crowded,
    }
    return kit.Proof((kit.Mark(lost.line, lost.text), "the checkpoint that was dropped"), shown[:4], numbers)


def _mib(size: float) -> str:
    return f"{size:.3f} MiB" if size < 1 else f"{size:,.1f} MiB"


def _longer_list(g: kit.MatchGroup) -> kit.Remedy:
    f = g.numbers
    default = server_options.CTX_CHECKPOINTS.default_at(*advice.span(g.session))
    limit = f["limit"] or (default if isinstance(default, int) else 32)
    held = (
        f"The limit was {limit} checkpoints;"
        if f["limit"]
        else f"The default is {limit}, and this log does not show the limit in use;"
    )
    alone = g.count == 1
    more = f["behind"] if alone else max(f["behind"], g.session.sizes.short) + 1  # what is kept for one takes a place
    kept = (
        "would have kept this checkpoint" if alone else "is the smallest limit that keeps the checkpoints needed here"
    )
    return advice.option(
        g.session,
        server_options.CTX_CHECKPOINTS,
        str(limit + more),
        f"Keep more checkpoints per slot. {held} {limit + more} {kept}.{_memory(f['size'], more)}",
    )


def _memory(size: float | None, more: int) -> str:
    """Say what ``more`` checkpoints of so many MiB cost; nothing where the log does not show."""
    if size is None:
        return ""
    return f" Each costs {_mib(size)} of main memory ({more} more: {_mib(more * size)} per slot)."


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say which checkpoint is missing, and how long the list had to be."""
    f = g.numbers
    remedies = [_longer_list(g)]
    if f["crowded"]:
        remedies.append(
            advice.option(
                g.session,
                server_options.CHECKPOINT_MIN_STEP,
                "0",
                "Or place checkpoints closer together; a full list then drops the oldest checkpoint first.",
            )
        )
    remedies.append(APPEND_ONLY)
    reason = (
        "the list was full, and this checkpoint was too close to an earlier one"
        if f["crowded"]
        else "the list was full, and this checkpoint was the oldest"
    )
    return kit.FindingText(
        f"a checkpoint at token {kit.n(f['tokens'])}, inside the common prefix of {kit.n(f['lcp'])} tokens, had been dropped: "
        f"{kit.recomputed(g)} in {kit.times(g.count)}",
        "Recurrent and sliding-window memory can only go back to a saved state (context checkpoint). Line "
        f"{f['line']} shows that the checkpoint needed here was dropped: {reason}.",
        remedies,
        [
            same_prefix(f["lcp"]),
            kit.RuledOut("no-usable-checkpoint", f"a checkpoint was made, then dropped at line {f['line']}"),
        ],
        ["https://github.com/ggml-org/llama.cpp/issues/19408", "https://github.com/ggml-org/llama.cpp/pull/20087"],
    )


RULE = kit.rule(
    __name__,
    "The needed checkpoint had been dropped from a full list",
    decide,
    prove,
    say,
    needs=advice.needs_accounting,
    on=("dropped",),
    unless=(*CLEARED, "CD205"),
)
