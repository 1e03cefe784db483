"""Analyse mixed days and compare what is said with what was done: tokens, who lost them, the main cause, false alarms.

usage: days.py [DIR] [--only TEXT] [--evidence log,bodies,exact,responses] [--list] [--json FILE] [--markdown FILE] [--workers 2]

DIR is a folder of runs as ``sh scripts/e2e days --out DIR`` writes them (default: fixtures/days). Each is analysed with
several amounts of evidence:

log        server.log
bodies     and the request bodies (--requests)
exact      and the tokenizer and template of the model (--tokenizer)
responses  server.log and the server's responses (--responses)

The answer of a run is its first finding above a note; else its first note; else "silent".

right      the answer is in RIGHT of the cause: acting on it mends the day
near       the answer is in NEAR: true of what the evidence shows, and it leads on
silent     nothing is said, or only notes that name no cause of a loss
wrong      another answer, at low confidence
WRONG      another answer, at medium or high confidence
ok         nothing is to be mended, and no finding is above a note
alarm      nothing is to be mended, and a finding above a note says so at low confidence; ALARM at medium or high

A faulty day whose fault cost nothing here, by measurement, counts as one with nothing to mend. "worse" lists the runs that
more evidence made worse. Exits 1 when a count of tokens is wrong, an answer is WRONG or an ALARM, or evidence made it worse.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import accuracy
import runs

import cachedoctor
from cachedoctor.model import Finding, Report

HERE = Path(__file__).parent.parent
EVIDENCE = ("log", "bodies", "exact", "responses")
SILENT = "silent"
SLOT_TAKEN = {"slot-contention", "slot-held-other-prompt", "side-request"}
"""A slot was taken, told by who took it; each of them advises more slots, which is what mends it."""

RIGHT: dict[str, set[str]] = {
    # more conversations than slots, and no copy in main memory: more slots mend it, and so does the RAM cache
    "slots_taken_ram_off": SLOT_TAKEN | {"cache-ram-disabled"},
    "side_requests_ram_off": SLOT_TAKEN | {"cache-ram-disabled"},
    # the RAM cache is on and holds one or two prompts; with automatic slots idle ones are cleared into it
    "slots_taken_ram_small": {"slot-contention", "cache-ram-too-small", "idle-slots-cleared"},
    # infill and embeddings take the slot, and what it held is not copied for them: only another slot mends it
    "slot_taken_unsaved": SLOT_TAKEN,
    "slept": {"server-slept"},
    "restarted": {"server-restarted"},
    # a unified KV cache of two thirds of what the chats need; with the RAM cache on the purged prompts were copied
    "kv_too_small": {"kv-purged", "cache-ram-disabled"},
    # a prompt with the same head takes the copy out of main memory, which ends it: a slot each mends it
    "sibling_took_ram_entry": {"shared-prefix-steal", "slot-contention", "slot-held-other-prompt"},
    # two chats with a long common beginning are most similar to the same slot; asking for more similarity parts them
    "slot_shared_by_branches": {"shared-prefix-steal"},
    "checkpoints_off": {"checkpoints-disabled"},
    "clock": {"volatile-prefix"},
    "billing_header": {"billing-header", "volatile-prefix"},
    # both stand in the head of the same prompts; the tools come first in this template
    "clock_and_tools": {"tools-changed", "volatile-prefix"},
    "tools_shuffled": {"tools-changed"},
    "tools_come_and_go": {"tools-changed"},
    "rolling_window": {"history-truncated"},
    # the passages are the head of the prompt and its longest part
    "passages_shuffled": {"history-rewritten", "prefix-diverges-early", "volatile-prefix"},
    "cache_prompt_false": {"cache-prompt-off"},
    # both name one slot, and there is no copy in main memory
    "slot_pinned": {"id-slot-pinned", "slot-held-other-prompt", "cache-ram-disabled"},
    "reasoning_dropped": {"reasoning-stripped"},
    "early_message_edited": {"history-rewritten"},
    "together": {"cold-burst", "computed-together"},
}
"""Answers after which the day is mended, by cause."""

_CHANGED_HEAD = {"prefix-diverges-early"}
NEAR: dict[str, set[str]] = {
    "clock": _CHANGED_HEAD,
    "billing_header": _CHANGED_HEAD,
    "clock_and_tools": _CHANGED_HEAD,
    "tools_shuffled": _CHANGED_HEAD,
    "tools_come_and_go": _CHANGED_HEAD,
    # the log shows that the prompt parts behind its head, and what is new of it; not that the oldest are gone
    "rolling_window": {"history-rewritten", "prefix-diverges-early"},
    "early_message_edited": _CHANGED_HEAD,
    "reasoning_dropped": {"history-rewritten"},
}
"""Answers that say as much as a log without text can show, and how to see more."""

TERSE = {"log-too-terse", "reuse-undecided"}
"""Near for every cause: the log does not hold the evidence, and that is said."""

GOING_BACK = {
    "no-usable-checkpoint", "checkpoints-disabled", "checkpoint-evicted", "checkpoints-bunched", "swa-window-lost",
    "swa-threshold-misfire", "short-prompt-checkpoint-lost", "rollback-failed",
}  # fmt: skip
"""Right where memory that needs checkpoints lost what plain attention keeps: the server's share of the day."""

