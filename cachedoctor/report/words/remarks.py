"""Statements besides the findings: filters, how the input was read, rules that were not checked, unknown lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from cachedoctor.model import AgentDifference, AgentVerdict, Finding, NotEvaluated, Report, RequestRow, Restart
from cachedoctor.report.words.numbers import count, duration, number, percent
from cachedoctor.report.words.traffic_words import LLAMA

_FILTER_WORDS_SHOWN = 10
"""Maximum requests that are described."""
_DIFFERENCES = 3
"""Maximum differences between an agent and the log that are shown."""
_LOST = frozenset({"partial", "reprocessed"})


def filtered(report: Report) -> str:
    """Say that a part of the log is shown, and which; empty if all is shown."""
    chosen = report.filtered
    if chosen is None:
        return ""
    parts = [f"task {_either(chosen.tasks)}"] if chosen.tasks else []
    parts += [f"slot {_either(chosen.slots)}"] if chosen.slots else []
    parts += [f"since {chosen.since}"] if chosen.since is not None else []
    parts += [f"until {chosen.until}"] if chosen.until is not None else []
    left_out = f" {count(chosen.without_time, 'request')} without a time are left out." if chosen.without_time else ""
    return (
        f"Filtered by {', '.join(parts)}: {number(chosen.requests)} of {count(chosen.all_requests, 'request')} and "
        f"{number(chosen.findings)} of {count(chosen.all_findings, 'finding')} are shown; sums and costs cover the "
        f"whole log.{left_out}"
    )


def _either(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))


def shown_requests(report: Report) -> list[str]:
    """Describe the first requests of a filtered report: where they are and how they ended; nothing for a whole
    report."""
    if report.filtered is None:
        return []
    rows = [_request(row) for row in islice(report.requests, _FILTER_WORDS_SHOWN)]
    left = report.filtered.requests - len(rows)
    return [*rows, f"and {count(left, 'more request')}"] if left > 0 else rows


def _request(row: RequestRow) -> str:
    def tokens(value: int | None) -> str:
        return "unknown" if value is None else number(value)

    spent = f" in {duration(row.prompt_ms)}" if row.prompt_ms else ""
    lost = f"; lost {count(row.lost_tokens, 'token')}" if row.lost_tokens and row.outcome in _LOST else ""
    codes = f" ({', '.join(row.codes)})" if row.codes else ""
    return (
        f"{place(row)}, slot {row.slot}: {tokens(row.prompt_tokens)} prompt tokens = {tokens(row.cached_tokens)} "
        f"reused + {tokens(row.processed_tokens)} computed{spent}{lost}{codes}"
    )


class Unanswered(NamedTuple):
    """Why some rules could not be checked, and what would make it possible."""

    reason: str
    advice: str
    commands: list[str]
    rules: list[NotEvaluated]

    def covered(self, restart: Restart | None) -> bool:
        """Whether the one restart of the report does what is advised here."""
        of_server = any("llama-server" in words for words in (self.advice, *self.commands))
        return of_server and restart is not None and set(restart.codes).issuperset(rule.code for rule in self.rules)


def grouped(rules: Iterable[NotEvaluated]) -> list[Unanswered]:
    """Return the groups in the order of their first codes."""
    groups: dict[tuple[str, str], list[NotEvaluated]] = {}
    for rule in sorted(rules, key=lambda r: r.code):
        groups.setdefault((rule.reason, rule.enable), []).append(rule)
    found = []
    for (reason, enable), members in groups.items():
        advice, *commands = enable.split("\n")
        found.append(Unanswered(reason, advice, commands, members))
    return found


_REASONS = {
    "this log level hides": "log level too low",
    "no prompts": "no prompts given",
    "the request bodies": "bodies match no request",
    "no request bodies": "no bodies given",
    "no server command line": "no --cmdline",
    "the log shows no text": "no prompt text",
    "the log has no per-request": "no requests in the log",
}
"""Why rules could not be checked, in a few words, by how the reason begins."""


def not_checked(rules: Sequence[NotEvaluated], room: int) -> str:
    """Say in one row how many rules could not be checked, and the commonest reason if it fits in ``room`` characters;
    nothing if there are none."""
    if not rules:
        return ""
    groups = sorted(grouped(rules), key=lambda group: -len(group.rules))
    reason = groups[0].reason
    short = next((words for begin, words in _REASONS.items() if reason.startswith(begin)), reason)
    more = f" and {count(len(groups) - 1, 'other reason')}" if len(groups) > 1 else ""
    number_of = count(len({rule.code for rule in rules}), "rule")
    reasons = (f" ({reason}{more})", f" ({short}{more})", f" ({short})", "")
    forms = [f"{number_of}{why}; see cachedoctor explain blind" for why in reasons]
    return next((form for form in forms if len(form) <= room), forms[-1])


_UNKNOWN_LIST_SHOWN = 20
"""Shapes; JSON has them all."""


def unknown_lines(report: Report) -> list[str]:
    """Return the list as rows of text; empty if it was not asked for."""
    if report.unknown is None:
        return []
    several = len(report.inputs) > 1
    lines = sum(info.lines for info in report.inputs)
    left = sum(shape.count for shape in report.unknown)
    rows = [f"{number(left)} of {count(lines, 'line')} are not recognised, grouped by pattern (N: a number):"]
    for shape in report.unknown[:_UNKNOWN_LIST_SHOWN]:
        place = f"{shape.path}:{shape.line}" if several else f"line {shape.line}"
        rows.append(f"{number(shape.count):>9}  {shape.shape}  (first: {place})")
    if len(report.unknown) > _UNKNOWN_LIST_SHOWN:
        rows.append(
            f"{'':9}  and {count(len(report.unknown) - _UNKNOWN_LIST_SHOWN, 'more pattern')}; --format json has all"
        )
    return rows


_NAMED = 8
"""Disabled rules that are named; if there are more, only their number is shown."""


def switched_off(codes: list[str]) -> str:
    """Say which rules are not reported."""
    named = f": {', '.join(codes)}" if len(codes) <= _NAMED else ""
    return f"{count(len(codes), 'rule')} switched off{named} and not reported."


def severities(findings: list[Finding]) -> str:
    """Count findings by severity, ``2 findings: 1 error, 1 warning``."""
    tally = {word: sum(f.severity == word for f in findings) for word in ("error", "warning", "note")}
    kinds = ", ".join(count(n, word) for word, n in tally.items() if n)
    return f"{number(len(findings))} {'finding' if len(findings) == 1 else 'findings'}: {kinds}"


# ---- how the input was read


def seen(rows: list[RequestRow]) -> list[str]:
    """Numbers that incomplete requests show, where they are, and what follows from them."""
    return [f"{place(row)}: {'; '.join(_numbers(row)) or 'the log shows no token counts'}" for row in rows]


def place(row: RequestRow) -> str:
    """Say where the lines of a request are."""
    lines = (
        f"line {row.first_line:,}"
        if row.first_line == row.last_line
        else f"lines {row.first_line:,} to {row.last_line:,}"
    )
    return f"{lines} (task {row.task})" if row.task >= 0 else lines


def _numbers(row: RequestRow) -> list[str]:
    said = []
    common, held = _length(row, "common_prefix_tokens"), _length(row, "held_tokens")
    if common:
        said.append(
            f"{common} tokens of the prompt are in the slot, which held {held or 'an unknown number of'} tokens"
        )
    elif held:
        said.append(f"the slot held {held} tokens")
    prompt = _length(row, "prompt_tokens")
    if prompt and row.at_least.get("prompt_tokens", row.cached_tokens or 0) >= (row.cached_tokens or 0):
        said.append(f"the prompt has {prompt} tokens")
    if not common and row.similarity is not None and row.f_keep is not None:
        said.append(_fit(row.similarity, row.f_keep))
    if row.cached_tokens is not None:
        said.append(
            "nothing was reused" if not row.cached_tokens else f"{number(row.cached_tokens)} tokens were reused"
        )
    return said


_FITS = 0.99
"""Share of the prompt and of the slot's content from which the two are nearly the same."""


