"""Changes by clients between given bodies, for a server whose log has no requests to match them to."""

from __future__ import annotations

from cachedoctor.diagnosis.rules.kit import ChangeText, Line, OfBodies, SessionFinding, finding, n
from cachedoctor.diagnosis.rules.measured import batch_periods, kv_proof, rolling
from cachedoctor.diagnosis.rules.measured.shared_beginnings import WORTH, given
from cachedoctor.model import ClientName, RuledOut, SentBodies, Session
from cachedoctor.model.measured import SentChange

_OTHERS = 0.15
"""Share by which a server may reuse more than the given bodies have in common; beyond it the bodies do not belong to
this log."""


def is_on(session: Session) -> bool:
    """Whether the cache is on or not known to be off: without a cache no change costs anything."""
    return session.setting("prefix_caching") is not False and session.setting("radix_cache") is not False


def of_this_log(session: Session, share: float) -> bool:
    """Whether the server reused no more than the bodies have in common; other requests may have more."""
    sent = session.sent
    return sent is None or not sent.complete or share <= sent.share(sent.shared) + _OTHERS


def reuse(session: Session) -> tuple[float, str, list[Line]] | None:
    """Return the reused share of a server, its source, and its lines; None if too little is known."""
    stretches = rolling.stretches(session)
    if stretches:
        return stretches[0].share, stretches[0].said, stretches[0].evidence
    batches = batch_periods.periods(session)
    requests, computed, cached = batch_periods.totals(batches)
    share = batch_periods.share(cached, computed)
    if share is None or requests <= batch_periods.ENOUGH:
        return None
    said = f"{n(cached)} of {n(cached + computed)} prompt tokens were reused in {n(requests)} requests"
    lines = batch_periods.marks(batches[0], ("whole", "a complete request"), ("cold", "a request that reused nothing"))
    return share, said, lines


def findings(session: Session, words: OfBodies | None) -> list[SessionFinding]:
    """Describe the changes that have one cause."""
    sent, reused = session.sent, reuse(session)
    verdict = given(session)
    if words is None or sent is None or verdict is None or verdict.verdict != "changed" or not is_on(session):
        return []
    if reused is None or not of_this_log(session, reused[0]):
        return []
    large = [c for c in sent.changes if sent.share(c.repeated) >= WORTH] or sent.changes[:1]
    found = [(change, text) for change in large if (text := words(session, change.worst)) is not None]
    return [_finding(session, sent, change, text, reused) for change, text in found]


def _finding(
    session: Session, sent: SentBodies, change: SentChange, text: ChangeText, reused: tuple[float, str, list[Line]]
) -> SessionFinding:
    _, said, lines = reused
    share = sent.share(change.repeated)
    tokens = "" if sent.tokens is None else f" (about {n(round(share * sent.tokens, -2))} tokens)"
    claim = (
        f"{text.head}: {100 * share:.0f} % of all prompt text{tokens} comes after the change and was sent again, in {n(change.bodies)} of "
        f"{n(sent.bodies)} requests{_senders(sent, change)}{kv_proof.beside(session, 'changed')} ({said})"
    )
    first = change.worst.first
    return finding(
        claim, text.why, text.remedies, ruled_out=_excluded(session), references=text.references,
        key=f"sent-{'' if first is None else first.kind}", evidence=lines, severity="warning",
        confidence="high" if sent.complete else "medium", difference=change.worst,
    )  # fmt: skip


def _senders(sent: SentBodies, change: SentChange) -> str:
    """Say whose requests they are, where several clients are told apart."""
    known = [one for one in change.senders if one is not None]
    if sent.senders < 2 or len(known) < len(change.senders) or len(change.senders) == sent.senders:
        return ""
    names = f" ({_name(known[0])})" if len(known) == 1 else ""
    return f", all by {len(known)} of {sent.senders} clients{names}"


def _name(client: ClientName) -> str:
    return f"{client.by} {client.name}"


def _excluded(session: Session) -> list[RuledOut]:
    return [RuledOut("kv-pressure", "KV events: almost nothing was evicted")] if kv_proof.kept(session) else []
