"""What to do about a finding, and about all of them: the rows to copy, or the sentence where none does it.

The one place that chooses what is in the second row and in the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Finding, Fix, FixStep, OptionChange, OtherFix, Remedy, option_rows
from cachedoctor.report.words import traffic_words
from cachedoctor.report.words.numbers import capital, leading

Kind = Literal["fix", "try", "to be sure", "no fix"]
_KINDS: dict[str, Kind] = {"fix": "fix", "depends": "try", "look": "to be sure"}
_PROGRAMS = {traffic_words.LLAMA: "llama-server"}
_WINDOWS = ("ollama", "lm-studio", "jan")
"""Launchers that take no command line of the server."""
_SENTENCE = 110
"""Maximum characters of a sentence in the last row; for a longer one, the part in brackets appears only above."""
_ASIDE = late(r" \([^()]*\)")
_OR = late(r"Or,? (?=[a-z])")
"""Opening words of a fix that is written to follow another fix."""
_OPTION = late(r"--?[A-Za-z]")
_LONG = 70
"""Maximum characters of a command in the last row; a longer one appears only above."""


class DoNow(NamedTuple):
    """What to do first."""

    text: str
    """The sentence; with commands it says what they do, or where they belong."""
    commands: list[str]
    """Commands to copy; empty if the fix is an action in a client."""
    kind: Kind = "fix"
    steps: Sequence[FixStep] = ()
    """The same in the format of the server's launcher, for all its findings; empty if the launcher is unknown."""
    notes: Sequence[str] = ()
    """What the steps take, and what to know of them."""
    changes: Sequence[OptionChange] = ()
    """Options that the steps set."""
    program: str = ""
    """Program that takes the options."""
    replayed: str = ""
    """The replay's result for the options, in a sentence; empty if it was not run."""

    @property
    def options(self) -> bool:
        """Whether the commands are options for a command line."""
        return bool(self.commands) and self.commands[0].startswith("-")

    @property
    def words(self) -> str:
        """The sentence; before it where to put options that come without a command line."""
        text = f"Add {self._added} to the {self.program} command. {self.text}" if self._stands_alone else self.text
        return f"{text} {self.replayed}" if self.replayed else text

    @property
    def _stands_alone(self) -> bool:
        """Whether the commands are options alone, without a command line around them."""
        return self.options and not self.steps

    @property
    def _added(self) -> str:
        names = [word for command in self.commands for word in command.split() if _OPTION.match(word)]
        return "this option" if len(names) == 1 else "these options"

    def rows(self) -> list[str]:
        """Write what to do in rows of plain text, what is to be copied indented."""
        if not self.steps:
            return [self.words, *(f"    {command}" for command in self.commands)]
        rows = []
        for step in self.steps:
            rows += [f"{step.text}:" if step.commands else step.text, *(f"    {command}" for command in step.commands)]
        return [*rows, self.words, *self.notes]


class Last(NamedTuple):
    """The last row."""

    text: str
    """A sentence, or what comes before the command."""
    command: str | None = None


def remedies(finding: Finding) -> list[Remedy]:
    """Return the remedies in the order in which they are to be tried.

    What fixes the cause comes before what only shows more of it. A suspicion is checked first: for it nobody should
    give a server more memory or other slots.
    """
    if finding.confidence == "low":
        return sorted(finding.remedies, key=_risk)
    return sorted(finding.remedies, key=lambda remedy: remedy.purpose != "fix")


def _risk(remedy: Remedy) -> int:
    """Risk of a remedy: a look, a setting of a client, options that the replay confirms, advice, other options."""
    if remedy.purpose == "look" or remedy.settings:
        return 0
    if remedy.replay is not None and remedy.replay.saved_tokens is not None:
        return 1
    return 3 if remedy.options else 2


def of_finding(finding: Finding, fix: Fix | None = None) -> DoNow | None:
    """Return the first thing to do about one finding; None if there is nothing to do.

    Args:
        fix: of its server.
    """
    ordered = remedies(finding)
    if not ordered:
        return None
    found = next((r for r in ordered if not _cannot(finding, r, fix)), None)
    if found is None:
        notes = fix.notes if fix is not None else []
        return DoNow(capital(notes[0]) if notes else ordered[0].text, [], "no fix")
    if finding.confidence == "low" and _risk(found) == 3:
        named = ", ".join(other.name for other in finding.still_possible)
        text = (
            f"First rule out similar causes ({named})." if named else "First check how it differs from similar causes."
        )
        return DoNow(text, [f"cachedoctor explain {finding.code}"], "to be sure")
    return of_remedy(finding, found, fix)


def _cannot(finding: Finding, remedy: Remedy, fix: Fix | None) -> bool:
    """Whether a remedy is options of a command line that the program of the server does not take."""
    if fix is None or not remedy.options:
        return False
    foreign = not any(step.where == "server" for step in fix.steps) and bool(fix.notes) and fix.launcher is None
    if not foreign and fix.launcher not in _WINDOWS:
        return False
    steps = fix.steps if _merged(finding, remedy, fix) else form_of(remedy, fix)
    return not any(step.where == "server" for step in steps)


def second(finding: Finding, fix: Fix | None = None) -> DoNow | None:
    """Return what else may be done."""
    found = next((r for r in remedies(finding)[1:] if not _cannot(finding, r, fix) and not _done(r, fix)), None)
    if found is None or (finding.confidence == "low" and _risk(found) == 3):
        return None
    other = of_remedy(finding, found, fix)
    return None if other == of_finding(finding, fix) else other


