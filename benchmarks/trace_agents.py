"""Account and tune over a public trace of coding agents: real sessions, without their texts.

usage: trace_agents.py DIR [--agents 8] [--traces N] [--slots 4] [--context 200000] [--token-bytes 98304]
                       [--memory MIB] [--blocks 100]

DIR is a copy of ``traces/`` of https://github.com/callanjfox/kv-cache-tester (Apache-2.0): recorded sessions of Claude
Code, one file each, in which every request has its time, its length, the length of its reply, and a number for each
block of 64 tokens; equal numbers at one place of a session are equal text. Nothing of it is in this repository.

``--agents`` sessions run at the same time on one server; where one ends the next begins. What two sessions share (the
system prompt, the tools) has other numbers in each, so that it is not seen. A request that continues all whole
blocks of an earlier one is taken to send back its reply.

Prints the account of a llama-server with ``--slots`` of ``--context`` tokens each and the default RAM cache, the
settings that ``cachedoctor tune`` finds for it, and what a vLLM with caches of several sizes reuses of the first
``--blocks`` sessions.
"""

from __future__ import annotations

import argparse
import heapq
import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cachedoctor.diagnosis.replay.block_cache import BlockServer, BlockSettings, SentPrompt, in_order
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.prompt_tree import PromptTree
from cachedoctor.diagnosis.replay.traffic import TimedRequest, Traffic
from cachedoctor.doctor.findings.history import PromptSpeed
from cachedoctor.doctor.whatif.evidence import ServerTraffic
from cachedoctor.doctor.whatif.tuning import tune
from cachedoctor.model.whatif import Placed, ReplayAccount

BLOCK = 64
SECONDS = 1.0
"""That a request takes of which the trace does not say it."""
SIZES = (50_000, 200_000, 800_000, 3_200_000)
"""Tokens of vLLM's cache."""


class Sent(NamedTuple):
    """One request of a session."""

    start: float
    end: float
    """Seconds since the session began."""
    tokens: int
    reply: int
    blocks: list[int]
    agent: int
    """Of the session: 0 is the main one, others are sub-agents."""


def session(path: Path) -> list[Sent]:
    """The requests of a file, in the order of their times."""
    trace = json.loads(path.read_bytes())
    if trace["block_size"] != BLOCK:
        raise SystemExit(f"{path}: blocks of {trace['block_size']} tokens")
    return sorted(_requests(trace["requests"], 0.0, 0), key=lambda one: one.start)


def _requests(found: Sequence[dict[str, Any]], begin: float, agent: int) -> Iterator[Sent]:
    agents = 0
    for one in found:
        at = begin + one["t"]
        if one["type"] == "subagent":
            agents += 1
            yield from _requests(one["requests"], at, agents)
        elif one["in"] > 0:
            yield Sent(at, at + (one.get("api_time") or SECONDS), one["in"], one["out"], one["hash_ids"], agent)


class Row(NamedTuple):
    """A request on the clock of the server."""

    start: float
    end: float
    session: int
    sent: Sent


def timeline(sessions: Sequence[list[Sent]], agents: int) -> list[Row]:
    """Let so many sessions run at the same time, one after another on each place."""
    free, rows = [0.0] * agents, list[Row]()
    for number, requests in enumerate(sessions):
        begin = heapq.heappop(free)
        rows += [Row(begin + one.start, begin + one.end, number, one) for one in requests]
        heapq.heappush(free, begin + max((one.end for one in requests), default=0.0))
    return sorted(rows, key=lambda row: row.start)


def goes_on(sessions: Sequence[list[Sent]]) -> list[list[tuple[int | None, int]]]:
    """Of every request the earlier one of its session with which it shares most, and how many whole blocks."""
    found = []
    for requests in sessions:
        tree = PromptTree()
        asked = [TimedRequest(at := tree.add(one.blocks), at, 2 * n, 2 * n + 1) for n, one in enumerate(requests)]
        found.append([(ideal.owner, ideal.tokens) for ideal in Traffic(tree, asked).ideal])
    return found


