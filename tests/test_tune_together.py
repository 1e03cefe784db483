"""What ``tune`` finds on several cores is what it finds on one, also when a process fails."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import pytest
from conftest import ROOT
from msgspec.structs import replace
from test_whatif import ONE, evidence, in_turn

from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.replays import Hope, Replays
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.traffic import Traffic
from cachedoctor.doctor import processes
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.listener import Listener
from cachedoctor.doctor.analysis.run import feed_all
from cachedoctor.doctor.whatif import tuning
from cachedoctor.doctor.whatif.evidence import Asking, ServerTraffic, gather, gather_any, judging
from cachedoctor.doctor.whatif.simulation import simulate
from cachedoctor.model import Finding, Judged, Report, Request, Session
from cachedoctor.model.whatif import Tuning

MIB = float(1 << 20)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes share what was read on Linux alone")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[ServerSettings]:
    """Settings that this process replays."""
    found, own, served = list[ServerSettings](), os.getpid(), Replays.served

    def counted(replays: Replays, settings: ServerSettings, hope: Hope | None) -> list[Served] | None:
        if os.getpid() == own:
            found.append(settings)
        return served(replays, settings, hope)

    monkeypatch.setattr(Replays, "served", counted)
    return found


def tuned(monkeypatch: pytest.MonkeyPatch, cores: int, least: int = 1) -> Tuning:
    """Three conversations in turn on one slot, with a RAM cache that holds one of them."""
    monkeypatch.setattr(processes, "LARGE", least)
    monkeypatch.setattr(processes, "cores", lambda: cores)
    settings = replace(ONE, cache_ram_mib=512, token_bytes=MIB)
    return tuning.tune(evidence(in_turn(3, 4), settings), ["made"])


def test_several_cores_give_the_answer_of_one(monkeypatch: pytest.MonkeyPatch, here: list[ServerSettings]) -> None:
    alone = tuned(monkeypatch, 1)
    replayed = list(here)
    here.clear()
    together = tuned(monkeypatch, 2)
    assert together == alone
    assert len(alone.singles) > 1  # of which merged ones are replayed
    assert len(here) < len(replayed)
    merged = [one for one in here if one.slots != 1 and one.cache_ram_mib != 512]
    assert here == merged  # nothing but these was left for this process


def test_few_requests_start_no_process(monkeypatch: pytest.MonkeyPatch, here: list[ServerSettings]) -> None:
    alone = tuned(monkeypatch, 1)
    replayed = list(here)
    here.clear()
    assert tuned(monkeypatch, 2, least=13) == alone  # 3 conversations of 4 turns
    assert here == replayed


@pytest.mark.parametrize("is_killed", [True, False])
def test_what_a_process_fails_at_is_replayed_here(
    monkeypatch: pytest.MonkeyPatch, here: list[ServerSettings], is_killed: bool
) -> None:
    alone = tuned(monkeypatch, 1)
    replayed = list(here)
    here.clear()
    own, most = os.getpid(), tuning.is_ideal_most

    def failing(traffic: Traffic, settings: ServerSettings) -> bool:
        if os.getpid() != own:
            if is_killed:
                os._exit(9)
            raise MemoryError
        return most(traffic, settings)

    monkeypatch.setattr(tuning, "is_ideal_most", failing)
    assert tuned(monkeypatch, 2) == alone
    assert here == replayed


# ---- what is judged beside


CASES = ROOT / "fixtures" / "cases"
TAKEN = str(CASES / "slot-taken-b6301" / "server.log")


class Late(Listener):
    """Is told of requests before they are judged."""

    hears_lines = False
    judges_late = True

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []
        self.judged: list[int] = []
        """How many requests were judged at a time."""

    def ended(self, requests: list[tuple[Request, Session]]) -> None:
        self.numbers += [request.index for request, _ in requests]

    def examined(self, judged: list[tuple[Judged, Session]], findings: list[Finding]) -> None:
        self.judged.append(len(judged))


def reported(paths: list[str], listener: Listener) -> Report:
    analyzer = Analyzer(listener=listener)
    assert feed_all(analyzer, paths) == []
    return analyzer.finish()


def test_requests_judged_late_are_judged_alike() -> None:
    """Of several servers: each starts without what was seen of the one before it."""
    names = ("slot-taken-b6301", "id-slot-pinned-b8672", "tools-reordered-hybrid", "slot-erased-b8672")
    paths = [str(CASES / name / "server.log") for name in names]
    late, plain = Late(), Listener()
    found, wanted = reported(paths, late), reported(paths, plain)
    assert {"CD301", "CD309", "CD105", "CD313"} <= {one.code for one in wanted.findings}
    assert (found.findings, found.accounts, found.fix) == (wanted.findings, wanted.accounts, wanted.fix)
    assert (found.totals, found.slowest, found.slots) == (wanted.totals, wanted.slowest, wanted.slots)
    assert sorted(set(late.numbers)) == list(range(6 + 6 + 4 + 3))
    assert late.judged == [6, 6, 4, 3]  # each server when its log has ended


@pytest.mark.parametrize("fails", ["", "killed", "raises"])
def test_the_costliest_finding_is_judged_beside(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    alone, own, snapshot, here = gather(Asking([TAKEN])).cause(), os.getpid(), Analyzer.snapshot, list[int]()
    assert alone is not None
    assert alone.code == "CD301"
    monkeypatch.setattr(processes, "LARGE", 1)
    monkeypatch.setattr(processes, "cores", lambda: 2)

    def failing(analyzer: Analyzer) -> Report:
        if os.getpid() == own:
            here.append(own)
        elif fails == "killed":
            os._exit(9)
        elif fails:
            raise MemoryError
        return snapshot(analyzer)

    monkeypatch.setattr(Analyzer, "snapshot", failing)
    with judging() as judge:
        found = gather_any(Asking([TAKEN]), judge=judge)
        assert isinstance(found, ServerTraffic)
        assert here == []
        assert found.cause() == alone
    assert len(here) == bool(fails)


def test_nothing_is_judged_that_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(_: Analyzer) -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(Analyzer, "snapshot", unwanted)
    found = gather(Asking([TAKEN]))
    assert simulate(found, ["parallel=2"], [TAKEN]).changed.requests == 6
    with pytest.raises(AssertionError):
        found.cause()
