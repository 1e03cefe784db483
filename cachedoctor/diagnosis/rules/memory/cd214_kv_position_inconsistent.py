"""CD214: the memory of a slot does not end where the server thought, and the request failed."""

from __future__ import annotations

from typing import Any

from cachedoctor.diagnosis.rules import advice, kit

REFUSED = b"Invalid input batch"
"""The server's words for it, in its log and to the client; it uses them for no other refusal."""


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on a failed request whose batch did not fit its memory; a draft model's failed guess fails no request."""
    marks = s.request.marks
    if s.request.seen.error != "other":
        return None
    if "positions" in marks:
        return kit.Match(0, "high")
    return kit.Match(0, "medium") if REFUSED in marks["error"].text else None


PROOF = kit.lines(
    ("positions", "the batch that was rejected"),
    ("error", "the request failed"),
    numbers=lambda s: {"stored": s.request.seen.stored_position, "batch": s.request.seen.batch_position},
)


_REMEDIES = (
    kit.Remedy("Restart the server to remove the mismatch: all slots are then empty."),
    kit.Remedy("If the mismatch happens again, report it with the lines before it, which show the slot's history."),
)


def _text(f: dict[str, Any], session: kit.Session, what: str, whose: str = "a slot") -> kit.FindingText:
    places = "" if f["stored"] is None else f": the cache ends at position {kit.n(f['stored'])}"
    if places and f["batch"] is not None:
        places += f", but the batch begins at {kit.n(f['batch'])}"
    why = "The server counts a slot's tokens, and the KV cache keeps their positions. Here count and positions differ, for example because a restore or truncation did less than it reported. A batch that does not start at the next position is rejected."
    return kit.FindingText(
        f"the KV cache of {whose} does not match the server's count{places} ({what})",
        why,
        [advice.update(session, "all reported bugs of this kind are fixed."), *_REMEDIES],
        [kit.RuledOut("context-overflow", "the batch was rejected because of its positions, not its length")],
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say where the memory ends, and where the batch began."""
    return _text(g.numbers, g.session, f"{kit.times(g.count)} failed")


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the lines alone."""
    said, refused = kit.stated(session, "positions"), kit.stated(session, "batch_refused")
    first = said or refused
    if first is None or not kit.unfinished(session):
        return []
    f = {"stored": first.numbers.get("stored"), "batch": first.numbers.get("batch")}
    # the library says the same of a draft model's batch, which fails no request: only the server says whose it was
    sure: kit.Confidence = "high" if said is not None and refused is not None else "medium"
    lines = [(first.mark, "the batch that was rejected")]
    if said is not None and refused is not None:
        lines.append((refused.mark, "the server gives up on the batch"))
    whose = "a slot" if sure == "high" else "a slot, or of its draft model,"
    return [kit.SessionFinding(_text(f, session, "the batch was rejected", whose), "", lines, "error", sure)]


RULE = kit.rule(
    __name__,
    "The memory of a slot did not end where the server expected",
    decide,
    PROOF,
    say,
    severity="error",
    on=("error",),
    alone=alone,
    stated=("positions", "batch_refused"),
)
