"""What a report may quote: a few tokens of a prompt, and no secret. Every format quotes through this.

Knows which parts of a report, a diff, a comparison, sums and an explained line come from a user. Knows no format.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar, overload

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import (
    Advice,
    CacheSample,
    ClientAccount,
    Comparison,
    Counters,
    Difference,
    Evidence,
    Explanation,
    Finding,
    FindingChange,
    First,
    Fix,
    FixStep,
    Line,
    Lint,
    MeasuredRow,
    OptionChange,
    OtherFix,
    Period,
    PrefillBatch,
    PromptDiff,
    Remedy,
    Report,
    SamplePeriod,
    Session,
    Stats,
    StatsRow,
    StatsTable,
)
from cachedoctor.redaction import harmless_words
from cachedoctor.redaction.secrets import hidden, parted, without_cut_words
from cachedoctor.redaction.secrets_of_two import in_both

_SIDE = 64
"""Code points of a printed prompt that are shown on each side of the place where it parts from another."""
_LOOK = 4096
"""Code points of a value in which secrets are looked for: many more than are shown of it."""
_PRINTED = late(
    r"\b(?:old|new): \.\.\."  # llama-server
    r"|\bprompt: (?=['\"])|\bprompt_token_ids: (?=\[)"  # vLLM, where it logs requests
    r"|\b(?:text|prompt|input_ids|messages)=(?=['\"\[])"  # SGLang, where it does
    r"|['\"](?:text|prompt|input_ids|output_ids|messages)['\"]: "
)
"""What stands before text of a prompt, or its tokens."""
_BAR = " | "
_WORDS = ("version", "version_min", "version_max", "program")
_SETTING = 80
"""Code points of a setting of a request."""
_FACT = 240
"""Code points of a fact in which two servers differ."""
_Row = TypeVar("_Row", StatsRow, MeasuredRow)


class ShownReport(Report):
    """A report as it may be shown: what every format is given, made by ``report`` alone."""


class _Sessions(Sequence[Session]):
    """Sessions as they may be shown; a log can hold very many, so that nobody gets them all at once."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self._sessions = sessions

    def __len__(self) -> int:
        return len(self._sessions)

    @overload
    def __getitem__(self, at: int) -> Session: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Session]: ...
    def __getitem__(self, at: int | slice) -> Session | Sequence[Session]:
        found = self._sessions[at]
        return session(found) if isinstance(found, Session) else _Sessions(found)


def report(shown: Report) -> ShownReport:
    """Return a report as it may be shown."""
    findings = [finding(found) for found in shown.findings]
    parts = {"findings": findings, "sessions": _Sessions(shown.sessions), "fix": [fix(one) for one in shown.fix]}
    return ShownReport(**{**msgspec.structs.asdict(shown), **parts, "clients": clients(shown.clients)})


def clients(shown: Sequence[ClientAccount]) -> list[ClientAccount]:
    """Return the accounts of clients with their names as they may be shown: a route, or an id, may be a key."""
    return [msgspec.structs.replace(one, name=one.name and name(one.name)) for one in shown]


def fix(shown: Fix) -> Fix:
    """Return what is to be changed as it may be shown."""
    return msgspec.structs.replace(
        shown,
        origin=shown.origin and hidden(shown.origin),
        options=[_option(change) for change in shown.options],
        steps=list(map(_step, shown.steps)),
        notes=[hidden(note) for note in shown.notes],
        others=[
            OtherFix(
                [_option(change) for change in other.options],
                list(map(_step, other.steps)),
                [hidden(note) for note in other.notes],
            )
            for other in shown.others
        ],
    )


def _step(step: FixStep) -> FixStep:
    return msgspec.structs.replace(step, text=hidden(step.text), commands=[hidden(row) for row in step.commands])


def finding(shown: Finding) -> Finding:
    """Return a finding as it may be shown."""
    return msgspec.structs.replace(
        shown,
        claim=hidden(shown.claim),
        why=hidden(shown.why),
        ruled_out=[msgspec.structs.replace(other, why=hidden(other.why)) for other in shown.ruled_out],
        still_possible=[msgspec.structs.replace(other, why=hidden(other.why)) for other in shown.still_possible],
        remedies=[_remedy(remedy) for remedy in shown.remedies],
        references=[hidden(reference) for reference in shown.references],
        origin=shown.origin and hidden(shown.origin),
        evidence=[_evidence(e) for e in shown.evidence],
        diff=None if shown.diff is None else {**shown.diff, "first": _first(shown.diff["first"])},
        key=hidden(shown.key),
    )


def _remedy(shown: Remedy) -> Remedy:
    return msgspec.structs.replace(
        shown,
        text=hidden(shown.text),
        commands=[hidden(c) for c in shown.commands],
        options=[_option(change) for change in shown.options],
    )


