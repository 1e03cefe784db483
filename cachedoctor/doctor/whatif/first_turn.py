"""What it costs and saves to compute the beginning that conversations share before they begin."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.traffic import TimedRequest, Traffic
from cachedoctor.doctor.findings.history import LEAST, PromptSpeed
from cachedoctor.doctor.replaying.warming import Warming
from cachedoctor.doctor.whatif.accounts import span_ms
from cachedoctor.doctor.whatif.evidence import ServerTraffic
from cachedoctor.model import Request
from cachedoctor.model.whatif import FirstTurn

_LEAST = 256
"""Tokens of a beginning that is worth a request of its own."""
_SPREAD = 1_000
"""Time steps between two events of the traffic, for events inserted between them."""


def first_turn(evidence: ServerTraffic, served: Sequence[Served], least: int) -> FirstTurn | None:
    """Replay the traffic behind requests that warm; None where that does not save ``least`` tokens.

    One request is tried, and one for each slot: what fewer requests save as well is taken.
    """
    warm = evidence.warming
    if warm is None or warm.common < _LEAST:
        return None
    best: FirstTurn | None = None
    slots = evidence.settings.resolved().slots or 1
    for number in dict.fromkeys((1, slots)):
        traffic, places = _warmed(evidence.traffic, warm, number)
        now = serve(traffic, evidence.settings)
        found = FirstTurn(
            warm.common, warm.alike, warm.conversations, warm.path, warm.messages, number, 0, 0, None, 0, None
        )
        speed, cost, saved = evidence.speed, 0.0, 0.0
        old = zip(served, evidence.requests or [None] * len(served), strict=True)
        length = traffic.tree.length
        most, pace = 0, 1.0
        for at, one in enumerate(now):
            if at in places:
                prompt = length(traffic.asked[at].prompt)
                found.cost_tokens += prompt - one.reused
                cost += span_ms(speed, one.reused, prompt)
                continue
            before, request = next(old)
            tokens, own = one.reused - before.reused, _pace(speed, request)
            found.saved_tokens += tokens
            saved += own * span_ms(speed, before.reused, one.reused)
            if tokens > most:
                most, pace = tokens, own
        found.starts = len(places) // number
        if speed.count:
            found.cost_ms, found.saved_ms = round(pace * cost, 3), round(saved, 3)
        if found.saved_tokens >= least and (best is None or found.saved_tokens >= best.saved_tokens + least):
            best = found
    return best


def _pace(speed: PromptSpeed, request: Request | None) -> float:
    """Time that a request took for its prompt, as a share of what the mean speed at its depth gives.

    Short prompts take more time per token than the long ones that compute a beginning, and are most of the requests:
    at their mean speed a beginning of 12,000 tokens would take 14 % more than the log shows.
    """
    if request is None or not request.prompt_ms or (request.processed_tokens or 0) < LEAST:
        return 1.0
    start, tokens = request.cached_tokens or 0, request.processed_tokens or 0
    usual = span_ms(speed, start, start + tokens)
    return request.prompt_ms / usual if usual else 1.0


def _warmed(traffic: Traffic, warm: Warming, slots: int) -> tuple[Traffic, set[int]]:
    """The traffic with requests at its start and after every stop, and the places of these."""
    spread = [replace(one, started=one.started * _SPREAD, ended=one.ended * _SPREAD) for one in traffic.asked]
    happened = [replace(one, moment=one.moment * _SPREAD) for one in traffic.happened]
    begins = [min((one.started for one in spread), default=0) - _SPREAD]
    begins += [one.moment + 1 for one in happened if one.what == "restart"]
    prompt, starts = warm.prompt, warm.user_starts
    warming = []
    for moment in begins:
        for slot in range(slots):
            start, pinned = moment + 2 * slot, slot if slots > 1 else None
            warming.append(TimedRequest(prompt, prompt, start, start + 1, id_slot=pinned, user_starts=starts))
    order = sorted([*warming, *spread], key=lambda one: one.started)
    ours = {id(one) for one in warming}
    return Traffic(traffic.tree, order, happened), {at for at, one in enumerate(order) if id(one) in ours}
