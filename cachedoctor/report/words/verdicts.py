"""What is said of a whole report: that the cache works, what was not looked at, how many causes there are."""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.model import Finding, Report
from cachedoctor.model import causes as found_causes
from cachedoctor.report.words.account_words import parts, whole
from cachedoctor.report.words.coverage import cannot_tell, checked, undecided
from cachedoctor.report.words.not_evaluated_words import grouped
from cachedoctor.report.words.numbers import count, number, percent

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
    rows = parts(account)
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
