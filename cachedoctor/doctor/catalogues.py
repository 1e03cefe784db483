"""The messages of llama-server, compiled at the first call."""

from __future__ import annotations

from functools import cache

from cachedoctor.engines.catalogue.base import Catalogue
from cachedoctor.engines.llamacpp import fused
from cachedoctor.engines.llamacpp.messages import ROWS


@cache
def catalogue() -> Catalogue:
    """Return the catalogue with the pattern that reads several lines at once."""
    return Catalogue(ROWS, fused.PATTERN)


@cache
def single_lines() -> Catalogue:
    """Return the one without, for whoever has to hear of every line on its own."""
    return Catalogue(ROWS)
