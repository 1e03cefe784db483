"""What a user may decide about the rules: a few thresholds, and which rules are switched off.

``warn-tokens``: 1,000 tokens, from which on a finding is a warning. What is not here says how a cause is recognised,
and is nobody's taste.
"""

from __future__ import annotations

import msgspec


class Threshold(msgspec.Struct, frozen=True):
    """A number at which what is said of a request changes."""

    name: str
    unit: str
    default: int
    reason: str


WARN_TOKENS = Threshold(
    "warn-tokens",
    "tokens",
    1000,
    "a cause that cost as much in all is a warning, below it is a note; 1,000 tokens are many seconds on a "
    "processor, a fraction of one on a large GPU",
)
MIN_PROMPT_TOKENS = Threshold(
    "min-prompt-tokens",
    "tokens",
    1000,
    "a request with a shorter prompt costs too little to matter; nothing is said of it",
)
THRESHOLDS = (WARN_TOKENS, MIN_PROMPT_TOKENS)


class Options(msgspec.Struct, frozen=True):
    """What the user decided; without arguments the defaults."""

    warn_tokens: int = WARN_TOKENS.default
    """Tokens."""
    min_prompt_tokens: int = MIN_PROMPT_TOKENS.default
    """Tokens."""
    ignored: frozenset[str] = frozenset()
    """Codes of the rules that are switched off: they are asked, lest a symptom takes their place, and not reported."""


DEFAULTS = Options()
