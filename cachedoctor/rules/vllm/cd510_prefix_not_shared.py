"""CD510: caching works, and next to nothing is reused: the prompts do not share their beginning, or seem not to."""

from __future__ import annotations

from cachedoctor.model import RuledOut, Session
from cachedoctor.rules import shared_beginnings
from cachedoctor.rules.base import FindingText, SessionFinding, SessionRule, n
from cachedoctor.rules.vllm import rolling
from cachedoctor.rules.vllm.rolling import Stretch

_CAUSES = ("CD501", "CD502", "CD503", "CD504", "CD511", "CD513")
_LONG = 256
"""Tokens of an average prompt from which on a block of any usual size is small beside it."""
_WORTH = 10_000
"""Tokens: less computed in all costs too little to say that the prompts should have shared it."""


def inspect(session: Session) -> list[SessionFinding]:
    """Say it where prompts are long, room is ample, and nothing else explains it."""
    if rolling.caching(session) is False:
        return []
    size = rolling.block(session)
    shared = shared_beginnings.judged(session)
    least = max(_LONG, 2 * size) if size else _LONG
    for stretch in rolling.stretches(session):
        if stretch.share > rolling.LITTLE:
            return []
        if stretch.prompt is not None and stretch.prompt < least:
            continue
        if shared is None and stretch.computed is not None and stretch.computed < _WORTH:
            continue
        return [_note(session, stretch, size) if shared is None else _proven(stretch, shared)]
    return []


def _proven(stretch: Stretch, found: shared_beginnings.Shared) -> SessionFinding:
    """The prompts were given, or the log has them: they decide."""
    if found.early:
        words = FindingText(
            f"next to nothing was reused, because the prompts diverge near their beginning: {found.said} ({stretch.said})",
            found.why,
            found.remedies,
        )
    else:
        words = FindingText(
            f"next to nothing was reused, though the prompts do share their beginning: {found.said} ({stretch.said})",
            "So the text of the prompts is not the cause. A cache salt, a LoRA adapter, another image, a router that spreads requests over servers, or "
            "a fault of this version can be; none of them is in the log.",
            rolling.experiment()[:1],
        )
    return SessionFinding(
        words, "early" if found.early else "shared", stretch.evidence, "warning", "high", found.difference
    )


def _note(session: Session, stretch: Stretch, size: int | None) -> SessionFinding:
    length = f"prompts of about {n(stretch.prompt)} tokens" if stretch.prompt else "prompts"
    little = "nothing" if stretch.share == 0 else "next to nothing"
    on, fits = rolling.caching(session), rolling.fits(session, stretch)
    causes = [
        *([] if on else ["prefix caching is off, of which nothing is known"]),
        f"they part {'within their first block' if stretch.share == 0 else 'near their beginning'}, as the cache sees them",
        *([] if fits else ["they were pushed out before they came back"]),
    ]
    words = FindingText(
        f"{little} was reused of {length}{', though prefix caching is on' if on else ''}: {', or '.join(causes)} ({stretch.said})",
        "Prompts part early where the client changes the beginning of every one (a time, a counter, a new tool list), or where they have "
        "nothing to share. A cache salt, a LoRA adapter, another image, and a router that spreads requests look the same, and none of them "
        "is in the log." + _more(session, stretch, size, fits),
        rolling.experiment(),
        _ruled_out(session, stretch, size),
    )
    lines = [*stretch.evidence, *rolling.said_by(session.settings.get("prefix_caching"), "prefix caching is on")]
    if on and fits and stretch.prompt is not None:
        return SessionFinding(words, "", lines, "warning", "medium")
    return SessionFinding(words, "", lines, "note", "low")


def _more(session: Session, stretch: Stretch, size: int | None, fits: bool | None) -> str:
    """What else cannot be told apart."""
    found = ""
    if stretch.prompt is None:
        found += " So do prompts shorter than a block: how long they are is not known."
    if session.memory == "hybrid" and size:
        found += f" On this hybrid model a shared beginning of less than a block of {n(size)} tokens does, too, and one that only two prompts share."
    if fits is None:
        found += " So does a KV cache that is too small for all of them: its size is not known."
    elif not fits:
        found += " So does a KV cache that is too small for all of them: more was computed than it holds."
    return found


def _ruled_out(session: Session, stretch: Stretch, size: int | None) -> list[RuledOut]:
    found = []
    if rolling.caching(session):
        found.append(RuledOut("prefix-caching-off", "it is on"))
    if size and stretch.prompt and session.memory != "hybrid":
        found.append(
            RuledOut(
                "block-granularity", f"the prompts are {stretch.prompt / size:.0f} blocks of {n(size)} tokens long"
            )
        )
    if rolling.fits(session, stretch):
        found.append(
            RuledOut(
                "kv-pressure",
                f"all {n(stretch.computed)} tokens that were computed fit into the cache of {n(session.setting('kv_tokens'))}",
            )
        )
    return found


RULE = SessionRule(
    "CD510",
    "prefix-not-shared",
    "Caching works, and next to nothing is reused: the prompts do not share their beginning",
    needs=rolling.needs_traffic,
    severity="warning",
    inspect=inspect,
    unless=_CAUSES,
    engine="vllm",
)
