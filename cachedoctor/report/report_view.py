"""The content of a report, computed once: formats take a ``ReportView`` and only lay out what it has."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Cause, Cost, Evidence, Finding, Fix, Report, RuleInfo, Session, Totals, causes
from cachedoctor.model.finding import SEVERITY_ORDER
from cachedoctor.report.words import coverage, do_now
from cachedoctor.report.words.coverage import CUT, CannotTell, Healthy
from cachedoctor.report.words.do_now import DoNow, Last
from cachedoctor.report.words.numbers import capital, count, duration, number, spent_tokens
from cachedoctor.report.words.remarks import severities

_CHARGED = late(
    r"[:,;] (?:[\d,]+ requests?, )?(?:at most )?[\d,]+ (?:to [\d,]+ )?tokens recomputed\b(?: in [\d,]+ requests?)?"
)
"""The part of a claim about its cost, which has separate rows."""
_UNSURE = late(r"\b(?:perhaps|may|up to|or another)\b")
"""Words of a claim that is not certain."""
_LONG = 130
"""Characters above which a claim is too long for a headline: the rule's short text is used instead."""


class Claim(NamedTuple):
    """What a finding claims, in parts."""

    sentence: str
    """The problem, without its cost; the rule's subject if that is too long for a headline."""
    more: str
    """Further content of the claim, for the proof; empty if none."""


@dataclass(eq=False)
class FindingView:
    """A cause on one server or on several."""

    finding: Finding
    """The costliest one, with the counts and the cost of all servers."""
    totals: Totals | None = None
    """Sums of the whole log, if it has ended."""
    fix: Fix | None = None
    """Fix for its server."""
    place: str = ""
    """Which server of the input, if there are several."""
    summary: str = ""
    """What the rule is about."""
    url: str | None = None
    """Address of the rule's page, up to its name."""
    servers: str = ""
    """How many servers have the cause, and which; empty if it is one of a few servers and the proof names it."""
    of_server: Finding | None = field(default=None, repr=False)

    @property
    def first(self) -> Finding:
        """The costliest one, with its own counts and cost."""
        return self.of_server or self.finding

    @property
    def many(self) -> str:
        """How many servers have it: ``38 of 40 servers``; empty if ``servers`` is."""
        return self.servers.partition(":")[0]

    @cached_property
    def claim(self) -> Claim:
        """What is claimed."""
        words = self.finding.claim
        found = _CHARGED.search(words)
        start, end = (len(words),) * 2 if found is None else found.span()
        before, after = words[:start], words[end:]
        if self.summary and len(before) > _LONG:
            return Claim(self._short_claim(before + after), before + after)
        return Claim(capital(before), after.lstrip(",;: ").removeprefix("and "))

    def _short_claim(self, said: str) -> str:
        """The rule's subject, which claims no more than the claim that it replaces."""
        is_sure = self.finding.confidence == "high" or not _UNSURE.search(said) or _UNSURE.search(self.summary)
        if is_sure:
            return self.summary
        head = self.summary[:2]
        return f"Perhaps {head if head.isupper() else head.lower()}{self.summary[2:]}"

    @cached_property
    def step(self) -> DoNow | None:
        """The first thing to do; None if there is nothing to do."""
        return do_now.of_finding(self.finding, self.fix)

    @cached_property
    def second(self) -> DoNow | None:
        """What else may be done."""
        return do_now.second(self.finding, self.fix)

    @cached_property
    def steps(self) -> list[DoNow]:
        """All there is to do, in the order in which it is to be tried."""
        return do_now.every(self.finding, self.fix)

    @property
    def primary(self) -> Evidence | None:
        """The line that proves it; None without lines."""
        return self.finding.primary or next(iter(self.finding.evidence), None)

    @cached_property
    def evidence(self) -> list[Evidence]:
        """The lines in the order of the log, those of the file of the proof first."""
        home = "" if self.primary is None else self.primary.path
        return sorted(self.finding.evidence, key=lambda e: (e.path != home, e.path, e.line))

    @property
    def rule(self) -> str:
        """The rule and how sure it is: ``billing-header, high confidence``."""
        return f"{self.finding.name}, {self.finding.confidence} confidence"

    @cached_property
    def cost(self) -> str:
        """What was recomputed, of how much: time, tokens, requests; empty if nothing was."""
        spent, totals = self.finding.cost, self.totals
        if not spent.tokens and not spent.at_most:
            return ""
        tokens = spent_tokens(spent)
        if totals is not None and totals.prompt_tokens >= spent.tokens and spent.at_most is None:
            tokens = f"{number(spent.tokens)} of {count(totals.prompt_tokens, 'prompt token')}"
        parts = [tokens]
        if spent.ms is not None:
            about = "" if spent.ms_from == "depth" else "about "
            whole = f" of {duration(totals.prompt_ms)}" if totals is not None and totals.prompt_ms >= spent.ms else ""
            parts = [f"{about}{duration(spent.ms)}{whole} ({tokens})"]
        if self.finding.requests:
            seen = self.finding.count
            of = f"{number(seen)} of " if totals is not None and totals.requests >= seen else ""
            parts.append(f"in {of}{count(totals.requests if of and totals else seen, 'request')}")
        return ", ".join(parts)

    def headline(self, room: int = 0) -> str:
        """Return the first row; in fewer words if they do not fit in ``room`` cells."""
        said = self.claim.sentence
        forms = [f"{said}: {words}" if words else said for words in (self._share(), self._share(brief=True))]
        return next((form for form in forms if len(form) <= room), forms[0])

    def one_row(self, room: int) -> str:
        """Return as much as fits in ``room`` cells of the problem, its share, and the number of servers."""
        again, names = self._share(brief=True), [words for words in (self.claim.sentence, self.summary) if words]
        of = f" ({self.many})" if self.servers else ""
        forms = [f"{words}: {again}" for words in names if again] + names
        return next((form + end for end in (of, "") for form in forms if len(form + end) <= room), forms[-1])

    def _share(self, *, brief: bool = False) -> str:
        """Say how much was recomputed; empty if nothing was, or if it is unknown."""
        spent, totals = self.finding.cost, self.totals
        again = "recomputed" if brief else "were recomputed"
        if spent.at_most is not None or (spent.tokens and (totals is None or totals.prompt_tokens < spent.tokens)):
            return f"{spent_tokens(spent)} {again}"
        if not spent.tokens or totals is None:
            return ""
        part = 100 * spent.tokens / totals.prompt_tokens
        all_ = "all" if spent.tokens == totals.prompt_tokens else f"{min(part, 99):.0f} %"
        said = "less than 1 %" if part < 1 else all_
        return f"{said} {again}" if brief else f"{said} of all prompt tokens {again}"


