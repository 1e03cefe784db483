"""What ``tune`` replays on several cores is what it replays on one, also when a process fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from test_whatif import ONE, evidence, in_turn

from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.replays import Replays
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.doctor import processes
from cachedoctor.doctor.whatif import tuning
from cachedoctor.doctor.whatif.evidence import ServerTraffic
from cachedoctor.model.whatif import ReplayAccount, Tuning

MIB = float(1 << 20)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes share what was read on Linux alone")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[ServerSettings]:
    """Settings that this process replays."""
    found, own, served = list[ServerSettings](), os.getpid(), Replays.served

    def counted(replays: Replays, settings: ServerSettings) -> list[Served]:
        if os.getpid() == own:
            found.append(settings)
        return served(replays, settings)

    monkeypatch.setattr(Replays, "served", counted)
    return found


def tuned(monkeypatch: pytest.MonkeyPatch, cores: int, least: int = 1) -> Tuning:
    """Three conversations in turn on one slot, with a RAM cache that holds one of them."""
    monkeypatch.setattr(processes, "LARGE", least)
    monkeypatch.setattr(processes, "_cores", lambda: cores)
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
    own, account = os.getpid(), tuning.account

    def failing(given: ServerTraffic, served: Sequence[Served], settings: ServerSettings) -> ReplayAccount:
        if os.getpid() != own:
            if is_killed:
                os._exit(9)
            raise MemoryError
        return account(given, served, settings)

    monkeypatch.setattr(tuning, "account", failing)
    assert tuned(monkeypatch, 2) == alone
    assert here == replayed
