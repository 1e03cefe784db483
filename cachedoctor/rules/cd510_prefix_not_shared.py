"""CD510: caching works, and next to nothing is reused: the prompts do not share their beginning, or seem not to."""

from __future__ import annotations

from cachedoctor.model import RuledOut, Session
from cachedoctor.rules import bodies, rolling
from cachedoctor.rules.base import Note, Rule, Words, n
from cachedoctor.rules.rolling import Stretch

_CAUSES = ("CD501", "CD502", "CD503", "CD504", "CD511", "CD513")
_LONG = 256
"""Tokens of an average prompt from which on a block of any usual size is small beside it."""
_WORTH = 10_000
"""Tokens: less computed in all costs too little to say that the prompts should have shared it."""


def inspect(session: Session, fired: set[str]) -> list[Note]:
    """Say it where prompts are long, room is ample, and nothing else explains it."""
    if fired & set(_CAUSES) or rolling.caching(session) is False:
        return []
    size = rolling.block(session)
    shared = bodies.judged(session)
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


def _proven(stretch: Stretch, found: bodies.Shared) -> Note:
    """The prompts were given, or the log has them: they decide."""
    if found.early:
        words = Words(
            f"next to nothing was reused, because the prompts part near their beginning: {found.said} ({stretch.said})",
            found.why,
            found.remedies,
        )
    else:
        words = Words(
            f"next to nothing was reused, though the prompts do share their beginning: {found.said} ({stretch.said})",
            "So the client is not the cause. A cache salt, a LoRA adapter, another image, a router that spreads requests over servers, or "
            "a fault of this version can be; none of them is in the log.",
            rolling.experiment(),
        )
    return Note(words, "early" if found.early else "shared", stretch.evidence, "warning", "high", found.difference)


def _note(session: Session, stretch: Stretch, size: int | None) -> Note:
    length = f"prompts of about {n(stretch.prompt)} tokens" if stretch.prompt else "prompts"
    little = "nothing" if stretch.share == 0 else "next to nothing"
    on, hybrid = rolling.caching(session), session.memory == "hybrid"
    words = Words(
        f"{little} was reused of {length}, though prefix caching {'is on' if on else 'seems to be on'}: they part "
        f"{'within their first block' if stretch.share == 0 else 'near their beginning'} ({stretch.said})",
        "Either the client changes the beginning of every prompt (a time, a counter, a new tool list), or the prompts have nothing to "
        "share. A cache salt, a LoRA adapter, another image, and a router that spreads requests look the same, and none of them is in "
        "the log."
        + (
            f" On this hybrid model a shared beginning of less than a block of {n(size)} tokens does, too."
            if hybrid and size
            else ""
        ),
        rolling.experiment(),
        _ruled_out(session, stretch, size),
    )
    lines = [*stretch.evidence, *rolling.said_by(session.settings.get("prefix_caching"), "prefix caching is on")]
    known = on and (session.setting("kv_tokens") is not None or stretch.unit != "interval")
    return Note(words, "", lines, "warning", "medium" if known else "low")


def _ruled_out(session: Session, stretch: Stretch, size: int | None) -> list[RuledOut]:
    found = []
    if rolling.caching(session):
        found.append(RuledOut("prefix-caching-off", "prompts were looked up"))
    if size and stretch.prompt:
        found.append(
            RuledOut(
                "block-granularity", f"the prompts are {stretch.prompt / size:.0f} blocks of {n(size)} tokens long"
            )
        )
    room = session.setting("kv_tokens")
    if isinstance(room, int) and stretch.computed is not None and stretch.computed < room:
        found.append(
            RuledOut(
                "kv-pressure", f"all {n(stretch.computed)} tokens that were computed fit into the cache of {n(room)}"
            )
        )
    return found


RULE = Rule(
    "CD510",
    "prefix-not-shared",
    "Caching works, and next to nothing is reused: the prompts do not share their beginning",
    needs=rolling.needs_traffic,
    severity="warning",
    on=(),
    inspect=inspect,
    after=_CAUSES,
    engine="vllm",
)
