"""What reads the lines of LM Studio's MLX engine. Knows which rows are listened to."""

from __future__ import annotations

from cachedoctor.engines.lmstudio.messages import ROWS
from cachedoctor.engines.lmstudio.tracker import Tracker
from cachedoctor.engines.logger import LoggerCatalogue
from cachedoctor.engines.measured import Reader
from cachedoctor.engines.scanner import Plan

PREFIX = rb"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d )?+(?:\[[^\]\n]{1,200}+\]:? ?){1,6}+"
"""``[coordinator][INFO]: ``, behind LM Studio's own date, level and model where these stand on the same line."""

READER = Reader(LoggerCatalogue(ROWS, PREFIX), Plan(frozenset(row.id for row in ROWS)), Tracker)
