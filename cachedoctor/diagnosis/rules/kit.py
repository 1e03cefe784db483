"""The parts of a rule: the request it checks, its match, its proof, its words, its registration.

Every rule answers the same questions: where does the common prefix end; was there a checkpoint at or below it; if not,
why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeGuard

import msgspec

from cachedoctor.diagnosis.rules.context import EARLY, LONG, MIN_LOST, SHORT, RuleContext, passed_over, was_emptied
from cachedoctor.diagnosis.rules.names import PAGES, family_engine, identify, path
from cachedoctor.diagnosis.rules.replaying import PRINTS_CHECKS
from cachedoctor.model import (
    Answer,
    BatchPeriod,
    Check,
    Confidence,
    Dropped,
    Facts,
    First,
    GivenOption,
    Incident,
    IncidentName,
    Mark,
    MarkName,
    OptionChange,
    PromptDiff,
    Remedy,
    Request,
    RuledOut,
    SamplePeriod,
    SentBodies,
    Session,
    Setting,
    SettingName,
    Severity,
    SignName,
    Undecided,
    as_typed,
    left_out,
)
from cachedoctor.model.measured import FULL, STATES_FULL

__all__ = [  # of the nouns of the model and the context, those that rules speak of; then the kit's own
    "EARLY", "FULL", "LONG", "MIN_LOST", "PRINTS_CHECKS", "SHORT", "STATES_FULL", "Answer", "BatchPeriod", "Check",
    "Confidence", "Dropped", "Facts", "First", "GivenOption", "Incident", "Mark", "MarkName", "OptionChange", "PromptDiff",
    "Remedy",
    "Request", "RuleContext",
    "RuledOut", "SamplePeriod", "SentBodies", "Session", "Setting", "SettingName", "Severity", "Undecided",
    "as_typed", "left_out", "passed_over", "was_emptied",
]  # fmt: skip

Line = tuple[Mark, str]
"""A line of the log, and what it shows."""
Label = tuple[MarkName, str]
"""The name of a line of a request, and what it shows there."""
PREFIX: Label = ("n_past", "common prefix with the slot's content")
PREFIX_AND_CONTENT: Label = ("n_past", "common prefix and slot's content, in tokens")
REUSED: Label = ("cached", "tokens reused")
RECOMPUTED: Label = ("timing", "tokens recomputed")


class Match(msgspec.Struct, gc=False):
    """A rule fired on one request."""

    tokens: int
    """Tokens that the fix would have saved."""
    confidence: Confidence
    key: str = ""
    """Matches with the same key are one finding."""
    found: Any = None
    """What the decision found, for the proof."""
    weak: bool = False
    """More causes silence it than other matches of its rule: ``RequestRule.weak_unless``."""
    at_most: int | None = None
    """Upper bound of ``tokens`` where the log leaves it open, as it lacks the length of the prompt."""
    severity: Severity | None = None
    """Severity, if it is not that of its rule."""
    undecided: bool = False
    """Another cause is possible, or nothing is wrong: the tokens are not summed as avoidable."""
    settles: bool = False
    """What the rule left open of earlier requests of the conversation is decided with it: they are asked about again."""


class Proof(msgspec.Struct):
    """The proof of a match, created if a request may become the worst of its finding."""

    primary: Line
    """The line that proves it. No finding is without one."""
    related: list[Line] = msgspec.field(default_factory=list)
    numbers: dict[str, Any] = msgspec.field(default_factory=dict)
    """Numbers for the words."""
    difference: PromptDiff | None = None
    """The prompts themselves, when they were given."""


class MatchGroup(msgspec.Struct, gc=False):
    """The matches of one rule with one key, which become a finding."""

    session: Session
    worst: Match
    worst_request: Request
    proof: Proof | None = None
    """Proof of the worst match; None if its rule failed to prove it."""
    count: int = 0
    tokens: int = 0
    at_most: int = 0
    """Upper bound of the tokens, if it is higher."""
    ns: int = 0
    """Time that the fix would have saved, nanoseconds."""
    at_depth: bool = False
    """The time follows from the speed at that depth, not from a request's mean speed."""
    first: list[int] = msgspec.field(default_factory=list)
    top: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(tokens, request) of the worst 5."""
    shared: dict[str, int] = msgspec.field(default_factory=dict)
    """Those tokens that also belong to a costlier cause of the same requests, by its code."""

    @property
    def numbers(self) -> dict[str, Any]:
        """Numbers of the worst match, for the words."""
        return self.proof.numbers if self.proof is not None else {}


class FindingText(msgspec.Struct):
    """The text of a finding."""

    claim: str
    why: str
    remedies: list[Remedy]
    ruled_out: list[RuledOut] = msgspec.field(default_factory=list)
    references: list[str] = msgspec.field(default_factory=list)


class ChangeText(msgspec.Struct):
    """A client's change between two prompts, in the words of its cause."""

    head: str
    """Begins the claim: ``a timestamp at token 8 changed``."""
    why: str
    remedies: list[Remedy]
    references: list[str] = msgspec.field(default_factory=list)


