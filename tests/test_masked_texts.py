"""Each text of the documents is masked, or is one that only this program writes."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

import cachedoctor
from cachedoctor.model import Comparison, First, Line, Lint, PromptDiff, Report, Session, Stats
from cachedoctor.model.diff import Around
from cachedoctor.redaction import sanitize

KEY = "sk-proj-Zq81kkTTvv29sLLm0pQx"
ROOTS = (Report, PromptDiff, Comparison, Lint, Line, Stats)
PATHS = """
    ComparedSide.path Counters.path Counters.since Evidence.path Finding.path Fix.path InputInfo.path KvEvents.path
    Answers.path Lint.least_path LintError.path LintError.before LintHint.path RequestRow.path Session.path Side.path
    SlowTurn.path StatsInput.path UnknownShape.path
"""
"""As the user gave them."""
OURS = """
    AgentDifference.log
    AccountEntry.kind Answers.source Comparison.tool_version Comparison.why Counters.source Difference.caveat
    Evidence.label Explanation.builds Explanation.engine Explanation.meaning Explanation.message Explanation.program
    Explanation.sample Filtered.since Filtered.until Finding.code Finding.name FindingChange.code First.kind Fix.codes
    Fix.costs Fix.engine Fix.names InputInfo.engine KnownClient.fixed KnownClient.habit KnownClient.sources
    KnownClient.title KnownClient.writes ClientSetting.client ClientSetting.file ClientSetting.key ClientSetting.value
    ClientSetting.variable Level.level Level.shown Line.nearest LeastEdit.kind Lint.notes Lint.tokenizer
    LintError.kind LintHint.words
    Measure.name Measure.unit Measure.why NotEvaluated.code NotEvaluated.name Part.meaning PromptDiff.notes
    PromptDiff.reusable PromptDiff.summary PromptDiff.tokenizer Reading.label Reading.meaning Reading.name Reading.unit
    Report.ignored Report.tool_version RequestRow.at_least RequestRow.bounds RequestRow.codes RequestRow.derived
    RequestRow.identities RequestRow.replay_missing RequestRow.selected_by RequestSetting.place RequestSetting.words
    SamplePeriod.marks BatchPeriod.marks Restart.codes RuleInfo.code RuleInfo.name RuleInfo.summary RuleInfo.url
    RuledOut.name Session.build_source
    Session.engine Side.kind Stats.tool_version Tool.version TrialAnswer.name TrialAnswer.question Wording.text
"""
"""Text that only this program writes, a word of a fixed list, or what was given on the command line."""
MASKED_EARLIER = """
    RequestRow.client RequestRow.client_name RequestRow.endpoint RequestRow.time UnknownShape.shape
"""
"""Text that is masked, or matched by a narrow pattern, where the row is made."""
FOR_RULES = ("callers", "given", "incidents", "parted", "sent")
"""Fields of a session that rules read: no format does."""


def filled(kind: Any, name: str = "") -> Any:
    """A value of a type in which each text is a key."""
    if typing.get_origin(kind) is typing.Annotated:
        return filled(typing.get_args(kind)[0], name)
    parts = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if kind is str or kind is Any:
        return {"first": filled(First)} if name == "diff" else KEY
    if origin is Literal:
        return parts[0]
    if origin in (typing.Union, types.UnionType):
        return filled(next((part for part in parts if part is str), parts[0]), name)
    if origin in (list, Sequence):
        each = typing.get_args(parts[0]) if typing.get_origin(parts[0]) in (typing.Union, types.UnionType) else parts
        return [filled(part) for part in each]
    if origin in (dict, Mapping):
        return {filled(parts[0]): filled(parts[1])}
    if origin is tuple:
        return tuple(filled(part) for part in parts if part is not Ellipsis)
    if kind is Around:
        return Around(KEY, KEY, 0, [(0, len(KEY))] * 4, [(0, len(KEY))] * 4)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind, include_extras=True)
        fields = [field for field in kind.__struct_fields__ if kind is not Session or field not in FOR_RULES]
        return kind(**{field: filled(hints[field], field) for field in fields})
    return kind() if kind in (int, float, bool, bytes) else None


def texts_with_key(value: Any, place: str = "") -> Iterator[str]:
    """``Struct.field`` of each text that still holds the key."""
    if isinstance(value, str):
        if "Zq81kk" in value:
            yield place
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from texts_with_key(getattr(value, field), f"{type(value).__name__}.{field}")
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from texts_with_key(list(pair), place)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for part in value:
            yield from texts_with_key(part, place)


def test_each_text_is_masked_or_ours() -> None:
    found: set[str] = set()
    for root in ROOTS:
        made = filled(root)
        masked = sanitize.report(made) if root is Report else sanitize.mask(made)
        found.update(place.replace("ShownReport", "Report") for place in texts_with_key(masked))
    assert sorted(found) == sorted((PATHS + OURS + MASKED_EARLIER).split())


def test_no_format_reads_what_is_for_rules() -> None:
    read = re.compile(rf"\.({'|'.join(FOR_RULES)})\b")
    package = Path(cachedoctor.__file__).parent
    formats = list(package.glob("report/**/*.py"))
    assert len(formats) > 30
    assert [path.name for path in formats if read.search(path.read_text("utf-8"))] == []


def test_the_walk_sees_a_text_that_is_not_masked() -> None:
    found = set(texts_with_key(filled(Report)))
    assert {"Finding.claim", "Session.model", "First.a", "Setting.value", "FixStep.commands"} <= found
    assert "Session.model" not in set(texts_with_key(sanitize.mask(filled(Session))))
