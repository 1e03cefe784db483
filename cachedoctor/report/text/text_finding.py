"""One finding as text: claim, fix, cost, proof, why, what is ruled out; commands can be copied."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Finding, Fix, Totals
from cachedoctor.report.text import proof
from cachedoctor.report.text.page import COMMAND, KEY, SEVERITY, Link, Page, Part
from cachedoctor.report.words import do_now, headlines
from cachedoctor.report.words.do_now import DoNow
from cachedoctor.report.words.numbers import count, duration, first_sentence, leading, percent, spent_tokens

_WORD = late(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""")
"""A word of a shell, with what is quoted in it."""
_INDENT = "    "


def rows_of_command(command: str, room: int) -> list[str]:
    """Break ``command`` where a shell puts it together again; a word that is longer than ``room`` cells stays whole."""
    if "\n" in command:  # a file, or a part of one
        return command.split("\n")
    words = _WORD.findall(command)
    if cell_len(command) <= room or " ".join(words) != command or any(word.startswith("#") for word in words):
        return [command]
    lines: list[str] = []
    row = ""
    for unit in _units(words, room - len(_INDENT) - 2):
        indent = _INDENT if lines else ""
        if row and cell_len(f"{row} {unit}") > room - 2:
            lines.append(f"{row} \\")
            row = _INDENT + unit
        else:
            row = f"{row} {unit}" if row else indent + unit
    return [*lines, row]


def _units(words: list[str], room: int) -> list[str]:
    """An option and its value stand in one row, where it has room for both."""
    units: list[str] = []
    for word in words:
        both = f"{units[-1]} {word}" if units else word
        takes_value = units and units[-1].startswith("-") and not {" ", "="} & set(units[-1])
        if takes_value and not word.startswith("-") and cell_len(both) <= room:
            units[-1] = both
        else:
            units.append(word)
    return units


_KEY = 7
"""Cells of the keys."""
_WHY = 150
"""Characters of why it is so in the short form."""


class Around(NamedTuple):
    """What of the report a finding is shown with."""

    where: str = ""
    """Which server of the input, when there are several."""
    totals: Totals | None = None
    """Sums of the whole log, where it has ended."""
    link: str | None = None
    """Address of the page of the rule, where the output knows links."""
    summary: str = ""
    """What the rule is about."""
    fix: Fix | None = None
    """Of its server."""
    servers: str = ""
    """How many servers it is about, where they are several."""
    hint: str | None = None
    """The command that prints the fix in other forms."""
    is_first: bool = True
    """Whether no finding above it shows the fix of its server."""


ALONE = Around()


def first(page: Page, finding: Finding, around: Around = ALONE) -> None:
    """Write the finding that is read first: what is the matter, what to do, what it cost, how that is known."""
    _claim(page, finding, around)
    _fix(page, finding, do_now.of_finding(finding, around.fix))
    _hint(page, around.hint)
    _measure(page, finding, around)
    said = headlines.claim(finding, around.summary)
    if finding.evidence:
        proof.short(page, finding, f"{'proof':<{_KEY}}", said.more, around.where)
    else:
        _row(page, "seen", said.more)
    _row(page, "why", leading(finding.why, _WHY))
    other = do_now.second(finding, around.fix)
    if other is not None:
        kind = "or" if other.kind == "fix" else other.kind
        _fix(page, finding, other._replace(text=first_sentence(other.text)), kind)
    for key, others in (("ruled out", finding.excluded), ("still possible", finding.still_possible)):
        if others:
            page.cut_row([(f"{key}  ", KEY)], ", ".join(other.name for other in others))
    _rule(page, finding, around, f": cachedoctor explain {finding.code}, or -v")


def brief(page: Page, finding: Finding, around: Around = ALONE) -> None:
    """Write one of the further findings: what is the matter, what to do, what it cost, the line that proves it."""
    _claim(page, finding, around)
    fix = do_now.of_finding(finding, around.fix)
    if fix is not None and fix.steps and not around.is_first:
        fix = DoNow(f"in the change above: {first_sentence(fix.text)}", [])
    _fix(page, finding, None if fix is None else fix._replace(text=first_sentence(fix.text)))
    _measure(page, finding, around)
    _rule(page, finding, around)
    if finding.evidence:
        proof.place(page, finding, f"{'proof':<{_KEY}}", headlines.claim(finding, around.summary).more, around.where)


def listed(page: Page, finding: Finding, around: Around = ALONE) -> None:
    """Write one row: severity, code, what is the matter; it is cut where the page ends."""
    head = heading(finding, around.link)
    room = page.width - len(f"{finding.severity}[{finding.code}]") - 1
    page.cut_row([head, " "], headlines.one_row(finding, around.totals, room, around.summary, around.servers))


