"""The log message of TabbyAPI that tells tokens of a request, whole and in parts.

Source: ``common/gen_logging.py`` and ``common/logger.py`` of TabbyAPI, which has no versions, and its logs of 2026-08 and
2026-09. Where its output is no terminal, rich breaks lines between words at 80 columns. Rows are data: no code here.
"""

from __future__ import annotations

from cachedoctor.engines.base import Message as R

ROWS: list[R] = [
    R("metrics", "tabbyapi", 0, 0, "I0", "Metrics (ID: {id:word}): {generated:d} tokens generated in {seconds:f} seconds (Queue: {queue_s:f} s, Process: {cached:d} cached tokens and {new:d} new tokens at {rates:text}",
      "INFO:     Metrics (ID: 0c3f2a5e7d1b4c6f8a9e0d2b4c6f8a9e): 242 tokens generated in 9.55 seconds (Queue: 0.0 s, Process: 3072 cached tokens and 517 new tokens at 1034.0 T/s, Generate: 26.71 T/s, Context: 3589 tokens)"),
    # the first part of a broken line: unknown text may follow
    R("begin", "tabbyapi", 0, 0, "I0", "Metrics (ID:",
      "2026-09-06 04:04:21.722 INFO:     Metrics (ID:"),
    # a later part: what stands before it is taken for a prefix, the number of cached tokens as well
    R("rest", "tabbyapi", 0, 0, "I0", "cached tokens and {new:d} new tokens at {rates:text}",
      "0.01 s, Process: 0 cached tokens and 5436 new tokens at 474.76 T/s, Generate:"),
    R("rest", "tabbyapi", 0, 0, "I0", "cached tokens and {new:d}",
      "in 1201.55 seconds (Queue: 0.0 s, Process: 130072 cached tokens and 13571"),
]
