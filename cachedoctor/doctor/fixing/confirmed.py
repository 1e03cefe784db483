"""Replays the options that findings advise on the requests of the log, and takes back what that does not confirm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.memory_use import ENOUGH, is_judged, measured, reused_tokens, smallest_ram
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.traffic import Traffic
from cachedoctor.diagnosis.rules import advice
from cachedoctor.doctor.replaying import from_log
from cachedoctor.doctor.replaying.server_names import changed
from cachedoctor.knowledge import server_options
from cachedoctor.model import CacheDoctorError, Finding, OptionChange, Remedy, Request, Session

FAMILIES = ("CD2", "CD3")
"""Findings whose options change what is reused of an unchanged prompt: memory and slots."""
_WITH_CLIENTS = frozenset({"CD311"})
"""Findings whose options help together with what clients then send (``id_slot``): alone they cannot be tried."""
_KILLED = "CD409"
"""The finding that memory ran out: the replay says how little RAM cache is enough."""
_MIB = 1 << 20
LEAST = 500
"""Tokens: of a smaller claim the replay is not asked."""
FIT = 0.9
"""Share of the requests that the replay has to explain before it may reject an option."""
HALF = 0.5
"""Share of the claim that an option has to save."""
SAME = 16
"""Tokens by which replay and server differ at the end of a prefix, and conversations that share a template."""


class _Replayed(NamedTuple):
    """One server: what it was asked, and what it did by the replay."""

    traffic: Traffic
    settings: ServerSettings
    served: list[Served]
    sent_before: int
    """Tokens that any prompt or reply before began with, and that were not reused."""


def confirmed(findings: Sequence[Finding], requests: Sequence[Request], sessions: Sequence[Session]) -> list[Finding]:
    """The findings without options that the replay does not confirm; these are named after the other remedies.

    An option that saves less than half of its finding's cost, or makes a conversation worse, is not advised. Nothing
    is rejected where the replay does not explain the log, or does not know that what was lost had been sent before.
    """
    known: dict[tuple[str | None, str | None], _Replayed | None] = {}
    found = []
    for finding in findings:
        if _can_be_tried(finding) or finding.code == _KILLED:
            server = finding.path, finding.origin
            if server not in known:
                known[server] = _replayed(server, requests, sessions)
            replayed = known[server]
            if finding.code == _KILLED and replayed is not None:
                finding = replace(finding, remedies=[*_less_memory(replayed, sessions, finding), *finding.remedies])
            elif replayed is not None and replayed.sent_before >= HALF * finding.cost.tokens:
                finding = replace(finding, remedies=_kept(finding, replayed))
        found.append(finding)
    return found


def _can_be_tried(finding: Finding) -> bool:
    is_of_server = finding.code.startswith(FAMILIES) and finding.code not in _WITH_CLIENTS
    return is_of_server and finding.cost.tokens >= LEAST and any(map(_is_asked, finding.remedies))


def _is_asked(remedy: Remedy) -> bool:
    return remedy.purpose == "fix" and bool(remedy.options)


def _replayed(
    server: tuple[str | None, str | None], requests: Sequence[Request], sessions: Sequence[Session]
) -> _Replayed | None:
    """The requests of one server, replayed; None where that does not explain them."""
    lives = {one.index: one for one in sessions if (one.path, one.origin) == server}
    built = from_log.build(one for one in requests if one.session in lives)
    if not built.requests:
        return None
    settings = from_log.recorded(lives[built.requests[-1].session], built.requests).settings
    served = serve(built.traffic, settings)
    pairs = [(one.reused, asked.cached_tokens) for one, asked in zip(served, built.requests, strict=True)]
    equal = [abs(reused - cached) <= SAME for reused, cached in pairs if cached is not None]
    if not equal or sum(equal) < FIT * len(equal):
        return None
    return _Replayed(built.traffic, settings, served, sum(max(0, one.best - one.reused) for one in served))


def _less_memory(replayed: _Replayed, sessions: Sequence[Session], finding: Finding) -> list[Remedy]:
    """The smallest limit of the RAM cache that keeps what was reused; empty where it frees nothing of what was held."""
    served, use = measured(replayed.traffic, replayed.settings)
    if not is_judged(replayed.traffic, served):
        return []
    reused = reused_tokens(served)
    wanted = smallest_ram(replayed.traffic, replayed.settings, ENOUGH * reused, use)
    if wanted is None or wanted * _MIB >= use.saving_bytes:
        return []
    session = next(one for one in sessions if (one.path, one.origin) == (finding.path, finding.origin))
    words = (
        f"The smallest limit that keeps 99 % of the {reused:,} tokens reused here, by replay of this log; saving a "
        "prompt needs memory for a copy beside it."
    )
    name = server_options.name_for(server_options.CACHE_RAM, *advice.span(session)) or "--cache-ram"
    return [Remedy(words, options=[OptionChange(name, str(wanted))])]


def _kept(finding: Finding, replayed: _Replayed) -> list[Remedy]:
    """The remedies, those that are rejected last and without their options."""
    kept, rejected = [], []
    for remedy in finding.remedies:
        why = _why_not(finding, remedy, replayed) if _is_asked(remedy) else None
        if why is None:
            kept.append(remedy)
        else:
            rejected.append(Remedy(why, purpose="depends"))
    return [*kept, *rejected]


def _why_not(finding: Finding, remedy: Remedy, replayed: _Replayed) -> str | None:
    """Why an option is not advice; None where the replay confirms it, or does not know what it changes."""
    if any(change.remove or change.variable for change in remedy.options):
        return None
    words = [one.name if one.value is None else f"{one.name}={one.value}" for one in remedy.options]
    try:
        wanted = changed(replayed.settings, words)
    except CacheDoctorError:
        return None
    after = serve(replayed.traffic, wanted)
    gains: Counter[int | None] = Counter()
    for asked, old, new in zip(replayed.traffic.asked, replayed.served, after, strict=True):
        gains[asked.conversation] += new.reused - old.reused
    saved, worst = sum(gains.values()), -min(gains.values(), default=0)
    turns = Counter(asked.conversation for asked in replayed.traffic.asked)
    is_worse = any(gain < -SAME * turns[conversation] for conversation, gain in gains.items())
    if saved >= HALF * finding.cost.tokens and not is_worse:
        return None
    option = " ".join(word for change in remedy.options for word in change.words)
    loses = f", and a conversation would reuse {worst:,} tokens less" if is_worse else ""
    claim = f"{max(saved, 0):,} of {finding.cost.tokens:,} tokens"
    return f"{option} does not help here: in a replay of this log it saves {claim}{loses}."
