"""Proof by recorded KV events: blocks that were evicted, and blocks that came back after another beginning."""

from __future__ import annotations

from collections.abc import Callable

from cachedoctor.diagnosis.rules.kit import FindingText, SessionFinding, n, said_by
from cachedoctor.diagnosis.rules.measured.shared_beginnings import CHANGES, WORTH
from cachedoctor.model import KvEvents, Remedy, RuledOut, SamplePeriod, Session

_CHANGED = "A block is identified by its tokens and by everything before it. These blocks repeat the tokens of earlier blocks, but the text before these tokens changed: a date, an id, the tool list or a rewritten turn. Text that shifted by a fraction of a block is not counted, so more text may be affected."
_PUSHED = "The events show each block that leaves the cache. These blocks were stored, evicted to make room, and stored again: the client's text had not changed."

_MOST = 0.7
"""Minimum share of the log's computed tokens that a recording needs to be called complete: it has fewer if the log
continues after its end."""


def of(session: Session) -> KvEvents | None:
    """Return the evidence of a server's events if they identify blocks; None without them."""
    found = session.kv_events
    return found[0] if len(found) == 1 and found[0].doubt is None and found[0].stored else None


def _part(events: KvEvents, tokens: int) -> str:
    least = "" if events.complete else "at least "
    return f"{least}{n(tokens)} of {n(events.stored)} computed tokens"


def _why(events: KvEvents, why: str) -> str:
    """Say what the events are, and that some are missing."""
    gaps = "" if events.complete else ", not everything the server published, so the true number may be higher"
    return f"{why} Source: {n(events.messages)} messages of KV events in {events.path}{gaps}."


def pushed_out(session: Session, remedies: Callable[[], list[Remedy]]) -> SessionFinding | None:
    """Report that blocks were evicted before they came back, if the events prove it and the loss is large enough."""
    events = of(session)
    if events is None or events.share(events.evicted) < WORTH:
        return None
    claim = f"{_part(events, events.evicted)} had been evicted before they were needed again (KV events)"
    others = (
        []
        if events.changed
        else [RuledOut("prefix-not-shared", "KV events: no block was stored again after a different beginning")]
    )
    size = said_by(session.settings.get("kv_tokens"), "the size of the cache")
    return SessionFinding(
        FindingText(claim, _why(events, _PUSHED), remedies(), others), "events", size, "warning", "high"
    )


def kept(session: Session) -> bool:
    """Whether complete events show that almost nothing was evicted."""
    events = of(session)
    if events is None or not events.complete or events.share(events.evicted) >= WORTH:
        return False
    computed = _computed(session)
    return computed is None or events.stored >= _MOST * computed


def _computed(session: Session) -> int | None:
    """Prompt tokens that the log shows were computed, parts of blocks among them; None where it does not say it."""
    told = [p.computed_tokens if isinstance(p, SamplePeriod) else p.new_tokens for p in session.periods]
    known = [tokens for tokens in told if tokens is not None]
    return sum(known) if told and len(known) == len(told) else None


def changed(session: Session) -> list[SessionFinding]:
    """Report that blocks came back after another beginning, if the events prove it; only bodies show the change."""
    events = of(session)
    if events is None or events.share(events.changed) < WORTH:
        return []
    return [_behind_another_beginning(session, events)]


def _behind_another_beginning(session: Session, events: KvEvents) -> SessionFinding:
    claim = f"{_part(events, events.changed)} had been computed before, but after a different beginning: the client changes the text before them (KV events)"
    words = FindingText(claim, _why(events, _CHANGED), [_bodies(session)], _not_pushed_out(session))
    return SessionFinding(words, "changed-events", [], "warning", "high", unless=CHANGES)


def salted(session: Session, events: KvEvents, why: str, remedies: list[Remedy]) -> SessionFinding:
    """Say that the same tokens were stored under several salts, adapters or images, which the events do not distinguish."""
    claim = (
        f"{_part(events, events.salted)} had been computed before, but with another salt, adapter or image (KV events)"
    )
    words = FindingText(claim, _why(events, why), remedies, _not_pushed_out(session))
    return SessionFinding(words, "salted-events", [], "note", "high")


def _not_pushed_out(session: Session) -> list[RuledOut]:
    return [RuledOut("kv-pressure", "KV events: almost nothing was evicted")] if kept(session) else []


def _bodies(session: Session) -> Remedy:
    return Remedy(
        "To see the difference, pass the request bodies as well.",
        [f"cachedoctor analyze {session.engine}.log --kv-events kv.jsonl --requests bodies.jsonl"],
        purpose="look",
    )


def beside(session: Session, verdict: str) -> str:
    """What the events add to a verdict on request bodies; nothing if they do not concern it."""
    events = of(session)
    tokens = 0 if events is None else {"changed": events.changed, "salted": events.salted}.get(verdict, 0)
    return f"; KV events: {n(tokens)} of {n(events.stored)} tokens that were computed" if events and tokens else ""
