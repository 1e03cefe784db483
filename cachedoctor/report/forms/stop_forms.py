"""Stops and restores of ``tune`` in words: what each cost, who stopped the server, and whether a restore worked."""

from __future__ import annotations

from collections.abc import Sequence

from cachedoctor.knowledge.builds import NEWEST
from cachedoctor.model.whatif import ReplayAccount, ServerRestore, ServerStop, StopReason
from cachedoctor.report.words.numbers import count, duration, number

_SHOWN = 4
"""Maximum stops, and maximum restores, in the text output."""
_WORTH = 0.01
"""Share of the computed tokens above which advice on keeping slots across a stop is shown."""
_WHO: dict[StopReason, str] = {
    "sleep": "the server slept (--sleep-idle-seconds)",
    "out of memory": "the system killed the server because memory ran out",
    "told to": "the server was stopped",
    "unknown": "the server ended without its usual last lines (a crash, kill -9, or a truncated log)",
}
_TOLD = {
    "llama-swap": "llama-swap: the ttl expired, or another model was loaded",
    "ollama": "ollama: keep-alive expired, or another model was loaded",
    "systemd": "systemd: a restart or a deploy",
    "docker": "docker: a restart or a deploy",
    "compose": "compose: a restart or a deploy",
    "kubernetes": "kubernetes: a deploy or a failed probe",
}


def stops(found: Sequence[ServerStop], replay: ReplayAccount) -> list[str]:
    """Say what each stop cost that is known to have cost something, and how slots outlive one if that is worth it."""
    worst = sorted((one for one in found if one.lost_tokens), key=lambda one: -one.lost_tokens)
    lines = [_stop(one) for one in worst[:_SHOWN]]
    if len(worst) > _SHOWN:
        lost = sum(one.lost_tokens for one in worst[_SHOWN:])
        lines.append(f"{len(worst) - _SHOWN:,} more: {count(lost, 'token')} recomputed; -f json has all")
    if worst and sum(one.lost_tokens for one in worst) >= _WORTH * max(1, replay.computed_tokens):
        lines.append(
            "to keep slots across a restart, save them to files: start the server with --slot-save-path slots "
            "(a folder), "
            "and send "
            'POST /slots/0?action=save {"filename": "slot-0.bin"} '
            f"before the restart and action=restore after it. No release up to b{NEWEST} can keep the RAM cache on disk"
        )
    return lines


def _stop(one: ServerStop) -> str:
    who = _WHO[one.reason]
    if one.reason == "told to":
        who += f" ({_TOLD.get(one.launcher or '', 'a deploy, a model swap, or an expired keep-alive')})"
    where = "" if one.line is None else f"line {one.line:,}: "
    time = "" if one.lost_ms is None else f", {duration(one.lost_ms)}"
    requests = count(one.requests, "request")
    return f"{where}{who}: {count(one.lost_tokens, 'token')}{time} recomputed in {requests}"


def restores(found: Sequence[ServerRestore], from_ram: int) -> list[str]:
    """Describe for each restore what the next request reused of it, those that did not work first."""
    order = sorted(found, key=lambda one: (one.worked, one.line))
    lines = [_restore(one) for one in order[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"{len(found) - _SHOWN:,} more; -f json has all")
    failed = sum(not one.worked for one in found if one.source == "RAM cache")
    if found and from_ram:
        lines.append(f"of {count(from_ram, 'restore')} from the RAM cache {from_ram - failed:,} worked")
    return lines


def _restore(one: ServerRestore) -> str:
    what = "a slot file" if one.source == "slot file" else "the RAM cache"
    held = "an unknown number of tokens" if one.restored_tokens is None else count(one.restored_tokens, "token")
    where = f"line {one.line:,}, slot {one.slot}"
    words = f"{where}: {what} returned {held}, the next request reused {number(one.reused_tokens)}"
    return f"{words}: the restore worked" if one.worked else f"{words}: the restore had no effect; {one.why}"