def _option(shown: OptionChange) -> OptionChange:
    value = None if shown.value is None else hidden(shown.value)
    return msgspec.structs.replace(shown, name=hidden(shown.name), value=value)


def diff(shown: PromptDiff) -> PromptDiff:
    """Return a difference of prompts as it may be shown; the user gave the prompts, so their text stays.

    Secrets are looked for in all that stands around the difference, and parts of them in what quotes it.
    """
    replace = msgspec.structs.replace
    settings = [replace(s, a=_setting(s.place, s.a), b=_setting(s.place, s.b)) for s in shown.settings]
    excerpt, first, around = shown.excerpt, _first(shown.first), shown.around
    explanation = hidden(shown.explanation)
    if around is not None and excerpt is not None and first is not None:
        pair = in_both(around.a, around.b, around.common, around.spans_a, around.spans_b)
        before, a, after_a, first_a = pair.a
        _, b, after_b, first_b = pair.b
        excerpt = replace(excerpt, before=before, a=a, after_a=after_a, b=b, after_b=after_b)
        first = replace(
            first, a=first_a, b=first_b, place=first.place and pair.without_parts(first.place),
            field=first.field and pair.without_parts(first.field),
            advice=[replace(advice, text=pair.without_parts(advice.text)) for advice in first.advice],
        )  # fmt: skip
        explanation = pair.without_parts(explanation)
    return replace(
        shown, first=first, explanation=explanation, excerpt=excerpt, settings=settings, around=None,
    )  # fmt: skip


def _setting(place: str, value: str) -> str:
    return harmless_words.model(value) if place == "model" and value else hidden(value)[:_SETTING]


def lint(shown: Lint) -> Lint:
    """Return the answer of lint as it may be shown; the user gave the requests, so their text stays."""
    replace = msgspec.structs.replace
    return replace(
        shown,
        errors=[
            replace(
                error, field=error.field and hidden(error.field), place=error.place and hidden(error.place),
                explanation=hidden(error.explanation), a=hidden(error.a), b=hidden(error.b),
                advice=_advice(error.advice),
            )
            for error in shown.errors
        ],
        hints=[
            replace(hint, place=hint.place and hidden(hint.place), shown=hidden(hint.shown)) for hint in shown.hints
        ],
        template=[
            replace(answer, words=hidden(answer.words), a=hidden(answer.a), b=hidden(answer.b))
            for answer in shown.template
        ],
    )  # fmt: skip


def _advice(shown: list[Advice]) -> list[Advice]:
    return [msgspec.structs.replace(advice, text=hidden(advice.text)) for advice in shown]


def line(shown: Line) -> Line:
    """Return an explained line as it may be shown."""
    return msgspec.structs.replace(
        shown, text=hidden(shown.text), explanations=[_explanation(e) for e in shown.explanations]
    )


def _explanation(shown: Explanation) -> Explanation:
    return msgspec.structs.replace(
        shown,
        text=hidden(shown.text),
        parts=[msgspec.structs.replace(p, text=hidden(p.text)) for p in shown.parts],
        fields=[msgspec.structs.replace(f, text=f.text and hidden(f.text)) for f in shown.fields],
        more=hidden(shown.more),
    )


def _first(shown: First | None) -> First | None:
    if shown is None:
        return None
    return msgspec.structs.replace(
        shown,
        place=shown.place and hidden(shown.place),
        field=shown.field and hidden(shown.field),
        a=hidden(shown.a),
        b=hidden(shown.b),
        advice=_advice(shown.advice),
    )


@lru_cache(maxsize=256)
def name(shown: str) -> str:
    """Return the name of a server, a client or a path of HTTP as it may be shown; a log says it in every line."""
    return hidden(shown)


def session(shown: Session) -> Session:
    """Return a session as it may be shown."""
    settings = {
        name: msgspec.structs.replace(found, value=hidden(found.value)) if isinstance(found.value, str) else found
        for name, found in shown.settings.items()
    }
    model, origin = shown.model and hidden(shown.model), shown.origin and name(shown.origin)
    periods, counters = map(_period, shown.periods), map(_counters, shown.counters)
    words = {key: (said := getattr(shown, key)) and hidden(said) for key in _WORDS}
    return msgspec.structs.replace(
        shown, model=model, origin=origin, settings=settings, periods=list(periods), counters=list(counters), **words
    )


def _period(shown: Period) -> Period:
    """Return a period as it may be shown; what names an engine or a rank is a word of the log."""
    if isinstance(shown, SamplePeriod):
        return msgspec.structs.replace(shown, engine=shown.engine and name(shown.engine))
    return msgspec.structs.replace(shown, rank=shown.rank and name(shown.rank))


def measured(shown: CacheSample | PrefillBatch) -> CacheSample | PrefillBatch:
    """Return a sample or a batch as it may be shown."""
    if isinstance(shown, CacheSample):
        return msgspec.structs.replace(shown, engine=shown.engine and name(shown.engine))
    return msgspec.structs.replace(shown, rank=shown.rank and name(shown.rank))


