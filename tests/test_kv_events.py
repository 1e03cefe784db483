"""KV events: whatever version sends them, what they prove, what they do not, and that no text of a prompt stays."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kv_messages as kv
import msgspec
import pytest
import zmq
from command import PATIENCE, run, start, wait_for
from conftest import FIXTURES
from e2e.server import free_port

import cachedoctor
from cachedoctor.diagnosis.account.from_kv_events import KvFold
from cachedoctor.diagnosis.rules.measured import kv_proof
from cachedoctor.inputs.metrics import kv_messages
from cachedoctor.inputs.metrics.kv_messages import Blinder
from cachedoctor.inputs.sources import kv_subscription
from cachedoctor.inputs.sources.kv_subscription import KvSubscription
from cachedoctor.live.kv_recorder import KvRecorder
from cachedoctor.model import CacheDoctorError, KvEvents, Session
from cachedoctor.model.kv_events import KvHead, KvMessage, StoredBlocks
from cachedoctor.report.words import measurements

KEY = b"k" * 32
HEAD = msgspec.json.encode(KvHead("cachedoctor.kv/1", "0", ["tcp://x:1"])) + b"\n"


def said(*steps: object, source: int = 0) -> KvEvents:
    """What a recording says whose messages hold an event each, numbered from 0; a tuple has its own number."""
    blinder, lines = Blinder(KEY), []
    for at, step in enumerate(steps):
        number, event = step if isinstance(step, tuple) else (at, step)
        message = blinder.message(kv.frames(number, event), source)
        assert message is not None
        lines.append(message)
    return KvFold("kv.jsonl").take(lines)


def rows(events: KvEvents) -> dict[str, int]:
    """Rows with blocks in them, in blocks."""
    names = ("new", "evicted", "emptied", "changed", "salted", "routed", "present")
    found = {name: getattr(events, name) // kv.SIZE for name in names if getattr(events, name)}
    assert sum(found.values()) * kv.SIZE == events.stored
    return found


# ---- what the events prove


def test_what_is_stored_again_after_it_was_removed_was_evicted() -> None:
    found = said(kv.stored("a", "b", "c"), kv.removed("c", "b"), kv.stored("b", "c", parent="a"))
    assert rows(found) == {"new": 3, "evicted": 2}
    assert (found.removed, found.complete) == (2 * kv.SIZE, True)


def test_what_is_removed_and_never_wanted_again_is_not_a_loss() -> None:
    assert rows(said(kv.stored("a", "b"), kv.removed("b"), kv.stored("z"))) == {"new": 3}


def test_the_same_text_after_another_beginning_was_changed() -> None:
    """A clock: the first block differs, and so do the names of all after it, but not their tokens."""
    found = said(kv.stored("a1", "b1", "c1", text="1bc"), kv.stored("a2", "b2", "c2", text="2bc"))
    assert rows(found) == {"new": 4, "changed": 2}


def test_the_same_text_from_its_beginning_on_under_another_name_was_salted() -> None:
    found = said(kv.stored("a", "b", text="ab"), kv.stored("sa", "sb", text="ab", extra_keys=[["salt"], None]))
    assert rows(found) == {"new": 2, "salted": 2}


def test_a_salted_prompt_that_is_evicted_is_not_called_salted_again() -> None:
    found = said(kv.stored("a"), kv.stored("s", text="a"), kv.removed("s"), kv.stored("s", text="a"))
    assert rows(found) == {"new": 1, "salted": 1, "evicted": 1}


def test_a_cleared_cache_and_a_restart_are_not_evictions() -> None:
    assert rows(said(kv.stored("a"), kv.CLEARED, kv.stored("a"))) == {"new": 1, "emptied": 1}
    blinder, sent = (
        Blinder(KEY),
        [(0, 1.0, kv.stored("a")), (1, 2.0, kv.removed("z")), (0, 9.0, kv.stored("b")), (1, 9.5, kv.stored("a"))],
    )
    lines = [blinder.message(kv.frames(number, event, time=time)) for number, time, event in sent]
    again = KvFold("x").take([line for line in lines if line is not None])
    assert rows(again) == {"new": 2, "emptied": 1}
    assert (again.restarts, again.missing) == (1, 0)


def test_a_message_that_came_twice_counts_once() -> None:
    assert rows(said((0, kv.stored("a")), (0, kv.stored("a")), (1, kv.stored("b")))) == {"new": 2}


def test_what_is_there_already_was_computed_side_by_side() -> None:
    assert rows(said(kv.stored("a"), kv.stored("a"))) == {"new": 1, "present": 1}


def test_another_engine_has_a_cache_of_its_own() -> None:
    blinder = Blinder(KEY)
    first = blinder.message(kv.frames(0, kv.stored("a"), rank=0))
    second = blinder.message(kv.frames(0, kv.stored("a"), rank=1))
    assert first is not None
    assert second is not None
    found = KvFold("x").take([first, second])
    assert rows(found) == {"new": 1, "routed": 1}
    assert found.publishers == 2


def test_a_block_from_before_the_recording_may_be_evicted_too() -> None:
    found = said((7, kv.removed("a")), (8, kv.stored("a")))
    assert rows(found) == {"evicted": 1}
    assert found.late
    assert not found.complete


# ---- what they do not prove


def test_missing_messages_are_counted() -> None:
    found = said((0, kv.stored("a")), (4, kv.stored("b")))
    assert (found.missing, found.complete) == (3, False)


@pytest.mark.parametrize(
    ("more", "doubt"),
    [
        (kv.stored("a", group_idx=1), "groups"),
        (kv.stored("a", medium="CPU"), "tiers"),
        (kv.stored("a", text="a", parent="z"), "names"),
    ],
)
def test_where_blocks_are_not_told_apart_nobody_is_blamed(more: dict[str, Any], doubt: str) -> None:
    found = said(kv.stored("a"), kv.removed("a"), kv.stored("a"), more)
    assert found.doubt == doubt
    assert set(rows(found)) == {"new"}


# ---- what servers send


def test_maps_and_arrays_say_the_same() -> None:
    events = [kv.stored("a", "b", extra_keys=None, group_idx=0), kv.removed("b"), kv.CLEARED]
    maps = Blinder(KEY).message(kv.frames(3, *events))
    arrays = Blinder(KEY).message(kv.frames(3, *map(kv.as_arrays, events)))
    assert maps == arrays
    assert maps is not None
    assert [type(event).__name__ for event in maps.events] == ["StoredBlocks", "RemovedBlocks", "ClearedBlocks"]


def test_some_versions_send_a_map_of_everything() -> None:
    """vLLM between the arrays of 2025 and 0.32."""
    topic, number, _ = kv.frames(3, kv.stored("a"))
    batch = {"ts": 1.0, "events": [kv.stored("a")], "data_parallel_rank": 2}
    found = Blinder(KEY).message([topic, number, msgspec.msgpack.encode(batch)])
    assert found == Blinder(KEY).message(kv.frames(3, kv.stored("a"), rank=2))
    assert found is not None
    assert found.rank == 2


def test_hashes_are_numbers_in_some_versions() -> None:
    event = {**kv.stored("a"), "block_hashes": [-(1 << 62)], "parent_block_hash": 17}
    message = Blinder(KEY).message(kv.frames(0, event))
    assert message is not None
    assert isinstance(message.events[0], StoredBlocks)
    assert message.events[0].parent is not None


def test_added_fields_and_added_events_are_passed_over() -> None:
    plain = Blinder(KEY).message(kv.frames(0, kv.stored("a")))
    newer = Blinder(KEY).message(kv.frames(0, {**kv.stored("a"), "colour": 3}, {"type": "BlockPinned"}, ["New", 1]))
    assert newer == plain


def test_tokens_that_are_not_single_numbers_tell_texts_apart() -> None:
    """SGLang with EAGLE has pairs of tokens."""
    event = {**kv.stored("a"), "token_ids": [[1, 2], [2, 3], [3, 4], [4, 5]]}
    message = Blinder(KEY).message(kv.frames(0, event))
    assert message is not None
    assert isinstance(message.events[0], StoredBlocks)
    assert len(message.events[0].texts) == 1


def test_blocks_that_were_left_out_of_an_event_have_no_text() -> None:
    event = {**kv.stored("a"), "token_ids": [1] * 3 * kv.SIZE}
    message = Blinder(KEY).message(kv.frames(0, event))
    assert message is not None
    assert isinstance(message.events[0], StoredBlocks)
    assert message.events[0].texts == []


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"hello"],
        [b"topic", b"text of another program"],
        [b"", b"1234567", b"\x93"],
        [b"", b"12345678", b"{}"],
        [b"", bytes(8), b"not msgpack"],
        [b"", bytes(8), b""],
        [b"", bytes(8), msgspec.msgpack.encode({"a": 1})],
        [b"", bytes(8), msgspec.msgpack.encode([1.0, [["Other", 1]], 0])],
        [b"", bytes(8), msgspec.msgpack.encode([float("nan"), [], 0])],
        [b"", bytes(8), b"\x91" * 100_000],
        [b"", b"\xff" * 8, msgspec.msgpack.encode([1.0, [], 0])],
        [b"", bytes(8), msgspec.msgpack.encode([1.0, [{"type": "BlockStored", "block_hashes": [[1]]}], 0])],
    ],
)
def test_what_is_not_an_event_is_not_a_message(frames: list[bytes]) -> None:
    assert Blinder(KEY).message(frames) is None


def test_neither_tokens_nor_names_of_the_server_are_recorded() -> None:
    event = {**kv.stored("blockname"), "token_ids": [123456, 123457, 123458, 123459], "session_id": "alice"}
    message = Blinder().message(kv.frames(0, {**event, "extra_keys": [["secret salt"]]}))
    line = msgspec.json.encode(message)
    for word in (b"123456", b"blockname", b"alice", b"secret"):
        assert word not in line
    assert line != msgspec.json.encode(Blinder().message(kv.frames(0, event))), "each recording has its own key"


# ---- files


def record(publisher: Publisher, out: Path) -> subprocess.CompletedProcess[bytes]:
    """Record for a second from the first message on."""
    command = ["watch", "--kv-events", publisher.endpoint, "--replay", publisher.replay, "-o", out]
    with start(*command) as process:
        begun = lambda: process.poll() is not None or (out.exists() and out.read_bytes().count(b"\n") > 1)  # noqa: E731
        wait_for(begun, "message")
        time.sleep(1)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        shown, error = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, shown, error)


def read(data: bytes) -> KvEvents:
    return KvFold("kv.jsonl").take(kv_messages.lines([data[:40], data[40:]], "kv.jsonl"))


def recorded(*messages: list[bytes]) -> bytes:
    out = io.BytesIO()
    recorder = KvRecorder(["tcp://x:1"], out, lambda message, hint: None, Blinder(KEY))
    for message in messages:
        recorder.take(message, 0)
    recorder.close()
    return out.getvalue()


def test_a_recording_says_what_was_sent() -> None:
    data = recorded(
        kv.frames(0, kv.stored("a", "b")), kv.frames(1, kv.removed("b")), kv.frames(2, kv.stored("b", parent="a"))
    )
    assert rows(read(data)) == {"new": 2, "evicted": 1}


def test_broken_lines_and_a_cut_one_are_counted() -> None:
    data = recorded(kv.frames(0, kv.stored("a")), kv.frames(1, kv.stored("b")))
    broken = data[: data.index(b"\n") + 1] + b'{"type":"message"}\n\xff\xfe\n' + data[data.index(b"\n") + 1 : -9]
    found = read(broken)
    assert (found.unread, found.messages) == (3, 1)


@pytest.mark.parametrize(
    "data", [b"", b"\n\n", b"hello\n", b'{"type":"head","format":"cachedoctor.kv/2"}\n', b"[" * 90_000]
)
def test_another_file_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(CacheDoctorError, match="not a recording of KV events"):
        read(data)


def test_a_part_of_a_recording_is_refused() -> None:
    with pytest.raises(CacheDoctorError, match="is only part of a recording"):
        read(recorded(kv.frames(0, kv.stored("a"))).split(b"\n", 1)[1])


# ---- recording


def test_a_gap_is_told_once_and_foreign_messages_end_it() -> None:
    told: list[str] = []
    recorder = KvRecorder(["tcp://x:1"], io.BytesIO(), lambda message, hint: told.append(message), Blinder(KEY))
    recorder.take(kv.frames(0, kv.stored("a")), 0)
    recorder.take(kv.frames(5, kv.stored("b")), 0)
    recorder.take([b"odd"], 0)
    assert told == ["tcp://x:1: 4 messages were missed before number 5"]
    assert (recorder.messages, recorder.missing) == (2, 4)
    foreign = KvRecorder(["tcp://x:1"], io.BytesIO(), lambda message, hint: None, Blinder(KEY))
    for _ in range(4):
        foreign.take([b"weather", b"sunny"], 0)
    with pytest.raises(CacheDoctorError, match="not KV events"):
        foreign.take([b"weather", b"sunny"], 0)


class Publisher:
    """A server that publishes, and answers what it sent before; as vLLM's ZmqEventPublisher does."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.pub, self.router = self.context.socket(zmq.PUB), self.context.socket(zmq.ROUTER)
        self.endpoint = f"tcp://127.0.0.1:{self.pub.bind_to_random_port('tcp://127.0.0.1')}"
        self.replay = f"tcp://127.0.0.1:{self.router.bind_to_random_port('tcp://127.0.0.1')}"
        self.sent: list[list[bytes]] = []
        self.left_out: set[int] = set()
        self.ended = threading.Event()
        self.beat: object = None
        """What is published again and again: a listener hears no more than what comes after it."""

    def publish(self, *events: object) -> None:
        message = kv.frames(len(self.sent), *events)
        self.sent.append(message)
        if len(self.sent) - 1 not in self.left_out:
            self.pub.send_multipart(message)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Answer what is asked in the block, then close."""
        thread = threading.Thread(target=self._answer)
        thread.start()
        try:
            yield
        finally:
            self.ended.set()
            thread.join()
            self.context.destroy(linger=0)

    def _answer(self) -> None:
        while not self.ended.is_set():
            if self.router.poll(300):
                self.answer_one()
            elif self.beat is not None:
                self.publish(self.beat)

    def answer_one(self) -> None:
        client, _, start = self.router.recv_multipart()
        for message in self.sent[int.from_bytes(start, "big") :]:
            self.router.send_multipart([client, b"", *message])
        self.router.send_multipart([client, b"", b"", b"\xff" * 8, b""])


@pytest.mark.sweep
def test_what_was_missed_is_asked_for() -> None:
    """What came before the recorder, and a message that was lost on the way."""
    publisher, out = Publisher(), io.BytesIO()
    publisher.left_out = {2}
    publisher.publish(kv.stored("a", "b"))
    with publisher.answering(), KvSubscription([publisher.endpoint], [publisher.replay]) as subscription:
        recorder = KvRecorder([publisher.endpoint], out, lambda message, hint: None, Blinder(KEY))
        deadline = time.monotonic() + 20

        def stop() -> bool:
            if recorder.messages == 1 and len(publisher.sent) < 4:
                for event in (kv.removed("b"), kv.stored("b", parent="a"), kv.stored("c", parent="b")):
                    publisher.publish(event)
            return recorder.messages >= 4 or time.monotonic() > deadline

        recorder.run(subscription, stop)
    lines = list(kv_messages.lines([out.getvalue()], "kv.jsonl"))
    assert [line.number for line in lines if isinstance(line, KvMessage)] == [0, 1, 2, 3]
    assert rows(KvFold("x").take(lines)) == {"new": 3, "evicted": 1}


class SglangPublisher(Publisher):
    """As SGLang's: a topic in front, and none in what it sends again."""

    def publish(self, *events: object) -> None:
        payload = msgspec.msgpack.encode([1795218226.5, list(events), 0])
        self.sent.append([len(self.sent).to_bytes(8, "big"), payload])
        self.pub.send_multipart([b"kv@10.0.0.1:8000@m", *self.sent[-1]])

    def answer_one(self) -> None:
        client, _, start = self.router.recv_multipart()
        for message in self.sent[int.from_bytes(start, "big") :]:
            self.router.send_multipart([client, b"", *message])
        self.router.send_multipart([client, b"", b"\xff" * 8, b""])


