"""How fast a log is analysed, by era and by processes, against programs that read as many bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import access_log
import gen_log
from peers import INSTALL, OF_ACCESS_LOGS, OF_LOGS, Peer
from plan import Plan, count_requests, megabytes
from process import FailedError, Usage, analyze, measure
from table import Row

PART = "throughput"
LIVES = 8
"""Of a log whose lives are read side by side: one ends close to every place where it may be cut."""
JOBS = 2


def rows(plan: Plan) -> Iterator[Row]:
    """Every era, each beside its peers."""
    access = plan.log(f"access-{plan.size}", access_log.blocks(plan.size))
    far = [(peer, access, _peer(plan, peer, access)) for peer in OF_ACCESS_LOGS]
    for era in plan.eras:
        log = plan.log(f"{era}-{plan.size}", gen_log.blocks(era, plan.size))
        size, requests = megabytes(log), count_requests(log)
        ours = measure(analyze(log), plan.rounds)
        yield Row(PART, f"{era}: analyze -f json", ours, _speed(size, ours, requests))
        text = measure(analyze(log, form="text"), plan.rounds)
        ratio = ours.cpu / text.cpu
        yield Row(PART, f"{era}: analyze -f text", text, _speed(size, text, requests), ratio, "JSON's CPU time / this")
        near = [(peer, log, _peer(plan, peer, log)) for peer in OF_LOGS]
        for peer, read, theirs in near + far:
            yield _against(era, peer, read, theirs, size / ours.cpu)
        plan.discard(log)
        yield from _side_by_side(plan, era)
    plan.discard(access)


def _peer(plan: Plan, peer: Peer, log: Path) -> Usage | str:
    """What a peer took, or why that is not known."""
    if not peer.is_installed:
        return INSTALL
    try:
        return measure(peer.command(log, plan.folder), plan.rounds, {"HOME": str(plan.folder)})
    except FailedError as error:
        return str(error).replace("\n", " ")


def _against(era: str, peer: Peer, log: Path, theirs: Usage | str, speed: float) -> Row:
    """A peer's row; ``speed`` is ours with JSON, in MB per second of processor time."""
    if isinstance(theirs, str):
        return Row(PART, f"{era}: {peer.case}", None, theirs)
    size = megabytes(log)
    ratio = speed / (size / theirs.cpu)
    meaning = "its CPU time per MB / analyze -f json's"
    return Row(PART, f"{era}: {peer.case}", theirs, _speed(size, theirs), ratio, meaning)


def _side_by_side(plan: Plan, era: str) -> Iterator[Row]:
    """Several processes, over two files of half the size and over one file of several lives."""
    half = plan.size // 2
    files = [plan.log(f"{era}-{half}-{seed}", gen_log.blocks(era, half, seed=seed)) for seed in (1, 2)]
    lives = plan.log(f"{era}-{plan.size}-lives", gen_log.blocks(era, plan.size, lives=LIVES))
    for case, logs in (("2 files", files), (f"1 file, {LIVES} lives", [lives])):
        size, requests = megabytes(*logs), sum(map(count_requests, logs))
        one, several = (measure(analyze(*logs, jobs=jobs), plan.rounds) for jobs in (1, JOBS))
        yield Row(PART, f"{era}: {case}, --jobs 1", one, _speed(size, one, requests))
        ratio, measured = one.seconds / several.seconds, _speed(size, several, requests)
        yield Row(PART, f"{era}: {case}, --jobs {JOBS}", several, measured, ratio, "--jobs 1's wall time / this")
    plan.discard(*files, lives)


def _speed(size: float, usage: Usage, requests: int | None = None) -> str:
    speed = f"{size / usage.seconds:.1f} MB/s, {size / usage.cpu:.1f} by CPU"
    return speed if requests is None else f"{speed}, {requests / usage.cpu:,.0f} requests/s"