class SessionFinding(msgspec.Struct):
    """A rule's result for a whole session, whether or not a request lost tokens by it."""

    words: FindingText
    key: str
    """Findings with the same key are said once per input."""
    evidence: list[Line] = msgspec.field(default_factory=list)
    """Lines that prove it, the most important one first."""
    severity: Severity = "note"
    confidence: Confidence = "high"
    difference: PromptDiff | None = None
    """The prompts themselves, when they were given and prove it."""
    unless: tuple[str, ...] = ()
    """Codes that explain this better: if one of them fired in the input, this finding is left out."""
    of_cmdline: bool = False
    """The command line proves it, so that no line of the log has to."""

    def proven_in(self, session: Session) -> bool:
        """Whether a log line, the command line or given input proves it for this session."""
        beside = bool(session.counters or session.kv_events) or any(
            answers.source == "responses" for answers in session.answers
        )
        beside = beside or session.sent is not None
        return bool(self.evidence) or self.of_cmdline or beside


def finding(
    claim: str,
    why: str,
    remedies: list[Remedy],
    *,
    ruled_out: list[RuledOut] | None = None,
    references: list[str] | None = None,
    key: str = "",
    evidence: list[Line] | None = None,
    severity: Severity = "note",
    confidence: Confidence = "high",
    difference: PromptDiff | None = None,
    unless: tuple[str, ...] = (),
    of_cmdline: bool = False,
) -> SessionFinding:
    """Word a rule's result for a whole session."""
    words = FindingText(claim, why, remedies, ruled_out or [], references or [])
    return SessionFinding(words, key, evidence or [], severity, confidence, difference, unless, of_cmdline)


Prove = Callable[[RuleContext, Match], Proof]
OfBodies = Callable[[Session, PromptDiff], ChangeText | None]
Needs = Callable[[Session], tuple[str, str] | None]
"""(reason, what would enable it) when a log could not have shown a cause."""


def _needs_nothing(_: Session) -> None:
    return None


ANY = ""
"""Engine of a rule about sessions of any engine for which bodies or KV events were given."""


class Rule(msgspec.Struct):
    """A cause: how to detect it, and how to describe it."""

    code: str
    name: str
    summary: str

    @property
    def url(self) -> str:
        """Address of the rule's page, relative to the root of the repository."""
        return f"{PAGES}/{path(f'{self.code.lower()}_{self.name}'.replace('-', '_'))}.md"


