"""What reads a log of TabbyAPI. Knows which rows are listened to."""

from __future__ import annotations

from cachedoctor.engines.logger import LoggerCatalogue
from cachedoctor.engines.measured import Reader
from cachedoctor.engines.scanner import Plan
from cachedoctor.engines.tabbyapi.messages import ROWS
from cachedoctor.engines.tabbyapi.tracker import Tracker

PREFIX = (
    rb"(?:(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6}+)?+ )?+(?:[A-Z]{4,8}: ++)?+(?=Metrics \(ID:)"
    rb"|[^\nc]*+(?:c(?!ached tokens and \d)[^\nc]*+)*+(?=cached tokens and \d))"
)
"""``2026-09-06 04:04:21.722 INFO:     ``, the time is newer; or what a later part of a broken line begins with."""

READER = Reader(LoggerCatalogue(ROWS, PREFIX), Plan(frozenset(row.id for row in ROWS)), Tracker)
