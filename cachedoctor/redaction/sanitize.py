"""What a report may quote: a few tokens of a prompt, and no secret. Every format quotes through this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast, overload

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import (
    Account,
    Advice,
    AgentDifference,
    AgentVerdict,
    BatchPeriod,
    CacheSample,
    ClientAccount,
    ComparedSide,
    Comparison,
    Counters,
    Difference,
    Evidence,
    Explanation,
    Finding,
    FindingChange,
    FindingSide,
    First,
    Fix,
    FixStep,
    InputInfo,
    LeastChange,
    LeastEdit,
    Line,
    Lint,
    LintError,
    LintHint,
    MeasuredRow,
    NotEvaluated,
    OptionChange,
    OtherFix,
    Part,
    PrefillBatch,
    PromptDiff,
    Reading,
    Remedy,
    Report,
    Restart,
    RuledOut,
    SamplePeriod,
    Session,
    Setting,
    Stats,
    StatsInput,
    StatsRow,
    StatsTable,
    TrialAnswer,
)
from cachedoctor.redaction import harmless_words
from cachedoctor.redaction.secrets import hidden, parted, without_cut_words
from cachedoctor.redaction.secrets_of_two import in_both

_SIDE = 64
"""Code points of a printed prompt shown on each side of its divergence from another prompt."""
_LOOK = 4096
"""Code points of a value in which secrets are searched for: many more than are shown of it."""
_PRINTED = late(
    r"\b(?:old|new): \.\.\."  # llama-server
    r"|\bprompt: (?=['\"])|\bprompt_token_ids: (?=\[)"  # vLLM, where it logs requests
    r"|\b(?:text|prompt|input_ids|messages)=(?=['\"\[])"  # SGLang, where it does
    r"|['\"](?:text|prompt|input_ids|output_ids|messages)['\"]: "
)
"""What comes before text of a prompt, or its tokens."""
_BAR = " | "
_SETTING = 80
"""Code points of a setting of a request."""
_FACT = 240
"""Code points of a fact in which two servers differ."""
_T = TypeVar("_T")
_TEXTS: dict[type, tuple[str, ...]] = {
    Account: ("client",),
    Advice: ("text", "commands"),
    AgentDifference: ("reason",),
    AgentVerdict: ("by", "reasons", "differences"),
    BatchPeriod: ("rank",),
    CacheSample: ("engine",),
    ClientAccount: ("name",),
    ComparedSide: ("servers", "error"),
    Comparison: ("before", "after", "findings", "differences"),
    Counters: ("engine", "model", "config", "cached_by_tier"),
    Explanation: ("text", "origin", "parts", "fields", "more"),
    Finding: (
        "claim", "why", "ruled_out", "still_possible", "remedies", "references", "origin", "evidence", "diff", "key",
    ),
    FindingChange: ("name", "before", "after", "note", "enable"),
    FindingSide: ("claims",),
    First: ("place", "field", "a", "b", "advice"),
    Fix: ("origin", "server", "options", "steps", "notes", "others"),
    FixStep: ("text", "commands"),
    InputInfo: ("error",),
    LeastChange: ("edits",),
    LeastEdit: ("field", "place", "words", "advice"),
    Line: ("text", "explanations"),
    Lint: ("errors", "hints", "template", "least"),
    LintError: ("field", "place", "explanation", "a", "b", "advice"),
    LintHint: ("place", "shown", "advice"),
    NotEvaluated: ("reason", "enable"),
    OptionChange: ("name", "value"),
    OtherFix: ("options", "steps", "notes"),
    Part: ("text",),
    PrefillBatch: ("rank",),
    Reading: ("text", "here"),
    Remedy: ("text", "commands", "options"),
    Report: ("inputs", "findings", "not_evaluated", "restart", "accounts", "clients", "fix", "agents"),
    Restart: ("command", "text", "options"),
    RuledOut: ("why",),
    SamplePeriod: ("engine",),
    Session: (
        "origin", "version", "version_min", "version_max", "model", "settings", "cmdline", "periods", "counters",
        "program",
    ),
    Setting: ("value",),
    Stats: ("inputs", "tables", "measured"),
    StatsInput: ("error",),
    StatsRow: ("group",),
    TrialAnswer: ("place", "words", "a", "b"),
}  # fmt: skip
"""Fields with text written by others, and fields with such structs; other text is cachedoctor's or a path."""


class ShownReport(Report):
    """A report as it may be shown: what every format is given, made by ``report`` alone."""


class _Sessions(Sequence[Session]):
    """Sessions as they may be shown, converted one by one, because a log can hold very many."""

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
        return mask(found) if isinstance(found, Session) else _Sessions(found)


