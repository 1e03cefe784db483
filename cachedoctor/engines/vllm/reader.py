"""What reads a log of vLLM."""

from __future__ import annotations

from cachedoctor.engines.catalogue.logger import LoggerCatalogue
from cachedoctor.engines.catalogue.scanner import Plan
from cachedoctor.engines.detect import Reader
from cachedoctor.engines.vllm.messages import ROWS
from cachedoctor.engines.vllm.tracker import Tracker

_FILE = rb"[^\n.]*+(?:\.(?!py:\d)[^\n.]*+)*+\.py:\d{1,5}\] "
"""Up to ``[loggers.py:335] ``, whatever stands before: process, level, time, a progress bar, text of the user's own."""
_LMCACHE = rb"[^\n\]]*+(?:\](?! LMCache )[^\n\]]*+)*+\] LMCache [A-Z]{4,8}: ?"
"""Up to ``[2026-11-20 10:12:01,455] LMCache INFO: ``: LMCache names file and line behind the message.
With its colours the blank is lost at times."""
_ACCESS = rb"INFO: {1,6}[^\s\"]{1,64} - \""
_UVICORN = rb"[^\nI]*+(?:I(?!" + _ACCESS[1:] + rb")[^\nI]*+)*+(?=" + _ACCESS + rb")"
"""Up to uvicorn's ``INFO:     127.0.0.1:40782 - "POST ...``: from 0.10.1 to 0.30 the process is named before it.
Pages of the web leave one blank of five."""
_DYNAMO = rb"(?:\d{1,4}: )?(?:\d{4}-\d\d-\d\dT[\d:.]{8,18}Z)? {0,3}(?:TRACE|DEBUG|INFO|WARN|ERROR) [\w.:]{1,120}: "
"""Up to ``2025-06-25T10:49:46.116Z  INFO metrics.log: ``: Dynamo writes vLLM's messages by a logger of its own, which
names module and function. Before it may stand the number of a node; the time may have come off as a wrapper."""
_SGLANG = rb"(?:\[[^\n\]]{1,80}\] )?(?:(?:Receive|Finish): obj=|\{)"
"""A request that SGLang logs: its prompt may hold any line."""
PREFIX = rb"(?!" + _SGLANG + rb")(?:" + _FILE + rb"|" + _LMCACHE + rb"|" + _UVICORN + rb"|" + _DYNAMO + rb")"
"""What stands before a message, to be read possessively."""

READER = Reader(LoggerCatalogue(ROWS, PREFIX), Plan(frozenset(row.id for row in ROWS)), Tracker)