NO_CAUSE = {"context-shift", "cache-reuse-unsupported", "log-cut", "unknown-format", "wrong-output-hazard"}
"""Notes that name no cause of a loss."""

SIDES = ("client", "server", "together", "none", "undecided")
VERDICTS = ("right", "near", "silent", "wrong", "WRONG", "ok", "alarm", "ALARM")
RANK = {"right": 0, "ok": 0, "near": 1, "silent": 2, "wrong": 3, "alarm": 3, "WRONG": 4, "ALARM": 4}


class Said(NamedTuple):
    """What one analysis of a run said."""

    run: str
    evidence: str
    verdict: str
    answer: str
    confidence: str
    severity: str
    claim: str
    line: int | None
    side: str
    tokens: Counter[str]
    """Requests by how well their counts agree: exact, unknown, wrong, missing."""
    counted: list[str]
    """The requests that are not exact."""
    findings: list[tuple[str, str, str, int]]


def mended(truth: dict[str, Any]) -> bool:
    """Whether nothing is to be mended: by construction, or because the fault cost nothing here."""
    return truth["cause"] == "none" or truth["side"] == "none"


def right(truth: dict[str, Any]) -> set[str]:
    """Right answers of a run."""
    names = set() if mended(truth) else set(RIGHT[truth["cause"]])
    backwards = truth["memory"] != "dense" and truth["side"] in ("server", "both")
    if backwards and (truth["going_back"] or not names or truth["total"]["client"]):
        names |= GOING_BACK
    return names


def judge(truth: dict[str, Any], first: Finding | None) -> str:
    """Verdict on the first finding of a run."""
    answer = first.name if first else SILENT
    is_sure = first is not None and first.confidence != "low"
    if answer in right(truth):
        return "right" if not mended(truth) else "ok"
    if mended(truth):
        is_quiet = first is None or first.severity == "note"
        return "ok" if is_quiet else "ALARM" if is_sure else "alarm"
    if answer in NEAR.get(truth["cause"], set()) | TERSE:
        return "near"
    if first is None or (first.severity == "note" and answer in NO_CAUSE):
        return "silent"
    return "WRONG" if is_sure else "wrong"


def first_of(report: Report) -> Finding | None:
    """The answer: notes come behind everything else."""
    return min(report.findings, key=lambda f: f.severity == "note", default=None)


