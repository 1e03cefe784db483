"""KV events of a real vLLM: what they say was lost, held against the same requests on a server that loses nothing.

Three servers get one traffic: with a small cache, with room for everything, and with room and a client that is fixed.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.client import Message, prose, system, user
from e2e.server import free_port
from e2e.vllm.scenario import BODIES, LOG, REPLY_TOKENS, RESPONSES, FaultNotMadeError, shares, truth
from e2e.vllm.server import Vllm
from e2e.vllm.traffic import Send

EVENTS = "kv.jsonl"
OPTIONS = ("--enable-prompt-tokens-details", "--max-model-len", "3072", "--block-size", "32")
SMALL = ("--num-gpu-blocks-override", "200")
_WAIT_SECONDS = 30
_HEAD = 64
"""Tokens of the head that a client changes: two blocks."""


@dataclass(frozen=True)
class Recorded:
    """What one server said."""

    cached: int
    prompt: int
    report: dict[str, Any]

    @property
    def events(self) -> dict[str, int]:
        """Sums of the KV events."""
        (session,) = self.report["sessions"]
        (events,) = session["kv_events"]
        found: dict[str, int] = events
        return found


def traffic(send: Send, faulty: bool) -> None:
    """Four agents in any turn, a client with a clock in its head, and one with a salt for each request."""
    dice = random.Random(23)
    talks: list[list[Message]] = [[system(prose(60 + agent, 600))] for agent in range(4)]
    asked: list[Message] = []
    for turn in range(40):
        talk = talks[dice.randrange(4)]
        talk.append(user(prose(100 + turn, 90)))
        send(list(talk))
        talk.append({"role": "assistant", "content": prose(500 + turn, 30)})
        if turn % 4 == 0:
            asked.append(user(prose(700 + turn, 60)))
            clock = prose(800 + (turn if faulty else 0), _HEAD)
            send([system(clock + prose(9, 500)), *asked])
        if turn % 4 == 2:
            salt = {"cache_salt": f"tenant-{turn}"} if faulty else {}
            send([system(prose(10, 400)), user(prose(900 + turn, 60))], **salt)


def run(folder: Path) -> list[str]:
    """Run all three, print what they say, and return what is not as it should be."""
    small = _recorded(folder / "small", SMALL, faulty=True)
    ample = _recorded(folder / "ample", (), faulty=True)
    mended = _recorded(folder / "mended", (), faulty=False)
    for name, one in (("small", small), ("ample", ample), ("mended", mended)):
        said = {key: value for key, value in one.events.items() if isinstance(value, int) and value}
        print(f"{name:7} {one.cached:7,} of {one.prompt:7,} cached; {said}", flush=True)
    lost, changed = ample.cached - small.cached, mended.cached - ample.cached
    found = ample.events["changed"] + ample.events["salted"]
    print(f"lost to eviction: {lost:,} really, {small.events['evicted']:,} by KV events")
    print(f"lost to clock and salt: {changed:,} really, {found:,} by KV events ({_HEAD} tokens of each head are new)")
    faults = []
    if not lost or lost != small.events["evicted"]:
        faults.append(f"evicted: {small.events['evicted']:,} tokens by events, {lost:,} really")
    if ample.events["evicted"] or mended.events["evicted"] or mended.events["salted"]:
        faults.append("something is said to be lost where nothing is")
    if not 0.9 * changed <= found <= changed:
        faults.append(f"changed and salted: {found:,} tokens by events, {changed:,} really")
    return faults


def _recorded(folder: Path, options: tuple[str, ...], faulty: bool) -> Recorded:
    folder.mkdir(parents=True)
    port = free_port()
    config = {
        "enable_kv_cache_events": True, "publisher": "zmq",
        "endpoint": f"tcp://*:{port}", "replay_endpoint": f"tcp://127.0.0.1:{free_port()}",
    }  # fmt: skip
    responses: list[dict[str, Any]] = []
    with Vllm("tiny-dense", (*OPTIONS, *options, "--kv-events-config", json.dumps(config)), folder / LOG) as server:
        command = [sys.executable, "-m", "cachedoctor", "watch", "--kv-events", f"tcp://127.0.0.1:{port}"]
        command += ["--replay", str(config["replay_endpoint"]), "-o", str(folder / EVENTS)]
        recorder = subprocess.Popen(command)
        try:
            traffic(_sender(server, folder, responses), faulty)
        finally:
            recorder.terminate()
            recorder.wait(_WAIT_SECONDS)
    (folder / RESPONSES).write_text(json.dumps(responses) + "\n", "utf-8")
    cached, prompt = shares(truth(responses))
    return Recorded(cached, prompt, _report(folder))


def _sender(server: Vllm, folder: Path, responses: list[dict[str, Any]]) -> Send:
    def send(messages: list[Message], **more: Any) -> None:
        body = {"messages": messages, "max_tokens": REPLY_TOKENS, "temperature": 0, **more}
        status, answer = server.post("/v1/chat/completions", body)
        if status != 200:
            raise FaultNotMadeError(f"a request was refused ({status}): {answer}")
        responses.append(answer)
        with (folder / BODIES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(body) + "\n")

    return send


def _report(folder: Path) -> dict[str, Any]:
    inputs = [str(folder / LOG), "--kv-events", str(folder / EVENTS), "--responses", str(folder / RESPONSES)]
    command = [sys.executable, "-m", "cachedoctor", "analyze", *inputs, "--format", "json", "-q"]
    done = subprocess.run(command, capture_output=True, check=False)
    if not done.stdout:
        raise FaultNotMadeError(f"cachedoctor ended with {done.returncode}: {done.stderr.decode()[-400:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report
