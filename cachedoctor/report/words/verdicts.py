"""What is said of a whole report: verdict, filters, what was not checked, unknown lines."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from cachedoctor.model import Finding, NotEvaluated, Report, RequestRow, Restart
from cachedoctor.model import causes as found_causes
from cachedoctor.report.words.coverage import cannot_tell, checked, place, undecided
from cachedoctor.report.words.numbers import count, duration, number, percent
from cachedoctor.report.words.traffic_words import account_parts, whole

_FILTER_WORDS_SHOWN = 10
"""Requests that are described."""
_LOST = frozenset({"partial", "reprocessed"})


def filtered(report: Report) -> str:
    """Say that a part of the log is shown, and which; nothing where all is."""
    chosen = report.filtered
    if chosen is None:
        return ""
    parts = [f"task {_either(chosen.tasks)}"] if chosen.tasks else []
    parts += [f"slot {_either(chosen.slots)}"] if chosen.slots else []
    parts += [f"since {chosen.since}"] if chosen.since is not None else []
    parts += [f"until {chosen.until}"] if chosen.until is not None else []
    left_out = f" {count(chosen.without_time, 'request')} without a time left out." if chosen.without_time else ""
    return (
        f"Filtered by {', '.join(parts)}: {number(chosen.requests)} of {count(chosen.all_requests, 'request')} and "
        f"{number(chosen.findings)} of {count(chosen.all_findings, 'finding')} are shown; sums and costs are of the "
        f"whole log.{left_out}"
    )


def _either(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))


def shown_requests(report: Report) -> list[str]:
    """Say of the first requests of a filtered report where they stand and what became of them; none of a whole one."""
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
    """Why some rules could not be evaluated, and what would make it possible."""

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


_UNKNOWN_LIST_SHOWN = 20
"""Shapes; JSON has them all."""


def listed(report: Report) -> list[str]:
    """Return the list as rows of text; empty where it was not asked for."""
    if report.unknown is None:
        return []
    several = len(report.inputs) > 1
    lines = sum(info.lines for info in report.inputs)
    left = sum(shape.count for shape in report.unknown)
    rows = [f"{number(left)} of {count(lines, 'line')} are no known message, by shape (N: a number):"]
    for shape in report.unknown[:_UNKNOWN_LIST_SHOWN]:
        place = f"{shape.path}:{shape.line}" if several else f"line {shape.line}"
        rows.append(f"{number(shape.count):>9}  {shape.shape}  (first: {place})")
    if len(report.unknown) > _UNKNOWN_LIST_SHOWN:
        rows.append(
            f"{'':9}  and {count(len(report.unknown) - _UNKNOWN_LIST_SHOWN, 'more shape')}: --format json has them all"
        )
    return rows


_CUT = "CD902"
"""Says only that the log is cut."""
_FEW = 0.01
"""Share of the prompt tokens that may be lost where the cache is said to work."""
_SMALL = frozenset({"reused", "new", "rounding"})
"""Rows of the account that nobody can mend."""
_REASONS = {
    "prompt length, reuse": "log level too low",
    "prompt length and reuse": "log level too low",
    "a change of adapters": "log level too low",
    "the prompts themselves": "no prompts given",
    "the request bodies that were given": "bodies match no request",
    "the request bodies": "no bodies given",
    "the command line": "no --cmdline",
    "the log shows no text": "no prompt text",
    "there are no numbers of requests": "no requests in it",
}
"""Why rules could not be evaluated, in a few words, by how the reason begins."""
_NAMED = 8
"""Rules that are switched off and named; of more only their number is said."""


class Healthy(NamedTuple):
    """What is said where no cause was found."""

    key: str
    words: str

    @property
    def sentence(self) -> str:
        """Key and words, where the words are none without it."""
        return f"{self.key} {self.words}" if self.key == "no cause" else self.words


def healthy(report: Report) -> Healthy | None:
    """Say what the cache did where no cause was found; None where there were no requests to look at."""
    totals, account = report.totals, whole(report)
    said = checked(report)
    if report.filtered is not None:
        return None  # the sums are of the whole log
    if not totals.requests or account is None:
        return Healthy("no findings", said) if said else None
    rows = account_parts(account)
    lost = sum(part.tokens for part in rows if part.row not in _SMALL)
    new = sum(part.tokens for part in rows if part.row == "new")
    open_ = max(account.not_placed, totals.open_requests or 0)
    left = f"; of {count(open_, 'request')} the log does not tell" if open_ else ""
    cut = sum(finding.count for finding in report.findings if finding.code == _CUT)
    left += f"; {count(cut, 'request')} {'is' if cut == 1 else 'are'} not whole in this log" if cut else ""
    if lost > _FEW * account.prompt_tokens:
        words = ", ".join(f"{percent(part.tokens, account.prompt_tokens)} {part.words}" for part in rows)
        return Healthy("no cause", f"found for what was not reused: {words}{left}")
    key = "cache works"
    if cut == totals.requests and not totals.prompt_ms:
        key, left = "so far", f"; {_ends(cut)} not in this log"
    rounding = sum(part.tokens for part in rows if part.row == "rounding")
    text = f"{number(new)} computed tokens were new text" + (f", {number(rounding)} rounding" if rounding else "")
    if not lost:
        return Healthy(key, f"{_every(report)}; the {text}{left}")
    few = f"{number(lost)} of {count(account.prompt_tokens, 'prompt token')} ({percent(lost, account.prompt_tokens)})"
    return Healthy(key, f"{text}; {few} were lost, too few for a finding{left}")


def _ends(requests: int) -> str:
    """Name what a log lacks that has the end of none of its requests: they may still have failed."""
    if requests == 1:
        return "its end, and with it whether it failed, is"
    return "the ends of all, and with them whether they failed, are"


def _every(report: Report) -> str:
    if report.totals.requests == 1:
        return "the request reused all it could"
    return "every request reused all it could" if report.totals.cached_tokens else "no request had anything to reuse"


def leading(report: Report) -> list[Finding]:
    """Return the findings that say what to do; none where it is no more than that the log is cut.

    That leads only where nothing can be said of the requests: neither that it cannot be told, nor that the cache works
    or did so far.
    """
    if any(finding.code != _CUT for finding in report.findings):
        return report.findings
    return [] if cannot_tell(report) is not None or _works(report) else report.findings


def _works(report: Report) -> bool:
    """Whether what is left of a cut log shows that something was reused, and nothing lost."""
    said = healthy(report)
    return said is not None and said.key in ("cache works", "so far") and report.totals.cached_tokens > 0


def causes(report: Report) -> str:
    """Count what was found: ``1 cause``, ``2 causes and 1 note``; one on many servers counts once."""
    each = found_causes(report.findings)
    notes = sum(cause.severity == "note" for cause in each)
    found = len(each) - notes
    parts_ = [count(n, noun) for n, noun in ((found, "cause"), (notes, "note")) if n]
    return " and ".join(parts_)


def not_looked_at(report: Report, room: int) -> str:
    """Say in one row how many rules could not be evaluated, and the commonest reason where ``room`` characters hold it;
    nothing without any."""
    rules = {rule.code for rule in report.not_evaluated}
    if not rules:
        return ""
    groups = sorted(grouped(report.not_evaluated), key=lambda group: -len(group.rules))
    reason = groups[0].reason
    short = next((words for begin, words in _REASONS.items() if reason.startswith(begin)), reason)
    more = f" and {count(len(groups) - 1, 'other reason')}" if len(groups) > 1 else ""
    reasons = (f" ({reason}{more})", f" ({short}{more})", f" ({short})", "")
    forms = [f"{count(len(rules), 'rule')}{why}; how: cachedoctor explain blind" for why in reasons]
    return next((form for form in forms if len(form) <= room), forms[-1])


def verdict(report: Report) -> str:
    """Sum up in a sentence what was found, and what could not be."""
    open_rules = len({rule.code for rule in report.not_evaluated})
    left = f"; {count(open_rules, 'rule')} could not be evaluated" if open_rules else ""
    if report.findings and not leading(report) and not undecided(report):
        return f"No cause found. {checked(report)}{left}. {severities(report.findings)}."
    if report.findings:
        each = len(found_causes(report.findings))
        of = f", of {count(each, 'cause')}" if each < len(report.findings) else ""
        return f"{severities(report.findings)}{of}{left}."
    said = checked(report)
    if report.filtered is not None:
        return f"No findings in what is shown{left}."
    if undecided(report):
        return undecided(report)
    return f"No findings. {said}{left}." if said else "No requests in it: nothing was checked."


def switched_off(codes: list[str]) -> str:
    """Say which rules are not reported."""
    named = f": {', '.join(codes)}" if len(codes) <= _NAMED else ""
    return (
        f"{count(len(codes), 'rule')} switched off{named}; {'it is' if len(codes) == 1 else 'they are'} not reported."
    )


def severities(findings: list[Finding]) -> str:
    """Count findings by severity, ``2 findings: 1 error, 1 warning``."""
    tally = {word: sum(f.severity == word for f in findings) for word in ("error", "warning", "note")}
    kinds = ", ".join(count(n, word) for word, n in tally.items() if n)
    return f"{number(len(findings))} {'finding' if len(findings) == 1 else 'findings'}: {kinds}"
