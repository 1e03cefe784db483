"""Runs the rules over finished requests and groups what they report into findings.

State is bounded: 8 requests per thread, one group per cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from cachedoctor.diagnosis.rules.kit import (
    ANY,
    AnyRule,
    FindingText,
    InputRule,
    Line,
    MatchGroup,
    Proof,
    RequestRule,
    RuleContext,
    SessionFinding,
    SessionRule,
    n,
)
from cachedoctor.diagnosis.rules.left_open import left_open
from cachedoctor.diagnosis.rules.measured import sent_changes
from cachedoctor.diagnosis.rules.registry import Broken, Plan, signs_of
from cachedoctor.diagnosis.rules.replaying import Setup
from cachedoctor.doctor.faults import described
from cachedoctor.doctor.findings.groups import FindingGroups, Key
from cachedoctor.doctor.findings.history import FindingHistory
from cachedoctor.doctor.findings.session_findings import not_evaluated, session_finding, short
from cachedoctor.knowledge.engines import ENGINES
from cachedoctor.model import (
    NO_VERDICT,
    SEVERITY_ORDER,
    AnalysisOptions,
    Cost,
    Evidence,
    Facts,
    Finding,
    Judged,
    Mark,
    NotEvaluated,
    PromptDiff,
    Request,
    Session,
    Severity,
    Verdict,
)
from cachedoctor.model.signs import MARKS_ALONE
from cachedoctor.model.terms import DEFAULTS, OF_INPUT, OF_SLOTS

MAX_SESSIONS = 256
"""Sessions whose requests are remembered; server runs that are over are forgotten at once."""
_DOUBTFUL = frozenset({"partial", "reprocessed", "unknown"})
_HEALTHY = frozenset({"reused", "cold", "unknown", "cancelled"})
_NAMED = 80
"""Characters that are kept of the name and position of a change; a name may have a million."""


class Diagnosis:
    """Feeds on finished requests; ``findings`` can be asked for at any time."""

    def __init__(self, rules: list[AnyRule], broken: list[Broken], options: AnalysisOptions = DEFAULTS) -> None:
        self._rules = rules
        self._options = options
        self._plan = Plan(rules)
        self._broken = broken
        self.failures: dict[str, str] = {}
        """What rules failed with, by code."""
        self.groups = FindingGroups(options.ignored, self.failures)
        self.opened: list[str] = []
        """Codes of new findings, until a caller removes them."""
        self._setup = Setup(Facts(-1, ""))
        """Setup of the server that was used last."""
        self._memory: dict[int, FindingHistory] = {}
        self._lives: dict[tuple[str, str | None], int] = {}
        """Last session of each server, by path and origin."""
        self._latest: int | None = None
        """Session that was asked for last; it stands last in ``_memory``."""
        self.reopened: list[Request] = []
        """Earlier requests about which later ones decided something: a caller takes them, and has them judged again."""
        self.doubtful = 0
        """Requests that lost tokens, or for which the log does not show whether they did."""

    @property
    def avoidable_tokens(self) -> int:
        """Tokens that the fixes would have saved."""
        return self.groups.avoidable_tokens

    @property
    def avoidable_ms(self) -> float:
        """Time that the fixes would have saved, milliseconds."""
        return self.groups.avoidable_ms

    def revise(self, request: Request, session: Session, difference: PromptDiff | None = None) -> Judged:
        """Examine a request again whose conversation was mistaken: what was said of its number is taken back."""
        memory = self._of(session)
        self.groups.retract(request.index)
        memory.forget(request.index)
        return self._ask(request, session, memory, difference)

    def examine(self, request: Request, session: Session, difference: PromptDiff | None = None) -> Judged:
        """Run every rule on ``request``; ``difference``: from the prompt before it, when both were given."""
        memory = self._memory[session.index] if session.index == self._latest else self._of(session)
        memory.speed.learn(request)
        if request.outcome in _DOUBTFUL and request.parent is None:
            self.doubtful += 1
        return self._ask(request, session, memory, difference)

    def merge(self, groups: FindingGroups, doubtful: int, failures: dict[str, str]) -> None:
        """Take what was found in a later part of the logs."""
        self.groups.merge(groups)
        self.doubtful += doubtful
        self.failures.update(failures)

    def _of(self, session: Session) -> FindingHistory:
        """What is remembered of a session; the life before it is forgotten, or else the one unused for longest."""
        memory = self._memory.pop(session.index) if session.index in self._memory else FindingHistory()
        server = (session.path, session.origin)
        before, self._lives[server] = self._lives.get(server, session.index), session.index
        if before < session.index:
            self._forget(before)
        self._memory[session.index] = memory
        if len(self._memory) > MAX_SESSIONS:
            self._forget(next(iter(self._memory)))
        self._latest = session.index
        return memory

    def _forget(self, session: int) -> None:
        self._memory.pop(session, None)

    def forget(self) -> None:
        """No session of the inputs so far continues."""
        for session in list(self._memory):
            self._forget(session)
        self._lives.clear()
        self._latest = None

    def _ask(self, request: Request, session: Session, memory: FindingHistory, difference: PromptDiff | None) -> Judged:
        if request.outcome in _HEALTHY and not _may_show(request):
            judged = Judged(request)
            memory.remember(judged)
            if request.outcome == "reused" and request.thread_turn:
                self.reopened += memory.weigh(request.index, request.cached_tokens or 0)
            return judged
        memory.see_turn(request)
        before, served = memory.before(request)
        s = RuleContext(
            request, self._setup_of(request.facts), before, served, memory.met(request.thread), memory.steals,
            self._options, difference, memory,
        )  # fmt: skip
        self.reopened += memory.weigh(request.index, s.lost if s.slot_taken else -s.lost if s.has_own_changed else 0)
        codes = self._fired(s, session, memory)
        if s.slot_taken:
            memory.steals += 1
        judged = Judged(request, self._verdict(s, tuple(codes)))
        memory.remember(judged)
        if self._options.ignored.isdisjoint(codes):
            return judged
        shown = msgspec.structs.replace(judged.verdict, codes=tuple(c for c in codes if c not in self._options.ignored))
        return Judged(request, shown)

    def _setup_of(self, facts: Facts) -> Setup:
        if self._setup.facts is not facts:
            self._setup = Setup(facts)
        return self._setup

    def _fired(self, s: RuleContext, session: Session, memory: FindingHistory) -> list[str]:
        """Ask the rules; returns the codes of those that matched."""
        codes: list[str] = []
        for rule, unless, weak_unless, only_with in self._plan.rules(signs_of(s)):
            if (codes and not unless.isdisjoint(codes)) or (only_with and only_with.isdisjoint(codes)):
                continue
            try:
                match = rule.decide(s)
            except Exception as error:  # one broken rule must not end the run
                self.failures[rule.code] = described(error)
                continue
            if match is None or (match.weak and not weak_unless.isdisjoint(codes)):
                continue
            if s.rough and (match.tokens or match.at_most):
                match.confidence = "low"
            elif s.facts.lenient and match.confidence == "high" and (match.tokens or match.at_most):
                match.confidence = "medium"
            codes.append(rule.code)
            if match.settles:
                self.reopened += memory.settle(s.request, rule.code)
            if self.groups.add(rule, match, s, session, memory.speed) and rule.code not in self._options.ignored:
                self.opened.append(rule.code)
        return codes

    def _verdict(self, s: RuleContext, codes: tuple[str, ...]) -> Verdict:
        if not s.lost and not codes:
            return NO_VERDICT
        expected, missing = s.replayed.answer if s.lost else (None, ())
        if not codes:
            return Verdict(codes, expected, missing)
        tokens, ns, costliest, undecided, guessed, is_open = self.groups.said_of(s.request)
        slot_lost, named = _sides(codes)
        return Verdict(codes, expected, missing, tokens, ns, slot_lost, named, undecided, guessed, costliest, is_open)

    # ---- what the report needs

    def findings(self) -> list[Finding]:
        """All findings, the costliest first."""
        by_code = {rule.code: rule for rule in self._rules if isinstance(rule, RequestRule)}
        found: list[Finding] = []
        worst: list[int] = []
        for key, group in self.groups.items():
            if key[0] in self._options.ignored or group.proof is None:
                continue
            rule = by_code[key[0]]
            words = self._say(rule, group)
            if words is not None:
                found.append(_finding(rule, words, group, group.proof, key, self._options.warn_tokens))
                worst.append(group.worst_request.index)
        found = [_without_found(finding, number, found) for finding, number in zip(found, worst, strict=True)]
        found.sort(key=lambda finding: (-SEVERITY_ORDER[finding.severity], -finding.cost.tokens, finding.code))
        return found

    def _say(self, rule: RequestRule, group: MatchGroup) -> FindingText | None:
        try:
            return rule.say(group)
        except Exception as error:  # one broken rule must not end the run
            self.failures[rule.code] = described(error)
            return None

    def inspect(self, sessions: list[Session], *, ended: bool = True) -> list[Finding]:
        """Ask the rules what whole sessions show, or lines of them by themselves; said once per input and cause.

        ``ended``: no request can come any more that shows what such a line cost.
        """
        found: dict[Key, Finding] = {}
        fired: dict[tuple[str, str | None], set[str]] = {}
        for (code, _, path, origin), _ in self.groups.items():
            fired.setdefault((path, origin), set()).add(code)
        for rule in self._rules:
            if isinstance(rule, InputRule) or rule.code in self._options.ignored:
                continue
            for session in sessions:
                server = session.path, session.origin
                codes = fired.setdefault(server, set())
                if not _is_about(rule, session) or not codes.isdisjoint(rule.unless):
                    continue
                if isinstance(rule, RequestRule) and (rule.code in codes or not ended):
                    continue  # a request shows it, or another life of the server; or one may
                for said in self._inspect(rule, session):
                    if codes.isdisjoint(said.unless):
                        key = (rule.code, said.key, *server)
                        found.setdefault(key, session_finding(key, rule, said, _evidence(said.evidence, session)))
                        codes.add(rule.code)
        return sorted(found.values(), key=lambda finding: -SEVERITY_ORDER[finding.severity])

    def _inspect(self, rule: SessionRule | RequestRule, session: Session) -> list[SessionFinding]:
        try:
            if isinstance(rule, SessionRule):
                found = rule.inspect(session)
            else:
                found = [] if session.sent is None else sent_changes.findings(session, rule.of_bodies)
                found = found or ([] if rule.alone is None else rule.alone(session))
            if not all(said.proven_in(session) for said in found):
                raise ValueError("a finding without a line")
            return found
        except Exception as error:  # one broken rule must not end the run
            self.failures[rule.code] = described(error)
            return []

    def unknown_input(self, path: str, looks: str | None, give: str | None) -> Finding | None:
        """The finding for an input in which nothing was recognised; None when no rule for it could be loaded.

        ``looks``: what it looks like; ``give``: what of that to give.
        """
        rule = next((rule for rule in self._rules if isinstance(rule, InputRule)), None)
        if rule is None or rule.code in self._options.ignored:
            return None
        words = rule.say(looks, give)
        words.claim = f"{'<stdin>' if path == '-' else path}: {words.claim}"
        return session_finding((rule.code, "", path, None), rule, SessionFinding(words, "", of_cmdline=True), [])

    def not_evaluated(self, sessions: list[Session], findings: Sequence[Finding] = ()) -> list[NotEvaluated]:
        """Rules that these logs could not have shown, and what would enable them; one with a finding was evaluated."""
        left = not_evaluated(self._rules, self._broken, self.failures, sessions, lost=self.doubtful > 0)
        evaluated = {finding.code for finding in findings} - self.failures.keys()
        return [rule for rule in left if rule.code not in self._options.ignored | evaluated]

    @property
    def crashed(self) -> bool:
        """Whether a rule failed; the exit status tells."""
        return not self._options.ignored.issuperset([*self.failures, *(rule.code for rule in self._broken)])


@lru_cache(maxsize=1024)  # a log has few combinations of causes
def _sides(codes: tuple[str, ...]) -> tuple[bool, bool]:
    """Whether all of them are of slots, and whether one of them has another cause than the input."""
    return all(code.startswith(OF_SLOTS) for code in codes), not all(code.startswith(OF_INPUT) for code in codes)


def _is_about(rule: SessionRule | RequestRule, session: Session) -> bool:
    """Whether a rule is asked about a session: of its engine, or with a line that states by itself what it is about."""
    if isinstance(rule, RequestRule):
        if rule.of_bodies is not None and (session.sent is not None or session.engine in ENGINES):
            return True
        if rule.alone is None:
            return False
    stated = rule.on if isinstance(rule, SessionRule) else rule.stated
    if stated:
        return not session.incidents.keys().isdisjoint(stated)
    return session.engine == rule.engine or (rule.engine == ANY and bool(session.sent or session.kv_events))


def _may_show(request: Request) -> bool:
    """Whether a request without a loss has a sign that some rule is asked about."""
    if request.partial or request.shifted or request.seen.truncated or request.together_tokens:
        return True
    if "restarted" in request.facts.settings:
        return True
    if request.outcome == "unknown" and (request.seen.new_text is not None or request.cut or request.seen.forced):
        return True
    return not MARKS_ALONE.isdisjoint(request.marks)


def _severity(rule: RequestRule, group: MatchGroup, warn_tokens: int) -> Severity:
    if group.worst.severity is not None:
        return group.worst.severity
    if rule.severity != "by-cost":
        return rule.severity
    return "warning" if group.tokens >= warn_tokens else "note"


def _finding(
    rule: RequestRule, words: FindingText, group: MatchGroup, proof: Proof, key: Key, warn_tokens: int
) -> Finding:
    _, cause, path, origin = key
    confidence = "low" if group.session.mixed else group.worst.confidence
    worst = [number for _, number in group.top if number not in group.first]
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=_severity(rule, group, warn_tokens),
        confidence=confidence,
        claim=words.claim + _changed(words.claim, proof.difference, group.count) + _overlap(group),
        requests=group.first + worst,
        count=group.count,
        evidence=_evidence([proof.primary, *proof.related], group.session),
        cost=_cost(group),
        why=words.why,
        ruled_out=words.ruled_out if confidence == "high" else left_open(rule.code, group, words.ruled_out),
        diff=None if proof.difference is None else short(proof.difference),
        remedies=words.remedies,
        references=words.references,
        path=path,
        origin=origin,
        key=cause,
    )


def _without_found(finding: Finding, worst: int, findings: Sequence[Finding]) -> Finding:
    """A finding without what excludes, by its ``worst`` request, a cause that others of its requests have."""
    of_others = {
        other.name
        for other in findings
        if worst not in other.requests and (other.path, other.origin) == (finding.path, finding.origin)
        and not set(finding.requests).isdisjoint(other.requests)
    }  # fmt: skip
    if of_others.isdisjoint(out.name for out in finding.ruled_out):
        return finding
    left = [out for out in finding.ruled_out if out.is_open or out.name not in of_others]
    return replace(finding, ruled_out=left)


def _changed(claim: str, found: PromptDiff | None, count: int) -> str:
    """Name the tool, message or field that changed, where the prompts themselves were given, unless the claim does."""
    first = None if found is None else found.first
    if first is None or not first.place or first.place in claim:
        return ""
    named = first.field if first.field and first.field not in claim else ""
    where = ", ".join(part[:_NAMED] for part in (first.place, named) if part)
    return f"; changed: {where}" if count == 1 else f"; changed in the costliest request: {where}"


def _overlap(group: MatchGroup) -> str:
    """Say which of the tokens another finding has, too: in all that could be avoided they count once."""
    parts = [f"{n(tokens)} are also counted under {code}" for code, tokens in sorted(group.shared.items())]
    if group.shared and set(group.shared.values()) == {group.tokens}:
        return f"; all of these tokens are also counted under {' and '.join(sorted(group.shared))}"
    return f"; of these tokens, {' and '.join(parts)}" if parts else ""


def _cost(group: MatchGroup) -> Cost:
    most = group.at_most if group.at_most > group.tokens else None
    if not group.ns:
        return Cost(group.tokens, None, at_most=most)
    return Cost(group.tokens, round(group.ns / 1e6, 3), "depth" if group.at_depth else "mean", most)


def _evidence(lines: list[Line], session: Session) -> list[Evidence]:
    """The lines that prove a finding, the first of them first of all."""
    found = [_line(mark, label, session) for mark, label in lines]
    for related in found[1:]:
        related.role = "related"
    return found


def _line(mark: Mark, label: str, session: Session) -> Evidence:
    file = session.file_of(mark.line)
    return Evidence(
        file.path, session.index, mark.line - file.before, mark.text.decode("utf-8", "replace"), "primary", label
    )
