"""What reads a log of SGLang."""

from __future__ import annotations

from cachedoctor.engines.catalogue.logger import LoggerCatalogue
from cachedoctor.engines.catalogue.scanner import Plan
from cachedoctor.engines.detect import Reader
from cachedoctor.engines.sglang.facts import HEAD
from cachedoctor.engines.sglang.messages import ROWS
from cachedoctor.engines.sglang.tracker import Tracker

_CLOCK = rb"(?!(?:Receive|Finish): |\{)[^\n\[\"']*+(?:\[(?!" + HEAD + rb")[^\n\[\"']*+)*+\[" + HEAD
PREFIX = rb"(?:\[gpu(?:_id)?=\d{1,3}\] |" + _CLOCK + rb")"
"""Up to ``[2026-07-04 04:31:24 DP0 TP0] ``, with a progress bar glued before it; ``[gpu=0] `` in the middle of 2024.

Behind a quote stands text of a user: requests are logged without a prefix in 0.5.8 to 0.5.11, and a prompt may hold
a log.
"""

READER = Reader(LoggerCatalogue(ROWS, PREFIX), Plan(frozenset(row.id for row in ROWS)), Tracker)
