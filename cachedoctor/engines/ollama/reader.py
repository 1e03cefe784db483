"""What reads the lines of ollama's own runners. Knows which rows are listened to."""

from __future__ import annotations

from cachedoctor.engines.logger import LoggerCatalogue
from cachedoctor.engines.measured import Reader
from cachedoctor.engines.ollama.messages import ROWS
from cachedoctor.engines.ollama.tracker import Tracker
from cachedoctor.engines.scanner import Plan

PREFIX = rb"time=\S++ level=[A-Z]++ (?:source=\S++ )?+"
"""Go's slog."""

READER = Reader(LoggerCatalogue(ROWS, PREFIX), Plan(frozenset(row.id for row in ROWS)), Tracker)
