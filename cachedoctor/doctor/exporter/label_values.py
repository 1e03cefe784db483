"""Words of logs as values of labels: masked, cut and bounded in number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from cachedoctor.report import sanitize
from cachedoctor.report.text.text_safe import visible

OTHER = "other"
"""Stands for all values of a label that came when it had as many as it may have."""
MOST = 100
"""Values of one label, unless told otherwise: a database of time series pays for each of them."""
_LENGTH = 120
"""Code points of a value."""


class LabelValues:
    """Knows which values each label has so far."""

    def __init__(self, most: int = MOST, known: Mapping[str, Sequence[str]] | None = None) -> None:
        """``known``: those that a run before had, by label."""
        self._most = most
        self._known = {label: dict.fromkeys(values[:most]) for label, values in (known or {}).items()}

    def bounded(self, label: str, word: str | None) -> str:
        """Return a word of a log as a value of ``label``; an unknown one is empty, which is a label that is missing."""
        if not word:
            return ""
        shown = _shown(word)
        known = self._known.setdefault(label, {})
        if shown not in known:
            if len(known) >= self._most:
                return OTHER
            known[shown] = None
        return shown

    def forget(self, label: str, value: str) -> None:
        """Make room for another value."""
        self._known.get(label, {}).pop(value, None)

    def known(self) -> dict[str, list[str]]:
        """Return the values by label, for the next run."""
        return {label: list(values) for label, values in self._known.items()}


@lru_cache(maxsize=4096)
def _shown(word: str) -> str:
    # What it may not show is hidden while it is whole.
    return visible(sanitize.value(word, _LENGTH))
