"""The messages of llama-server, compiled at the first call."""

from __future__ import annotations

from functools import cache

from cachedoctor.engines.catalogue.base import Catalogue
from cachedoctor.engines.llamacpp import fused
from cachedoctor.engines.llamacpp.messages import ROWS


@cache
def catalogue() -> Catalogue:
    """Return the catalogue with the pattern that reads several lines at once."""
    return Catalogue(ROWS, fused.PATTERN, fused.GROUPS)


@cache
def single_lines() -> Catalogue:
    """Return the one without, for whoever has to hear of every line on its own."""
    return Catalogue(ROWS)


@cache
def fork_lines() -> Catalogue:
    """Return the one of a fork's lines that are llama-server's, with the wordings that only the fork has."""
    from cachedoctor.engines.programs import ik_llama  # few logs are of a fork

    return Catalogue(ik_llama.LLAMA_ROWS + ROWS)


@cache
def fork_words() -> Catalogue:
    """Return the one of what the fork says in words of its own."""
    from cachedoctor.engines.catalogue.logger import LoggerCatalogue
    from cachedoctor.engines.llamacpp import forked
    from cachedoctor.engines.programs import ik_llama

    return LoggerCatalogue([row for row in ik_llama.ROWS if row.id in forked.WORDS], ik_llama.PREFIX)
