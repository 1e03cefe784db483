"""Time and memory of replaying much traffic under many settings, as CPU seconds and as ratio to one setting.

usage: replay_speed.py [--requests 50000] [--settings 20]

Generated: clients with a system prompt of their own that many conversations share, append-only, interleaved, now and
then with another request in front; lengths of coding agents. Prints seconds of the first and of all settings, the
ratio, and the largest memory of the process.
"""

from __future__ import annotations

import argparse
import random
import resource
import time

from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.prompt_tree import PromptTree
from cachedoctor.diagnosis.replay.traffic import TimedRequest, Traffic


def traffic(count: int, seed: int = 7, *, shares_heads: bool = True) -> Traffic:
    """Requests of twelve conversations at a time, each of some 60 turns; many of them begin alike, or none."""
    rng, tree, asked = random.Random(seed), PromptTree(), []
    heads = [tree.branch(None, 0, rng.randrange(8_000, 20_000)) for _ in range(8)]
    running: list[tuple[int, int]] = []
    while len(asked) < count:
        if len(running) < 12:
            head = rng.choice(heads) if shares_heads else tree.branch(None, 0, rng.randrange(8_000, 20_000))
            running.append((head, tree.length(head)))
        at = rng.randrange(len(running))
        before, length = running[at]
        sent = tree.length(before) + rng.randrange(100, 3_000)
        prompt = tree.branch(before, tree.length(before), sent)
        content = tree.branch(prompt, sent, sent + rng.randrange(20, 800))
        asked.append(TimedRequest(prompt, content, 2 * len(asked), 2 * len(asked) + 1, conversation=at))
        running[at] = (content, length)
        if rng.random() < 1 / 60 or sent > 180_000:
            del running[at]
    return Traffic(tree, asked)


def choices(count: int) -> list[ServerSettings]:
    """Settings as ``tune`` would try them."""
    found = []
    for number in range(count):
        slots, ram = (1, 2, 4, 8, 12)[number % 5], (0, 2048, 8192, 65536)[number // 5 % 4]
        found.append(ServerSettings(slots=slots, cache_ram_mib=ram, context=slots * 200_000, token_bytes=100_000.0))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--settings", type=int, default=20)
    a = parser.parse_args()
    begin = time.process_time()
    asked = traffic(a.requests)
    made = time.process_time()
    asked.ideal  # noqa: B018 (shared by all settings)
    ordered = time.process_time()
    each = []
    for settings in choices(a.settings):
        start = time.process_time()
        served = serve(asked, settings)
        each.append(time.process_time() - start)
        lost = sum(one.best - one.reused for one in served)
        print(
            f"{settings.slots:3} slots {settings.cache_ram_mib:6} MiB {each[-1]:7.2f} s {lost / 1e6:9.1f} M tokens lost"
        )
    print(f"traffic {made - begin:.2f} s, ideal {ordered - made:.2f} s, first {each[0]:.2f} s, all {sum(each):.2f} s")
    print(f"ratio {sum(each) / max(each[0], 1e-9):.1f} for {len(each)}; ", end="")
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
