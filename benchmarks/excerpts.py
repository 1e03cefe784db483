"""Cut single requests out of whole logs, and compare what a cut is said to show with what the whole log shows.

usage: benchmarks/run excerpts [DIR ...] [--all] [--list] [--save DIR]
       benchmarks/run excerpts --posts [--list]

Takes the logs of fixtures/cases that are llama-server's own lines, and those below DIR (**/server.log). Faulty are
requests with a cause that cost 1,000 tokens or more, or an error; healthy those of logs without a finding above note.
cutting.py has the cuts and the forms of text, honest.py which answers are honest where the whole log shows more.

same       the cause that the whole log gives this request, first or second
pair       a look-alike that one request cannot tell from it, with the cause named as not excluded
less       a less specific name that is true (honest.LESS)
terse      log-too-terse
untold     no finding but that the log is cut, and no all-clear
other      another cause: at low confidence, and (OTHER) at medium or high
unread     unknown-format
ALL CLEAR  no finding, and the report reads like that of a healthy log

"right" is same + pair + less; then by builds. "two requests" are those around the worst loss of a log. Exits 1 when a
wanted share is missed, when a cut of a faulty request gives OTHER, unread or ALL CLEAR, or when a cut of a healthy
request gives more than a low note. By default a sample: a few requests of each log, and at most 120 logs of DIR.

--posts takes the lines of posts.toml instead, which were judged by hand: "named" is the cause that the lines determine,
"undecided" no cause where they determine none. Exits 1 when fewer are right or a cause is missed more often than POSTS
says, and for a wrong cause above low, an all-clear over a determined cause, or an unknown-format of known lines.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cutting
import honest

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import Finding, Report
from cachedoctor.report.base import Appearance, write
from cachedoctor.report.words import coverage

CASES = Path(__file__).resolve().parent.parent / "fixtures" / "cases"
LOGS = 120
"""Logs of DIR in a sample."""
FAULTY, HEALTHY = 2, 1
"""Requests of each log and group in a sample."""
COST = 1_000
"""Tokens of a loss that is worth a word."""
TWO, PLAIN = "two requests", "single request"
FORCED, OTHERS = "FORCED", "others"
ERAS = ("b6628-", "b6751-b9093", "b9294-b9713", "b9873+")
A_TO_C = ("A choice..batch", "B choice..FORCED", "C search..batch")
D_AND_F = ("D memory lines", "F C without prefix")
ALONE = "E FORCED alone"
SHARES = {**dict.fromkeys(A_TO_C, 0.9), **dict.fromkeys(D_AND_F, 0.8), TWO: 0.95}
"""Least share of right answers for requests with FORCED; of two requests for all."""
CLEAR_WORDS = re.compile(r"no findings|nothing was checked|cache works", re.IGNORECASE)
POSTS = {"right": 0.9, "named": 0.85}
"""Least share of posts that are answered right, and of determined causes that are named."""
NAMED, UNDECIDED, MISSED, WRONG, UNKNOWN = "named", "undecided", "missed", "WRONG", "UNKNOWN"
STATED_NOTES = frozenset({"first-repeat-cold", "statistics-off", "server-restarted", "cache-reuse-unsupported"})
"""Notes of a setting or a state that a line has by itself; no diagnosis."""
OF_PLAIN = 0.98
"""Share of the right answers to the plain lines that a form of them keeps; bare ones are wanted as D and F are."""


class Cut(NamedTuple):
    """Lines of a request, and what its whole log shows of it."""

    log: str
    task: int
    name: str
    group: str
    """FORCED or others of the faulty ones; restored, extended or cold of the healthy ones."""
    era: str
    causes: frozenset[str]
    lines: list[str]
    beside: frozenset[str] = frozenset()
    """The causes of other requests that have lines in the cut."""


class Answer(NamedTuple):
    """What a cut was said to show."""

    cut: Cut
    verdict: str
    said: str


def report_on(text: str) -> Report:
    """The report on a text."""
    analyzer = Analyzer()
    analyzer.open("log")
    analyzer.feed(text.encode())
    return analyzer.finish()


def logs(folders: list[Path], everything: bool) -> Iterator[tuple[str, list[str]]]:
    """Names and lines of the logs: those of the cases, and a sample of those below ``folders``."""
    paths = sorted(CASES.glob("*/server.log"))
    found = sorted({path for folder in folders for path in folder.rglob("server.log")})
    if not everything and len(found) > LOGS:
        found = [found[number * len(found) // LOGS] for number in range(LOGS)]
    for path in paths + found:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # UTF-16: other cases
        yield f"{path.parent.parent.name}/{path.parent.name}", text.splitlines()


def _asked(row: dict[str, Any]) -> cutting.Asked:
    return cutting.Asked(row["slot"], row["task"], row["first_line"], row["last_line"])


def _group(row: dict[str, Any], own: list[str], healthy: bool) -> str | None:
    """What kind of request this is; None where it is of no use here."""
    if not healthy:
        return FORCED if any(cutting.FORCED.search(line) for line in own) else OTHERS
    if row["checkpoints"]["restored"] or row["restored_from_ram"]:
        return "restored"
    return {"cold": "cold", "reused": "extended"}.get(row["outcome"])


def _forms(own: list[str]) -> Iterator[tuple[str, list[str]]]:
    """All cuts and forms of a request's lines that it has."""
    for name, cut in (*cutting.CUTS.items(), *cutting.FORMS.items()):
        if lines := cut(own):
            yield name, lines


