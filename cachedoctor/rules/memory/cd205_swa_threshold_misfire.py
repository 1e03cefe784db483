"""CD205: a usable checkpoint existed, and the server refused it."""

from __future__ import annotations

from cachedoctor.knowledge import flags
from cachedoctor.knowledge.builds import NEWEST
from cachedoctor.knowledge.decision import CHANGES
from cachedoctor.model import Check, Mark, Remedy, RuledOut, Session
from cachedoctor.rules import advice
from cachedoctor.rules.base import (
    MIN_LOST,
    FindingText,
    Group,
    Match,
    Proof,
    RequestRule,
    RuleContext,
    marked,
    n,
    times,
)

PASSED_OVER = 1000
"""Tokens: an older checkpoint that costs less than this more than the refused one is no harm."""


def usable(check: Check, s: RuleContext) -> bool:
    """At or below the common prefix, and of a kind that restores everything from there."""
    lcp = s.lcp
    if lcp is None or check.pos_max + 1 > lcp:
        return False
    if check.pos_min == check.pos_max or s.facts.memory in ("hybrid", "recurrent"):
        return True  # a recurrent state stands for all tokens before it
    window = int(s.facts.setting("n_swa") or 0)
    return check.pos_min == 0 or check.pos_min <= max(0, lcp - window)


def refused(s: RuleContext) -> Check | None:
    """Return the best usable checkpoint that was looked at and not restored, if its loss matters."""
    r = s.request
    looked = r.checks or [Check(a, b, (s.lcp or 0) - 1, 0) for a, b in r.held_positions if r.forced]
    good = [c for c in looked if usable(c, s)]
    if not good:
        return None
    best = max(good, key=lambda c: c.pos_max)
    got = r.cached_tokens or 0
    return best if best.pos_max + 1 - got >= (PASSED_OVER if r.restored else MIN_LOST) else None


def cure(s: RuleContext) -> int | None:
    """Oldest build from which on every one, given what this slot held, reuses what was lost here; 0 when none does.

    None when the log lacks a number for the answer.
    """
    found, got = 0, s.request.cached_tokens or 0
    for build in reversed(CHANGES):
        reused = s.reused_by(build)
        if reused is None:
            return found or None
        if reused < got + MIN_LOST:
            break
        found = build
    return found


def decide(s: RuleContext) -> Match | None:
    """Fire on a ``checking checkpoint [a, b]`` line with b + 1 <= LCP whose checkpoint was not restored."""
    r = s.request
    if not s.lost or not r.lcp_exact:
        return None
    best = refused(s)
    if best is None:
        return None
    # up to b8156 no check is printed, only the creation and the forcing; or this build's rules explain no refusal
    sure = bool(r.checks) and s.by_the_book is not False
    return Match(best.pos_max + 1 - (r.cached_tokens or 0), "high" if sure else "medium", found=best)


def prove(s: RuleContext, match: Match) -> Proof:
    """Show the refusal, or what a build prints instead."""
    best: Check = match.found
    shown = marked(
        s.request,
        ("n_past", "common prefix, and what the slot held"),
        ("forced", "the symptom"),
        ("cached", "tokens reused"),
    )
    numbers = {"lcp": s.lcp, "a": best.pos_min, "b": best.pos_max, "threshold": best.threshold, "line": best.line}
    numbers["cure"] = cure(s)
    if not s.request.checks:
        return Proof(shown[0], shown[1:], numbers)
    return Proof((Mark(best.line, best.text), "the checkpoint that was refused"), shown, numbers)


def remedy(session: Session, cured_by: int | None) -> Remedy:
    """Name the first build that would have restored the checkpoint."""
    if cured_by is None or (cured_by == 0 and session.memory != "swa"):
        return Remedy(f"Update llama.cpp: b{NEWEST} is the newest whose comparison is known.")
    if cured_by:
        return Remedy(f"Update llama.cpp: b{cured_by} and newer restore it.")
    return advice.option(
        session,
        flags.SWA_FULL,
        "",
        f"No build up to b{NEWEST} takes this checkpoint. Keep the whole cache of the sliding-window layers instead, at the memory of a "
        "full-attention model.",
    )


def say(g: Group) -> FindingText:
    """Say which comparison failed and from which build on it is right."""
    f = g.numbers
    recurrent = f["a"] == f["b"]
    form = (
        "A recurrent state saved exactly at the common prefix is usable, but these builds demand one strictly below it (b6751 to b8353, b9294)."
        if recurrent
        else "With a common prefix inside the window the threshold is 0, and position 0 counts as too late (up to b8672; fixed by PR #21510)."
    )
    return FindingText(
        f"checkpoint [{f['a']}, {f['b']}] lies below the common prefix of {n(f['lcp'])} tokens and was refused against {f['threshold']}: "
        f"{n(g.tokens)} tokens recomputed over {times(g.count)}",
        form,
        [remedy(g.session, f["cure"])],
        [
            RuledOut(
                "prefix-diverges-early",
                f"line {f['line']} shows a checkpoint inside the common prefix"
                if f["line"]
                else f"the checkpoint created up to position {f['b']} lies inside the common prefix",
            ),
            RuledOut("no-usable-checkpoint", f"[{f['a']}, {f['b']}] was usable"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/21510"],
    )


RULE = RequestRule(
    "CD205",
    "swa-threshold-misfire",
    "A usable checkpoint was refused by a wrong comparison",
    decide,
    prove,
    say,
    needs=advice.needs_accounting,
    on=("looked",),
)
