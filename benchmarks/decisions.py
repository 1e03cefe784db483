"""Replay what the server had to reuse for every request, and compare it with what it reused.

usage: decisions.py DIR [--build] [--workers 2]

DIR is a folder of logs: DIR/**/<run>/server.log. The build is what the log shows (or a range, where it prints none);
with ``--build`` it is the number of four digits or more that ends the name of the folder above. Beside a log may lie
``requests.jsonl``, with the ``body`` of every request, and ``truth.json``, with ``server_flags``: they explain what
no line of a log shows.

equal      the tokens reused are those that the build's rules give, and every printed line is the one they lead to:
           whether a checkpoint was searched for, the threshold, the checkpoint taken
rounded    the same, within the bounds that the rounded shares of the log leave to the common prefix
explained  different, because of the request body ("cache_prompt": false) or an option that this level hides
           (--cache-reuse without the lines of the chunks it moved)
DIFFERENT  neither; listed
missing    the log lacks a number; the tally names it

Requests without a count of reused tokens (choices of n > 1, cancelled, refused, cut off) are left out. Prints the tally
by folder and by kind of memory as the log shows it. Exits 1 when a request is DIFFERENT.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import runs

from cachedoctor.diagnosis.rules.context import RuleContext
from cachedoctor.diagnosis.rules.replaying import Setup
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import Judged, Request, Session

KINDS = ("equal", "rounded", "explained", "DIFFERENT", "missing")


class Row(NamedTuple):
    """One request."""

    verdict: str
    memory: str
    detail: str
    """What differs, what explains it, or which numbers are missing."""


class Watching(Analyzer):
    """An analyzer that keeps every finished request with its session."""

    def __init__(self, build: int | None) -> None:
        super().__init__(build)
        self.seen: list[tuple[Request, Session]] = []

    def _ask(self, request: Request) -> Judged:
        self.seen.append((request, self._sessions[request.session]))
        return super()._ask(request)


def judge(work: tuple[Path, bool]) -> tuple[Path, list[Row]]:
    """All requests of one log."""
    log, by_folder = work
    number = re.search(r"(\d{4,})$", log.parent.parent.name) if by_folder else None
    watching = Watching(int(number[1]) if number else None)
    watching.open(str(log))
    watching.feed(log.read_bytes())
    watching.finish()
    counted = [(r, s) for r, s in watching.seen if r.parent is None and r.cached_tokens is not None and not r.partial]
    return log, [compare(request, session, log.parent) for request, session in counted]


def compare(request: Request, session: Session, run: Path) -> Row:
    """Judge one request."""
    context = RuleContext(request, Setup(session), [], None, 0, 0)
    found, memory = context.replayed, session.memory or "not shown"
    if found.missing:
        return Row("missing", memory, ", ".join(found.missing))
    if context.by_the_book:
        return Row("equal" if found.answer[0] is not None else "rounded", memory, "")
    why = explain(request, run)
    if why:
        return Row("explained", memory, why)
    bounds = found.least if found.least == found.most else f"{found.least} to {found.most}"
    return Row("DIFFERENT", memory, f"task {request.task}: reused {request.cached_tokens}, had to be {bounds} {found}")


def explain(request: Request, run: Path) -> str:
    """The reason for a difference that stands outside the log."""
    bodies = run / "requests.jsonl"
    if request.cached_tokens == 0 and bodies.is_file():
        sent = [json.loads(line).get("body") or {} for line in bodies.read_text("utf-8").splitlines()]
        if sent and all(body.get("cache_prompt") is False for body in sent):
            return '"cache_prompt": false'
    truth = runs.truth(run) if (run / "truth.json").is_file() else {}
    flags = " ".join(truth.get("server_flags") or [])
    return "--cache-reuse" if "--cache-reuse" in flags and not request.reused_chunks else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--build", action="store_true", help="take the build from the folder's name")
    parser.add_argument("--workers", type=int, default=runs.WORKERS)
    a = parser.parse_args()
    logs = sorted(a.dir.rglob("server.log"))
    if not logs:
        parser.error(f"no server.log below {a.dir}")
    tally: dict[tuple[str, str], Counter[str]] = {}
    reasons: dict[str, Counter[str]] = {"missing": Counter(), "explained": Counter()}
    different = []
    for log, rows in runs.over(judge, [(log, a.build) for log in logs], a.workers):
        for row in rows:
            tally.setdefault((log.parent.parent.name, row.memory), Counter())[row.verdict] += 1
            if row.verdict in reasons:
                reasons[row.verdict][row.detail] += 1
            elif row.verdict == "DIFFERENT":
                different.append(f"{log.relative_to(a.dir)}: {row.detail}")
    _print(tally)
    for verdict, counts in reasons.items():
        print(f"{verdict}:", *(f"{name} {count:,}" for name, count in counts.most_common()), sep="\n  ")
    print(f"DIFFERENT: {len(different)}", *different, sep="\n  ")
    return 1 if different else 0


def _print(tally: dict[tuple[str, str], Counter[str]]) -> None:
    width = max(len(folder) for folder, _ in tally) + 2
    print(f"{'folder':{width}}{'memory':12}{'requests':>10}" + "".join(f"{kind:>11}" for kind in KINDS))
    total: Counter[str] = Counter()
    for (folder, memory), counts in sorted(tally.items()):
        total.update(counts)
        print(f"{folder:{width}}{memory:12}{counts.total():10,}" + "".join(f"{counts[kind]:11,}" for kind in KINDS))
    print(f"{'all':{width}}{'':12}{total.total():10,}" + "".join(f"{total[kind]:11,}" for kind in KINDS))


if __name__ == "__main__":
    sys.exit(main())
