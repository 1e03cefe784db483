# ruff: noqa: E501  # the lines of the log are shown whole
"""CPU time of the whole command ``tune``, reading the log included, as seconds and as ratio to ``analyze``.

usage: tune_speed.py [--requests 50000] [--least 16] [--log FILE]

The log is what a llama-server of b11549 with ``-lv 4`` would have written of the generated traffic of
``replay_speed.py``, one request after the other: a replay under 4 slots and 4 GiB of RAM cache says which slot took a
request, what was saved and what came back. Prints the CPU seconds of both commands and all their processes, their
ratio, the seconds that ``tune`` took by the clock, the settings it looked at, those replayed to their end, and the
largest memory of a process. Exit status 1 where it looked at fewer than ``--least``: then the ratio is of less work than it says.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from replay_speed import traffic

from cachedoctor.diagnosis.replay.llamacpp.content import ReplayContent, Served
from cachedoctor.diagnosis.replay.llamacpp.server import ReplayedServer
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.traffic import TimedRequest

_MIB = 1 << 20
_SLOTS, _RAM, _ROOM = 4, 4096, 200_192
_TOKEN_BYTES = 20_480.0
_COUNTER = """
import sys
from cachedoctor.__main__ import main
from cachedoctor.diagnosis.replay.llamacpp.replays import Replays
looked, made, same, init = set(), [], Replays.same, Replays.__init__
def started(self, traffic):
    init(self, traffic)
    made.append(self._done)
def counted(self, settings):
    looked.add(settings)
    return same(self, settings)
Replays.__init__, Replays.same = started, counted
try:
    main()
finally:
    print(len(looked), sum(map(len, made)), file=sys.stderr)
