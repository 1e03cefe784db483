"""What restarts and sleeps cost, and whether what was restored was reused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.traffic import Happened
from cachedoctor.doctor.replaying.from_log import file_tokens
from cachedoctor.doctor.whatif.accounts import span_ms
from cachedoctor.doctor.whatif.evidence import ServerTraffic
from cachedoctor.model import Request, Session
from cachedoctor.model.whatif import ServerRestore, ServerStop, StopReason

_HALF = 0.5
"""Share of what was put back that has to be reused for a restore to have worked."""
_LEAST = 64
"""Tokens: what is shorter is the beginning of a chat template."""
_WITH_CHECKPOINTS = 11549
"""Slot files hold checkpoints from this build on."""


def stops(evidence: ServerTraffic, served: Sequence[Served]) -> list[ServerStop]:
    """Say of every restart and sleep what was recomputed because of it, by the replay."""
    happened = sorted((one for one in evidence.traffic.happened if one.what == "restart"), key=lambda one: one.moment)
    found = [_stop(one, evidence.lives) for one in happened]
    for asked, one in zip(evidence.traffic.asked, served, strict=True):
        before = [number for number, stop in enumerate(happened) if stop.moment <= asked.started]
        if one.cause != "restart" or not before:
            continue
        stop = found[before[-1]]
        stop.requests += 1
        stop.lost_tokens += one.best - one.reused
        if evidence.speed.count:
            stop.lost_ms = round((stop.lost_ms or 0.0) + span_ms(evidence.speed, one.reused, one.best), 3)
    return found


def _stop(one: Happened, lives: dict[int, Session]) -> ServerStop:
    if one.run is None:
        return ServerStop(one.line, "sleep", None, 0, 0, None)
    ended = max((number for number in lives if number < one.run), default=None)
    session = None if ended is None else lives[ended]
    return ServerStop(one.line, _reason(session), None if session is None else session.launcher, 0, 0, None)


def _reason(ended: Session | None) -> StopReason:
    if ended is None:
        return "unknown"
    if "killed" in ended.incidents:
        return "out of memory"
    return "told to" if ended.stopped is not None else "unknown"


def restores(requests: Sequence[Request | None]) -> tuple[list[ServerRestore], int]:
    """Give the restores from slot files, and those from RAM that did not work, with the number of all from RAM."""
    found, from_ram = list[ServerRestore](), 0
    for request in requests:
        if request is None or request.cached_tokens is None or not request.prompt_tokens:
            continue
        failed = "ram_failed" in request.seen.choice.marks
        held = file_tokens(request)
        if held:
            found.append(_restore(request, "slot file", held))
        elif request.restored_from_ram or failed:
            from_ram += 1
            one = _restore(request, "RAM cache", None if failed else _entry(request))
            if not one.worked:
                found.append(one)
    return found, from_ram


def _entry(request: Request) -> int | None:
    """Length of the entry that came back, by the share of it that the prompt keeps."""
    keep, common = request.seen.choice.found_keep, request.common_prefix_tokens
    return round(common / keep) if keep and common else None


def _restore(request: Request, source: Literal["slot file", "RAM cache"], held: int | None) -> ServerRestore:
    reused, prompt = request.cached_tokens or 0, request.prompt_tokens or 0
    worked = reused >= _LEAST and reused >= _HALF * min(held or prompt, prompt)
    why = "" if worked else _why(request, held)
    restored = None if held is None else max(held, reused)  # what is reused was there, where its length is rounded
    return ServerRestore(request.first_line, source, request.slot, restored, prompt, reused, worked, why)


def _why(request: Request, held: int | None) -> str:
    common, facts = request.common_prefix_tokens, request.facts
    if "ram_failed" in request.seen.choice.marks:
        return "the state could not be restored"
    if common is not None and held and common < _HALF * min(held, request.prompt_tokens or held):
        return f"the next prompt shares only {common:,} tokens with the restored state"
    if request.seen.forced or facts.memory not in (None, "attention"):
        old = facts.at_least(_WITH_CHECKPOINTS) is False
        files = f": slot files hold checkpoints only from b{_WITH_CHECKPOINTS} on" if old else ""
        return f"this model's memory could not go back to the place where the next prompt differs{files}"
    return "the next request had cache_prompt false" if request.uncached else "no line shows why"
