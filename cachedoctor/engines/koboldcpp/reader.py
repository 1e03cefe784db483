"""What reads a log of KoboldCpp. Knows which rows are listened to."""

from __future__ import annotations

from cachedoctor.engines.koboldcpp.messages import ROWS
from cachedoctor.engines.koboldcpp.tracker import Tracker
from cachedoctor.engines.logger import LoggerCatalogue
from cachedoctor.engines.measured import Reader
from cachedoctor.engines.scanner import Plan

PREFIX = rb"(?:\r++|\[\d\d:\d\d:\d\d\] )"
"""A progress display begins with a carriage return; the line behind a reply has a clock in newer versions."""

READER = Reader(LoggerCatalogue(ROWS, PREFIX), Plan(frozenset(row.id for row in ROWS)), Tracker)
