"""What reads a log of TabbyAPI. Knows which rows are listened to."""

from __future__ import annotations

from cachedoctor.engines.logger import LoggerCatalogue
from cachedoctor.engines.measured import Reader
from cachedoctor.engines.scanner import Plan
from cachedoctor.engines.tabbyapi.messages import ROWS
from cachedoctor.engines.tabbyapi.tracker import Tracker

PREFIX = rb"(?:[A-Z]{4,8}: ++|(?:(?:generated )?+in )?+\d++(?:\.\d++)?+ )"
"""``INFO:     ``, or the words with which the second part of a broken line may begin: ``in 9.55 ``."""

READER = Reader(LoggerCatalogue(ROWS, PREFIX), Plan(frozenset(row.id for row in ROWS)), Tracker)
