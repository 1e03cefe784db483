"""CD202: context checkpoints are switched off on a model that needs them."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.checkpoints import CLEARED, same_prefix, server_could_not
from cachedoctor.knowledge import builds, server_options


def shown_off(s: kit.RuleContext) -> bool:
    """Known to be off: by the start-up line, or because a build that prints each creation printed none.

    A command line beside the log that says otherwise is not the one that made it, or a preset overrides it.
    """
    facts = s.facts
    said = facts.said("ctx_checkpoints")
    if said is not None and (said.line is not None or said.value == 0):
        made_from = 6180 if facts.memory == "swa" else 6751  # older builds have none to switch off
        return said.value == 0 and facts.at_least(made_from) is not False
    if facts.at_least(6751) is not True or "checkpoints" in facts.shows:
        return False
    printed = "accounting" in facts.shows or (
        facts.at_least(builds.LOGS_REDUCED_AGAIN) is False and "releases" in facts.shows
    )
    prompts = [h for h in s.history if (h.prompt_tokens or 0) >= 1000 and not h.partial]
    return printed and bool(prompts)


def told_off(s: kit.RuleContext) -> bool:
    """The command line switches them off, and the level hides the memory: then the requests have to tell.

    A conversation that was reused while it only grew lost all when its end changed. Memory of full attention would have
    given back what still matched, and caching was on.
    """
    r, off = s.request, s.facts.said("ctx_checkpoints")
    if off is None or off.value != 0 or off.line is not None or s.setup.rewinds_badly is not None:
        return False
    if (
        not s.late
        or s.lcp is None
        or s.server_lost < kit.MIN_LOST
        or r.shifted
        or r.seen.truncate_failed_at is not None
    ):
        return False
    grew = any(h.outcome == "reused" for h in s.history)
    cut = r.f_keep is not None and r.f_keep < 0.9995 and r.seen.choice.selected_by == "lcp" and s.own_slot is not False
    return grew and cut and r.cached_tokens == 0


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the memory could not go back and checkpoints are known to be off."""
    if not told_off(s) and (not server_could_not(s) or not shown_off(s)):
        return None
    off = s.facts.said("ctx_checkpoints")
    sure = off is not None and off.value == 0 and s.request.lcp_exact
    return kit.Match(s.server_lost, "high" if sure else "medium")


def prove(s: kit.RuleContext, _: kit.Match) -> kit.Proof:
    """Show what matched, and the line that switches checkpoints off."""
    off = s.facts.said("ctx_checkpoints")
    return kit.proof(
        s.request,
        kit.PREFIX_AND_CONTENT,
        ("forced", "the symptom"),
        ("select", "how much matched"),
        kit.REUSED,
        kit.RECOMPUTED,
        most=3,
        also=kit.said_by(off, "checkpoints are switched off"),
        numbers={"lcp": s.lcp, "line": off.line if off else None},
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Name the option to drop."""
    f = g.numbers
    usual = server_options.CTX_CHECKPOINTS.default_at(*advice.span(g.session))
    default = usual if isinstance(usual, int) else 32
    known = (
        f"Line {f['line']} shows that checkpoints are disabled."
        if f["line"]
        else "The command line switches checkpoints off."
        if g.session.setting("ctx_checkpoints") == 0
        else "This build logs every checkpoint it creates, and this log has no such line."
    )
    return kit.FindingText(
        f"context checkpoints are off, so {kit.n(f['lcp'])} matching tokens could not be reused: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        "Recurrent, hybrid and sliding-window models can only go back to a checkpoint. " + known,
        [
            advice.option(
                g.session,
                server_options.CTX_CHECKPOINTS,
                str(default),
                f"The new value replaces --ctx-checkpoints 0 or LLAMA_ARG_CTX_CHECKPOINTS=0, which switch checkpoints off. {advice.checkpoint_cost(g.session, default)}",
            )
        ],
        [
            same_prefix(f["lcp"]),
            kit.RuledOut("swa-threshold-misfire", "there was no checkpoint to reject"),
        ],
    )


RULE = kit.rule(
    __name__,
    "Context checkpoints are switched off",
    decide,
    prove,
    say,
    needs=advice.needs_accounting,
    on=("stuck",),
    unless=CLEARED,
)