A, B, X, Y = -8_123_456_789_012_345_678, 7_000_000_000_000_000_001, 4, 5
"""Hashes: signed, of 64 bits."""
TOKENS = [11, 12, 13, 14], [21, 22, 23, 24], [31, 32, 33, 34]


def old_array(blocks: list[int], parent: int | None, tokens: list[int]) -> list[object]:
    return ["BlockStored", blocks, parent, tokens, kv.SIZE, None]


def array(blocks: list[int], parent: int | None, tokens: list[int]) -> list[object]:
    return [*old_array(blocks, parent, tokens), "GPU"]


def salted_array(blocks: list[int], parent: int | None, tokens: list[int]) -> list[object]:
    return [*array(blocks, parent, tokens), {"cache_salt": "tenant-a"}]


def a_map(blocks: list[int], parent: int | None, tokens: list[int]) -> dict[str, object]:
    return {
        "type": "BlockStored", "block_hashes": blocks, "parent_block_hash": parent, "token_ids": tokens,
        "block_size": kv.SIZE, "lora_id": None, "medium": "GPU", "cache_salt": "tenant-a", "session_id": "s-1",
    }  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("stored", "removed"),
    [
        (old_array, ["BlockRemoved", [B]]),
        (array, ["BlockRemoved", [B], "GPU"]),
        (salted_array, ["BlockRemoved", [B], "GPU"]),
        (a_map, {"type": "BlockRemoved", "block_hashes": [B], "medium": "GPU"}),
    ],
)
def test_what_sglang_publishes_is_recorded(tmp_path: Path, stored: Any, removed: object) -> None:
    """Over a socket, in each encoding that it has had: what came before the recorder is asked for."""
    publisher, out = SglangPublisher(), tmp_path / "kv.jsonl"
    publisher.beat = {"type": "AllBlocksCleared"} if isinstance(removed, dict) else ["AllBlocksCleared"]
    first, second, third = TOKENS
    publisher.publish(stored([A, B], None, first + second))
    publisher.publish(removed)
    publisher.publish(stored([B], A, second), stored([X, Y], None, third + second))
    with publisher.answering():
        done = record(publisher, out)
    assert done.returncode == 0, done.stderr
    found = read(out.read_bytes())
    assert found.messages > 3
    assert found.complete
    assert rows(found) == {"new": 3, "evicted": 1, "changed": 1}
    assert not [word for word in (b"tenant-a", b"s-1", str(A).encode(), b"10.0.0.1") if word in out.read_bytes()]


