"""One finding as text: claim, fix, cost, proof, why, what is ruled out; commands can be copied."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Finding, FixStep
from cachedoctor.report.report_view import FindingView
from cachedoctor.report.text import proof
from cachedoctor.report.text.page import COMMAND, KEY, SEVERITY, Link, Part, TextPage
from cachedoctor.report.text.text_safe import clipped
from cachedoctor.report.words import do_now
from cachedoctor.report.words.do_now import DoNow
from cachedoctor.report.words.numbers import count, duration, first_sentence, leading, percent, spent_tokens
from cachedoctor.report.words.powershell import in_powershell

_WORD = late(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""")
"""A word of a shell, with what is quoted in it."""
_INDENT = "    "
_URL = late(r"[a-z0-9_]+(?:/[a-z0-9_]+)*\.md", re.ASCII)


def rows_of_command(command: str, room: int) -> list[str]:
    """Break ``command`` where a shell joins it again; a word longer than ``room`` cells stays whole."""
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
    """An option and its value, which are in one row if both fit."""
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
TIGHTEST = 5
"""Number of shortening steps available to fit a report on a screen."""
_WHY = 150
"""Characters of the reason in the short form."""
_FIX_WORDS = 210
"""Characters of the sentences about a fix in the short form."""


def first(page: TextPage, one: FindingView, hint: str | None = None, tight: int = 0) -> None:
    """Write the finding that is read first: what is the matter, what to do, what it cost, how that is known.

    ``hint``: the command that prints the fix for other launchers. ``tight``: from 1 on why has one sentence,
    and what is ruled out gives way to what is still possible; from 3 on there is one line of proof; from 4 on the fix
    has one sentence, and why has none; at 5 there is no second fix.
    """
    _claim(page, one)
    step = one.step
    room = _FIX_WORDS if tight < 4 else 0
    _fix(page, None if step is None else step._replace(text=leading(step.text, room) if step.text else ""))
    _hint(page, hint)
    _measure(page, one)
    if one.evidence:
        proof.short(page, one, f"{'proof':<{_KEY}}", tight)
    else:
        _row(page, "seen", one.claim.more)
    if tight < 4:
        _row(page, "why", leading(one.finding.why, _WHY if not tight else 0))
    if one.second is not None and tight < TIGHTEST:
        kind = "or" if one.second.kind == "fix" else one.second.kind
        _fix(page, one.second._replace(text=first_sentence(one.second.text)), kind)
    still = one.finding.still_possible
    for key, others in (("ruled out", [] if tight and still else one.finding.excluded), ("still possible", still)):
        if others:
            page.cut_row([(f"{key}  ", KEY)], ", ".join(other.label for other in others))
    _rule(page, one, f"cachedoctor explain {one.finding.code}")


def brief(page: TextPage, one: FindingView, *, fix_is_above: bool) -> None:
    """Write one of the further findings: what is the matter, what to do, what it cost, the line that proves it."""
    room = page.width - len(f"{one.finding.severity}[{one.finding.code}] ")
    page.facts([heading(page, one), " "], one.headline(room), 2, KEY)
    fix = one.step
    if fix is not None and fix.steps and fix_is_above:
        fix = DoNow(f"in the change above: {first_sentence(fix.text)}", [])
    _fix(page, None if fix is None else fix._replace(text=first_sentence(fix.text)))
    _measure(page, one)
    if one.finding.confidence != "high":
        _rule(page, one)
    if one.evidence:
        proof.place(page, one, f"{'proof':<{_KEY}}")


_SAME_FIX = " (same fix)"


def one_row(page: TextPage, one: FindingView, *, has_same_fix: bool = False) -> None:
    """Write severity, code, the problem, and whether it has the fix above; it is truncated at the page width."""
    room = page.width - len(f"{one.finding.severity}[{one.finding.code}]") - 1
    end = _SAME_FIX if has_same_fix else ""
    words = one.one_row(room - len(end))
    page.row(heading(page, one), " ", clipped(words, room - len(end), page.ascii_only), end)


def whole(page: TextPage, one: FindingView) -> None:
    """Write everything that is known of a finding."""
    finding = one.finding
    _claim(page, one)
    _fix(page, one.step)
    page.prose([heading(page, one), f" {finding.name}: "], finding.claim, 2, KEY)
    if one.evidence:
        proof.whole(page, one)
    _labelled(page, "cost", cost(finding, one.totals.prompt_ms if one.totals is not None else 0.0))
    _labelled(page, "why", finding.why)
    _labelled(page, "confidence", finding.confidence)
    for key, others in (("ruled out", finding.excluded), ("still possible", finding.still_possible)):
        for other in others:
            _labelled(page, key, f"{other.name}: {other.why}")
    for remedy in do_now.remedies(finding):
        _labelled(page, "fix" if remedy.purpose == "fix" else "try", do_now.sentences(remedy))
        form = do_now.form_of(remedy, one.fix)
        for step in form:
            page.prose(["    "], f"{step.text}:" if step.commands else step.text, 6)
            for row in _step_rows(step, page.width - 6):
                page.row(" " * 6, (row, COMMAND))
        if not form:
            commands(page, remedy.commands, 6)
    for reference in finding.references:
        _labelled(page, "see", reference)
    page.row("  = ", ("more: ", KEY), f"cachedoctor explain {finding.code}")