def whole(page: Page, finding: Finding, around: Around = ALONE) -> None:
    """Write everything that is known of a finding."""
    _claim(page, finding, around)
    _fix(page, finding, do_now.of_finding(finding, around.fix))
    page.prose([heading(finding, around.link), f" {finding.name}: "], finding.claim, 2, KEY)
    if finding.evidence:
        proof.whole(page, finding, around.where)
    _labelled(page, "cost", cost(finding, around.totals.prompt_ms if around.totals is not None else 0.0))
    _labelled(page, "why", finding.why)
    _labelled(page, "confidence", finding.confidence)
    for key, others in (("ruled out", finding.excluded), ("still possible", finding.still_possible)):
        for other in others:
            _labelled(page, key, f"{other.name}: {other.why}")
    for remedy in do_now.remedies(finding):
        _labelled(page, "fix" if remedy.purpose == "fix" else "try", remedy.text)
        form = do_now.form_of(remedy, around.fix)
        if form:
            for step in form:
                page.prose(["    "], f"{step.text}:" if step.commands else step.text, 6)
                is_shell = step.form in ("sh", "options")
                rows = [r for c in step.commands for r in (rows_of_command(c, page.width - 6) if is_shell else [c])]
                for row in rows:
                    page.row(" " * 6, (row, COMMAND))
        else:
            commands(page, remedy.commands, 6)
    for reference in finding.references:
        _labelled(page, "see", reference)
    page.row("  = ", ("more: ", KEY), f"cachedoctor explain {finding.code}")


def _claim(page: Page, finding: Finding, around: Around) -> None:
    page.facts(
        [], headlines.headline(finding, around.totals, page.width, around.summary), 2, SEVERITY[finding.severity]
    )


def _rule(page: Page, finding: Finding, around: Around, more: str = "") -> None:
    page.facts([(f"{'rule':<{_KEY}}", KEY), heading(finding, around.link), " "], headlines.rule(finding) + more, _KEY)


def _row(page: Page, key: str, words: str) -> None:
    if words:
        page.prose([(f"{key:<{_KEY}}", KEY)], words, _KEY)


def _measure(page: Page, finding: Finding, around: Around) -> None:
    """Write on how many servers it is, and what it cost."""
    _row(page, "on", around.servers)
    _row(page, "cost", headlines.cost(finding, around.totals))


def _fix(page: Page, finding: Finding, fix: DoNow | None, key: str = "") -> None:
    """Write what to copy, and below it the sentence; where there is nothing to copy the sentence alone."""
    if fix is None:
        return
    key = key or fix.kind
    head: Part = (f"{key:<{_KEY}}" if len(key) < _KEY else f"{key}  ", KEY)
    if fix.steps:
        _steps(page, head, fix)
        return
    rows = [row for command in fix.commands for row in rows_of_command(command, page.width - len(head[0]))]
    for at, row in enumerate(rows):
        page.row(head if not at else " " * len(head[0]), (row, COMMAND))
    words = f"{do_now.belongs(finding)} {fix.text}" if fix.options else fix.text
    page.prose([head if not rows else " " * _KEY], words, _KEY)


def _steps(page: Page, head: Part, fix: DoNow) -> None:
    """Write what to change in the form of what starts the server; parts of files as they are, whatever their width."""
    indent = " " * (_KEY + 2)
    for step in fix.steps:
        is_shell = step.form in ("sh", "options")
        rows = [r for c in step.commands for r in (rows_of_command(c, page.width - _KEY - 2) if is_shell else [c])]
        used = len(head) if isinstance(head, str) else len(head[0])
        short = len(rows) == 1 and used + len(f"{step.text}: {rows[0]}") <= page.width
        if short and is_shell:
            page.row(head, f"{step.text}: ", (rows[0], COMMAND))
        elif step.where == "client" and rows:
            for row in rows:
                page.row(head, (row, COMMAND))
                head = " " * _KEY
            page.prose([head], step.text, _KEY)
        else:
            page.facts([head], f"{step.text}:" if rows else step.text, _KEY + 2)
            for row in rows:
                page.row(indent, (row, COMMAND))
        head = " " * _KEY
    for words in (fix.text, *fix.notes):
        page.prose([head], words, _KEY)


def _hint(page: Page, command: str | None) -> None:
    """Write the command that prints the fix for other launchers, on a row of its own where it is long."""
    if command is None:
        return
    before = "for compose, systemd ...: "
    if len(command) + len(before) + _KEY <= page.width:
        page.row(" " * _KEY, before, (command, COMMAND))
        return
    page.row(" " * _KEY, before.rstrip())
    commands(page, [command], _KEY + 2)


def commands(page: Page, found: list[str], indent: int) -> None:
    """Write commands to be copied, each on rows of its own."""
    for command in found:
        for row in rows_of_command(command, page.width - indent):
            page.row(" " * indent, (row, COMMAND))


def heading(finding: Finding, link: str | None = None) -> Part:
    """Name severity and code, ``warning[CD101]``."""
    words, style = f"{finding.severity}[{finding.code}]", SEVERITY[finding.severity]
    return (words, style) if link is None else Link(words, style, link)


def _labelled(page: Page, key: str, words: str) -> None:
    if words:
        page.prose(["  = ", (f"{key}: ", KEY)], words, 4)


def cost(finding: Finding, prompt_ms: float) -> str:
    """Say what the fix would have saved; nothing when that is nothing."""
    spent = finding.cost
    if not spent.tokens and not spent.at_most:
        return ""
    words = f"{spent_tokens(spent)} recomputed in {count(finding.count, 'request')}"
    if spent.ms is None:
        return words
    share = f", {percent(min(spent.ms, prompt_ms), prompt_ms)} of all prompt time" if prompt_ms else ""
    if spent.ms_from == "depth":
        return f"{words}, {duration(spent.ms)} at the speed measured at that depth{share}"
    return f"{words}, about {duration(spent.ms)}{share}"
