"""Makes a log that can be shown: what a user may have written becomes tokens, what the analysis reads stays."""

from __future__ import annotations