def _fit(similarity: float, kept: float) -> str:
    """Say what the shares of a slot choice mean."""
    if min(similarity, kept) >= _FITS:
        return "the slot matches: nearly the whole prompt can be reused"
    held, of_slot = (percent(round(1000 * share), 1000) for share in (similarity, kept))
    return f"the slot holds {held} of the prompt; {of_slot} of the slot's content is kept"


def _length(row: RequestRow, field: str) -> str:
    """A length with what is known of it; nothing if nothing is."""
    if field in row.at_least:
        return f"at least {number(row.at_least[field])}"
    if field in row.bounds:
        low, high = row.bounds[field]
        return f"{number(low)} to {number(high)}"
    value: int | None = getattr(row, field)
    return "" if value is None else number(value)


def others(report: Report) -> int:
    """Count the lines that were read and are not recognised."""
    return sum(max(0, info.lines - info.recognised) for info in report.inputs)


def is_mostly_unknown(report: Report) -> bool:
    """Whether more than half of the lines that were read are not recognised."""
    return 2 * others(report) > sum(info.lines for info in report.inputs)


def read(report: Report) -> str:
    """Say how much was read, and how many lines of it are not recognised."""
    inputs = f" of {number(len(report.inputs))} inputs" if len(report.inputs) > 1 else ""
    lines, left = sum(info.lines for info in report.inputs), others(report)
    if not report.inputs:
        return "no log"
    known = f"{count(lines, 'line')}{inputs}"
    if not left:
        return f"{known}, all recognised" if lines else known
    if left == lines:
        return f"{known}, none recognised"
    if any(info.launcher == "lm-studio" for info in report.inputs):
        such = "dates on separate rows"
    elif any(session.engine == LLAMA for session in report.sessions) or not report.sessions:
        such = "start-up and samplers"
    else:
        such = "start-up and an access log"
    return f"{known}, {number(lines - left)} recognised (the other lines: {such})"


