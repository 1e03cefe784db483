"""Analyse mixed days and compare what is said with what was done: tokens, who lost them, the main cause, false alarms.

usage: days.py [DIR] [--only TEXT] [--evidence log,exact] [--list] [--json FILE] [--markdown FILE] [--workers 2]

DIR is a folder of runs as ``sh scripts/e2e days --out DIR`` writes them (default: fixtures/days). Each is analysed with
several amounts of evidence:

log        server.log
bodies     and the request bodies (--requests)
counted    and the request bodies in a recording that has their answers, which count the prompts (--requests)
exact      and the tokenizer and template of the model (--tokenizer)
responses  server.log and the server's responses (--responses)

The answer of a run is its first finding above a note; else its first note; else "silent".

right      acting on the answer fixes the day (day_causes.py)
honest     the log does not show by principle: the answer says so, names the look-alikes, the true cause among them, and
           what would tell; and nothing else that is said above low confidence is wrong
near       the answer is true of what the evidence shows, and leads on
silent     nothing is said, or only notes that name no cause of a loss
wrong      another answer, at low confidence
WRONG      another answer, at medium or high confidence
ok         nothing is to be fixed, and no finding is above a note
alarm      nothing is to be fixed, and a finding above a note says so at low confidence; ALARM at medium or high

A faulty day whose fault cost nothing here, by measurement, counts as one with nothing to fix. "worse" lists the runs
that more evidence made worse. Exits 1 when a count of tokens is wrong, an answer is WRONG or an ALARM, or evidence made
a run worse.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import accuracy
import runs
from day_causes import GOING_BACK, NEAR, NO_CAUSE, SILENT, TERSE, nothing_to_mend, right

import cachedoctor
from cachedoctor.diagnosis.rules import registry
from cachedoctor.model import Finding, Report

NAMES = {rule.name for rule in registry.load()[0]}
HERE = Path(__file__).parent.parent
EVIDENCE = ("log", "bodies", "counted", "exact", "responses")
VERDICTS = ("right", "honest", "near", "silent", "wrong", "WRONG", "ok", "alarm", "ALARM")
RANK = {"right": 0, "ok": 0, "honest": 1, "near": 2, "silent": 3, "wrong": 4, "alarm": 4, "WRONG": 5, "ALARM": 5}


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


def judge(truth: dict[str, Any], first: Finding | None, others: Sequence[Finding] = ()) -> str:
    """Verdict on the first finding of a run; ``others`` are those after it."""
    answer = first.name if first else SILENT
    is_sure = first is not None and first.confidence != "low"
    if answer in right(truth):
        return "right" if not nothing_to_mend(truth) else "ok"
    if nothing_to_mend(truth):
        is_quiet = first is None or first.severity == "note"
        return "ok" if is_quiet else "ALARM" if is_sure else "alarm"
    if first is not None and answer in NEAR.get(truth["cause"], set()) | TERSE:
        return "honest" if is_honest(truth, first, others) else "near"
    if first is None or (first.severity == "note" and answer in NO_CAUSE):
        return "silent"
    return "WRONG" if is_sure else "wrong"


def is_honest(truth: dict[str, Any], first: Finding, others: Sequence[Finding]) -> bool:
    """Whether it names look-alikes, the true cause among them, and how to tell; and nothing sure beside it is wrong."""
    candidates, telling = left_open(first), any(remedy.commands for remedy in first.remedies)
    true = right(truth) | NEAR.get(truth["cause"], set()) | TERSE
    if truth["total"].get("server"):
        true |= GOING_BACK  # beside the client's part, and so much is true
    wrong = [f for f in others if f.severity != "note" and f.confidence != "low" and f.name not in true]
    return len(candidates) > 1 and bool(candidates & right(truth)) and telling and not wrong


def left_open(finding: Finding) -> set[str]:
    """Names of the causes between which a finding says that it cannot tell."""
    named = {name for group in re.findall(r"\(([a-z, -]+)\)", finding.why) for name in group.split(", ")}
    return named & NAMES | {out.name for out in finding.ruled_out if out.why.startswith("not excluded")}


def first_of(report: Report) -> Finding | None:
    """The answer: notes come after everything else."""
    return min(report.findings, key=lambda f: f.severity == "note", default=None)


def side_of(report: Report) -> str:
    """Who lost most, as the requests of the report say, by the measure of the truth."""
    rows = runs.requests(report)
    lost = {name: sum(row[f"{name}_lost_tokens"] or 0 for row in rows) for name in ("client", "server")}
    whole, most = sum(lost.values()), max(lost, key=lambda name: lost[name])
    if whole < max(500, sum(row["prompt_tokens"] or 0 for row in rows) // 50):
        return "none"
    return most if lost[most] * 3 >= whole * 2 else "both"


def analyse(work: tuple[Path, str, Path]) -> Said:
    """Analyse one run with the evidence of that name."""
    run, evidence, models = work
    truth = runs.truth(run)
    given: dict[str, Any] = {}
    if evidence in ("bodies", "exact"):
        given["prompts"] = [run / "requests.jsonl"]
    if evidence == "exact":
        given["tokenizer"] = str(models / f"{truth['memory']}.gguf")
    if evidence == "counted":
        given["prompts"] = [_with_answers(run, models)]
    if evidence == "responses":
        given["responses"] = [run / "responses.jsonl"]
    try:
        # A server that is not a wheel prints its build.
        report = cachedoctor.analyze(run / "server.log", build=truth["build"], **given)
    except Exception as error:  # a crash is one of the results
        return Said(run.name, evidence, "WRONG", "crash", "", "", repr(error), None, "", Counter(), [], [])
    pairs = accuracy.match([counts(r) for r in truth["requests"]], runs.requests(report))
    wrong = [f"request {n}: true {want}, report {got}" for kind, n, want, got in pairs if kind != "exact"]
    told = (side_of(report), Counter(kind for kind, *_ in pairs), wrong)
    listed = [(f.name, f.severity, f.confidence, f.cost.tokens or 0) for f in report.findings]
    first = first_of(report)
    verdict = judge(truth, first, [f for f in report.findings if f is not first])
    if first is None:
        return Said(run.name, evidence, verdict, SILENT, "", "", "", None, *told, listed)
    line = first.primary.line if first.primary else None
    words = (first.name, first.confidence, first.severity, first.claim, line)
    return Said(run.name, evidence, verdict, *words, *told, listed)


def _with_answers(run: Path, folder: Path) -> Path:
    """Bodies beside what was answered, as a recorder before the server writes them."""
    sent, answered = (
        [json.loads(line) for line in (run / name).read_text(encoding="utf-8").splitlines()]
        for name in ("requests.jsonl", "responses.jsonl")
    )
    answers = {answer["n"]: answer for answer in answered}
    path = folder / f"{run.name}.jsonl"
    rows = [json.dumps(body | {"response": answers.get(body["n"], {})}) for body in sent]
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


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
    """Lines of a Markdown table; numbers are on the right."""
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
        judged = [s for s in those if truths[s.run]["side"] != "both"]
        sides = f"{sum(s.side == truths[s.run]['side'] for s in judged)}/{len(judged)}"
        exact = f"{tokens['exact']:,}/{tokens.total():,}"
        rows.append([evidence, len(those), *(tally[v] for v in VERDICTS), sides, exact])
    return table(["evidence", "runs", *VERDICTS, "side right", "requests exact"], rows)


def matrix(said: list[Said], truths: dict[str, dict[str, Any]]) -> list[str]:
    """The confusion matrix: cause by answer, with verdicts."""
    cells: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for s in said:
        cause = "none" if nothing_to_mend(truths[s.run]) else truths[s.run]["cause"]
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
        if a.list and RANK[s.verdict] > RANK["honest"]:
            words = f"{s.answer} {s.severity} {s.confidence} line {s.line}: {s.claim}"
            print(f"{s.verdict:6} {s.run} ({s.evidence}): {words}")
    if a.json:
        a.json.write_text(json.dumps([s._asdict() for s in said], indent=1), encoding="utf-8")
    if a.markdown:
        a.markdown.write_text("\n".join(tables) + "\n", encoding="utf-8")
    bad = spoilt or any(s.verdict.isupper() or s.tokens["wrong"] for s in said)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
