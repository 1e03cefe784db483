"""Runs the rules over finished requests and groups what they report into findings.

Knows rules as such, not one of them by name. State is bounded: 8 requests per thread, one group per cause.
"""

from __future__ import annotations

from cachedoctor.doctor.groups import Groups, Key
from cachedoctor.doctor.memory import Memory
from cachedoctor.doctor.unanswered import not_evaluated
from cachedoctor.doctor.whole import noted, short
from cachedoctor.model import (
    SEVERITY_ORDER,
    Cost,
    Evidence,
    Finding,
    Mark,
    NotEvaluated,
    Options,
    Request,
    Session,
    Severity,
)
from cachedoctor.model.options import DEFAULTS
from cachedoctor.rules.base import Group, Hit, Note, Rule, Situation, Words
from cachedoctor.rules.registry import Broken
from cachedoctor.rules.signs import Plan, signs_of

MAX_SESSIONS = 256
"""Sessions whose requests are remembered; the lives of a server that are over are forgotten at once."""
_DOUBTFUL = frozenset({"partial", "reprocessed", "unknown"})
_HEALTHY = frozenset({"reused", "cold", "unknown", "cancelled"})
_TELLING = frozenset({"slept", "stale", "slot_file"})
"""Marks of requests that a rule may speak about though they lost nothing."""


class Diagnosis:
    """Feeds on finished requests; ``findings`` can be asked for at any time."""

    def __init__(self, rules: list[Rule], broken: list[Broken], options: Options = DEFAULTS) -> None:
        self._rules = rules
        self._options = options
        self._plan = Plan(rules)
        self._broken = broken
        self.failures: dict[str, str] = {}
        """What rules failed with, by code."""
        self.groups = Groups(options.ignored)
        self._memory: dict[int, Memory] = {}
        self._lives: dict[tuple[str, str | None], int] = {}
        """Last session of each server, by path and origin."""
        self._latest: int | None = None
        """Session that was asked for last; it stands last in ``_memory``."""
        self.doubtful = 0
        """Requests that lost tokens, or of which the log does not tell."""

    @property
    def avoidable_tokens(self) -> int:
        """Tokens that the fixes would have saved."""
        return self.groups.avoidable_tokens

    @property
    def avoidable_ms(self) -> float:
        """Time that the fixes would have saved, milliseconds."""
        return self.groups.avoidable_ms

    def revise(self, request: Request, session: Session) -> list[str]:
        """Examine a request again whose conversation was mistaken; returns the codes that opened a new finding."""
        memory = self._of(session)
        self.groups.retract(request)
        request.codes.clear()
        request.expected_cached, request.replay_missing = None, []
        request.avoidable_tokens = request.avoidable_ns = 0
        for queue in (*memory.threads.values(), *memory.slots.values()):
            if request in queue:
                queue.remove(request)
        return self._ask(request, session, memory)

    def examine(self, request: Request, session: Session) -> list[str]:
        """Run every rule on ``request``; returns the codes that opened a new finding."""
        memory = self._of(session)
        self.groups.speed(session).learn(request)
        if request.outcome in _DOUBTFUL and request.parent is None:
            self.doubtful += 1
        return self._ask(request, session, memory)

    def absorb(self, groups: Groups, doubtful: int, failures: dict[str, str]) -> None:
        """Take what was found in a later part of the logs."""
        self.groups.merge(groups)
        self.doubtful += doubtful
        self.failures.update(failures)

    def _of(self, session: Session) -> Memory:
        """What is remembered of a session; the life before it is forgotten, or else the one unused for longest."""
        if session.index == self._latest:
            return self._memory[session.index]
        memory = self._memory.pop(session.index) if session.index in self._memory else Memory()
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
        self.groups.forget(session)

    def forget(self) -> None:
        """No session of the inputs so far goes on."""
        for session in list(self._memory):
            self._forget(session)
        self._lives.clear()
        self._latest = None

    def _ask(self, request: Request, session: Session, memory: Memory) -> list[str]:
        thread = request.thread
        if thread is not None and thread >= memory.n_threads:
            memory.n_threads = thread + 1
        if request.outcome in _HEALTHY and not (
            request.partial
            or request.shifted
            or "restarted" in session.settings
            or not _TELLING.isdisjoint(request.marks)
        ):
            memory.remember(request)  # nothing that any rule could report
            return []
        # Requests may be asked about when later ones are known.
        number = request.index
        history = [r for r in memory.threads.get(thread, ()) if r.index < number] if thread is not None else []
        served = next((r for r in reversed(memory.slots.get(request.slot, ())) if r.index < number), None)
        situation = Situation(request, session, history, served, memory.n_threads, memory.steals, self._options)
        if situation.lost:
            request.expected_cached, request.replay_missing = situation.replayed.expected, situation.replayed.lacking
        opened = []
        for rule in self._plan.rules(signs_of(situation)):
            hit = self._check(rule, situation)
            if hit is None:
                continue
            situation.fired.add(rule.code)
            request.codes.append(rule.code)
            if self.groups.add(rule.code, hit, request, session) and rule.code not in self._options.ignored:
                opened.append(rule.code)
        if request.codes:
            request.avoidable_tokens, request.avoidable_ns = self.groups.cost_of(request)
        if situation.slot_taken:
            memory.steals += 1
        memory.remember(request)
        return opened

    def _check(self, rule: Rule, situation: Situation) -> Hit | None:
        try:
            return rule.check(situation)
        except Exception as error:  # one broken rule must not end the run
            self.failures[rule.code] = repr(error)
            return None

    # ---- what the report needs

    def findings(self) -> list[Finding]:
        """All findings, the costliest first."""
        by_code = {rule.code: rule for rule in self._rules}
        found = []
        for key, group in self.groups.items():
            if key[0] in self._options.ignored:
                continue
            rule = by_code[key[0]]
            found.append((group, _finding(rule, rule.words(group), group, key, self._options.warn_tokens)))
        found.sort(key=lambda f: (-SEVERITY_ORDER[f[1].severity], -f[1].cost.tokens, f[1].code))
        return [finding for _, finding in found]

    def inspect(self, sessions: list[Session]) -> list[Finding]:
        """Ask the rules that look at whole sessions; said once per input and cause."""
        found: dict[Key, Finding] = {}
        fired: dict[tuple[str, str | None], set[str]] = {}
        for (code, _, path, origin), _ in self.groups.items():
            fired.setdefault((path, origin), set()).add(code)
        for rule in self._rules:
            if rule.inspect is None or rule.code in self._options.ignored:
                continue
            for session in sessions:
                if session.engine != rule.engine:
                    continue
                try:
                    notes = rule.inspect(session, fired.get((session.path, session.origin), set()))
                except Exception as error:  # one broken rule must not end the run
                    self.failures[rule.code] = repr(error)
                    continue
                for note in notes:
                    shown = [("related" if at else "primary", *mark) for at, mark in enumerate(note.evidence)]
                    lines = [_evidence(role, mark, label, session.path, session) for role, mark, label in shown]
                    key = (rule.code, note.key, session.path, session.origin)
                    found.setdefault(key, noted(key, rule, note, lines))
                    fired.setdefault((session.path, session.origin), set()).add(rule.code)
        return sorted(found.values(), key=lambda finding: -SEVERITY_ORDER[finding.severity])

    def unknown_input(self, path: str) -> Finding | None:
        """The finding for an input in which nothing was recognised; None when its rule could not be loaded."""
        rule = next((rule for rule in self._rules if rule.name == "unknown-format"), None)
        if rule is None or rule.code in self._options.ignored:
            return None
        words = rule.words(None)
        words.claim = f"{path}: {words.claim}"
        return noted((rule.code, "", path, None), rule, Note(words, ""), [])

    def not_evaluated(self, sessions: list[Session]) -> list[NotEvaluated]:
        """Rules that these logs could not have shown, and what would enable them."""
        left = not_evaluated(self._rules, self._broken, self.failures, sessions, lost=self.doubtful > 0)
        return [rule for rule in left if rule.code not in self._options.ignored]

    @property
    def crashed(self) -> bool:
        """Whether a rule failed; the exit status tells."""
        return not self._options.ignored.issuperset([*self.failures, *(rule.code for rule in self._broken)])


