# ruff: noqa: E501  # the lines of the log are shown whole
"""Write a llama-server log of a chosen size with the message shapes of a chosen era, to standard output.

usage: gen_log.py --era b8352|b9713|b11549-trace|b11549-default --size 1G [--slots 4] [--lives 1] [--seed 1]

The traffic: conversations that grow turn by turn on a few slots; now and then one changes its head (all is recomputed), drops its tail,
or loses its slot to another conversation. Numbers are consistent per request (prompt = cached + processed); text is synthetic.
With ``--lives`` the server is restarted in between: as many lives of about one size, each with its own clock and tasks from zero.
The same arguments give the same bytes, so that measurements of different days can be compared.
"""

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass

ERAS = ("b8352", "b9713", "b11549-trace", "b11549-default")
BATCH = 2048
"""Tokens of a prompt that are computed at once."""
FLUSH_LINES = 4000


class Log:
    """Lines in the shapes of an era, and the clock before them."""

    def __init__(self, era: str, rnd: random.Random) -> None:
        self.new = era.startswith("b11549")
        self.trace = era != "b11549-default"
        self.stamped = era != "b8352"
        self.rnd = rnd
        self.clock = 0.0
        self.lines: list[str] = []

    def line(self, text: str, level: str = "I") -> None:
        self.clock += self.rnd.random() * 0.004
        if self.stamped:
            us = int(self.clock * 1e6)
            clock = f"{us // 60_000_000}.{us // 1_000_000 % 60:02d}.{us // 1000 % 1000:03d}.{us % 1000:03d}"
            text = f"{clock} {level} {text}"
        self.lines.append(text + "\n")

    def take(self) -> str:
        """The lines since the last call."""
        text = "".join(self.lines)
        self.lines.clear()
        return text


@dataclass
class Turn:
    """One request: what its slot held before, and how much of its prompt is the same (``lcp``)."""

    slot: int
    task: int
    prompt: int
    held: int
    lcp: int
    generated: int

    @property
    def similarity(self) -> float:
        return self.lcp / self.prompt

    @property
    def keep(self) -> float:
        return self.lcp / self.held if self.held else 0.0

    @property
    def forced(self) -> bool:
        """All is recomputed, as no checkpoint lies low enough."""
        return 0 < self.lcp < self.held * 0.6

    @property
    def cached(self) -> int:
        return 0 if self.forced else self.lcp


