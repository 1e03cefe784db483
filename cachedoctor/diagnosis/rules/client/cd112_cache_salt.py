"""CD112: requests have different salts, which separate equal prompts in the cache."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import kv_proof, sent_changes
from cachedoctor.diagnosis.rules.measured.shared_beginnings import WORTH, given

_LITTLE = 0.05
"""Maximum reused share of a server where one salt per request prevents all reuse."""
_FOR_EACH = 0.8
"""Salts per body with a salt, from which on each request has its own salt, and not each user."""
_WHY = (
    "The salt is part of the hash of every block: requests with different salts share nothing, so one tenant cannot infer from "
    "response times what another tenant sent."
)
_ONE = kit.Remedy(
    "Send one salt for all requests that may share a cache, such as all requests of one user or team, not a new salt for each request."
)


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from given bodies, or from recorded KV events."""
    return _of_bodies(session) or _of_events(session)


def _of_bodies(session: kit.Session) -> list[kit.SessionFinding]:
    sent, verdict, reused = session.sent, given(session), sent_changes.reuse(session)
    if (
        sent is None
        or verdict is None
        or verdict.verdict != "salted"
        or reused is None
        or not sent_changes.is_on(session)
    ):
        return []
    share, said, lines = reused
    is_each = sent.salts >= _FOR_EACH * sent.with_salt
    all_lost = share <= _LITTLE or sent.share(sent.resumed) >= WORTH
    of = "" if sent.with_salt == sent.bodies else f"{kit.n(sent.with_salt)} of "
    claim = (
        f"{kit.n(sent.salts)} different salts (cache_salt, extra_key) in {of}{kit.n(sent.bodies)} requests prevent reuse of {100 * sent.share(sent.salted):.0f} % of "
        f"all prompt text, although earlier requests have the same text at the same place{kv_proof.beside(session, 'salted')} ({said})"
    )
    severity: kit.Severity = "warning" if is_each and all_lost else "note"
    return [kit.finding(claim, _WHY, [_ONE], key="sent", evidence=lines, severity=severity, confidence="high")]


def _of_events(session: kit.Session) -> list[kit.SessionFinding]:
    events = kv_proof.of(session)
    if events is None or events.share(events.salted) < WORTH:
        return []
    return [kv_proof.salted(session, events, _WHY, [_ONE])]


RULE = kit.session_rule(
    __name__,
    "Different salts keep equal prompts apart in the cache",
    inspect,
    severity="warning",
    engine=kit.ANY,
)
