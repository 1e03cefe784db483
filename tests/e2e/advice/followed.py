"""One faulty day: its first advice, what following that changes, and what the server then computes."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace as replace_in

import cachedoctor
from cachedoctor.diagnosis.differential.experiments import ALONE, THEN
from cachedoctor.diagnosis.rules import registry
from cachedoctor.model import Finding, Report
from cachedoctor.model.terms import OF_CLIENTS
from cachedoctor.report.report_view import ReportView
from cachedoctor.report.words.do_now import DoNow
from e2e.days.recorder import Recorder, Sent
from e2e.days.run import Plan, starter
from e2e.days.truth import counts
from e2e.remedy import merged

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from day_causes import NEAR, RIGHT

HALF = 0.5
"""Share of the best fix from which on a day counts as fixed."""
NONE = 0.05
"""Share of it below which following the advice had no effect."""
CLOSE = 0.02
"""Share of what was measured by which a prediction may be off."""
TURNS = 3
_IF_CLAUDE = "With Claude Code,"
"""Begins what is advised in case that the client is it."""
LOOKS = 2
"""How often an advice that only shows more is followed before the day counts as one that only looks."""
_CODES = {rule.name: rule.code for rule in registry.load()[0]}
CLIENT = {
    cause
    for cause, names in RIGHT.items()
    if cause in ("slot_pinned", "slot_erased")
    or (names and all(_CODES.get(name, "").startswith(OF_CLIENTS) for name in names))
}
"""Causes that the client of a day can fix."""

Verdict = Literal["fixed", "in part", "no effect", "worse", "only looked", "not advised"]


class Advice(NamedTuple):
    """The first thing that a report says to do."""

    finding: Finding
    step: DoNow
    predicted: int | None
    """Tokens that the replay says it saves; None where it was not asked or does not know."""
    is_exact: bool
    """The replay explains the log, and the log says of every request what it shares with earlier ones."""

    def __str__(self) -> str:
        return self.step.commands[0] if self.step.commands else self.step.text.partition(". ")[0]


@dataclass(frozen=True)
class Way:
    """How a day is played: what following advice changes."""

    options: tuple[str, ...]
    is_mended: bool = False
    """The client has no fault."""
    has_bodies: bool = False
    """The next analysis gets the bodies beside the log: they are what a folder of prompts holds."""
    is_look: bool = False
    """The log shows more, and nothing else changes."""


class Played(NamedTuple):
    """What one run left."""

    log: bytes
    computed: int
    """Prompt tokens that the server computed."""
    bodies: list[dict[str, Any]]


class Followed(NamedTuple):
    """One faulty day whose advice was followed."""

    plan: Plan
    advice: list[Advice]
    """What was followed, the looks first."""
    verdict: Verdict
    faulty: int
    """Prompt tokens that were computed on the faulty day."""
    best: int
    after: int | None

    @property
    def gain(self) -> int | None:
        """Tokens that following the advice saved, by the server's own counts."""
        return None if self.after is None else self.faulty - self.after


def first(report: Report, *, is_claude: bool = True) -> Advice | None:
    """The first advice of a report, as its last row says it; what only users of Claude Code try, they alone follow."""
    if not is_claude:
        kept = [
            replace_in(one, remedies=[r for r in one.remedies if not r.text.startswith(_IF_CLAUDE)])
            for one in report.findings
        ]
        report = replace_in(report, findings=kept)
    one = ReportView(report).first_to_do
    if one is None or one.step is None:
        return None
    commands = set(one.step.commands)
    replays = [r.replay for r in one.finding.remedies if r.replay and set(r.commands) & commands]
    found = replays[0] if replays else None
    predicted = None if found is None else found.saved_tokens
    is_exact = found is not None and found.is_explained and not found.assumed
    return Advice(one.finding, one.step, predicted, is_exact)


def follow(plan: Plan, out: Path) -> Followed:
    """Play a day, do what its report says first, and play it again; the best fix is the day without its fault."""
    way = Way(plan.options)
    faulty = play(plan, way, out)
    best = play(replace(plan, mended=True), Way(replace(plan, mended=True).options, is_mended=True), out)
    advice, seen = list[Advice](), faulty
    for _ in range(LOOKS + 1):
        found = _first(plan, seen, way.has_bodies, out)
        if found is None:
            return Followed(
                plan, advice, "not advised" if not advice else "only looked", faulty.computed, best.computed, None
            )
        advice.append(found)
        todo = changed(plan, way, found)
        if todo is None and ALONE in found.step.text:
            todo = _after_one_alone(plan, way, found, seen, out)
        if todo is None:
            return Followed(
                plan,
                advice,
                "only looked" if _is_look(found) else "no effect",
                faulty.computed,
                best.computed,
                None if _is_look(found) else faulty.computed,
            )
        if not todo.is_look:
            after = play(plan, todo, out)
            verdict = judged(faulty.computed, best.computed, after.computed)
            return Followed(plan, advice, verdict, faulty.computed, best.computed, after.computed)
        if todo.options != way.options:
            seen = play(plan, todo, out)
        way = replace(todo, is_look=False)
    return Followed(plan, advice, "only looked", faulty.computed, best.computed, None)