def side_of(report: Report) -> str:
    """Who lost most, as the requests of the report say."""
    lost = Counter(dict.fromkeys(("client", "server", "together", "undecided"), 0))
    prompts = 0
    for request in runs.requests(report):
        prompts += request["prompt_tokens"] or 0
        lost["client"] += request["client_lost_tokens"] or 0
        lost["server"] += request["server_lost_tokens"] or 0
    if accounts := getattr(report, "accounts", None):
        lost.clear()
        whole = next(account for account in accounts if account.scope == "log")
        prompts = whole.prompt_tokens
        lost.update({row: 0 for row in ("client", "server", "together", "undecided")})
        for entry in whole.entries:
            if entry.row in lost:
                lost[entry.row] += entry.tokens
    if lost.total() < max(500, prompts // 50):
        return "none"
    most, tokens = lost.most_common(1)[0]
    return most if tokens * 3 >= lost.total() * 2 else "both"


def analyse(work: tuple[Path, str, Path]) -> Said:
    """Analyse one run with the evidence of that name."""
    run, evidence, models = work
    truth = runs.truth(run)
    given: dict[str, Any] = {}
    if evidence in ("bodies", "exact"):
        given["prompts"] = [run / "requests.jsonl"]
    if evidence == "exact":
        given["tokenizer"] = str(models / f"{truth['memory']}.gguf")
    if evidence == "responses":
        given["responses"] = [run / "responses.jsonl"]
    try:
        # A server that is no wheel prints its build.
        report = cachedoctor.analyze(run / "server.log", build=truth["build"], **given)
    except Exception as error:  # a crash is one of the results
        return Said(run.name, evidence, "WRONG", "crash", "", "", repr(error), None, "", Counter(), [], [])
    first = first_of(report)
    pairs = accuracy.match([counts(r) for r in truth["requests"]], runs.requests(report))
    wrong = [f"request {n}: true {want}, report {got}" for kind, n, want, got in pairs if kind != "exact"]
    listed = [(f.name, f.severity, f.confidence, f.cost.tokens or 0) for f in report.findings]
    return Said(
        run.name, evidence, judge(truth, first), first.name if first else SILENT, first.confidence if first else "",
        first.severity if first else "", first.claim if first else "", first.primary.line if first and first.primary else None,
        side_of(report), Counter(kind for kind, *_ in pairs), wrong, listed,
    )  # fmt: skip


def counts(request: dict[str, Any]) -> dict[str, Any]:
    """The server's counts under the names of the report; none where it did not give all of them."""
    told = {f"{name}_tokens": request[name] for name in ("prompt", "cached", "processed")}
    return {"n": request["n"], **(dict.fromkeys(told) if None in told.values() else told)}


def worse(said: list[Said]) -> list[str]:
    """Runs whose verdict with more evidence ranks below that of the log alone."""
    alone = {s.run: s for s in said if s.evidence == "log"}
    lines = []
    for s in said:
        base = alone.get(s.run)
        if base is not None and RANK[s.verdict] > RANK[base.verdict]:
            lines.append(f"{s.run}: log {base.verdict} ({base.answer}), {s.evidence} {s.verdict} ({s.answer})")
    return lines


def models_in(folder: Path) -> Path:
    """Folder with the models of the days, made where it lacks one; they are the same bytes everywhere."""
    sys.path.insert(0, str(HERE / "tests"))
    from e2e import models

    for kind, make in models.KINDS.items():
        if not (folder / f"{kind}.gguf").exists():
            make().save(folder / f"{kind}.gguf")
    return folder


def table(head: list[str], rows: list[list[Any]]) -> list[str]:
    """Lines of a Markdown table; numbers stand on the right."""
    cells = [head, *([str(cell) for cell in row] for row in rows)]
    marks = ["--:" if rows and isinstance(cell, int) else "---" for cell in (rows[0] if rows else head)]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return [lines[0], "|" + "|".join(f" {mark} " for mark in marks) + "|", *lines[1:]]


def summary(said: list[Said], truths: dict[str, dict[str, Any]]) -> list[str]:
    """Tallies by evidence: verdicts, sides, tokens."""
    rows = []
    for evidence in sorted({s.evidence for s in said}, key=EVIDENCE.index):
        those = [s for s in said if s.evidence == evidence]
        tally, tokens = Counter(s.verdict for s in those), sum((s.tokens for s in those), Counter[str]())
        sides = sum(s.side == truths[s.run]["side"] for s in those if truths[s.run]["side"] != "both")
        judged = sum(truths[s.run]["side"] != "both" for s in those)
        rows.append([evidence, len(those), *(tally[v] for v in VERDICTS), f"{sides}/{judged}", f"{tokens['exact']:,}/{tokens.total():,}"])
    return table(["evidence", "runs", *VERDICTS, "side right", "requests exact"], rows)


def matrix(said: list[Said], truths: dict[str, dict[str, Any]]) -> list[str]:
    """The confusion matrix: cause by answer, with verdicts."""
    cells: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for s in said:
        cause = "none" if mended(truths[s.run]) else truths[s.run]["cause"]
        cells[cause, s.answer + (" (note)" if s.severity == "note" else ""), s.verdict][s.evidence] += 1
    shown = sorted({s.evidence for s in said}, key=EVIDENCE.index)
    order = sorted(cells, key=lambda key: (key[0] == "none", key[0], RANK[key[2]], -cells[key].total()))
    return table(["cause", "answer", "verdict", *shown], [[*key, *(cells[key][e] for e in shown)] for key in order])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path, nargs="?", default=HERE / "fixtures" / "days")
    parser.add_argument("--only", default="", help="runs whose name holds this")
    parser.add_argument("--evidence", default=",".join(EVIDENCE))
    parser.add_argument("--list", action="store_true", help="also every run that is not right")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, help="write the tables there")
    parser.add_argument("--workers", type=int, default=runs.WORKERS)
    a = parser.parse_args()
    found = [run for run in runs.find(a.dir) if a.only in run.name]
    if not found:
        parser.error(f"no run below {a.dir}: sh scripts/e2e days --out {a.dir}")
    with tempfile.TemporaryDirectory() as scratch:
        models = models_in(Path(scratch))
        work = [(run, evidence, models) for run in found for evidence in a.evidence.split(",")]
        said = list(runs.over(analyse, work, a.workers))
    truths = {run.name: runs.truth(run) for run in found}
    tables = [*summary(said, truths), "", *matrix(said, truths)]
    print(*tables, sep="\n")
    spoilt = worse(said)
    print(f"\nworse with more evidence: {len(spoilt)}", *spoilt, sep="\n  ")
    for s in said:
        for line in s.counted:
            print(f"tokens {s.run} ({s.evidence}) {line}")
        if a.list and RANK[s.verdict]:
            print(f"{s.verdict:6} {s.run} ({s.evidence}): {s.answer} {s.severity} {s.confidence} line {s.line}: {s.claim}")
    if a.json:
        a.json.write_text(json.dumps([s._asdict() for s in said], indent=1), encoding="utf-8")
    if a.markdown:
        a.markdown.write_text("\n".join(tables) + "\n", encoding="utf-8")
    bad = spoilt or any(s.verdict.isupper() or s.tokens["wrong"] for s in said)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
