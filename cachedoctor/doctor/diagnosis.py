"""Runs the rules over finished requests and groups what they report into findings.

Knows rules as such, not one of them by name. State is bounded: 8 requests per thread, one group per cause.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from cachedoctor.model import (
    SEVERITY_ORDER,
    Cost,
    Evidence,
    Finding,
    Mark,
    NotEvaluated,
    PromptDiff,
    Request,
    Session,
    Severity,
)
from cachedoctor.rules.base import WARN_TOKENS, Group, Hit, Rule, Situation, Words
from cachedoctor.rules.registry import Broken

WINDOW = 8
"""Requests of a thread that a rule can look back on."""
MAX_THREADS = 256
"""Threads remembered per session: they come and go, the oldest has long been forgotten."""
_DOUBTFUL = frozenset({"partial", "reprocessed", "unknown"})
_HEALTHY = frozenset({"reused", "cold", "unknown", "cancelled"})
_TELLING = frozenset({"slept", "stale", "slot_file"})
"""Marks of requests that a rule may speak about though they lost nothing."""
FIRST, WORST = 20, 5
"""Requests listed by a finding: the first and the worst."""


class _Memory(msgspec.Struct):
    """What is remembered of one session."""

    threads: dict[int, deque[Request]] = msgspec.field(default_factory=dict)
    slots: dict[int, Request] = msgspec.field(default_factory=dict)
    n_threads: int = 0
    steals: int = 0


class Diagnosis:
    """Feeds on finished requests; ``findings`` can be asked for at any time."""

    def __init__(self, rules: list[Rule], broken: list[Broken]) -> None:
        self._rules = rules
        self._any = [rule for rule in rules if rule.on == "any"]
        self._textless = [rule for rule in rules if rule.on != "text"]
        self._broken = broken
        self._crashed: dict[str, str] = {}
        self._groups: dict[tuple[str, str, str, str | None], Group] = {}
        self._memory: dict[int, _Memory] = {}
        self.sessions: list[Session] = []
        self._doubtful = 0
        """Requests that lost tokens, or of which the log does not tell."""
        self.avoidable_tokens = 0
        self.avoidable_ms = 0.0

    def examine(self, request: Request, session: Session, number: int) -> list[str]:
        """Run every rule on ``request``; returns the codes that opened a new finding."""
        memory = self._memory.setdefault(session.index, _Memory())
        thread = request.thread
        if thread is not None and thread >= memory.n_threads:
            memory.n_threads = thread + 1
        if request.outcome in _DOUBTFUL and request.parent is None:
            self._doubtful += 1
        if request.outcome in _HEALTHY and not (
            request.partial
            or request.shifted
            or "restarted" in session.settings
            or not _TELLING.isdisjoint(request.marks)
        ):
            _remember(memory, request)  # nothing that any rule could report
            return []
        history = list(memory.threads.get(thread, ())) if thread is not None else []
        situation = Situation(
            request, session, history, memory.slots.get(request.slot), memory.n_threads, memory.steals
        )
        opened, most = [], 0
        known = request.difference is not None or request.new_text is not None
        for rule in (self._rules if known else self._textless) if situation.lost else self._any:
            hit = self._check(rule, situation)
            if hit is None:
                continue
            situation.fired.add(rule.code)
            request.codes.append(rule.code)
            most = max(most, hit.tokens)
            if self._group(rule, hit, request, session, number):
                opened.append(rule.code)
        self.avoidable_tokens += most
        self.avoidable_ms += _share_ms(request, most)
        if situation.slot_taken:
            memory.steals += 1
        _remember(memory, request)
        return opened

    def _check(self, rule: Rule, situation: Situation) -> Hit | None:
        try:
            return rule.check(situation)
        except Exception as error:  # one broken rule must not end the run
            self._crashed[rule.code] = repr(error)
            return None

    def _group(self, rule: Rule, hit: Hit, request: Request, session: Session, number: int) -> bool:
        key = (rule.code, hit.key, session.path, session.origin)
        group = self._groups.get(key)
        new = group is None
        if group is None:
            group = self._groups[key] = Group(session, hit, request)
        elif hit.tokens > group.worst.tokens:
            group.worst, group.worst_request, group.session = hit, request, session
        group.count += 1
        group.tokens += hit.tokens
        group.ms += _share_ms(request, hit.tokens)
        if len(group.first) < FIRST:
            group.first.append(number)
        if len(group.top) < WORST or hit.tokens > group.top[-1][0]:
            group.top = sorted([*group.top, (hit.tokens, number)], key=lambda t: -t[0])[:WORST]
        return new

    # ---- what the report needs

    def findings(self) -> list[Finding]:
        """All findings, the costliest first."""
        by_code = {rule.code: rule for rule in self._rules}
        found = []
        for (code, _, path, _), group in self._groups.items():
            rule = by_code[code]
            found.append((group, _finding(rule, rule.words(group), group, path)))
        found.sort(key=lambda f: (-SEVERITY_ORDER[f[1].severity], -f[1].cost.tokens, f[1].code))
        return [finding for _, finding in found]

    def unknown_input(self, path: str) -> Finding | None:
        """The finding for an input in which nothing was recognised; None when its rule could not be loaded."""
        rule = next((rule for rule in self._rules if rule.name == "unknown-format"), None)
        if rule is None:
            return None
        words = rule.words(None)
        return Finding(
            code=rule.code,
            name=rule.name,
            severity="note",
            confidence="high",
            claim=f"{path}: {words.claim}",
            requests=[],
            count=1,
            evidence=[],
            cost=Cost(0, None),
            why=words.why,
            ruled_out=[],
            diff=None,
            remedies=words.remedies,
            references=[],
        )

    def not_evaluated(self, sessions: list[Session]) -> list[NotEvaluated]:
        """Rules that these logs could not have shown, and what would enable them."""
        out = [
            NotEvaluated(b.code, b.name, f"the rule could not be loaded: {b.error}", "report this as a bug")
            for b in self._broken
        ]
        for rule in self._rules:
            if rule.code in self._crashed:
                out.append(
                    NotEvaluated(
                        rule.code, rule.name, f"the rule failed: {self._crashed[rule.code]}", "report this as a bug"
                    )
                )
                continue
            if rule.on != "any" and not self._doubtful:
                continue  # nothing was lost, so there was nothing to explain
            active = [s for s in sessions if s.n_requests]
            needs = [rule.needs(s) for s in active]
            if needs and needs[0] is not None and all(need is not None for need in needs):
                out.append(NotEvaluated(rule.code, rule.name, needs[0][0], needs[0][1]))
        return sorted(out, key=lambda rule: rule.code)

    @property
    def crashed(self) -> bool:
        """Whether a rule failed; the exit status tells."""
        return bool(self._crashed or self._broken)


def _remember(memory: _Memory, request: Request) -> None:
    memory.slots[request.slot] = request
    if request.thread is not None:
        queue = memory.threads.get(request.thread)
        if queue is None:
            if len(memory.threads) >= MAX_THREADS:
                del memory.threads[next(iter(memory.threads))]
            queue = memory.threads[request.thread] = deque(maxlen=WINDOW)
        queue.append(request)


def _share_ms(request: Request, tokens: int) -> float:
    """Time of ``tokens`` at the speed that this request had, milliseconds."""
    if not request.prompt_ms or not request.processed_tokens:
        return 0.0
    return request.prompt_ms * min(tokens, request.processed_tokens) / request.processed_tokens


def _severity(rule: Rule, group: Group) -> Severity:
    if rule.severity != "by-cost":
        return rule.severity
    return "warning" if group.tokens >= WARN_TOKENS else "note"


def _finding(rule: Rule, words: Words, group: Group, path: str) -> Finding:
    marks = [("primary", *group.worst.primary), *(("related", *r) for r in group.worst.related)]
    evidence = [_evidence(role, mark, label, path, group.session) for role, mark, label in marks]
    worst = [number for _, number in group.top if number not in group.first]
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=_severity(rule, group),
        confidence=group.worst.confidence,
        claim=words.claim,
        requests=group.first + worst,
        count=group.count,
        evidence=evidence,
        cost=Cost(group.tokens, round(group.ms, 3) if group.ms else None),
        why=words.why,
        ruled_out=words.ruled_out,
        diff=None if group.worst.difference is None else _short(group.worst.difference),
        remedies=words.remedies,
        references=words.references,
    )


def _short(difference: PromptDiff) -> dict[str, Any]:
    """Where the prompts part, as the finding carries it; the excerpt stays out."""
    return {
        "a": difference.a,
        "b": difference.b,
        "first": difference.first,
        "common_prefix_tokens": difference.common_prefix_tokens,
        "exact": difference.exact,
    }


def _evidence(role: str, mark: Mark, label: str, path: str, session: Session) -> Evidence:
    text = mark.text.decode("utf-8", "replace")
    return Evidence(path, session.index, mark.line, text, "primary" if role == "primary" else "related", label)
