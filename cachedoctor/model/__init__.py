"""The nouns that flow through cachedoctor. Knows no engine, no rule, no file; imports nothing of ours."""

from __future__ import annotations

from cachedoctor.model.diff import Advice, Edit, Excerpt, First, Op, PromptDiff, Side
from cachedoctor.model.errors import CacheDoctorError
from cachedoctor.model.finding import (
    SEVERITY_ORDER,
    Confidence,
    Cost,
    Evidence,
    Finding,
    NotEvaluated,
    Remedy,
    RuledOut,
    RuleInfo,
    Severity,
)
from cachedoctor.model.lines import Mark, Segment
from cachedoctor.model.report import InputInfo, Report, RequestLines, Totals
from cachedoctor.model.request import Check, Dropped, Outcome, Request
from cachedoctor.model.session import Memory, Session, Setting

__all__ = [
    "SEVERITY_ORDER",
    "Advice",
    "CacheDoctorError",
    "Check",
    "Confidence",
    "Cost",
    "Dropped",
    "Edit",
    "Evidence",
    "Excerpt",
    "Finding",
    "First",
    "InputInfo",
    "Mark",
    "Memory",
    "NotEvaluated",
    "Op",
    "Outcome",
    "PromptDiff",
    "Remedy",
    "Report",
    "Request",
    "RequestLines",
    "RuleInfo",
    "RuledOut",
    "Segment",
    "Session",
    "Setting",
    "Severity",
    "Side",
    "Totals",
]
