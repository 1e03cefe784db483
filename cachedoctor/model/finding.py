"""What a rule found, what it could not check, and one cause across several servers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from cachedoctor.model.account import ClientName
from cachedoctor.model.bounds import Code, Count, LineNumber, Long, LongMs, Name, Share, Url
from cachedoctor.model.fix import ClientSetting, OptionChange, OptionReplay, option_rows
from cachedoctor.model.request import Request

Severity = Literal["error", "warning", "note"]
Confidence = Literal["high", "medium", "low"]

SEVERITY_ORDER: dict[str, int] = {"note": 0, "warning": 1, "error": 2}
CONFIDENCE_ORDER: dict[str, int] = {"low": 0, "medium": 1, "high": 2}


class Evidence(msgspec.Struct):
    """A line that proves a finding."""

    path: str
    session: Count
    """Index of the session."""
    line: LineNumber
    """Number of the line, from 1."""
    text: str
    """The line without its wrapper, as logged. The text may be hostile or secret, so do not print it to a terminal
    unescaped. Other formats show only a part of the text."""
    role: Literal["primary", "related"]
    label: str
    """What the line shows."""


class Cost(msgspec.Struct):
    """Tokens and time that the fix would have saved."""

    tokens: Long
    ms: LongMs | None
    """Time in milliseconds; None if the log has no timings."""
    ms_from: Literal["depth", "mean"] | None = None
    """Source of the time: the server's speed at that depth, fitted to its timings, or the mean speed of each request.
    Added after the first release of v1: may be missing."""
    at_most: Long | None = None
    """Upper bound of the tokens, if the log lacks the length of a prompt. In this case ``tokens`` is the lower bound.
    Added after the first release of v1: may be missing."""


class Remedy(msgspec.Struct):
    """What to do, and commands that can be copied."""

    text: str
    commands: list[str] = msgspec.field(default_factory=list)
    """Lines to copy. A line that begins with a dash contains options to add to the server command."""
    options: list[OptionChange] = msgspec.field(default_factory=list)
    """Changes to the command line and environment of the server. All of them belong together. Added after the first
    release of v1: may be missing."""
    settings: list[ClientSetting] = msgspec.field(default_factory=list)
    """Changes to the settings of a client. Added after the first release of v1: may be missing."""
    purpose: Literal["fix", "depends", "look"] = "fix"
    """Whether the remedy fixes the cause, helps only under conditions that its text names, or only shows more of the
    cause. Added after the first release of v1: may be missing."""
    replay: OptionReplay | None = None
    """Result of a replay with the options; None if the options were not replayed. Added after the first release of v1:
    may be missing."""

    def __post_init__(self) -> None:
        """Set ``commands`` from the options; a cachedoctor command alone fixes nothing."""
        if not self.commands:
            self.commands = option_rows(self.options)
        if self.purpose == "fix" and self.commands and all(c.startswith("cachedoctor ") for c in self.commands):
            self.purpose = "look"


_OPEN = "not excluded"


class RuledOut(msgspec.Struct):
    """A similar cause and the evidence that excludes it; or ``not excluded: `` and the reason why the cause is still
    possible."""

    name: Name
    why: str
    likelihood: Share | None = None
    """Likelihood of this cause, from 0 to 1, if the log does not exclude the cause and shows a likelihood. Added after
    the first release of v1: may be missing."""

    @property
    def label(self) -> str:
        """Its name, with its likelihood if known: ``slot-contention 72 %``."""
        return self.name if self.likelihood is None else f"{self.name} {100 * self.likelihood:.0f} %"

    @property
    def is_open(self) -> bool:
        """True if the log does not exclude it."""
        return self.why.startswith(_OPEN)


_SIDE = {
    "type": "object",
    "required": ["path", "kind", "chars", "tokens"],
    "properties": {
        "path": {"type": "string"},
        "kind": {"type": "string"},
        "chars": {"type": "integer", "minimum": 0},
        "tokens": {"type": "integer", "minimum": 0},
    },
}
_DIFFERENCE = {
    "type": ["object", "null"],
    "required": ["a", "b", "first", "common_prefix_tokens", "exact"],
    "properties": {
        "a": _SIDE,
        "b": _SIDE,
        "first": {
            "type": ["object", "null"],
            "required": ["token", "char", "line", "column", "place", "kind", "field", "a", "b", "advice"],
        },
        "common_prefix_tokens": {"type": "integer", "minimum": 0},
        "exact": {"type": "boolean", "description": "Token counts are the model's own."},
    },
}
"""The contract for ``diff``: less strict than cachedoctor.diff/1, because kinds may be added."""


class Finding(msgspec.Struct):
    """A cause, with all requests that it affects."""

    code: Code
    name: Name
    severity: Severity
    confidence: Confidence
    claim: str
    """What happened, with its numbers."""
    requests: list[Count]
    """Indexes of the first 20 and the worst 5 affected requests."""
    count: Count
    """Number of requests affected."""
    evidence: list[Evidence]
    """Lines that prove the finding, the main proof first; empty if only the command line proves the finding."""
    cost: Cost
    """Tokens and time that the fix would have saved."""
    why: str
    """Why the cache could not be used."""
    ruled_out: list[RuledOut]
    """Similar causes, and the evidence that excludes each. Causes in ``still_possible`` are listed here as "not
    excluded"."""
    diff: Annotated[Any, msgspec.Meta(extra_json_schema={"contract": _DIFFERENCE})]
    """Where two prompts given with the log diverge; None if none were compared. ``first`` is as in
    cachedoctor.diff/1."""
    remedies: list[Remedy]
    """What to do, the best remedy first."""
    references: list[Url]
    """URLs of upstream reports and sources about the cause."""
    path: str | None = None
    """Input that the entry is about. Added after the first release of v1: may be missing."""
    origin: str | None = None
    """Server that the wrapper names, as in the session. Added after the first release of v1: may be missing."""
    key: str = ""
    """Cause, if a code has several causes. Findings of one code differ in key, path or origin. Added after the first
    release of v1: may be missing."""
    still_possible: list[RuledOut] = msgspec.field(default_factory=list)
    """Similar causes that the log does not exclude, and why. Added after the first release of v1: may be missing."""

    def __post_init__(self) -> None:
        """Set ``still_possible`` from ``ruled_out`` if it is missing, as in reports of older versions."""
        if not self.still_possible:
            left = [other for other in self.ruled_out if other.is_open]
            self.still_possible = [replace(other, why=other.why.partition(": ")[2]) for other in left]

    @property
    def excluded(self) -> list[RuledOut]:
        """Look-alikes that something in the log excludes."""
        return [other for other in self.ruled_out if not other.is_open]

    @property
    def primary(self) -> Evidence | None:
        """The line that proves it, or None if no line does."""
        return next((e for e in self.evidence if e.role == "primary"), None)

    @property
    def identity(self) -> tuple[str, str, str | None, str | None]:
        """Key that distinguishes it from the other findings of its report, and is the same in later reports of the same
        log."""
        return self.code, self.key, self.path, self.origin


