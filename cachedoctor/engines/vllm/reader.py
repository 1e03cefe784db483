"""What reads a log of vLLM. Knows which rows are listened to."""

from __future__ import annotations

from cachedoctor.engines.logger import LoggerCatalogue
from cachedoctor.engines.measured import Reader
from cachedoctor.engines.scanner import Plan
from cachedoctor.engines.vllm.messages import ROWS
from cachedoctor.engines.vllm.tracker import Tracker

_FILE = rb"[^\n.]*+(?:\.(?!py:\d)[^\n.]*+)*+\.py:\d{1,5}\] "
"""Up to ``[loggers.py:335] ``, whatever stands before: process, level, time, a progress bar, text of the user's own."""
_LMCACHE = rb"[^\n\]]*+(?:\](?! LMCache )[^\n\]]*+)*+\] LMCache [A-Z]{4,8}: "
"""Up to ``[2026-11-20 10:12:01,455] LMCache INFO: ``: LMCache names file and line behind the message."""
_UVICORN = rb"[^\nI]*+(?:I(?!NFO: {4,6}\S)[^\nI]*+)*+(?=INFO: {4,6}\S)"
"""Up to uvicorn's ``INFO:     127.0.0.1:40782 - "POST ...``: from 0.10.1 to 0.30 the process is named before it."""
PREFIX = rb"(?:" + _FILE + rb"|" + _LMCACHE + rb"|" + _UVICORN + rb")"
"""What stands before a message, to be read possessively."""

READER = Reader(LoggerCatalogue(ROWS, PREFIX), Plan(frozenset(row.id for row in ROWS)), Tracker)