def common_prefix(held: int, rnd: random.Random) -> int:
    """Tokens that the slot holds already: all, the first few, or up to an edit in the second half."""
    what = rnd.random()
    if held == 0:
        return 0
    if what < 0.75:
        return held
    return rnd.randint(8, 60) if what < 0.85 else rnd.randint(held // 2, held)


def turns(chats: list[int], rnd: random.Random) -> Iterator[Turn]:
    """Turns without end of conversations that begin with ``chats`` tokens, one per slot."""
    held = [0] * len(chats)
    task = 0
    while True:
        s = rnd.randrange(len(chats))
        grow = rnd.randint(60, 3000)
        if chats[s] > 180_000:
            chats[s], held[s] = rnd.randint(2000, 20000), 0
        lcp = common_prefix(held[s], rnd)
        generated = rnd.randint(20, 400)
        task += rnd.randint(2, 60)
        turn = Turn(s, task, chats[s] + grow, held[s], lcp, generated)
        held[s], chats[s] = turn.prompt + generated - 1, turn.prompt + generated
        yield turn


def write_slot_choice(log: Log, turn: Turn) -> None:
    head = f"slot get_availabl: id  {turn.slot} | task -1 | "
    if turn.similarity > 0.1:
        name = "f_sim_best" if log.new else "sim_best"
        log.line(
            f"{head}selected slot by LCP similarity, {name} = {turn.similarity:.3f} (> 0.100 thold), f_keep = {turn.keep:.3f}"
        )
    else:
        log.line(f"{head}selected slot by LRU, t_last = {int(log.clock * 1e6)}")


def write_ram_cache(log: Log, turn: Turn) -> None:
    rnd = log.rnd
    log.line("srv  get_availabl: updating prompt cache")
    size = f"{turn.held / 11:.3f} MiB (draft: 0.000 MiB)"
    log.line(f"srv   prompt_save:  - saving prompt with length {turn.held}, total state size = {size}", "W")
    similarity = f"{'f_sim' if log.new else 'sim'} = {turn.similarity:.3f}"
    log.line(f"srv          load:  - looking for better prompt, base f_keep = {turn.keep:.3f}, {similarity}")
    limits = "(limits: 8192.000 MiB, 262144 tokens, 262144 est)"
    log.line(f"srv        update:  - cache state: 5 prompts, 785.314 MiB {limits}")
    for _ in range(5):
        log.line(
            f"srv        update:    - prompt 0x619d01a2e{rnd.randint(100, 999)}: {rnd.randint(50, 90000):7d} tokens, checkpoints: {rnd.randint(1, 32):2d}, {rnd.random() * 400:9.3f} MiB"
        )
    log.line("srv  get_availabl: prompt cache update took 57.52 ms")


def write_launch(log: Log, turn: Turn) -> None:
    head = f"slot launch_slot_: id  {turn.slot} | task "
    if log.trace:
        chain = "logits -> ?penalties -> ?dry -> ?top-n-sigma -> top-k -> ?typical -> top-p -> min-p -> ?xtc -> temp-ext -> dist "
        log.line(f"{head}-1 | sampler chain: {chain}")
    log.line(f"{head}{turn.task} | processing task, is_child = 0")


def write_checkpoint_search(log: Log, turn: Turn, head: str) -> None:
    check, level, lcp = "checking" if log.new else "Checking", "I" if log.new else "W", turn.lcp
    for k in range(log.rnd.randint(1, 32) if turn.forced else 1):
        log.line(f"{head}{check} checkpoint with [{lcp + 900 - k}, {lcp + 900 - k}] against {lcp}...")
    if turn.forced:
        see = "https://github.com/ggml-org/llama.cpp/pull/13194#issuecomment-2868343055"
        why = f"lack of cache data (likely due to SWA or hybrid/recurrent memory, see {see})"
        log.line(f"{head}forcing full prompt re-processing due to {why}", level)
    else:
        at = f"pos_min = {lcp - 1}, pos_max = {lcp - 1}, n_tokens = {lcp}, n_past = {lcp}, size = 62.813 MiB"
        log.line(f"{head}restored context checkpoint ({at})", level)


def write_prompt(log: Log, turn: Turn) -> None:
    head = f"slot {'  operator()' if log.new else 'update_slots'}: id  {turn.slot} | task {turn.task} | "
    log.line(f"{head}new prompt, n_ctx_slot = 262144, n_keep = 0, task.n_tokens = {turn.prompt}")
    if 0 < turn.lcp < turn.held:
        write_checkpoint_search(log, turn, head)
    word, level = ("cached n_tokens", "I") if log.stamped else ("n_tokens", "W")
    at = turn.cached
    while at < turn.prompt:
        log.line(f"{head}{word} = {at}, memory_seq_rm [{at}, end)")
        at = min(turn.prompt, at + BATCH)
        if at < turn.prompt or log.rnd.random() < 0.5:
            made = f"created context checkpoint {log.rnd.randint(1, 32)} of 32"
            where = f"pos_min = {at - 1}, pos_max = {at - 1}, n_tokens = {at}, size = 62.813 MiB"
            log.line(f"slot create_check: id  {turn.slot} | task {turn.task} | {made} ({where})", level)


def write_timings(log: Log, turn: Turn) -> None:
    processed, generated = turn.prompt - turn.cached, turn.generated
    ms = processed * (0.8 + turn.prompt / 100_000)
    speed = f"{ms / max(1, processed):8.2f} ms per token, {1000 * processed / max(ms, 1):8.2f} tokens per second"
    head = f"slot print_timing: id  {turn.slot} | task {turn.task} | "
    rows = [
        f"prompt eval time = {ms:10.2f} ms / {processed:5d} tokens ({speed})",
        f"       eval time = {generated * 24.0:10.2f} ms / {generated:5d} tokens (   24.00 ms per token,    41.67 tokens per second)",
        f"      total time = {ms + generated * 24:10.2f} ms / {processed + generated:5d} tokens",
    ]
    log.clock += ms / 1000
    if log.stamped:
        for row in rows:
            log.line(head + row)
        log.line(head + f"   graphs reused = {log.rnd.randint(1, 9999):10d}")
    else:  # before the clock, a header of its own and three bare lines
        log.lines.append("\n".join([head, *rows]) + "\n")


def write_end(log: Log, turn: Turn) -> None:
    held = turn.prompt + turn.generated - 1
    log.line(
        f"slot      release: id  {turn.slot} | task {turn.task} | stop processing: n_tokens = {held}, truncated = 0"
    )
    if not log.stamped:
        log.line("srv  update_slots: all slots are idle")
        log.line("srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200")


def write_turn(log: Log, turn: Turn) -> None:
    write_slot_choice(log, turn)
    if log.trace and turn.keep < 0.5:
        write_ram_cache(log, turn)
    write_launch(log, turn)
    if log.trace:
        write_prompt(log, turn)
    write_timings(log, turn)
    write_end(log, turn)


def life(era: str, size: int, slots: int, seed: int, flush: int = FLUSH_LINES) -> Iterator[str]:
    """One life of a server in pieces of about ``flush`` lines, until at least ``size`` characters were given."""
    rnd = random.Random(seed)
    log, written = Log(era, rnd), 0
    chats = [rnd.randint(2000, 20000) for _ in range(slots)]
    log.line(f"srv    load_model: initializing, n_slots = {slots}, n_ctx_slot = 262144, kv_unified = 'false'")
    for turn in turns(chats, rnd):
        write_turn(log, turn)
        if len(log.lines) > flush:
            text = log.take()
            written += len(text)
            yield text
            if written >= size:
                return


def blocks(era: str, size: int, slots: int = 4, seed: int = 1, lives: int = 1) -> Iterator[str]:
    """The log in pieces of some lines. Many lives are short: their pieces are, too, or none would end in time."""
    for number in range(lives):
        yield from life(era, size // lives, slots, seed + number, FLUSH_LINES // lives)


def size_of(text: str) -> int:
    """Bytes from ``200M``."""
    units = {"K": 10**3, "M": 10**6, "G": 10**9}
    return int(float(text[:-1]) * units[text[-1].upper()]) if text[-1].isalpha() else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--era", default="b11549-trace", choices=ERAS)
    parser.add_argument("--size", default="100M")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--lives", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for block in blocks(options.era, size_of(options.size), options.slots, options.seed, options.lives):
        sys.stdout.write(block)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        pass
