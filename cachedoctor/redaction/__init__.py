"""Makes a log that can be shown: what a user may have written becomes tokens, what the analysis reads stays.

Knows which values of a line are harmless. Must not know messages, wrappers, rules or files."""

from __future__ import annotations
