"""The nouns that flow through cachedoctor. Imports nothing of ours."""

from __future__ import annotations

from cachedoctor.model.account import Account, AccountEntry, AccountRow
from cachedoctor.model.batch import PrefillBatch
from cachedoctor.model.cause import Cause, causes
from cachedoctor.model.client import ClientAccount, ClientBy, ClientName
from cachedoctor.model.comparison import (
    Change,
    ComparedSide,
    Comparison,
    Difference,
    Direction,
    FindingChange,
    FindingSide,
    Measure,
    Piece,
)
from cachedoctor.model.counters import Answer, Answers, Bucket, Counters
from cachedoctor.model.diff import (
    Advice,
    Around,
    Edit,
    Excerpt,
    First,
    KnownClient,
    Op,
    PromptDiff,
    RequestSetting,
    Side,
)
from cachedoctor.model.errors import CacheDoctorError
from cachedoctor.model.explanation import Explanation, Level, Line, Part, Reading, Wording
from cachedoctor.model.finding import (
    CONFIDENCE_ORDER,
    SEVERITY_ORDER,
    Confidence,
    Cost,
    Evidence,
    Finding,
    NotEvaluated,
    Remedy,
    Restart,
    RuledOut,
    RuleInfo,
    Severity,
)
from cachedoctor.model.fix import Fix, FixStep, Launcher, OtherFix
from cachedoctor.model.incident import Incident, IncidentName
from cachedoctor.model.kv_events import KvEvents
from cachedoctor.model.lint import Lint, LintError, LintHint, TrialAnswer
from cachedoctor.model.log_lines import Mark, Segment
from cachedoctor.model.observed import Between, Check, Dropped
from cachedoctor.model.option_change import ClientSetting, OptionChange, as_typed, left_out, option_rows
from cachedoctor.model.options import THRESHOLDS, Options, Threshold
from cachedoctor.model.period import BatchPeriod, Period, SamplePeriod, Since
from cachedoctor.model.report import Filtered, InputInfo, Report, RequestLines, Rows, SlotReuse, Totals, UnknownShape
from cachedoctor.model.request import Outcome, Request
from cachedoctor.model.row import CheckpointRow, Counted, RequestRow, counted, read_rows
from cachedoctor.model.sample import CacheSample
from cachedoctor.model.sent_bodies import SentBodies
from cachedoctor.model.session import Facts, Given, Memory, Server, Session, Setting, Sizes, Twins, Undecided, release
from cachedoctor.model.slow_turn import SlowTurn
from cachedoctor.model.stats import By, MeasuredRow, Stats, StatsInput, StatsRow, StatsTable
from cachedoctor.model.terms import MarkName, SettingName, Shows
from cachedoctor.model.verdict import NO_VERDICT, Judged, Verdict
from cachedoctor.model.view import MeasuredView, ServerView, SlotView, View

__all__ = [
    "CONFIDENCE_ORDER",
    "NO_VERDICT",
    "SEVERITY_ORDER",
    "THRESHOLDS",
    "Account",
    "AccountEntry",
    "AccountRow",
    "Advice",
    "Answer",
    "Answers",
    "Around",
    "BatchPeriod",
    "Between",
    "Bucket",
    "By",
    "CacheDoctorError",
    "CacheSample",
    "Cause",
    "Change",
    "Check",
    "CheckpointRow",
    "ClientAccount",
    "ClientBy",
    "ClientName",
    "ClientSetting",
    "ComparedSide",
    "Comparison",
    "Confidence",
    "Cost",
    "Counted",
    "Counters",
    "Difference",
    "Direction",
    "Dropped",
    "Edit",
    "Evidence",
    "Excerpt",
    "Explanation",
    "Facts",
    "Filtered",
    "Finding",
    "FindingChange",
    "FindingSide",
    "First",
    "Fix",
    "FixStep",
    "Given",
    "Incident",
    "IncidentName",
    "InputInfo",
    "Judged",
    "KnownClient",
    "KvEvents",
    "Launcher",
    "Level",
    "Line",
    "Lint",
    "LintError",
    "LintHint",
    "Mark",
    "MarkName",
    "Measure",
    "MeasuredRow",
    "MeasuredView",
    "Memory",
    "NotEvaluated",
    "Op",
    "OptionChange",
    "Options",
    "OtherFix",
    "Outcome",
    "Part",
    "Period",
    "Piece",
    "PrefillBatch",
    "PromptDiff",
    "Reading",
    "Remedy",
    "Report",
    "Request",
    "RequestLines",
    "RequestRow",
    "RequestSetting",
    "Restart",
    "Rows",
    "RuleInfo",
    "RuledOut",
    "SamplePeriod",
    "Segment",
    "SentBodies",
    "Server",
    "ServerView",
    "Session",
    "Setting",
    "SettingName",
    "Severity",
    "Shows",
    "Side",
    "Since",
    "Sizes",
    "SlotReuse",
    "SlotView",
    "SlowTurn",
    "Stats",
    "StatsInput",
    "StatsRow",
    "StatsTable",
    "Threshold",
    "Totals",
    "TrialAnswer",
    "Twins",
    "Undecided",
    "UnknownShape",
    "Verdict",
    "View",
    "Wording",
    "as_typed",
    "causes",
    "counted",
    "left_out",
    "option_rows",
    "read_rows",
    "release",
]