_NAMED = 3
"""Servers called by their names."""
_FEW = 2
"""Number of servers up to which the proof alone names the affected one; with more, readers may think that all are
meant."""
_Server = tuple[str | None, str | None]
"""Input, and name by the wrapper."""


class ReportView:
    """Statements about a report as a whole, and its findings; each is computed when a format first needs it."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.several = len(report.sessions) > 1
        """True if it is about several servers."""

    # ---- findings

    @cached_property
    def findings(self) -> list[FindingView]:
        """Each finding separately, in the order of the report."""
        return [self._view(finding) for finding in self.report.findings]

    @cached_property
    def causes(self) -> list[FindingView]:
        """Findings of one cause together, the most severe and costliest first."""
        found: list[FindingView] = []
        many = False
        for cause in causes(self.report.findings):
            own = [self.report.findings[at] for at in cause.findings]
            first = max(own, key=lambda f: f.cost.tokens)  # of equal ones the first
            if len({(f.path, f.origin) for f in own}) == 1:
                alone = self._alone(first) if first.origin is not None and len(self._servers) > _FEW else ""
                found += [self._view(f, alone) for f in own]
                continue
            many = True
            summed = msgspec.structs.replace(
                first, severity=cause.severity, count=cause.count, cost=_summed(cause, own),
                requests=[at for f in own for at in f.requests],
            )  # fmt: skip
            found.append(self._view(summed, self._named(own), first))
        if many:  # what many servers lose together may be more than what one of them does
            found.sort(key=lambda one: (-SEVERITY_ORDER[one.finding.severity], -one.finding.cost.tokens))
        found.sort(key=lambda one: one.finding.code == CUT)  # that the log is cut explains nothing by itself
        lead = _known_before(found)
        return found if lead is None else [lead, *(one for one in found if one is not lead)]

    def _view(self, finding: Finding, servers: str = "", first: Finding | None = None) -> FindingView:
        rule, at = self._rules.get(finding.code), finding.evidence[0].session if finding.evidence else -1
        return FindingView(
            finding,
            self.report.totals,
            self._fixes.get((finding.path, finding.origin)),
            self._places.get(at, finding.origin or "") if self.several else "",
            "" if rule is None else rule.summary,
            None if rule is None else rule.url,
            servers,
            first,
        )

    @cached_property
    def _rules(self) -> dict[str, RuleInfo]:
        return {rule.code: rule for rule in self.report.rules}

    @cached_property
    def _fixes(self) -> dict[_Server, Fix]:
        return {(fix.path, fix.origin): fix for fix in reversed(self.report.fix)}

    @cached_property
    def _places(self) -> dict[int, str]:
        """Names of the servers; empty if the input, which the proof names, identifies the server."""
        paths = {session.path for session in self.report.sessions}
        return {index: "" if name in paths else name for index, name in places(self.report.sessions).items()}

    @cached_property
    def _servers(self) -> dict[_Server, str]:
        """Names of all servers: as the wrapper shows, with the input where several inputs have that name; else the
        input."""
        known = dict.fromkeys((session.path, session.origin) for session in self.report.sessions)
        origins = Counter(origin for _, origin in known)
        return {
            (path, origin): f"{path} {origin}" if origin and origins[origin] > 1 else origin or path or ""
            for path, origin in known
        }

    def _alone(self, finding: Finding) -> str:
        name = self._servers.get((finding.path, finding.origin)) or finding.origin
        return f"1 of {number(len(self._servers))} servers: {name}"

    def _named(self, own: list[Finding]) -> str:
        """Name servers, the costliest first."""
        ranked, all_ = sorted(own, key=lambda f: -f.cost.tokens), len(self._servers)
        names = list(dict.fromkeys(self._servers.get((f.path, f.origin)) or f.origin or f.path or "" for f in ranked))
        if len(names) < 2:
            return ""
        more = f" and {number(len(names) - _NAMED)} more" if len(names) > _NAMED else ""
        of = f"all {number(len(names))}" if len(names) >= all_ else f"{number(len(names))} of {number(all_)}"
        return f"{of} servers: {', '.join(names[:_NAMED])}{more}"

    # ---- the whole

    @cached_property
    def cannot_tell(self) -> CannotTell | None:
        """Why requests could not be assessed; None if some could, or if a finding says it."""
        return coverage.cannot_tell(self.report)

    @cached_property
    def undecided(self) -> str:
        """The same as a sentence; empty if there is none."""
        return "" if self.cannot_tell is None else self.cannot_tell.sentence

    @cached_property
    def checked(self) -> str:
        """How many rules checked what; empty if there was nothing to check."""
        return coverage.checked(self.report)

    @cached_property
    def has_causes(self) -> bool:
        """Whether findings say what to do.

        A truncated log comes first only if nothing else can be stated about the requests: neither that they could not
        be assessed, nor that the cache works or did so far.
        """
        if any(finding.code != CUT for finding in self.report.findings):
            return True
        works = self.healthy is not None and self.healthy.key in ("cache works", "so far")
        reused = self.report.totals.cached_tokens > 0
        return bool(self.report.findings) and self.cannot_tell is None and not (works and reused)

    @property
    def is_decided(self) -> bool:
        """Whether the first cause is certain, so that what was not checked would not change what to do."""
        return self.has_causes and self.causes[0].finding.confidence == "high"

    def has_same_fix(self, one: FindingView) -> bool:
        """Whether the first thing to do about a further cause is the fix of the first one."""
        first = self.causes[0]
        if one is first or first.step is None or one.step is None or not first.step.commands:
            return False
        is_same = one.step.commands == first.step.commands
        of_one_server = (one.finding.path, one.finding.origin) == (first.finding.path, first.finding.origin)
        return is_same and of_one_server and {first.step.kind, one.step.kind} == {"fix"}

    @cached_property
    def healthy(self) -> Healthy | None:
        """What the cache did where no cause was found; None if there were no requests to look at."""
        return coverage.healthy(self.report, self.checked)

    @cached_property
    def tally(self) -> str:
        """How many causes there are: ``1 cause``, ``2 causes and 1 note``; one on many servers counts once."""
        each = causes(self.report.findings)
        notes = sum(cause.severity == "note" for cause in each)
        return " and ".join(count(n, noun) for n, noun in ((len(each) - notes, "cause"), (notes, "note")) if n)

    @cached_property
    def verdict(self) -> str:
        """What was found, and what could not be, in a sentence."""
        report = self.report
        open_rules = len({rule.code for rule in report.not_evaluated})
        left = f"; {count(open_rules, 'rule')} could not be checked" if open_rules else ""
        if report.findings and not self.has_causes and not self.undecided:
            return f"No cause found. {self.checked}{left}. {severities(report.findings)}."
        if report.findings:
            each = len(causes(report.findings))
            of = f", of {count(each, 'cause')}" if each < len(report.findings) else ""
            return f"{severities(report.findings)}{of}{left}."
        if report.filtered is not None:
            return f"No findings in the part that is shown{left}."
        if self.undecided:
            return self.undecided
        return (
            f"No findings. {self.checked}{left}." if self.checked else "No requests in the input: nothing was checked."
        )

    @cached_property
    def next_step(self) -> Last | None:
        """The one thing to do now, in a sentence or in the command that does it; None without any."""
        one = self.first_to_do
        return None if one is None or one.step is None else do_now.last(one.first, one.step, one.fix)

    @property
    def next_step_of(self) -> str:
        """Code of the finding that the next step is about, if that is not the first one."""
        one = self.first_to_do
        return "" if one is None or one is self.causes[0] else one.finding.code

    @cached_property
    def first_to_do(self) -> FindingView | None:
        """The first cause with something to do."""
        return next(iter(_able(self.causes)), None)

    @cached_property
    def hint(self) -> str | None:
        """The command that prints the first fix in the form of any launcher; None if it would not help."""
        paths = [info.path for info in self.report.inputs]
        if not self.causes or len(paths) != 1 or paths[0] == "-":
            return None
        one = self.causes[0]
        helps = one.fix is not None and one.fix.launcher is None and one.finding.code in one.fix.codes
        if one.step is None or not helps or not one.step.options or one.step.kind != "fix":
            return None
        return f"cachedoctor fix {shlex.quote(paths[0])} --launcher compose"


def _able(found: Sequence[FindingView]) -> list[FindingView]:
    """Causes that have something to do."""
    return [one for one in found if one.step is not None and one.step.kind != "no fix"]


def _known_before(found: Sequence[FindingView]) -> FindingView | None:
    """The cause that comes before a suspicion that costs more: one as severe that is known, costs something, and can
    be fixed; None if the first one is not a suspicion."""
    able = _able(found)
    if not able or able[0] is not found[0] or able[0].finding.confidence != "low":
        return None
    severity = able[0].finding.severity
    known = (one for one in able if one.finding.confidence != "low" and one.finding.cost.tokens)
    return next((one for one in known if one.finding.severity == severity), None)


def places(sessions: Sequence[Session]) -> dict[int, str]:
    """Name each server: its origin; else its input, if it is the only server there; else its number in the head of the
    report; a single server needs no name."""
    held = Counter(session.path for session in sessions)
    if len(sessions) < 2:
        return {session.index: "" for session in sessions}
    return {
        s.index: s.origin or (s.path if len(held) > 1 and held[s.path] == 1 else f"server {s.index + 1}")
        for s in sessions
    }


def _summed(cause: Cause, own: Sequence[Finding]) -> Cost:
    most = sum(f.cost.at_most if f.cost.at_most is not None else f.cost.tokens for f in own)
    by = {f.cost.ms_from for f in own if f.cost.ms is not None}
    ms = cause.ms if all(f.cost.ms is not None for f in own) else None  # a part is not a sum
    return Cost(
        cause.tokens, ms, "depth" if by == {"depth"} else "mean" if by else None, most if most > cause.tokens else None
    )