class RequestRule(Rule):
    """A cause that single requests of llama-server show."""

    decide: Callable[[RuleContext], Match | None]
    """Cheap: called for every request with one of these signs."""
    prove: Prove
    """Lines and numbers; called if the match may become the worst of its finding."""
    say: Callable[[MatchGroup], FindingText]
    """Called when a report is made."""
    on: tuple[SignName, ...] = ("loss",)
    """``decide`` is called for requests with one of these signs."""
    unless: tuple[str, ...] = ()
    """Codes of causes that explain it better: they are checked first, and if one fired, this rule is silent."""
    weak_unless: tuple[str, ...] = ()
    """Codes of further causes that are checked first; if one fired, a weak match of this rule does not count."""
    only_with: tuple[str, ...] = ()
    """Codes of causes of which at least one must have fired; if empty, none has to."""
    needs: Needs = _needs_nothing
    severity: Literal["by-cost"] | Severity = "by-cost"
    engine: str = "llama.cpp"
    """Engine whose requests it is about."""
    alone: Callable[[Session], list[SessionFinding]] | None = None
    """What lines of a session show on their own if no request of its input shows the cause."""
    stated: tuple[IncidentName, ...] = ()
    """``alone`` is called for sessions of any engine that have one of these; if empty, for all sessions of its engine."""
    of_bodies: OfBodies | None = None
    """What a difference between given bodies is, if it is this cause: called if a log has no requests to match them to,
    whatever the engine."""


class SessionRule(Rule):
    """A cause that a whole session shows: checked once at the end for every session of its engine."""

    inspect: Callable[[Session], list[SessionFinding]]
    unless: tuple[str, ...] = ()
    """Codes that explain it better: if one of them fired in the input, this rule is silent."""
    needs: Needs = _needs_nothing
    severity: Literal["by-cost"] | Severity = "note"
    """Name of the rule in lists; each finding has its own name."""
    engine: str = "llama.cpp"
    """Engine whose sessions it is about."""
    on: tuple[IncidentName, ...] = ()
    """It is called for sessions of any engine that have one of these, and for no others; empty: for all of its engine."""


class InputRule(Rule):
    """The rule for an input in which nothing was recognised."""

    say: Callable[[str | None, str | None], FindingText]
    """Called with what the input looks like, and which part of that to give instead."""
    unless: tuple[str, ...] = ()
    needs: Needs = _needs_nothing
    severity: Literal["by-cost"] | Severity = "note"
    engine: str = "llama.cpp"


AnyRule = RequestRule | SessionRule | InputRule


def rule(
    module: str,
    summary: str,
    decide: Callable[[RuleContext], Match | None],
    prove: Prove,
    say: Callable[[MatchGroup], FindingText],
    *,
    on: tuple[SignName, ...] = ("loss",),
    unless: tuple[str, ...] = (),
    weak_unless: tuple[str, ...] = (),
    only_with: tuple[str, ...] = (),
    needs: Needs = _needs_nothing,
    severity: Literal["by-cost"] | Severity = "by-cost",
    engine: str = "llama.cpp",
    alone: Callable[[Session], list[SessionFinding]] | None = None,
    stated: tuple[IncidentName, ...] = (),
    of_bodies: OfBodies | None = None,
) -> RequestRule:
    """Make a rule about requests: ``RULE = kit.rule(__name__, "What happened", decide, PROOF, say)``."""
    code, name = identify(module)
    return RequestRule(
        code,
        name,
        summary,
        decide,
        prove,
        say,
        on,
        unless,
        weak_unless,
        only_with,
        needs,
        severity,
        engine,
        alone,
        stated,
        of_bodies,
    )


def session_rule(
    module: str,
    summary: str,
    inspect: Callable[[Session], list[SessionFinding]],
    *,
    unless: tuple[str, ...] = (),
    needs: Needs = _needs_nothing,
    severity: Literal["by-cost"] | Severity = "note",
    engine: str | None = None,
    on: tuple[IncidentName, ...] = (),
) -> SessionRule:
    """Make a rule about whole sessions; without ``engine``, of the one whose folder ``module`` is in."""
    code, name = identify(module)
    whose = family_engine(module) if engine is None else engine
    return SessionRule(code, name, summary, inspect, unless, needs, severity, whose, on)


def input_rule(module: str, summary: str, say: Callable[[str | None, str | None], FindingText]) -> InputRule:
    """Make the rule about an input in which nothing was recognised."""
    code, name = identify(module)
    return InputRule(code, name, summary, say)


