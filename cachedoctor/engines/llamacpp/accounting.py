"""The arithmetic of one finished request: derived counts, common prefix, outcome, lost tokens.

Knows formulas (formats of b5300 to b11549). Knows no log line.
"""

from __future__ import annotations

from cachedoctor.model import Request, Session

NEAR = 64
"""Tokens short of the reference that still count as reused: the reply's last tokens and end-of-prompt checkpoints."""


def derive_counts(request: Request) -> None:
    """Complete prompt, cached and processed tokens from each other and from the length at release.

    ``prompt = release - (generated - 1)``, ``cached = prompt - processed``: the last sampled token never enters the
    slot. Wrong after a context shift, which is why nothing is derived then. A forced re-processing reuses nothing, in
    every build: excerpts often end at the line that says it.
    """
    if request.parent is not None:
        request.prompt_tokens = request.cached_tokens = request.processed_tokens = None
        return
    released, generated = request.released_tokens, request.generated_tokens
    if request.prompt_tokens is None and released is not None and generated and not request.shifted:
        request.prompt_tokens = released - generated + 1
        request.derived.append("prompt_tokens")
    if request.forced and request.cached_tokens != 0 and request.processed_tokens is None:
        request.cached_tokens = 0  # a line that says otherwise is one of a later batch, where the first is missing
        request.derived.append("cached_tokens")
    prompt, processed = request.prompt_tokens, request.processed_tokens
    if prompt is None:
        return
    if request.cached_tokens is not None and request.cached_tokens > prompt:  # lines of two requests in a torn log
        request.cached_tokens = None
    if processed is not None and (not request.shifted or request.cut_prompt):
        cached = prompt - processed
        if request.cached_tokens is None and cached >= 0:
            request.cached_tokens = cached
            request.derived.append("cached_tokens")
        elif request.cached_tokens != cached and cached >= 0:
            request.cached_tokens = cached  # the second witness wins: a failed truncation is silent up to b6628
    elif request.cached_tokens is not None and processed is None and not request.cancelled and not request.error:
        request.processed_tokens = prompt - request.cached_tokens
        request.derived.append("processed_tokens")


def common_prefix(request: Request, session: Session, shown: bool) -> None:
    """Fill in the common prefix where it was not printed: from the rounded shares, from what was reused.

    ``shown``: checkpoint lines would be in this log, so that their absence means that nothing cut the reuse short.
    """
    cached = request.cached_tokens
    if cached is not None and request.reused_chunks:
        cached = max(0, cached - request.reused_chunks)  # moved there by --cache-reuse, not part of the prefix
    if request.lcp_exact and request.common_prefix_tokens is not None:
        request.prefix_between = (request.common_prefix_tokens, request.common_prefix_tokens)
    elif request.similarity is not None or request.f_keep is not None:
        low, high = _from_shares(request)
        if low is not None and high is not None:
            request.prefix_between = (low, high)
    if request.common_prefix_tokens is None and not request.restored_from_ram:
        low, high = request.prefix_between or (None, None)
        if low is not None and high is not None:
            guess = (low + high + 1) // 2
            held = request.held_tokens
            if held is not None and low <= held <= high:
                guess = held
            uncut = session.memory == "attention" or (session.memory is None and not shown) or held is None
            if cached and low <= cached <= high and uncut:
                guess = cached  # what was reused is the prefix, unless a checkpoint before it had to be taken
            request.common_prefix_tokens = max(guess, cached or 0)
            request.derived.append("common_prefix_tokens")
    if request.common_prefix_tokens is None and cached:  # nothing reused may also mean cache_prompt = false
        uncut = shown and not (
            request.forced or request.checks or request.restored or request.truncate_failed_at is not None
        )
        if session.memory == "attention" or uncut or request.held_tokens == cached:
            request.common_prefix_tokens = cached
            request.derived.append("common_prefix_tokens")
    lcp = request.common_prefix_tokens
    if lcp is not None and cached is not None and cached > lcp:
        request.common_prefix_tokens = cached


def _from_shares(request: Request) -> tuple[int | None, int | None]:
    """Bounds of the common prefix from ``similarity`` and ``f_keep``, each rounded to three decimals."""
    prompt, held = request.prompt_tokens, request.held_tokens
    low, high = 0.0, -1.0
    if request.similarity is not None and prompt:
        low, high = (request.similarity - 0.0005) * prompt, (request.similarity + 0.0005) * prompt
    if request.f_keep is not None and held:
        keep_low, keep_high = (request.f_keep - 0.0005) * held, (request.f_keep + 0.0005) * held
        low = keep_low if keep_low > low else low
        high = keep_high if high < 0 or keep_high < high else high
    if high < 0 or high < low - 2:
        return None, None
    return (int(low + 0.999) if low > 0 else 0), int(high)


def judge(request: Request, reference: int | None, cold: bool) -> None:
    """Set outcome and lost tokens. ``cold``: no reference existed."""
    request.reference_tokens = reference
    request.lost_tokens = request.lost_client = request.lost_server = None
    cached, prompt = request.cached_tokens, request.prompt_tokens
    if request.error is not None:
        request.outcome = "failed"
    elif request.cancelled:
        request.outcome = "cancelled"
    elif cold:
        request.outcome = "cold" if cached is not None else "unknown"
    elif reference is not None and cached is not None and prompt is not None:
        _compare(request, reference, cached, prompt)


def _compare(request: Request, reference: int, cached: int, prompt: int) -> None:
    reachable = reference if reference < prompt else prompt - 1
    if cached >= reachable - NEAR:
        request.outcome = "reused"
    elif cached <= 8 or cached <= reference * 0.05:
        request.outcome = "reprocessed"
    else:
        request.outcome = "partial"
    request.lost_tokens = reference - cached if reference > cached else 0
    lcp = request.common_prefix_tokens
    if lcp is not None:
        kept = lcp if lcp > cached else cached
        request.lost_client = reference - kept if reference > kept else 0
        request.lost_server = kept - cached
