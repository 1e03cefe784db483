"""CD205: a usable checkpoint existed, and the server refused it."""

from __future__ import annotations

from typing import Any

from cachedoctor.diagnosis.rules import advice, kit, lengths
from cachedoctor.diagnosis.rules.checkpoints import held_whole, serving
from cachedoctor.knowledge import server_options
from cachedoctor.knowledge.builds import NEWEST
from cachedoctor.knowledge.decision import CHANGES

FIXED = 8673
"""First build that may have the fixed comparison for windows (PR #21510 lies between b8672 and b8929)."""
PASSED_OVER = 1000
"""Tokens: restoring an older checkpoint instead of the refused one does no harm if it costs less than this."""


def refused(s: kit.RuleContext) -> kit.Check | None:
    """Return the best usable checkpoint that was checked and not restored, if its loss matters.

    Where the memory itself still held the prefix, that stands for one: it covers all of it, and has no line.
    """
    r, lcp = s.request, s.lcp
    least = (r.cached_tokens or 0) + (PASSED_OVER if r.restored else kit.MIN_LOST)
    if lcp is None or lcp < least:
        return None
    looked = r.seen.checks or [kit.Check(a, b, lcp - 1, 0) for a, b in r.seen.held_positions if r.seen.forced]
    good = serving([c for c in looked if r.seen.forced or c.pos_max < lcp], lcp, s)
    if not good and r.seen.forced and held_whole(s):
        good = [kit.Check(0, lcp - 1, 0, 0)]
    best = max(good, key=lambda c: c.pos_max, default=None)
    return best if best is not None and covered(best, lcp) >= least else None


def covered(check: kit.Check, lcp: int) -> int:
    """Tokens of the common prefix that it gives back."""
    return min(check.pos_max + 1, lcp)


def cure(s: kit.RuleContext) -> int | None:
    """Oldest build from which on every one, given what this slot held, reuses what was lost here; 0 when none does.

    None when the log lacks a number for the answer.
    """
    found, got = 0, s.request.cached_tokens or 0
    for build in reversed(CHANGES):
        reused = s.reused_by(build)
        if reused is None:
            return found or None
        if reused < got + kit.MIN_LOST:
            break
        found = build
    return found


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on a ``checking checkpoint [a, b]`` line with a checkpoint that holds the prefix and was not restored."""
    r, lcp = s.request, s.lcp
    if not s.lost or not r.lcp_exact or lcp is None:
        return None
    best = refused(s)
    if best is None:
        return None
    # up to b8156 no check is printed, only the creation and the forcing; or this build's rules explain no refusal
    sure = bool(r.seen.checks or held_whole(s)) and s.by_the_book is not False
    if best.pos_min < best.pos_max and s.facts.at_least(FIXED) is True:
        sure = False  # the wrong comparison is fixed; what still refuses a window does so on purpose (b9713 and newer)
    match = kit.Match(covered(best, lcp) - (r.cached_tokens or 0), "high" if sure else "medium", found=best)
    return lengths.noted(s, "CD205", match)


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the refusal, or what a build prints instead."""
    best: kit.Check = match.found
    looked = any(best is check for check in s.request.seen.checks)
    shown = kit.marked(
        s.request,
        kit.PREFIX_AND_CONTENT,
        ("forced", "the symptom"),
        kit.REUSED,
    )
    numbers: dict[str, Any] = {
        "lcp": s.lcp,
        "a": best.pos_min,
        "b": best.pos_max,
        "threshold": best.threshold,
        "line": best.line,
    }
    numbers |= {"cure": cure(s), "memory": not looked and held_whole(s), "early": s.early}
    if not looked:
        return kit.Proof(shown[0], shown[1:], numbers)
    return kit.Proof((kit.Mark(best.line, best.text), "the checkpoint that was rejected"), shown, numbers)


def remedy(session: kit.Session, cured_by: int | None, *, windowed: bool, held: bool) -> kit.Remedy:
    """Name the first build that would have reused what was lost, or keep all of a window's memory."""
    if cured_by:
        return advice.update(session, f"b{cured_by} and newer restore this kind of checkpoint.")
    if not windowed or (cured_by is None and not held):
        return advice.update(session, f"b{NEWEST} is the newest build whose comparison is known.")
    name = session.program or "llama.cpp (b8929 or newer)"
    update = "" if session.at_least(8929) is True else f"update {name} and "
    keep = f"{update}keep the whole cache of the sliding-window layers. The model then needs as much memory as a full-attention model."
    refuses = "empties the memory" if held else "rejects this checkpoint"
    return advice.option(
        session, server_options.SWA_FULL, "", f"Even the newest known build (b{NEWEST}) {refuses}. Instead, {keep}"
    )


def _claim(f: dict[str, Any]) -> str:
    """What was at hand, and that it was refused."""
    lcp = kit.n(f["lcp"])
    if f["memory"]:
        return f"the memory still held the whole common prefix of {lcp} tokens, but was emptied"
    if f["b"] < f["lcp"]:
        return f"a checkpoint inside the common prefix of {lcp} tokens was rejected"
    return f"a checkpoint that begins early enough for the common prefix of {lcp} tokens was rejected"


def _why(f: dict[str, Any], session: kit.Session) -> str:
    """Which comparison refused it."""
    if f["a"] == f["b"]:
        return "A recurrent state saved exactly at the end of the common prefix is usable, but these builds accept only a state saved before that end (b6751 to b8353, b9294)."
    if f["memory"]:
        return (
            "The memory reached back to position 0, so nothing was missing. If the common prefix is inside the window, the threshold is 0. If no "
            "checkpoint begins at position 0 either, b8672 and newer reject even memory that begins at position 0."
        )
    cut = "" if f["b"] < f["lcp"] else "Restored sliding-window memory can be truncated to the common prefix. "
    if session.at_least(FIXED) is True and cut:
        return f"{cut}From b9713 on, the server does not use a checkpoint that ends after the common prefix."
    if f["a"]:
        return f"{cut}These builds require that the checkpoint begins strictly before the threshold."
    return f"{cut}If the common prefix is inside the window, the threshold is 0, and even a checkpoint at position 0 is rejected (up to b8672; fixed by PR #21510)."


def _shown(f: dict[str, Any]) -> str:
    """What excludes that the head of the prompt changed before anything that was saved."""
    if f["memory"]:
        return "the memory held the whole common prefix, because its oldest position was 0"
    inside = f["b"] < f["lcp"]
    if f["line"]:
        return f"line {f['line']} shows a checkpoint {'inside' if inside else 'that could be truncated to'} the common prefix"
    return f"the checkpoint that ends at position {f['b']} {'is inside' if inside else 'could be truncated to'} the common prefix"


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say which comparison failed and from which build on it is right."""
    f = g.numbers
    compared = "" if f["memory"] else f"; checkpoint [{f['a']}, {f['b']}], threshold {f['threshold']}"
    at_hand = "the memory's content" if f["memory"] else f"[{f['a']}, {f['b']}]"
    return kit.FindingText(
        f"{_claim(f)}: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}{compared}",
        _why(f, g.session),
        [remedy(g.session, f["cure"], windowed=f["a"] < f["b"], held=f["memory"])],
        [
            *([] if f["early"] else [kit.RuledOut("prefix-diverges-early", _shown(f))]),
            kit.RuledOut("no-usable-checkpoint", f"{at_hand} was usable"),
            *lengths.left_open(g),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/21510"],
    )


RULE = kit.rule(
    __name__,
    "A wrong comparison rejected a usable checkpoint",
    decide,
    prove,
    say,
    needs=advice.needs_accounting,
    on=("looked",),
    unless=("CD213",),
)