def _claim(page: TextPage, one: FindingView) -> None:
    page.facts([], one.headline(page.width), 2, SEVERITY[one.finding.severity])


def _rule(page: TextPage, one: FindingView, more: str = "") -> None:
    """Write the rule and its confidence, and the command that explains it, which stays in one piece."""
    head: list[Part] = [(f"{'rule':<{_KEY}}", KEY), heading(page, one), " "]
    in_row = f"{one.rule}: {more}" if more else one.rule
    used = _KEY + len(f"{one.finding.severity}[{one.finding.code}] ")
    fits = used + cell_len(in_row) <= page.width
    short = f"{one.finding.confidence} confidence: {more}"
    page.facts(head, in_row if fits or not more else short, _KEY)


def _row(page: TextPage, key: str, words: str) -> None:
    if words:
        page.prose([(f"{key:<{_KEY}}", KEY)], words, _KEY)


def _measure(page: TextPage, one: FindingView) -> None:
    """Write on how many servers it is, and what it cost."""
    _row(page, "on", one.servers)
    _row(page, "cost", one.cost)


def _fix(page: TextPage, fix: DoNow | None, key: str = "") -> None:
    """Write what to copy, and below it the sentence; only the sentence if there is nothing to copy."""
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
    _powershell(page, fix.commands, _KEY)
    page.prose([head if not rows else " " * _KEY], fix.words, _KEY)


def _step_rows(step: FixStep, room: int) -> list[str]:
    """What to copy in one step; a part of a file as it is, whatever its width."""
    if step.form not in ("sh", "options"):
        return list(step.commands)
    return [row for command in step.commands for row in rows_of_command(command, room)]


def _steps(page: TextPage, head: Part, fix: DoNow) -> None:
    """Write what to change in the launcher's form."""
    indent = " " * (_KEY + 2)
    for step in fix.steps:
        rows = _step_rows(step, page.width - _KEY - 2)
        used = len(head) if isinstance(head, str) else len(head[0])
        short = len(rows) == 1 and used + len(f"{step.text}: {rows[0]}") <= page.width
        if short and step.form in ("sh", "options"):
            page.row(head, f"{step.text}: ", (rows[0], COMMAND))
        elif step.where == "client" and rows:
            for row in rows:
                page.row(head, (row, COMMAND))
                head = " " * _KEY
            _powershell(page, step.commands, _KEY)
            page.prose([head], step.text, _KEY)
        else:
            page.facts([head], f"{step.text}:" if rows else step.text, _KEY + 2)
            for row in rows:
                page.row(indent, (row, COMMAND))
            if step.form == "sh":
                _powershell(page, step.commands, len(indent))
        head = " " * _KEY
    for words in (fix.words, *fix.notes):
        page.prose([head], words, _KEY)


def _powershell(page: TextPage, found: Sequence[str], indent: int) -> None:
    """Write the environment variables once more, in PowerShell syntax."""
    head = " " * indent + "PowerShell: "
    for row in in_powershell(found, page.width - len(head)):
        page.row(head, (row, COMMAND))
        head = " " * len(head)


def _hint(page: TextPage, command: str | None) -> None:
    """Write the command that prints the fix for other launchers, on its own row if it is long."""
    if command is None:
        return
    before = "for compose, systemd ...: "
    if len(command) + len(before) + _KEY <= page.width:
        page.row(" " * _KEY, before, (command, COMMAND))
        return
    page.row(" " * _KEY, before.rstrip())
    commands(page, [command], _KEY + 2)


def commands(page: TextPage, found: list[str], indent: int) -> None:
    """Write commands to be copied, each on rows of its own."""
    for command in found:
        for row in rows_of_command(command, page.width - indent):
            page.row(" " * indent, (row, COMMAND))


def heading(page: TextPage, one: FindingView) -> Part:
    """Name severity and code, ``warning[CD101]``, as a link to the page of the rule where the output knows links."""
    words, style = f"{one.finding.severity}[{one.finding.code}]", SEVERITY[one.finding.severity]
    # a report that was read from a file may name anything as an address
    if page.pages is None or one.url is None or not _URL.fullmatch(one.url):
        return words, style
    return Link(words, style, page.pages + one.url)


def _labelled(page: TextPage, key: str, words: str) -> None:
    if words:
        page.prose(["  = ", (f"{key}: ", KEY)], words, 4)


def cost(finding: Finding, prompt_ms: float) -> str:
    """Say what the fix would have saved; empty if nothing."""
    spent = finding.cost
    if not spent.tokens and not spent.at_most:
        return ""
    words = f"{spent_tokens(spent)} recomputed in {count(finding.count, 'request')}"
    if spent.ms is None:
        return words
    share = f" ({percent(min(spent.ms, prompt_ms), prompt_ms)} of all prompt time)" if prompt_ms else ""
    if spent.ms_from == "depth":
        return f"{duration(spent.ms)}{share} for {words}, at the speed measured at this prompt length"
    return f"about {duration(spent.ms)}{share} for {words}"
