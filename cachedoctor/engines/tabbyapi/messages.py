"""The log message of TabbyAPI that tells tokens of a request, whole and in parts.

Source: ``common/gen_logging.py`` and ``common/logger.py`` of TabbyAPI, which has no versions. Where its output is no
terminal, rich breaks lines between words at 80 columns. Rows are data: no code here.
"""

from __future__ import annotations

from cachedoctor.engines.base import Message as R

ROWS: list[R] = [
    R("metrics", "tabbyapi", 0, 0, "I0", "Metrics (ID: {id:word}): {generated:d} tokens generated in {seconds:f} seconds (Queue: {queue_s:f} s, Process: {cached:d} cached tokens and {new:d} new tokens at {rates:text}",
      "INFO:     Metrics (ID: 0c3f2a5e7d1b4c6f8a9e0d2b4c6f8a9e): 242 tokens generated in 9.55 seconds (Queue: 0.0 s, Process: 3072 cached tokens and 517 new tokens at 1034.0 T/s, Generate: 26.71 T/s, Context: 3589 tokens)"),
    R("begin", "tabbyapi", 0, 0, "I0", "Metrics (ID: {id:word}): {generated:d} tokens",
      "INFO:     Metrics (ID: 0c3f2a5e7d1b4c6f8a9e0d2b4c6f8a9e): 102400 tokens"),
    R("begin", "tabbyapi", 0, 0, "I0", "Metrics (ID: {id:word}): {generated:d} tokens generated",
      "INFO:     Metrics (ID: 0c3f2a5e7d1b4c6f8a9e0d2b4c6f8a9e): 242 tokens generated"),
    R("begin", "tabbyapi", 0, 0, "I0", "Metrics (ID: {id:word}): {generated:d} tokens generated in",
      "INFO:     Metrics (ID: 0c3f2a5e7d1b4c6f8a9e0d2b4c6f8a9e): 7 tokens generated in"),
    # what stands before it, "generated in 1201.5 ", "in 9.55 " or "9.55 ", is taken for a prefix
    R("rest", "tabbyapi", 0, 0, "I0", "seconds (Queue: {queue_s:f} s, Process: {cached:d} cached tokens and {new:d}",
      "generated in 201.55 seconds (Queue: 0.0 s, Process: 30072 cached tokens and 13571"),
    R("rest", "tabbyapi", 0, 0, "I0", "seconds (Queue: {queue_s:f} s, Process: {cached:d} cached tokens and {new:d} new",
      "in 1201.55 seconds (Queue: 0.0 s, Process: 130072 cached tokens and 13571 new"),
    R("rest", "tabbyapi", 0, 0, "I0", "seconds (Queue: {queue_s:f} s, Process: {cached:d} cached tokens and {new:d} new tokens {rates:text}",
      "in 9.55 seconds (Queue: 0.0 s, Process: 0 cached tokens and 517 new tokens at"),
]
