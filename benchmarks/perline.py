"""What one would write first: every line of a log against eight patterns, and a few sums. A peer in the table.

usage: perline.py LOG
"""

import re
import sys
from collections import Counter

PATTERNS = {
    "choice": re.compile(r"id +(\d+) \| task -?\d+ \| selected slot by (LRU|LCP similarity)"),
    "launch": re.compile(r"id +(\d+) \| task (\d+) \| processing task"),
    "prompt": re.compile(r"task (\d+) \| new prompt, n_ctx_slot = (\d+), n_keep = (\d+), task\.n_tokens = (\d+)"),
    "cached": re.compile(r"task (\d+) \| (?:cached )?n_tokens = (\d+), memory_seq_rm \[(\d+), end\)"),
    "checkpoint": re.compile(r"task (\d+) \| (created|restored) context checkpoint"),
    "forced": re.compile(r"task (\d+) \| forcing full prompt re-processing"),
    "timing": re.compile(r"prompt eval time = +([\d.]+) ms / +(\d+) tokens"),
    "release": re.compile(r"task (\d+) \| stop processing: n_tokens = (\d+), truncated = (\d)"),
}


def main() -> None:
    seen: Counter[str] = Counter()
    milliseconds = tokens = 0.0
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        for line in log:
            for name, pattern in PATTERNS.items():
                if found := pattern.search(line):
                    seen[name] += 1
                    if name == "timing":
                        milliseconds += float(found[1])
                        tokens += int(found[2])
                    break
    print(dict(seen), f"{tokens:.0f} tokens computed in {milliseconds / 1000:.1f} s")


if __name__ == "__main__":
    main()