def numbered(report: Report) -> str:
    """Say how lines are numbered, if not from the top of the input; empty if they are."""
    kinds = {info.counted for info in report.inputs if info.counted is not None}
    said = []
    if "newest first" in kinds:
        said.append("The newest line came first, so lines are numbered from the end, as tac prints them.")
    if "records" in kinds:
        said.append("Lines are the records of the JSON document, numbered by time.")
    return " ".join(said)


def imitated(report: Report) -> str:
    """Say how many lines inside printed prompts looked like a server's; nothing without any."""
    lines = sum(info.imitations for info in report.inputs)
    verb = "lines" if lines != 1 else "line"
    return f"{number(lines)} {verb} inside a prompt looked like server log lines." if lines else ""


def passed_over(report: Report) -> str:
    """Say how many requests are too short to be reported, and how they are counted anyway; nothing without any."""
    short, least = report.totals.short_requests, report.totals.short_below
    if not short or not least:
        return ""
    were = "was" if short == 1 else "were"
    return (
        f"{count(short, 'request')} below {count(least, 'token')} {were} not checked (--min-prompt-tokens 0 "
        "checks all)."
    )


def own_verdicts(report: Report) -> list[str]:
    """Report each agent's own reasons for less reuse, and how often the log shows the same."""
    return [_own_verdict(verdict) for verdict in report.agents]


def _own_verdict(verdict: AgentVerdict) -> str:
    reasons = ", ".join(f"{reason} ({number(times)})" for reason, times in verdict.reasons.items())
    judged = verdict.agrees + verdict.differs
    parts = [f"the log confirms {number(verdict.agrees)} and contradicts {number(verdict.differs)}"] if judged else []
    parts += [f"the log does not show the cause of {number(verdict.undecided)}"] if verdict.undecided else []
    parts += [f"no request in the log matches {number(verdict.unmatched)}"] if verdict.unmatched else []
    shown = "".join(f" {_difference(one)}" for one in verdict.differences[:_DIFFERENCES])
    by = f"{verdict.by[:1].upper()}{verdict.by[1:]}"
    return f"{by} gives its own reasons: {reasons}. Of these claims, {'; '.join(parts)}.{shown}"


def _difference(one: AgentDifference) -> str:
    task = "" if one.task is None else f" task {one.task}"
    log = ", ".join(one.log) or "nearly all was reused"
    return f"Line {number(one.line)}{task}: {one.reason}, but the log shows {log}."


def remarks(report: Report) -> list[str]:
    """Say what to know about how the input was read: the numbers of lines, imitations, requests that are too short."""
    said = [numbered(report), imitated(report), passed_over(report), *own_verdicts(report)]
    return [words for words in said if words]