def _severity(rule: Rule, group: Group, warn_tokens: int) -> Severity:
    if rule.severity != "by-cost":
        return rule.severity
    return "warning" if group.tokens >= warn_tokens else "note"


def _finding(rule: Rule, words: Words, group: Group, key: Key, warn_tokens: int) -> Finding:
    _, cause, path, origin = key
    marks = [("primary", *group.worst.primary), *(("related", *r) for r in group.worst.related)]
    evidence = [_evidence(role, mark, label, path, group.session) for role, mark, label in marks]
    worst = [number for _, number in group.top if number not in group.first]
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=_severity(rule, group, warn_tokens),
        confidence=group.worst.confidence,
        claim=words.claim,
        requests=group.first + worst,
        count=group.count,
        evidence=evidence,
        cost=_cost(group),
        why=words.why,
        ruled_out=words.ruled_out,
        diff=None if group.worst.difference is None else short(group.worst.difference),
        remedies=words.remedies,
        references=words.references,
        path=path,
        origin=origin,
        key=cause,
    )


def _cost(group: Group) -> Cost:
    if not group.ns:
        return Cost(group.tokens, None)
    return Cost(group.tokens, round(group.ns / 1e6, 3), "depth" if group.at_depth else "mean")


def _evidence(role: str, mark: Mark, label: str, path: str, session: Session) -> Evidence:
    text = mark.text.decode("utf-8", "replace")
    return Evidence(path, session.index, mark.line, text, "primary" if role == "primary" else "related", label)