def test_layers_that_sglang_tells_apart_are_of_several_kinds() -> None:
    """A window that moves on gives up its blocks, and the full layers keep theirs: no eviction."""
    full, window, other = ({"component_type": name} for name in ("full", "swa", "newest"))
    assert rows(said(kv.stored("a", **full), kv.removed("a", **full), kv.stored("a", **full))) == {
        "new": 1,
        "evicted": 1,
    }
    for kind in (window, other):
        found = said(kv.stored("a", **full), kv.stored("a", **kind), kv.removed("a", **kind), kv.stored("a", **kind))
        assert found.doubt == "groups"
        assert set(rows(found)) == {"new"}


def test_an_answer_that_came_too_late_is_not_taken_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = Publisher()
    publisher.publish(kv.stored("a"))
    with KvSubscription([publisher.endpoint], [publisher.replay]) as subscription:
        monkeypatch.setattr(kv_subscription, "REPLAY_MS", 1)
        assert list(subscription.earlier(0, 0)) == []
        publisher.answer_one()
        assert subscription._asking[0].poll(20_000)
        time.sleep(0.05)
        publisher.publish(kv.stored("b"))
        monkeypatch.setattr(kv_subscription, "REPLAY_MS", 20_000)
        answering = threading.Thread(target=publisher.answer_one)
        answering.start()
        assert [frames[-2:] for frames in subscription.earlier(0, 1)] == [publisher.sent[1][-2:]]
    answering.join()
    publisher.context.destroy(linger=0)