def traffic(rows: Sequence[Row], sessions: Sequence[list[Sent]]) -> tuple[Traffic, list[int | None]]:
    """Prompts by their lengths and what they share, on the clock of the server, and the conversation of each."""
    tree, shared = PromptTree(), goes_on(sessions)
    places: dict[tuple[int, int], tuple[int, int]] = {}
    number = [0] * len(sessions)
    moments = {at: (start, end) for at, start, end in _moments(rows)}
    asked, names = list[TimedRequest](), dict[tuple[int, int], int]()
    conversations = list[int | None]()
    for at, row in enumerate(rows):
        n, one = number[row.session], row.sent
        number[row.session] += 1
        owner, blocks = shared[row.session][n]
        if owner is None or not blocks:
            prompt = tree.branch(None, 0, one.tokens)
        else:
            before = sessions[row.session][owner]
            kept, content = places[row.session, owner]
            whole = blocks == len(before.blocks) and one.tokens > before.tokens
            prompt = tree.branch(content if whole else kept, one.tokens if whole else blocks * BLOCK, one.tokens)
        content = tree.branch(prompt, one.tokens, one.tokens + max(0, one.reply - 1))
        places[row.session, n] = prompt, content
        conversation = names.setdefault((row.session, one.agent), len(names))
        conversations.append(conversation)
        start, end = moments[at]
        asked.append(TimedRequest(prompt, content, start, end, conversation=conversation, seconds=row.start))
    return Traffic(tree, asked), conversations


def _moments(rows: Sequence[Row]) -> Iterator[tuple[int, int, int]]:
    """Start and end of each row as places in the order of all."""
    order = in_order((row.start, row.end) for row in rows)
    starts = dict[int, int]()
    for place, (at, ends) in enumerate(order):
        if not ends:
            starts[at] = place
        else:
            yield at, starts[at], place


def told(account: ReplayAccount) -> None:
    """Print an account."""
    rows = [("prompt tokens", account.prompt_tokens), ("reused", account.reused_tokens), ("new", account.new_tokens)]
    rows += [(f"lost: {cause}", tokens) for cause, tokens in (account.lost_tokens or {}).items()]
    for name, tokens in rows:
        print(f"{name:24} {tokens or 0:15,} {100 * (tokens or 0) / max(1, account.prompt_tokens):6.2f} %")
    print(f"{'requests':24} {account.requests:15,}, too long for a slot: {account.too_long:,}")


def vllm(rows: Sequence[Row], tokens: int | None) -> int:
    """Reused tokens; a block of the trace is one of the cache. A prompt that is larger than the cache is left out."""
    server, reused = BlockServer(BlockSettings(1, None if tokens is None else tokens // BLOCK)), 0
    for at, ends in in_order((row.start, row.end) for row in rows):
        if ends:
            server.end(at)
            continue
        row = rows[at]
        fits = tokens is None or len(row.sent.blocks) < tokens // BLOCK
        named = [row.session.to_bytes(4) + block.to_bytes(8) for block in row.sent.blocks] if fits else []
        reused += server.begin(at, SentPrompt(range(len(named) + 1)), named)
    return reused * BLOCK


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--traces", type=int, default=0, help="the first so many sessions; all without it")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--context", type=int, default=200_000, help="tokens of a slot")
    parser.add_argument("--token-bytes", type=float, default=98_304, help="of a token in the cache")
    parser.add_argument("--memory", type=float, help="MiB that the changes may take together")
    parser.add_argument("--blocks", type=int, default=100, help="sessions for vLLM; 0 for none")
    a = parser.parse_args()
    paths = sorted(a.dir.glob("*.json"))[: a.traces or None]
    if not paths:
        parser.error(f"no traces in {a.dir}")
    sessions = [session(path) for path in paths]
    rows = timeline(sessions, a.agents)
    sent, conversations = traffic(rows, sessions)
    settings = ServerSettings(slots=a.slots, context=a.slots * a.context, token_bytes=a.token_bytes)
    count, nothing = len(rows), [None] * len(rows)
    evidence = ServerTraffic(
        sent, settings, frozenset(), [*nothing], [*nothing], conversations, [*nothing], [*nothing],
        Placed(count, None, True, sizes_known=True), PromptSpeed(), False,
    )  # fmt: skip
    print(f"{len(sessions):,} sessions, {count:,} requests, {a.agents} at a time")
    began = time.process_time()
    answer = tune(evidence, [str(a.dir)], a.memory)
    spent = time.process_time() - began
    told(answer.replay)
    for one in answer.singles:
        mib = "?" if one.memory_mib is None else f"{one.memory_mib:+,.0f} MiB"
        print(f"{one.options:44} saves {one.saved_tokens:15,} {mib:>14}")
    for options in answer.over_limit:
        print(f"{options:44} needs more memory")
    best = answer.best
    print("best:", "nothing to gain" if best is None else f"{best.options} saves {best.saved_tokens:,}")
    print(f"tune: {spent:.1f} s of CPU, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")
    some = timeline(sessions[: a.blocks], a.agents) if a.blocks else []
    prompts = sum(row.sent.tokens for row in some)
    for size in (*SIZES, None) if some else ():
        words = "endless" if size is None else f"{size:,} tokens"
        print(f"vLLM, {words:17} {100 * vllm(some, size) / prompts:5.1f} % reused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