def _counters(shown: Counters) -> Counters:
    words = {field: value and hidden(value) for field in ("engine", "model") for value in [getattr(shown, field)]}
    config = {hidden(key): hidden(value) for key, value in shown.config.items()}
    tiers = {name(tier): tokens for tier, tokens in shown.cached_by_tier.items()}
    return msgspec.structs.replace(shown, config=config, cached_by_tier=tiers, **words)


def comparison(shown: Comparison) -> Comparison:
    """Return a comparison as it may be shown; paths stay, as the user gave them."""
    sides = {
        name: msgspec.structs.replace(
            side, servers=[hidden(server) for server in side.servers], error=side.error and hidden(side.error)
        )
        for name, side in (("before", shown.before), ("after", shown.after))
    }
    return msgspec.structs.replace(
        shown,
        findings=[_change(found) for found in shown.findings],
        differences=[_difference(found) for found in shown.differences],
        **sides,
    )


def _change(shown: FindingChange) -> FindingChange:
    sides = {
        name: side and msgspec.structs.replace(side, claims=[hidden(claim) for claim in side.claims])
        for name, side in (("before", shown.before), ("after", shown.after))
    }
    words = {field: hidden(getattr(shown, field)) for field in ("name", "note", "enable")}
    return msgspec.structs.replace(shown, **words, **sides)


def _difference(shown: Difference) -> Difference:
    """Secrets are hidden while they are whole: a value may be longer than what is shown of it."""
    before, after = (_beginning(hidden(text[:_LOOK]), len(text[_LOOK:]), _FACT) for text in (shown.before, shown.after))
    return msgspec.structs.replace(shown, name=hidden(shown.name), before=before, after=after)


def stats(shown: Stats) -> Stats:
    """Return sums as they may be shown; paths stay, as the user gave them."""
    measured = [row if row.by == "path" else _group(row) for row in shown.measured]
    return msgspec.structs.replace(shown, tables=[_groups(table) for table in shown.tables], measured=measured)


def _groups(shown: StatsTable) -> StatsTable:
    if shown.by == "path":
        return shown
    return msgspec.structs.replace(shown, rows=[_group(row) for row in shown.rows])


def _group(row: _Row) -> _Row:
    """A row with the name of its group as it may be shown."""
    return msgspec.structs.replace(row, group=row.group and hidden(row.group))


def fields(shown: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an event as they may be shown; a text may be a prompt, and a million characters long."""
    return {name: _field(found) for name, found in shown.items()}


def _field(found: Any) -> Any:
    if isinstance(found, dict):  # parts of a line that lists names with values
        return {value(str(key)): _field(part) for key, part in found.items()}
    return value(found) if isinstance(found, str) else found


def _evidence(shown: Evidence) -> Evidence:
    return msgspec.structs.replace(shown, text=_few(shown.text))


def _few(text: str) -> str:
    """Leave of a printed prompt what stands next to the bar; secrets are hidden first, while they are whole."""
    found = _PRINTED.search(text)
    if found is None:
        return hidden(text)
    return hidden(text[: found.end()]) + _printed(text[found.end() :], found[0].endswith("..."))


def _printed(prompt: str, is_cut: bool) -> str:
    """``is_cut``: whether the server cut the text anywhere before it printed it."""
    before, bar, after = prompt.partition(_BAR)
    if not bar:
        return _beginning(hidden("".join(without_cut_words([prompt])) if is_cut else prompt))
    before, after = parted(without_cut_words([before, after]))
    return _ending(before) + bar + _beginning(after)


def withheld(text: str) -> str:
    """Leave nothing of a printed prompt, for what is published; secrets are hidden."""
    found = _PRINTED.search(text)
    return hidden(text) if found is None else f"{hidden(text[: found.end()])} (text withheld)"


def value(text: str, most: int = _SIDE) -> str:
    """Return a value of a line as a table may hold it: about its first ``most`` code points, else those at the bar."""
    before, bar, after = text.partition(_BAR)
    if not bar:
        return _beginning(hidden(text[:_LOOK]), len(text[_LOOK:]), most)
    left, right = parted(without_cut_words([before[-_LOOK:], after[:_LOOK]]))
    return _ending(left, len(before[:-_LOOK])) + bar + _beginning(right, len(after[_LOOK:]))


def _ending(text: str, more: int = 0) -> str:
    left = len(text) + more - _SIDE
    return text if left <= _SIDE else f" [... {left:,} characters ...] {text[-_SIDE:]}"


def _beginning(text: str, more: int = 0, most: int = _SIDE) -> str:
    left = len(text) + more - most
    return text if left <= _SIDE else f"{text[:most]} [... {left:,} characters ...]"