def test_a_dead_endpoint_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each gap: what comes meanwhile would be missed as well. When it answers, it is asked again."""
    publisher, said = Publisher(), list[str]()
    monkeypatch.setattr(kv_subscription, "REPLAY_MS", 300)
    with KvSubscription([publisher.endpoint], [publisher.replay]) as subscription:
        recorder = KvRecorder([publisher.endpoint], io.BytesIO(), lambda _, hint: said.append(hint), Blinder(KEY))
        began = time.monotonic()
        for number in range(0, 20, 2):
            publisher.publish(kv.stored("a"))
            publisher.publish(kv.stored("b"))
            recorder.take(publisher.sent[number], 0, subscription)
        assert time.monotonic() - began < 2 * 0.3
        assert recorder.missing == 9
        assert all("--replay endpoint did not answer" in hint for hint in said)
        publisher.answer_one()
        assert subscription._asking[0].poll(20_000)
        monkeypatch.setattr(kv_subscription, "REPLAY_MS", 20_000)
        time.sleep(0.05)
        answering = threading.Thread(target=publisher.answer_one)
        answering.start()
        publisher.publish(kv.stored("c"))
        recorder.take(publisher.sent[20], 0, subscription)
        assert recorder.missing == 9
        assert recorder.messages == 12
    answering.join()
    publisher.context.destroy(linger=0)


def test_an_endpoint_that_is_none_and_one_that_is_taken_are_one_line() -> None:
    with (
        pytest.raises(CacheDoctorError, match="nonsense: cannot connect to this address"),
        KvSubscription(["nonsense"]),
    ):
        pass
    publisher = Publisher()
    with (
        pytest.raises(CacheDoctorError, match="cannot listen at this address"),
        KvSubscription([f"@{publisher.endpoint}"]),
    ):
        pass
    publisher.context.destroy(linger=0)


# ---- real servers

MEASURED = FIXTURES / "measured"


def server(name: str) -> tuple[KvEvents, int, int]:
    """Events of a recording of a real vLLM, and prompt and cached tokens as its responses say."""
    data = (MEASURED / f"vllm-kv-events-{name}.kv.jsonl").read_bytes()
    usage = [json.loads(line)["usage"] for line in (MEASURED / f"vllm-kv-events-{name}.usage.jsonl").open()]
    cached = sum(one["prompt_tokens_details"]["cached_tokens"] or 0 for one in usage)
    return read(data), sum(one["prompt_tokens"] for one in usage), cached


def test_tokens_lost_to_eviction_are_exactly_what_a_server_with_room_reuses_more() -> None:
    """The same bodies: with 200 blocks, and with room for everything."""
    (small, prompt, cached), (ample, same, more) = server("small"), server("ample")
    assert prompt == same
    assert small.evicted == more - cached > 5000
    assert (ample.evicted, ample.removed) == (0, 0)
    assert small.complete
    assert ample.complete


def test_the_clock_and_the_salts_cost_the_same_with_room_and_without() -> None:
    """Nine of ten heads changed before 500 tokens and more; nine of ten salts, 416 tokens in whole blocks each."""
    (small, _, _), (ample, _, _) = server("small"), server("ample")
    assert small.salted == ample.salted == 9 * 416
    assert small.changed == ample.changed > 9 * 500


def test_the_account_adds_up_and_names_its_proof() -> None:
    files = {kind: [MEASURED / f"vllm-kv-events-small.{end}"] for kind, end in BESIDE.items()}
    report = cachedoctor.analyze(MEASURED / "vllm-kv-events-small.log", **files)
    whole, of_server = report.accounts
    events, prompt, cached = server("small")
    found = {(entry.row, entry.kind): (entry.tokens, entry.proof) for entry in of_server.entries}
    assert found["reused", None] == (cached, None)
    assert found["server", "kv-pressure"] == (events.evicted, "kv events")
    assert found["client", "prefix-not-shared"] == (events.changed + events.salted, "kv events")
    assert sum(tokens for tokens, _ in found.values()) == whole.prompt_tokens == of_server.prompt_tokens == prompt
    assert {"CD112", "CD504", "CD510"} == {finding.code for finding in report.findings}


BESIDE = {"kv_events": "kv.jsonl", "responses": "usage.jsonl"}


# ---- the command


def test_a_recording_stands_alone_and_beside_a_log() -> None:
    recording = MEASURED / "vllm-kv-events-ample.kv.jsonl"
    alone = run("analyze", "--kv-events", recording, "-f", "json")
    assert alone.returncode == 0
    (session,) = json.loads(alone.stdout)["sessions"]
    assert session["kv_events"][0]["salted"] == 9 * 416
    given = run("analyze", recording)
    assert given.returncode == 3
    assert b"--kv-events" in given.stderr


@pytest.mark.sweep
def test_what_is_not_a_recording_is_one_line(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    for content in (b"", b"hello\n", b'{"usage":{"prompt_tokens":5}}\n', b"\0\1\2", HEAD[:20]):
        other.write_bytes(content)
        done = run("analyze", "--kv-events", other)
        assert (done.returncode, done.stderr.count(b"\n"), done.stdout) == (2, 1, b""), content


def test_watch_records_a_file_that_analyze_reads(tmp_path: Path) -> None:
    publisher, out = Publisher(), tmp_path / "kv.jsonl"
    for event in (kv.stored("a"), kv.removed("a"), kv.stored("a")):
        publisher.publish(event)
    with publisher.answering():
        done = record(publisher, out)
    assert done.returncode == 0, done.stderr
    assert b"3 messages recorded" in done.stderr
    assert rows(read(out.read_bytes())) == {"new": 1, "evicted": 1}
    again = record(publisher, out)
    assert (again.returncode, again.stderr) == (
        2,
        f"cachedoctor: error: {out}: already exists (hint: give a new file with -o)\n".encode(),
    )


def test_sglang_has_the_same_proof(tmp_path: Path) -> None:
    """Its log shows nothing of what the cache gave up while it is idle."""
    pushed = [kv.stored("a", "b"), kv.removed("b"), kv.stored("b", parent="a")]
    changed = [kv.stored("x1", "y1", text="xy"), kv.stored("x2", "y2", text="zy")]

    def claims(events: list[dict[str, Any]]) -> dict[str, str]:
        recording = tmp_path / "kv.jsonl"
        recording.write_bytes(recorded(*(kv.frames(at, event) for at, event in enumerate(events))))
        report = cachedoctor.analyze(MEASURED / "sglang-healthy.log", kv_events=[recording])
        return {finding.code: finding.claim for finding in report.findings}

    assert claims(pushed)["CD603"].startswith("4 of 12 computed tokens had been evicted")
    assert claims(changed)["CD610"].startswith(
        "4 of 16 computed tokens had been computed before, but after a different beginning"
    )


def test_events_that_show_no_eviction_silence_what_the_log_only_suggests(tmp_path: Path) -> None:
    """The log alone has a note about pressure, since more was computed than the cache holds."""
    log = MEASURED / "vllm-kv-too-small.log"
    recording, late, short = tmp_path / "kv.jsonl", tmp_path / "late.jsonl", tmp_path / "short.jsonl"
    whole = {**kv.stored("a", "b", "c"), "block_size": 40_000}  # the log shows that 147,000 tokens were computed
    recording.write_bytes(recorded(kv.frames(0, whole), kv.frames(1, kv.removed("a", "b"))))
    late.write_bytes(recorded(kv.frames(7, whole)))
    short.write_bytes(recorded(kv.frames(0, kv.stored("a", "b", "c"))))

    def codes(**more: Any) -> set[str]:
        return {finding.code for finding in cachedoctor.analyze(log, **more).findings}

    assert "CD504" in codes()
    assert "CD504" not in codes(kv_events=[recording])
    assert "CD504" in codes(kv_events=[late]), "a part of the events proves no absence"
    assert "CD504" in codes(kv_events=[short]), "nor do those of a part of the log"


def test_of_very_many_blocks_the_oldest_are_forgotten() -> None:
    """What is said of the others stays true, and is the least that can be."""
    blinder, fold = Blinder(KEY), KvFold("x", most=3)
    events = [
        kv.stored("a"),
        kv.stored("b"),
        kv.stored("c"),
        kv.stored("d"),
        kv.removed("a", "d"),
        kv.stored("d"),
        kv.stored("a"),
    ]
    lines = [blinder.message(kv.frames(at, event)) for at, event in enumerate(events)]
    found = fold.take([line for line in lines if line is not None])
    assert rows(found) == {"new": 4, "evicted": 2}
    assert found.forgotten
    assert not found.complete


def test_a_text_is_known_as_long_as_one_block_with_it_is() -> None:
    """The block ``a`` is forgotten with ``q``; ``b`` has the same text and is not."""
    fold = KvFold("x", most=3)
    stored = [("a", "T", None), ("p", "P", None), ("b", "T", "p"), ("q", "Q", None), ("c", "T", "q")]
    events = [StoredBlocks([one], 4, parent, [text], None, 0) for one, text, parent in stored]
    found = fold.take(KvMessage(at, float(at), [event]) for at, event in enumerate(events))
    assert rows(found) == {"new": 3, "changed": 2}
    assert not set(fold._texts) - {text for block in fold._blocks.values() for text in (block.text, block.whole)}


def test_a_server_that_connects_is_waited_for() -> None:
    """As vLLM does where its endpoint holds no ``*``."""
    context, out, port = zmq.Context(), io.BytesIO(), free_port()
    pub, deadline = context.socket(zmq.PUB), time.monotonic() + 20
    with KvSubscription([f"@tcp://127.0.0.1:{port}"]) as subscription:
        recorder = KvRecorder(["x"], out, lambda message, hint: None, Blinder(KEY))
        pub.connect(f"tcp://127.0.0.1:{port}")

        def stop() -> bool:
            if not recorder.messages:
                pub.send_multipart(kv.frames(0, kv.stored("a")))
            return recorder.messages > 0 or time.monotonic() > deadline

        recorder.run(subscription, stop)
    context.destroy(linger=0)
    assert rows(read(out.getvalue())) == {"new": 1}


@pytest.mark.parametrize(
    ("event", "words"),
    [(kv.stored("b", group_idx=1), "different kinds of layers"), (kv.stored("b", medium="CPU"), "slower memory")],
)
def test_what_cannot_be_told_is_said_without_a_number(event: dict[str, Any], words: str) -> None:
    session = Session(0, "kv.jsonl", kv_events=[said(kv.stored("a"), kv.removed("a"), kv.stored("a"), event)])
    (row,) = [text for key, text in measurements.said(session) if key == "events"]
    assert row.startswith("kv.jsonl, 4 messages of KV events: cannot tell why blocks were stored: ")
    assert words in row
    assert kv_proof.of(session) is None
    assert not kv_proof.kept(session)