class NotEvaluated(msgspec.Struct):
    """A rule that this log has no data for."""

    code: Code
    name: Name
    reason: str
    enable: str
    """What would make the check possible, for this build."""


class Restart(msgspec.Struct):
    """The one server restart that would enable most of the unchecked rules."""

    command: str
    """Lines to copy: one exports variables, and one has options to add to the server command. Either may be missing."""
    text: str
    """What to know before the restart: whether the log will contain prompts, and what these builds cannot show."""
    codes: list[Code]
    """Codes of the rules that the restart enables."""
    options: list[OptionChange] = msgspec.field(default_factory=list)
    """The options that the command sets. Added after the first release of v1: may be missing."""


class RuleInfo(msgspec.Struct):
    """A rule, as named in reports."""

    code: Code
    name: Name
    summary: str
    url: Url
    """Path of its page, relative to the root of the repository."""


class Cause(msgspec.Struct):
    """Findings of one code and key, from all servers."""

    code: Code
    name: Name
    severity: Severity
    """Highest severity of the findings."""
    confidence: Confidence
    """Highest confidence of the findings. A log proves the cause only for its own server, so check each finding."""
    findings: list[Count]
    """Indexes of the findings, the costliest first."""
    servers: list[str]
    """Servers as the wrapper names them, or else inputs. Each occurs once, in the order of the findings."""
    count: Count
    """Requests affected, on all servers."""
    tokens: Long
    """Tokens that the fixes would have saved."""
    ms: LongMs | None
    """Time in milliseconds; None if no log has timings."""


def causes(findings: Iterable[Finding]) -> list[Cause]:
    """Group the findings by cause; causes are in the order of their first findings."""
    groups: dict[tuple[str, str], list[tuple[int, Finding]]] = {}
    for at, finding in enumerate(findings):
        groups.setdefault((finding.code, finding.key), []).append((at, finding))
    return [_cause(found) for found in groups.values()]


def _cause(found: list[tuple[int, Finding]]) -> Cause:
    findings = [finding for _, finding in found]
    first = findings[0]
    times = [f.cost.ms for f in findings if f.cost.ms is not None]
    return Cause(
        first.code,
        first.name,
        max((f.severity for f in findings), key=lambda s: SEVERITY_ORDER[s]),
        max((f.confidence for f in findings), key=lambda c: CONFIDENCE_ORDER[c]),
        [at for at, _ in found],
        list(dict.fromkeys(name for f in findings if (name := f.origin or f.path))),
        sum(f.count for f in findings),
        sum(f.cost.tokens for f in findings),
        round(sum(times), 3) if times else None,
    )


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Causes, and what they cost."""

    codes: tuple[str, ...] = ()
    """Codes of the rules that fired, in the order of evaluation."""
    expected_cached: int | None = None
    """Tokens that this build should have reused, given the slot's content; None if nothing was lost."""
    replay_missing: tuple[str, ...] = ()
    """Names of the numbers that the log lacks for ``expected_cached``."""
    avoidable_tokens: int = 0
    avoidable_ns: int = 0
    """Nanoseconds that fixing its causes would have saved, each token counted once."""
    slot_lost: bool = False
    """True if every cause is in the slot and the client changed nothing."""
    named: bool = False
    """A rule names a cause, even if that rule is switched off."""
    undecided: bool = False
    """Every cause is one of several that the log leaves open, or there was no loss at all."""
    guessed: bool = False
    """Every cause has a low confidence."""
    costliest: str | None = None
    """Code of the costliest cause; None if no rule names one."""
    left_open: tuple[str, ...] = ()
    """Codes of those rules that leave the cause open."""


NO_VERDICT = Verdict()
"""The verdict on a request without findings."""


class Judged(msgspec.Struct, frozen=True, gc=False):
    """A finished request and the verdict of the rules."""

    request: Request
    verdict: Verdict = NO_VERDICT
    asker: ClientName | None = None
    """Who sent it, according to its body; None if there is no body or it does not show it."""