def report(found: Report) -> ShownReport:
    """Return a report with everything redacted that must not be shown."""
    masked = mask(found)
    return ShownReport(**{**msgspec.structs.asdict(masked), "sessions": _Sessions(found.sessions)})


def mask(found: _T) -> _T:
    """Return a text, or what holds texts, as it may be shown; paths stay, as the user gave them."""
    return cast(_T, _mask(found))


def _mask(found: Any) -> Any:
    if isinstance(found, str):
        return name(found) if len(found) <= _SIDE else hidden(found)
    if isinstance(found, list):
        return [_mask(part) for part in found]
    if isinstance(found, dict):
        return {_mask(key): _mask(part) for key, part in found.items()}
    own = _OWN.get(type(found))
    if own is not None:
        return own(found)
    texts = _TEXTS.get(type(found))
    if texts is None:
        return found
    return msgspec.structs.replace(found, **{field: _mask(getattr(found, field)) for field in texts})


@lru_cache(maxsize=256)
def name(shown: str) -> str:
    """Return the name of a server, a client or a path of HTTP as it may be shown; a log shows it in every line."""
    return hidden(shown)


def is_shown(word: str | None) -> bool:
    """Whether a name that a log shows in every line may be shown as it is."""
    return word is None or (len(word) <= _SIDE and name(word) == word)


def _evidence(shown: Evidence) -> Evidence:
    return msgspec.structs.replace(shown, text=_few(shown.text))


def _diff(shown: PromptDiff) -> PromptDiff:
    """Return a difference of prompts as it may be shown; the user gave the prompts, so their text stays.

    Secrets are searched for in all that stands around the difference, and parts of them in what quotes it.
    """
    replace = msgspec.structs.replace
    settings = [replace(s, a=_setting(s.place, s.a), b=_setting(s.place, s.b)) for s in shown.settings]
    excerpt, first, around = shown.excerpt, mask(shown.first), shown.around
    explanation, least = hidden(shown.explanation), mask(shown.least)
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
        if least is not None:
            least = replace(least, edits=[_whole(edit, pair.without_parts) for edit in least.edits])
    return replace(
        shown, first=first, explanation=explanation, excerpt=excerpt, settings=settings, around=None,
        least=least,
    )  # fmt: skip


def _whole(edit: LeastEdit, without_parts: Callable[[str], str]) -> LeastEdit:
    """Return a change without parts of secrets that the first difference cuts."""
    field, place = edit.field and without_parts(edit.field), edit.place and without_parts(edit.place)
    return msgspec.structs.replace(edit, field=field, place=place, words=without_parts(edit.words))


def _setting(place: str, value: str) -> str:
    return harmless_words.model(value) if place == "model" and value else hidden(value)[:_SETTING]


def _difference(shown: Difference) -> Difference:
    """Secrets are hidden while they are complete: a value may be longer than the shown part."""
    before, after = (_beginning(hidden(text[:_LOOK]), len(text[_LOOK:]), _FACT) for text in (shown.before, shown.after))
    return msgspec.structs.replace(shown, name=hidden(shown.name), before=before, after=after)


def _table(shown: StatsTable) -> StatsTable:
    return shown if shown.by == "path" else msgspec.structs.replace(shown, rows=mask(shown.rows))


def _measured(shown: MeasuredRow) -> MeasuredRow:
    return shown if shown.by == "path" else msgspec.structs.replace(shown, group=mask(shown.group))


_OWN: dict[type, Callable[[Any], Any]] = {
    Difference: _difference,
    Evidence: _evidence,
    MeasuredRow: _measured,
    PromptDiff: _diff,
    StatsTable: _table,
}
"""Structs whose texts are hidden in another way."""


def fields(shown: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an event as they may be shown; a text may be a prompt, and a million characters long."""
    return {name: _field(found) for name, found in shown.items()}


def _field(found: Any) -> Any:
    if isinstance(found, dict):  # parts of a line that lists names with values
        return {value(str(key)): _field(part) for key, part in found.items()}
    return value(found) if isinstance(found, str) else found


def _few(text: str) -> str:
    """Keep the text of a printed prompt next to the bar; secrets are hidden first, while they are complete."""
    found = _PRINTED.search(text)
    if found is None:
        return hidden(text)
    return hidden(text[: found.end()]) + _printed(text[found.end() :], found[0].endswith("..."))


def _printed(prompt: str, is_cut: bool) -> str:
    """``is_cut``: whether the server truncated the text anywhere before printing it."""
    before, bar, after = prompt.partition(_BAR)
    if not bar:
        return _beginning(hidden("".join(without_cut_words([prompt])) if is_cut else prompt))
    before, after = parted(without_cut_words([before, after]))
    return _ending(before) + bar + _beginning(after)


def withheld(text: str) -> str:
    """Remove a printed prompt completely, for what is published; secrets are hidden."""
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