def _is_plain(line: str) -> bool:
    """Whether a line stands as the server wrote it."""
    return cutting.SLOT.match(line) is not None


class Whole(NamedTuple):
    """A whole log and its report."""

    name: str
    lines: list[str]
    rows: list[dict[str, Any]]
    findings: list[Finding]

    @property
    def is_healthy(self) -> bool:
        """Whether it has no finding above note."""
        return all(finding.severity == "note" for finding in self.findings)

    def causes(self, row: dict[str, Any]) -> frozenset[str]:
        """The names of the causes that the whole log gives a request."""
        return frozenset(f.name for f in self.findings if f.code in row["codes"] and not f.code.startswith("CD9"))

    def is_faulty(self, row: dict[str, Any]) -> bool:
        """Whether a cause above note cost this request enough to be worth a word."""
        above = {f.code: f.severity for f in self.findings if f.severity != "note" and not f.code.startswith("CD9")}
        mine = {above[code] for code in row["codes"] if code in above}
        return "error" in mine or (bool(mine) and (row["avoidable_tokens"] or 0) >= COST)


def whole(name: str, lines: list[str]) -> Whole | None:
    """A log with its report, or None where its lines are not llama-server's own."""
    report = report_on("\n".join(lines) + "\n")
    rows = [json.loads(line) for line in report.requests.lines()]
    rows = [row for row in rows if row["parent"] is None and row["slot"] is not None and row["task"] is not None]
    if not rows or not _is_plain(lines[rows[-1]["first_line"] - 1]) or any(s.origin for s in report.sessions):
        return None
    return Whole(name, lines, rows, report.findings)