def marked(request: Request, *wanted: Label) -> list[Line]:
    """Marks of ``request`` by name with their labels; names that it does not have are left out.

    Never empty: if a torn log kept none of them, the result is the request's first line.
    """
    found = [(request.marks[name], label) for name, label in wanted if name in request.marks]
    return found or [(request.marks["start"], "the request")]


def proof(
    request: Request,
    *wanted: Label,
    first: Line | None = None,
    most: int | None = None,
    also: list[Line] | None = None,
    numbers: dict[str, Any] | None = None,
) -> Proof:
    """Prove by ``first``, else by the first wanted line, with up to ``most`` more of these and all of ``also``."""
    found = marked(request, *wanted)
    primary, related = (found[0], found[1:]) if first is None else (first, found)
    return Proof(primary, [*related[:most], *(also or [])], numbers or {})


def lines(
    *wanted: Label,
    first: Label | None = None,
    most: int | None = None,
    numbers: Callable[[RuleContext], dict[str, Any]] | None = None,
) -> Prove:
    """Make a ``prove`` of only lines of the request: ``PROOF = kit.lines(("select", "the choice"), kit.REUSED)``."""

    def prove(s: RuleContext, _: Match) -> Proof:
        r = s.request
        proven_by = None if first is None else marked(r, first)[0]
        return proof(r, *wanted, first=proven_by, most=most, numbers=None if numbers is None else numbers(s))

    return prove


def stated(session: Session, name: IncidentName) -> Incident | None:
    """Return the first line of this kind that proves something by itself."""
    return session.incidents.get(name)


def unfinished(session: Session) -> bool:
    """Whether no request is in the log from start to end, so that single lines are the only proof."""
    return session.n_whole == 0


def said_by(setting: Setting | None, label: str) -> list[Line]:
    """Return the line that shows how the server is set, if the log has it."""
    if setting is None or setting.line is None or not setting.text:
        return []
    return [(Mark(setting.line, setting.text), label)]


def n(value: float | str | None) -> str:
    """Write a number with thousands separators; text stays as it is."""
    if isinstance(value, str):
        return value
    return "an unknown number of" if value is None else f"{value:,.0f}"


def token(place: float | str | None) -> str:
    """Name a place in a prompt: ``token 58``, and ``about token 58`` for ``~58``, a place known only from its text."""
    return f"about token {place[1:]}" if _is_about(place) else f"token {n(place)}"


def first_tokens(place: float | str | None) -> str:
    """Write how many tokens come before a place: ``the first 58``, ``about the first 58``."""
    return f"about the first {place[1:]}" if _is_about(place) else f"the first {n(place)}"


def _is_about(place: float | str | None) -> TypeGuard[str]:
    return isinstance(place, str) and place.startswith("~")


def length(request: Request, field: Literal["prompt_tokens", "held_tokens"]) -> str:
    """Write a length of a request with its certainty: ``2,104``, ``at least 2,104``, ``about 2,100``."""
    low, high = request.between.get(field, (None, None))
    found: int | None = getattr(request, field)
    if low is None:
        return n(found)
    if high is None:
        return f"at least {n(low)}"
    return n(low) if low == high else f"about {n((low + high) / 2)}"


def recomputed(group: MatchGroup) -> str:
    """Write the tokens of a finding, or their bounds in the log."""
    if group.at_most <= group.tokens:
        return f"{n(group.tokens)} tokens recomputed"
    if not group.tokens:
        return f"at most {n(group.at_most)} tokens recomputed"
    return f"{n(group.tokens)} to {n(group.at_most)} tokens recomputed"


def checkpoints(count: int) -> str:
    """Write that all checkpoints are somewhere, e.g. ``both checkpoints are``, before the place."""
    return (
        "the only checkpoint is"
        if count == 1
        else "both checkpoints are"
        if count == 2
        else f"all {n(count)} checkpoints are"
    )


def times(count: int) -> str:
    """Words for a count of requests."""
    return "1 request" if count == 1 else f"{count:,} requests"