def _done(remedy: Remedy, fix: Fix | None) -> bool:
    """Whether the options merged for the server, in the launcher's form, do what a remedy requires."""
    if fix is None or fix.launcher is None or not remedy.options:
        return False
    return all(change in fix.options for change in remedy.options)


def every(finding: Finding, fix: Fix | None = None) -> list[DoNow]:
    """Return all there is to do about a finding, in the order in which it is to be tried."""
    first = of_finding(finding, fix)
    if first is None:
        return []
    found = [of_remedy(finding, r, fix) for r in remedies(finding) if not _cannot(finding, r, fix)]
    return [first, *(one for one in found if one != first)]


def of_remedy(finding: Finding, remedy: Remedy, fix: Fix | None = None) -> DoNow:
    """Write one remedy, in the launcher's form if it is known."""
    is_tried = finding.confidence == "low" and bool(remedy.options) and remedy.purpose == "fix"
    kind: Kind = "try" if is_tried else _KINDS[remedy.purpose]
    text = capital(_OR.sub("", remedy.text, count=1)) if _OR.match(remedy.text) else remedy.text
    replayed = "" if remedy.replay is None else remedy.replay.words
    knows = fix is not None and fix.launcher is not None and any(step.where == "server" for step in fix.steps)
    if fix is not None and knows and _merged(finding, remedy, fix):
        notes = [*fix.costs, *(capital(note) for note in fix.notes)]
        return DoNow(text, _rows(fix.steps), kind, fix.steps, notes, fix.options, replayed=replayed)
    for other in _other(remedy, fix):
        if other.steps:
            notes = list(map(capital, other.notes))
            return DoNow(text, _rows(other.steps), kind, other.steps, notes, other.options, replayed=replayed)
    return DoNow(text, list(remedy.commands), kind, program=_program(finding), replayed=replayed)


def sentences(remedy: Remedy) -> str:
    """Return the sentences of a remedy, and the result of the replay."""
    return remedy.text if remedy.replay is None else f"{remedy.text} {remedy.replay.words}"


def form_of(remedy: Remedy, fix: Fix | None) -> Sequence[FixStep]:
    """Return one remedy alone in the form of the launcher; nothing if that is not known or it has no such form."""
    return [step for other in _other(remedy, fix) for step in other.steps]


def _other(remedy: Remedy, fix: Fix | None) -> list[OtherFix]:
    """A remedy in the launcher's form; empty if the launcher is unknown, or if the remedy is merged with others."""
    if fix is None or not remedy.options:
        return []
    return [other for other in fix.others if other.options == remedy.options][:1]


def _merged(finding: Finding, remedy: Remedy, fix: Fix) -> bool:
    """Whether the fix of the server contains what a remedy requires."""
    if finding.code not in fix.codes or finding.confidence == "low" or remedy.purpose != "fix":
        return False
    wanted = (r for r in finding.remedies if r.purpose == "fix" and (r.options or r.settings))
    return next(wanted, None) == remedy


def _rows(steps: Sequence[FixStep]) -> list[str]:
    return [row for step in steps for row in step.commands]


def _program(finding: Finding) -> str:
    engine = traffic_words.of_rule(finding.code)
    return _PROGRAMS.get(engine) or traffic_words.engine(engine)


def last(finding: Finding, found: DoNow, fix: Fix | None) -> Last:
    """Say in the last row of a report what to do first about ``finding``."""
    if found.steps and fix is not None:
        return _of_steps(found, fix)
    if not found.commands:
        sentences = leading(found.text, _SENTENCE)
        return Last(sentences if len(sentences) <= _SENTENCE else _ASIDE.sub("", sentences))
    if found.options:
        return Last(f"start {_program(finding)} with", found.commands[0])
    if any(r.options and r.commands == found.commands for r in finding.remedies):
        return Last(f"in {_program(finding)}'s shell, before a restart:", found.commands[0])
    settings = [s for r in finding.remedies if r.settings and r.commands == found.commands for s in r.settings]
    # whose setting it is must be said where it may be another client
    return Last(f"with {settings[0].client}:" if settings and found.kind == "try" else "", found.commands[0])


def _of_steps(found: DoNow, fix: Fix) -> Last:
    """The cheapest test: settings of a client; then the restart of the server with the change above."""
    first, last = found.steps[0], found.steps[-1]
    if first.where == "client" and first.commands:
        return Last("", first.commands[0])
    if fix.launcher == "ollama" and len(found.steps) == len(last.commands) == 1:
        return Last("in the environment of ollama serve, then restart ollama:", last.commands[0])
    if last.form == "sh" and last.commands:
        if len(found.steps) > 1 and last is not first:
            return Last("make the change above, then", last.commands[0])
        rows = option_rows([change for change in found.changes if not change.remove])
        if len(last.commands) > 1 or len(last.commands[0]) > _LONG:
            return Last(f"start {_started(fix)} with", rows[-1]) if rows else Last("use the command above")
        return Last("", last.commands[0])
    if fix.launcher in ("lm-studio", "jan"):
        alone = len(found.steps) == len(last.commands) == 1
        return Last(f"{last.text}:", last.commands[0]) if alone else Last("reload the model with the change above")
    if last.form == "options" and len(last.commands) == 1:
        return Last(f"start {_started(fix)} with", last.commands[0])
    set_ = [change for change in found.changes if not change.remove and not change.variable]
    if set_:
        return Last(f"make the change above, so {_started(fix)} starts with", option_rows(set_)[0])
    return Last(f"make the change above ({last.text.partition(':')[0]})" if _rows(found.steps) else last.text)


def _started(fix: Fix) -> str:
    return (
        "the container" if fix.launcher == "docker" else _PROGRAMS.get(fix.engine) or traffic_words.engine(fix.engine)
    )
