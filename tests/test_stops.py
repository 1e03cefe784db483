"""What restarts, sleeps and restores cost: cases whose lines show it, and logs composed of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import run
from conftest import FIXTURES

from cachedoctor.doctor.whatif.evidence import Asking, gather
from cachedoctor.doctor.whatif.tuning import tune
from cachedoctor.model.whatif import ReplayAccount, ServerRestore, ServerStop, Tuning
from cachedoctor.report.forms import stop_forms


def tuned(name: str | Path) -> Tuning:
    path = str(name if isinstance(name, Path) else FIXTURES / name)
    return tune(gather(Asking([path])), [path])


@pytest.mark.parametrize(
    ("name", "restored", "reused", "worked"),
    [
        # the next prompt goes on with all that the file held
        ("slot-file-appended-only-b9713/server.log", 2337, 2337, True),
        # the prompt parts at 2,156: from b11549 on the file has a checkpoint before that, at 2,153; before it has none
        ("slot-file-with-checkpoints-b11549/server.log", 2336, 2153, True),
        ("slot-file-after-restart-b9713/server.log", 2336, 0, False),
        ("slot-file-after-restart-b8672/server.log", 2337, 0, False),
    ],
)
def test_a_restore_worked_where_the_next_request_reuses_it(name: str, restored: int, reused: int, worked: bool) -> None:
    found = tuned(f"cases/{name}")
    assert found.fit is not None
    assert found.fit.wrong_tokens == 0
    (one,) = found.restores
    assert (one.source, one.restored_tokens, one.reused_tokens, one.worked) == ("slot file", restored, reused, worked)
    assert (one.why == "") == worked
    if not worked:
        assert one.why.endswith("slot files hold checkpoints only from b11549 on")


def test_slot_files_that_alternate_all_work() -> None:
    found = tuned("cases/slot-files-in-turn-b11549/server.log.gz").restores
    assert len(found) == 8
    assert all(one.worked and one.restored_tokens == one.reused_tokens for one in found)


def test_a_sleep_costs_what_the_next_requests_had_sent_before() -> None:
    """Three sleeps; the lost tokens of the account are those of all stops."""
    found = tuned("days/dense-sleeping-b11549-default/server.log")
    assert [(one.reason, one.line) for one in found.stops] == [("sleep", 27), ("sleep", 48), ("sleep", 69)]
    assert found.replay.lost_tokens == {"restart": sum(one.lost_tokens for one in found.stops)}
    assert all(one.lost_tokens > 4000 and one.requests == 2 and one.lost_ms for one in found.stops)


def test_who_stopped_a_server_is_in_its_last_lines(tmp_path: Path) -> None:
    log = (FIXTURES / "cases" / "server-restarted-b9713" / "server.log").read_text("utf-8")
    orderly = tmp_path / "orderly.log"
    orderly.write_text(log)
    assert [one.reason for one in tuned(orderly).stops] == ["told to"]
    silent = tmp_path / "silent.log"
    silent.write_text("".join(row for row in log.splitlines(keepends=True) if "cleaning up before exit" not in row))
    assert [one.reason for one in tuned(silent).stops] == ["unknown"]
    killed = FIXTURES / "cases" / "out-of-memory-kill-b9713" / "server.log"
    assert [one.reason for one in tuned(killed).stops] == ["out of memory"]


def test_stops_and_restores_are_in_the_json() -> None:
    done = run("tune", FIXTURES / "cases/slot-file-after-restart-b9713/server.log", "-f", "json")
    found = json.loads(done.stdout)
    assert [one["reason"] for one in found["stops"]] == ["unknown"]
    assert [one["worked"] for one in found["restores"]] == [False]


def test_stops_read_as_sentences() -> None:
    replay = ReplayAccount(10, 40_000, 20_000, 20_000, 0, {}, None)
    found = [
        ServerStop(96, "told to", "llama-swap", 6, 14_544, 5100.0),
        ServerStop(400, "sleep", None, 0, 0, None),
        ServerStop(500, "out of memory", None, 1, 2000, None),
    ]
    first, second, third = stop_forms.stops(found, replay)
    assert first == (
        "line 96: the server was stopped (llama-swap: the ttl expired, or another model was loaded): 14,544 tokens, "
        "5.1 s recomputed in 6 requests"
    )
    assert second == (
        "line 500: the system killed the server because memory ran out: 2,000 tokens recomputed in 1 request"
    )
    assert third.startswith(
        "to keep slots across a restart, save them to files: start the server with --slot-save-path slots (a folder)"
    )
    assert "can keep the RAM cache on disk" in third
    assert stop_forms.stops(found[1:2], replay) == []


def test_restores_that_did_not_work_come_first() -> None:
    found = [
        ServerRestore(10, "slot file", 0, 2336, 2400, 2336, True, ""),
        ServerRestore(20, "RAM cache", 1, None, 1900, 0, False, "the state could not be restored"),
    ]
    assert stop_forms.restores(found, 3) == [
        "line 20, slot 1: the RAM cache returned an unknown number of tokens, the next request reused 0: the "
        "restore had no effect; the state could not be restored",
        "line 10, slot 0: a slot file returned 2,336 tokens, the next request reused 2,336: the restore worked",
        "of 3 restores from the RAM cache 2 worked",
    ]
    assert stop_forms.restores([], 3) == []