def cuts_of(log: Whole, everything: bool) -> Iterator[Cut]:
    """The cuts of the requests of a log, the worst first; of a sample only some."""
    era, taken = cutting.era_of(log.lines), Counter[str]()
    wanted = log.rows if log.is_healthy else [row for row in log.rows if log.is_faulty(row)]
    for number, row in enumerate(sorted(wanted, key=lambda r: -(r["avoidable_tokens"] or 0))):
        asked, causes = _asked(row), log.causes(row)
        own = cutting.own_lines(log.lines, asked)
        group = _group(row, own, log.is_healthy)
        if group is None or (not everything and taken[group] >= (HEALTHY if log.is_healthy else FAULTY)):
            continue
        taken[group] += 1
        for name, lines in _forms(own):
            yield Cut(log.name, asked.task, name, group, era, causes, lines)
        before = [r for r in log.rows if r["slot"] == row["slot"] and r["first_line"] < row["first_line"]]
        if before and not log.is_healthy and number == 0:
            lines = cutting.two_requests(log.lines, _asked(before[-1]), asked)
            first = before[-1]["first_line"]
            among = [r for r in log.rows if r["last_line"] >= first and r["first_line"] <= row["last_line"]]
            beside = frozenset().union(*(log.causes(r) for r in among)) - causes
            yield Cut(log.name, asked.task, TWO, group, era, causes, lines, beside)


def answer(cut: Cut, healthy: bool) -> Answer:
    """Analyse a cut and judge what is said of it."""
    report = report_on("\n".join(cut.lines) + "\n")
    findings = report.findings
    said = "; ".join(f"{f.severity} {f.name} {f.confidence}" for f in findings if f.name not in honest.NO_ANSWER)
    if healthy:
        return Answer(cut, _too_much(findings), said)
    has_checks = any(cutting.CHECK.search(line) for line in cut.lines)
    about = [finding for finding in findings if finding.name not in cut.beside]
    judged = honest.judged(about, cut.causes, has_checks)
    return Answer(cut, judged or (honest.ALL_CLEAR if is_all_clear(report) else honest.UNTOLD), said)


def is_all_clear(report: Report) -> bool:
    """Whether the text report has the words of a healthy log."""
    out = io.BytesIO()
    write("text", report, out, Appearance())
    return CLEAR_WORDS.search(out.getvalue().decode()) is not None


SILENT, LOW_NOTE, LOW_WARNING, TOO_MUCH = "silent", "low note", "low warning", "MORE"


def _too_much(findings: list[Finding]) -> str:
    """How much is said of a healthy request; settings and evictions that a line states are not diagnosis."""
    said = [
        f for f in findings if f.name not in honest.NO_ANSWER and not (f.name in honest.STATED and f.severity == "note")
    ]
    if not said:
        return SILENT
    if any(f.name == honest.UNKNOWN for f in said):
        return honest.UNREAD
    if any(f.confidence != "low" or f.severity == "error" for f in said):
        return TOO_MUCH
    return LOW_WARNING if any(f.severity == "warning" for f in said) else LOW_NOTE


def right(counts: Counter[str]) -> float | None:
    """The share of right answers."""
    total = sum(counts.values())
    return (counts[honest.SAME] + counts[honest.PAIR] + counts[honest.LESS_SAID]) / total if total else None


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def faulty_table(answers: list[Answer], group: str) -> None:
    """Print the verdicts on the cuts of a group of faulty requests, and the shares by builds."""
    heads = "".join(f"{verdict:>10}" for verdict in honest.VERDICTS)
    print(f"\nfaulty requests, {group:8}{'cuts':>6}{heads}{'right':>8}" + "".join(f"{era:>13}" for era in ERAS))
    for name in (*cutting.CUTS, TWO, *cutting.FORMS):
        row = [a for a in answers if a.cut.group == group and a.cut.name == name]
        if row:
            counts = Counter(a.verdict for a in row)
            cells = "".join(f"{counts[verdict]:>10}" for verdict in honest.VERDICTS)
            eras = "".join(f"{percent(right(Counter(a.verdict for a in row if a.cut.era == era))):>13}" for era in ERAS)
            print(f"{name:25}{len(row):>6}{cells}{percent(right(counts)):>8}{eras}")