"""
"""Runs the command, and counts the settings that it looked at, and those of them and the recorded ones that it replayed to
their end."""


class _WritingServer(ReplayedServer):
    """A replayed server that writes its log."""

    def __init__(self, count: int) -> None:
        settings = ServerSettings(
            slots=_SLOTS, cache_ram_mib=_RAM, context=_SLOTS * _ROOM, kv_unified=False, cache_idle_slots=False,
            token_bytes=_TOKEN_BYTES,
        )  # fmt: skip
        super().__init__(traffic(count, shares_heads=False), settings.resolved())
        self.lines: list[str] = []
        self.us = 0

    def log(self) -> Iterator[str]:
        """Lines of the start, then those of every request."""
        self._write("srv          init: build_info: b11549-0123456")
        self._write("cmn  common_param: common_params_print_info: verbosity = 4 (adjust with the `-lv N` CLI arg)")
        self._write(
            "llama_kv_cache: size = 15640.00 MiB (200192 cells,  10 layers,  4/4 seqs), K (f16): 7820.00 MiB, V (f16): 7820.00 MiB"
        )
        self._write(f"srv    load_model: initializing, n_slots = {_SLOTS}, n_ctx_slot = {_ROOM}, kv_unified = 'false'")
        self._write(f"srv    load_model: prompt cache is enabled, size limit: {_RAM} MiB")
        for _, kind, index in self.traffic.moments:
            self.clock += 1
            if kind == 0:
                self._end(index)
            else:
                self._request(index)
            yield from self.lines
            self.lines.clear()

    def _write(self, text: str, us: int = 40) -> None:
        self.us += us
        minutes, us = divmod(self.us, 60_000_000)
        self.lines.append(f"{minutes}.{us // 1_000_000:02d}.{us // 1000 % 1000:03d}.{us % 1000:03d} I {text}\n")

    def _request(self, index: int) -> None:
        asked, ram = self.traffic.asked[index], self.ram
        assert ram is not None
        length = self.tree.length(asked.prompt)
        found = self._choose(index, asked)
        assert found is not None  # one request after the other: no slot is busy
        slot, by, shared = found
        held, kept = slot.content.tokens, shared / slot.content.tokens if slot.content.tokens else 0.0
        choice = f"slot get_availabl: id {slot.number:2} | task -1 | selected slot by "
        if by == "similarity":
            self._write(
                f"{choice}LCP similarity, f_sim_best = {shared / length:.3f} (> 0.100 thold), f_keep = {kept:.3f}"
            )
        else:
            self._write(f"{choice}LRU, t_last = {self.us if held else -1}")
        before = [content for content, _ in ram.entries.values()]
        self._start(index)
        one = self.served[index]
        if by == "lru" or kept < 0.5:
            self._swapped(before, asked, held, kept, shared, length, one)
        self._computed(index, slot.number, one.reused, length, asked)

    def _swapped(
        self,
        before: list[ReplayContent],
        asked: TimedRequest,
        held: int,
        kept: float,
        shared: int,
        length: int,
        one: Served,
    ) -> None:
        """The lines of saving to the RAM cache, and of looking for something better there."""
        self._write("srv  get_availabl: updating prompt cache")
        if held:
            size = held * _TOKEN_BYTES / _MIB
            self._write(
                f"srv   prompt_save:  - saving prompt with length {held}, total state size = {size:.3f} MiB (draft: 0.000 MiB)"
            )
        self._write(
            f"srv          load:  - looking for better prompt, base f_keep = {kept:.3f}, f_sim = {shared / length:.3f}"
        )
        for entry in before:
            lcp = self.tree.common(entry.text, asked.prompt)
            self._write(
                f"srv          load:    - prompt with length {entry.tokens:7}, lcp = {lcp:7}, f_keep = {lcp / entry.tokens:.3f}, f_sim = {lcp / length:.3f}"
            )
        if one.from_ram:
            self._write(
                f"srv          load:  - found better prompt with f_keep = {one.common / entry.tokens:.3f}, f_sim = {one.common / length:.3f}"
            )
        assert self.ram is not None
        mib = self.ram.bytes / _MIB
        self._write(
            f"srv        update:  - cache state: {len(self.ram.entries)} prompts, {mib:.3f} MiB (limits: {_RAM}.000 MiB, {_SLOTS * _ROOM} tokens, 209715 est)"
        )
        for number, (entry, _) in enumerate(self.ram.entries.values()):
            self._write(
                f"srv        update:    - prompt 0x7f36b2{number:06x}: {entry.tokens:7} tokens, checkpoints:  0, {entry.tokens * _TOKEN_BYTES / _MIB:9.3f} MiB"
            )
        self._write("srv  get_availabl: prompt cache update took 1.40 ms")

    def _computed(self, index: int, slot: int, reused: int, length: int, asked: TimedRequest) -> None:
        of, computed = f"id {slot:2} | task {index}", length - reused
        self._write(f"slot launch_slot_: {of} | processing task, is_child = 0")
        self._write(f"slot   operator(): {of} | new prompt, n_ctx_slot = {_ROOM}, n_keep = 0, task.n_tokens = {length}")
        self._write(f"slot   operator(): {of} | cached n_tokens = {reused}, memory_seq_rm [{reused}, end)")
        ms = computed * (0.5 + (reused + length) / 400_000)
        held = self.tree.length(asked.content)
        self._write(
            f"slot print_timing: {of} | prompt eval time = {ms:10.2f} ms / {computed:5} tokens ({ms / computed:8.2f} ms per token, {1000 * computed / ms:8.2f} tokens per second)",
            int(1000 * ms),
        )
        reply = held - length + 1
        self._write(
            f"slot print_timing: {of} |        eval time = {reply * 20:10.2f} ms / {reply:5} tokens (   20.00 ms per token,    50.00 tokens per second)",
            reply * 20_000,
        )
        self._write(
            f"slot print_timing: {of} |       total time = {ms + reply * 20:10.2f} ms / {computed + reply:5} tokens"
        )
        self._write(f"slot      release: {of} | stop processing: n_tokens = {held}, truncated = 0")
        self._write("srv  update_slots: all slots are idle")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--least", type=int, default=16)
    parser.add_argument("--log", type=Path, help="keep the log here")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = a.log or Path(folder) / "server.log"
        with log.open("w", encoding="utf-8") as out:
            out.writelines(_WritingServer(a.requests).log())
        read = _measured(["analyze", "-q", str(log)])
        tuned = _measured(["tune", "-q", "--cmdline", "llama-server --no-cache-idle-slots", str(log)])
        size = log.stat().st_size / 1e6
    print(
        f"{a.requests:,} requests, {size:.0f} MB: analyze {read.cpu:.2f} s, tune {tuned.cpu:.2f} s of CPU and "
        f"{tuned.clock:.2f} s by the clock for {tuned.looked} settings, {tuned.made} replayed to their end; "
        f"ratio {tuned.cpu / read.cpu:.2f}; {tuned.most / 1024:.0f} MiB"
    )
    return 0 if tuned.looked >= a.least else 1


class _Measured(NamedTuple):
    cpu: float
    """Seconds."""
    clock: float
    """Seconds."""
    looked: int
    made: int
    most: int
    """KiB of the largest child so far."""


def _measured(words: list[str]) -> _Measured:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([sys.executable, "-c", _COUNTER, *words], capture_output=True, check=True, env=os.environ)
    after, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begun
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    looked, made = map(int, done.stderr.split()[-2:])
    return _Measured(seconds, clock, looked, made, after.ru_maxrss)


if __name__ == "__main__":
    sys.exit(main())