def _after_one_alone(plan: Plan, way: Way, advice: Advice, seen: Played, out: Path) -> Way | None:
    """What is advised after one conversation had the server alone: more room if it was reused, else another client."""
    names = Counter(one["conversation"] for one in seen.bodies)
    chat = [one for one in seen.bodies if one["conversation"] == names.most_common(1)[0][0]][:TURNS]
    day = _Alone(chat)
    answers = _with_server(plan, way.options, out, day.play)
    prompt, cached = counts(answers[-1].answer)
    if prompt and (cached or 0) >= HALF * prompt:
        then = (r.commands for r in advice.finding.remedies if r.text.startswith(THEN))
        options = next(then, None)
        return None if options is None else replace(way, options=merged(way.options, shlex.split(options[0])))
    return replace(way, is_mended=True) if plan.situation.cause in CLIENT else None


@dataclass(frozen=True)
class _Alone:
    """One conversation, sent with nothing beside it."""

    bodies: list[dict[str, Any]]

    def play(self, day: Recorder) -> None:
        for one in self.bodies:
            day.post(one["endpoint"], "", "", one["body"])


def judged(faulty: int, best: int, after: int) -> Verdict:
    """What following an advice did, by the tokens that were computed."""
    gain, most = faulty - after, max(1, faulty - best)
    if gain >= HALF * most:
        return "fixed"
    if gain < -NONE * most:
        return "worse"
    return "in part" if gain > NONE * most else "no effect"


def _is_look(advice: Advice) -> bool:
    return advice.step.kind == "to be sure"


def changed(plan: Plan, way: Way, advice: Advice) -> Way | None:
    """What doing what is advised changes; None where nothing in it can be done with this traffic."""
    commands = advice.step.commands
    options = [row for row in commands if row.startswith("-")]
    looks = [row for row in commands if "--log-prompts-dir" in row or "--requests" in row or "--prompts" in row]
    if looks:
        return replace(way, has_bodies=True, is_look=True)
    if options:
        is_look = "--verbosity" in options[0]
        return replace(way, options=merged(way.options, shlex.split(options[0])), is_look=is_look)
    cause = plan.situation.cause
    is_right = advice.finding.name in RIGHT[cause] | NEAR.get(cause, set())
    if not _is_look(advice) and cause in CLIENT and is_right:
        return replace(way, is_mended=True)  # what a client has to change, the day has as its habit
    return None


def play(plan: Plan, way: Way, out: Path) -> Played:
    """Play a day with these options, and count what the server computed."""
    logs: list[bytes] = []

    def traffic(day: Recorder) -> None:
        plan.situation.traffic(day, plan.situation.is_faulty and not way.is_mended)

    sent = _with_server(plan, way.options, out, traffic, logs)
    rows = [{"endpoint": one.path, "conversation": one.conversation, "body": one.body} for one in sent]
    return Played(b"".join(logs), sum(map(_computed, sent)), rows)


def _with_server(
    plan: Plan, options: Sequence[str], out: Path, traffic: Callable[[Recorder], None], logs: list[bytes] | None = None
) -> list[Sent]:
    """Start a server with these options, let the traffic come, and give what was sent; ``logs`` takes its logs."""
    with tempfile.TemporaryDirectory(prefix="cachedoctor-advice-") as folder:
        day = Recorder(starter(plan.build, plan.kind, options, out / "models"), Path(folder))
        day.open()
        try:
            traffic(day)
        finally:
            day.close()
        if logs is not None:
            logs += [path.read_bytes() for path in day.logs]
    return day.sent


def _computed(sent: Sent) -> int:
    prompt, cached = counts(sent.answer)
    return 0 if prompt is None else prompt - (cached or 0)


def _first(plan: Plan, played: Played, has_bodies: bool, out: Path) -> Advice | None:
    """The first advice on what one run left; with ``has_bodies`` they are read beside the log."""
    with tempfile.TemporaryDirectory(prefix="cachedoctor-advice-") as folder:
        log, bodies = Path(folder, "server.log"), Path(folder, "requests.jsonl")
        log.write_bytes(played.log)
        is_claude = plan.situation.cause == "billing_header"
        if not has_bodies:
            return first(cachedoctor.analyze(log, build=plan.build), is_claude=is_claude)
        bodies.write_text("".join(json.dumps(row) + "\n" for row in played.bodies), encoding="utf-8")
        tokenizer = str(out / "models" / f"{plan.kind}.gguf")
        report = cachedoctor.analyze(log, build=plan.build, prompts=[bodies], tokenizer=tokenizer)
        return first(report, is_claude=is_claude)


def rows(found: Sequence[Followed]) -> list[str]:
    """One line for each day."""
    lines = []
    for one in found:
        advice = " -> ".join(map(str, one.advice)) or "nothing"
        last = one.advice[-1] if one.advice else None
        predicted = "" if last is None or last.predicted is None else f", predicted {last.predicted:,}"
        gain = "" if one.gain is None else f"saves {one.gain:,} of {one.faulty - one.best:,}{predicted}"
        lines.append(f"{one.plan.name:46} {one.verdict:11} {gain:44} {advice}")
    return lines
