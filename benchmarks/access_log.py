"""Write an access log in the combined format, for peers that read no log of llama-server: to standard output.

usage: access_log.py [--size 100M] [--seed 1]

The requests of a small site, some each second, with hundreds of clients and pages: something to count. The same
arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import datetime
import random
import sys
from collections.abc import Iterator

from gen_log import size_of

FIRST_SECOND = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
BLOCK = 4000
BROWSERS = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Safari/605",
    "curl/8.14.1",
]
STATUSES = [200] * 17 + [304, 404, 500]


def lines(seed: int) -> Iterator[str]:
    """Lines without end."""
    rnd = random.Random(seed)
    second = 0.0
    while True:
        second += rnd.random() * 0.4
        moment = (FIRST_SECOND + datetime.timedelta(seconds=int(second))).strftime("%d/%b/%Y:%H:%M:%S +0000")
        client = f"192.0.2.{rnd.randrange(256)}"
        page = f"/{rnd.choice(('docs', 'blog', 'v1', 'static'))}/{rnd.randrange(400)}"
        sent = f"{rnd.choice(STATUSES)} {rnd.randrange(90_000)}"
        referrer = rnd.choice(("-", f"https://example.org/{rnd.randrange(50)}"))
        yield f'{client} - - [{moment}] "GET {page} HTTP/1.1" {sent} "{referrer}" "{rnd.choice(BROWSERS)}"\n'


def blocks(size: int, seed: int = 1) -> Iterator[str]:
    """The log in pieces of some thousand lines, until at least ``size`` characters were given."""
    source, written = lines(seed), 0
    while written < size:
        text = "".join(next(source) for _ in range(BLOCK))
        written += len(text)
        yield text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="100M")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for block in blocks(size_of(options.size), options.seed):
        sys.stdout.write(block)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        pass