def healthy_table(answers: list[Answer]) -> None:
    """Print how much is said of the cuts of healthy requests."""
    columns = (SILENT, LOW_NOTE, LOW_WARNING, TOO_MUCH, honest.UNREAD)
    print(f"\n{'healthy requests':25}{'cuts':>6}" + "".join(f"{column:>13}" for column in columns))
    for name in (*cutting.CUTS, *cutting.FORMS):
        counts = Counter(a.verdict for a in answers if a.cut.name == name)
        if counts:
            print(f"{name:25}{sum(counts.values()):>6}" + "".join(f"{counts[column]:>13}" for column in columns))


def changed_by(form: str, answers: list[Answer]) -> int:
    """How many requests are told something else in a form than in plain lines."""
    plain = {(a.cut.log, a.cut.task): a.said for a in answers if a.cut.name == PLAIN}
    return sum(a.said != plain[a.cut.log, a.cut.task] for a in answers if a.cut.name == form)


def misses(faulty: list[Answer], healthy: list[Answer]) -> list[str]:
    """What is wanted and was not reached, in words."""
    out = []
    by_cut = {
        name: Counter(a.verdict for a in faulty if a.cut.name == name and a.cut.group == FORCED) for name in SHARES
    }
    by_cut[TWO] = Counter(a.verdict for a in faulty if a.cut.name == TWO)
    for name, least in SHARES.items():
        share = right(by_cut[name])
        if share is not None and share < least:
            out.append(f"{name}: {share:.0%} right, wanted {least:.0%}")
    plain = right(Counter(a.verdict for a in faulty if a.cut.name == PLAIN))
    for name in cutting.FORMS:
        share, least = right(Counter(a.verdict for a in faulty if a.cut.name == name)), (plain or 0) * OF_PLAIN
        least = min(least, SHARES[D_AND_F[0]]) if name == "bare" else least
        if share is not None and share < least:
            out.append(f"{name}: {share:.0%} right, the plain lines {percent(plain)}")
    for name in (form for form in cutting.FORMS if form.startswith("JSON")):
        if changed := changed_by(name, faulty + healthy):
            out.append(f"{name}: {changed} requests are told something else than in plain lines, wanted 0")
    alone = [a for a in faulty if a.cut.name == ALONE]
    terse = sum(a.said == f"note {honest.TERSE} low" for a in alone)
    if terse < len(alone):
        out.append(f"{ALONE}: {terse} of {len(alone)} a note {honest.TERSE}, low; wanted all")
    counts = Counter(a.verdict for a in faulty)
    zero = {
        honest.OTHER: "another cause at medium or high",
        honest.UNREAD: "unknown-format",
        honest.ALL_CLEAR: "a false all-clear",
    }
    for bad, words in zero.items():
        if counts[bad]:
            out.append(f"{words}: {counts[bad]} of {len(faulty):,} faulty cuts, wanted 0")
    above = sum(a.verdict not in (SILENT, LOW_NOTE) for a in healthy)
    if above:
        out.append(f"more than a low note, or unread: {above} of {len(healthy):,} healthy cuts, wanted 0")
    return out


def wrong(answers: list[Answer]) -> list[Answer]:
    """The answers that someone has to look at."""
    fine = {honest.SAME, honest.PAIR, honest.LESS_SAID, SILENT, LOW_NOTE}
    return [a for a in answers if a.verdict not in fine and not (a.cut.name == ALONE and a.verdict == honest.TOO_TERSE)]


def judged_post(post: dict[str, Any]) -> tuple[str, str]:
    """The verdict on what is said of the lines of a post, and what that was."""
    report = report_on(post["lines"])
    said = "; ".join(f"{f.severity} {f.name} {f.confidence}" for f in report.findings)
    causes, names = set(filter(None, post["cause"].split("|"))), {f.name for f in report.findings}
    fine = causes | set(post.get("may", ())) | honest.NO_ANSWER | {honest.TERSE}
    nameless = [f for f in report.findings if f.name == honest.UNKNOWN and "it looks like" not in f.claim]
    if nameless and honest.UNKNOWN not in fine:
        return UNKNOWN, said
    fine |= {honest.UNKNOWN}
    if any(f.confidence != "low" and f.name not in fine | STATED_NOTES for f in report.findings):
        return WRONG, said
    if causes & names:
        return NAMED, said
    if causes:
        unclear = honest.UNKNOWN in names or coverage.cannot_tell(report) is not None
        return honest.ALL_CLEAR if not unclear and is_all_clear(report) else MISSED, said
    return UNDECIDED, said


