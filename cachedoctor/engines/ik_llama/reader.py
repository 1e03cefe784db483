"""What reads a log of ik_llama.cpp. Knows which rows are listened to."""

from __future__ import annotations

from cachedoctor.engines.ik_llama.messages import ROWS
from cachedoctor.engines.ik_llama.tracker import Tracker
from cachedoctor.engines.logger import LoggerCatalogue
from cachedoctor.engines.measured import Reader
from cachedoctor.engines.scanner import Plan

PREFIX = rb"[A-Z]{3,5} \[[ \w]{1,64}+\] "
"""``INFO [   launch_slot_with_task] ``: level and function."""

READER = Reader(LoggerCatalogue(ROWS, PREFIX), Plan(frozenset(row.id for row in ROWS)), Tracker)
