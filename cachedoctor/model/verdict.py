"""What the rules say of one request, beside it: a request is never written again."""

from __future__ import annotations

import msgspec

from cachedoctor.model.client import ClientName
from cachedoctor.model.request import Request


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Causes, and what they cost."""

    codes: tuple[str, ...] = ()
    """Of the rules that fired, in the order in which they were asked."""
    expected_cached: int | None = None
    """Tokens that this build had to reuse, given what the slot held; None where nothing was lost."""
    replay_missing: tuple[str, ...] = ()
    """Names of the numbers that the log lacks for ``expected_cached``."""
    avoidable_tokens: int = 0
    avoidable_ns: int = 0
    """What the fix of its costliest cause would have saved."""
    slot_lost: bool = False
    """Every cause is one of the slot's: the client changed nothing."""
    named: bool = False
    """A rule names a cause, be it one that is switched off."""
    undecided: bool = False
    """Every cause is one of several that the log leaves open, or there was no loss at all."""
    guessed: bool = False
    """Every cause has a low confidence."""
    costliest: str | None = None
    """Code of the costliest cause; None where no rule names one."""


NO_VERDICT = Verdict()
"""Of a request that nobody says anything about."""


class Judged(msgspec.Struct, frozen=True, gc=False):
    """A finished request and what the rules say of it."""

    request: Request
    verdict: Verdict = NO_VERDICT
    asker: ClientName | None = None
    """Who sent it, by its body; None where none was given, or it does not tell."""