def posts(listed: bool) -> int:
    """Print the verdicts on all posts by program."""
    found = tomllib.loads((Path(__file__).parent / "posts.toml").read_text("utf-8"))["post"]
    verdicts = [(post, *judged_post(post)) for post in found]
    columns = (NAMED, UNDECIDED, MISSED, WRONG, honest.ALL_CLEAR, UNKNOWN)
    print(f"{'posts':26}{'all':>5}" + "".join(f"{column:>11}" for column in columns))
    for program in [*sorted({post["program"] for post in found}), None]:
        mine = Counter(verdict for post, verdict, _ in verdicts if program in (None, post["program"]))
        print(f"{program or 'all':26}{mine.total():>5}" + "".join(f"{mine[column]:>11}" for column in columns))
    for post, verdict, said in verdicts:
        if listed or verdict not in (NAMED, UNDECIDED):
            print(f"{verdict:10}{post['link']}: {post['cause'] or 'not determined'} -> {said or 'nothing'}")
    counts = Counter(verdict for _, verdict, _ in verdicts)
    determined = sum(bool(post["cause"]) for post in found)
    shares = {"right": (counts[NAMED] + counts[UNDECIDED]) / len(found), "named": counts[NAMED] / max(1, determined)}
    missed = [
        f"{name}: {shares[name]:.0%}, wanted {least:.0%}" for name, least in POSTS.items() if shares[name] < least
    ]
    missed += [f"{bad}: {counts[bad]}, wanted 0" for bad in (WRONG, honest.ALL_CLEAR, UNKNOWN) if counts[bad]]
    print("\n" + ("\n".join(["missed:", *missed]) if missed else "all that is wanted was reached"))
    return 1 if missed else 0


def name_of(answer: Answer) -> str:
    """A line about an answer."""
    cut = answer.cut
    causes = ", ".join(sorted(cut.causes)) or cut.group
    return f"{answer.verdict:12}{cut.log} task {cut.task}, {cut.name}: {causes} -> {answer.said or 'nothing'}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks/run excerpts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--all", action="store_true", help="every request of every log")
    parser.add_argument("--list", action="store_true", help="name the cuts whose answer is wrong or missing")
    parser.add_argument("--posts", action="store_true", help="the lines of posts.toml, judged by hand")
    parser.add_argument("--save", type=Path, metavar="DIR", help="write those cuts there, a file each")
    options = parser.parse_args()
    if options.posts:
        return posts(options.list)
    for folder in options.folder:
        if not folder.is_dir():
            parser.error(f"{folder} is no directory")
    faulty: list[Answer] = []
    healthy: list[Answer] = []
    for name, lines in logs(options.folder, options.all):
        if log := whole(name, lines):
            found = [answer(cut, log.is_healthy) for cut in cuts_of(log, options.all)]
            (healthy if log.is_healthy else faulty).extend(found)
    for group in (FORCED, OTHERS):
        faulty_table(faulty, group)
    healthy_table(healthy)
    for number, each in enumerate(wrong(faulty + healthy)):
        if options.list:
            print(name_of(each))
        if options.save:
            options.save.mkdir(parents=True, exist_ok=True)
            (options.save / f"{number:05}.log").write_text("\n".join(each.cut.lines) + "\n", encoding="utf-8")
            (options.save / f"{number:05}.txt").write_text(name_of(each) + "\n", encoding="utf-8")
    missed = misses(faulty, healthy)
    print("\n" + ("\n".join(["missed:", *missed]) if missed else "all that is wanted was reached"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
