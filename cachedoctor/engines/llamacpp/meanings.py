"""What every message says about the prompt cache, and what stands before it, in words for people who read a log line.

``clearing prompt with 1913 tokens``: the content of a slot is thrown away ...
"""

from __future__ import annotations

from cachedoctor.engines.llamacpp.messages import ROWS

MEANINGS: dict[str, str] = {row.id: row.meaning for row in ROWS if row.meaning}
"""By id, the same over all wordings of a message."""

PARTS: dict[str, str] = {
    "stamp": "time since the server started: minutes, seconds, ms, µs; minutes count on beyond 59",
    "I": "level INFO or TRACE: both print the letter I",
    "W": "level WARN",
    "E": "level ERROR",
    "D": "level DEBUG",
    "slot": "printed by a slot, the place where one request at a time is computed",
    "srv": "printed by the server, for no slot in particular",
    "que": "printed by the queue of requests",
    "res": "printed by the queue of results",
    "cmn": "printed by the code that all llama.cpp programs share",
    "spec": "printed by speculative decoding",
    "func": "function that prints it, cut to 12 characters; it moves from build to build",
    "id": "slot, from 0",
    "task": "request; internal tasks are counted, too, so the numbers jump",
    "no task": "no request: the slot is free, or is just being chosen for one whose number stands in the next `processing task`",
}
"""What stands before a message."""
