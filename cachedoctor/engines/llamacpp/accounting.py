"""The arithmetic of one finished request: counts that complete each other, common prefix, outcome, lost tokens.

Pure: numbers in, numbers out (formats of b5300 to b11549). ``release 2109, 6 generated, 65 processed``: the prompt has
2109 - 5 = 2104 tokens, of which 2104 - 65 = 2039 were reused.
"""

from __future__ import annotations

import msgspec

from cachedoctor.knowledge import decision
from cachedoctor.model import Facts, Outcome
from cachedoctor.model.observed import Observed

NEAR = 64
"""Tokens short of the reference that still count as reused: the reply's last tokens and end-of-prompt checkpoints."""


class Counts(msgspec.Struct, frozen=True, gc=False):
    """Prompt tokens, reused and computed ones; and how those were derived that the log does not print."""

    prompt: int | None
    cached: int | None
    processed: int | None
    derived: dict[str, str]


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """The longest common prefix with what the slot held when processing began, in tokens."""

    tokens: int | None
    exact: bool
    """It was printed, or follows from a printed threshold; not estimated from rounded shares."""
    between: tuple[int, int] | None
    """Its bounds as the log gives them, before reuse has a say; equal where it is exact."""


class Held(msgspec.Struct, frozen=True, gc=False):
    """What the slot held, and what is known of the common prefix with it, after the choice of the slot is read."""

    tokens: int | None
    thread: int | None
    prefix: int | None
    """As printed."""
    similarity: float | None
    f_keep: float | None


Loss = tuple[Outcome, int | None, int | None, int | None]
"""Outcome; lost tokens: reference - cached; of these reference - LCP, what the client changed; LCP - cached, what the
server could not reuse."""


def counts(seen: Observed, *, shifted: bool) -> Counts:
    """Complete prompt, cached and processed tokens from each other and from the length at release.

    ``prompt = release - (generated - 1)``, ``cached = prompt - processed``: the last sampled token never enters the
    slot. Wrong after a context shift, which is why nothing is derived then. A forced re-processing reuses nothing, in
    every build: excerpts often end at the line that says it.
    """
    if seen.parent is not None:
        return Counts(None, None, None, {})
    derived: dict[str, str] = {}
    prompt, processed, cached = seen.prompt_tokens, seen.processed_tokens, seen.cached_tokens
    released, generated = seen.released_tokens, seen.generated_tokens
    if prompt is None and released is not None and generated and not shifted:
        prompt = released - generated + 1
        derived["prompt_tokens"] = "released - generated + 1"
    if seen.forced and cached != 0 and processed is None:
        cached = 0  # a line that says otherwise is one of a later batch, where the first is missing
        derived["cached_tokens"] = "forced re-processing reuses nothing"
    if prompt is None:
        return Counts(None, cached, processed, derived)
    if cached is not None and cached > prompt:  # lines of two requests in a torn log
        cached = None
    if processed is not None and (not shifted or seen.cut_prompt):
        rest = prompt - processed
        if rest >= 0:
            if cached is None:
                derived["cached_tokens"] = "prompt - processed"
            cached = rest  # the second witness wins: a failed truncation is silent up to b6628
    elif cached is not None and processed is None and not seen.cancelled and not seen.error:
        processed = prompt - cached
        derived["processed_tokens"] = "prompt - cached"
    return Counts(prompt, cached, processed, derived)


def held(seen: Observed) -> Held:
    """What the slot held by the lines up to the first batch: its own, a prompt from the RAM cache, a file's."""
    choice = seen.choice
    tokens, thread, prefix, similarity, keep = (
        seen.held_tokens, seen.held_thread, choice.lcp, choice.similarity, choice.f_keep,
    )  # fmt: skip
    if choice.t_last == -1:
        tokens, thread = 0, None
    found_keep, found_sim = choice.found_keep, choice.found_sim
    if found_keep is not None and found_sim is not None:
        same = next((c for c in choice.candidates if c[0] and abs(c[1] / c[0] - found_keep) < 0.0006), None)
        tokens, prefix = same if same is not None else (None, None)
        thread, similarity, keep = None, found_sim, found_keep
    return Held(tokens, thread, prefix, similarity, keep)


def prefix(seen: Observed, found: Held, numbers: Counts, facts: Facts, *, shown: bool) -> Prefix:
    """Fill in the common prefix where it was not printed: from a threshold, the rounded shares, what was reused.

    ``shown``: checkpoint lines would be in this log, so that their absence means that nothing cut the reuse short.
    """
    lcp, cached = found.prefix, numbers.cached
    if cached is not None and seen.reused_chunks:
        cached = max(0, cached - seen.reused_chunks)  # moved there by --cache-reuse, not part of the prefix
    between, whole = _from_shares(found, numbers.prompt), _all_reused(seen, facts, shown=shown)
    if lcp is None:
        lcp = _from_threshold(seen, numbers.prompt, facts, between)
        if lcp is not None:
            numbers.derived["common_prefix_tokens"] = "checkpoint threshold + n_swa"
    exact = lcp is not None
    if lcp is not None:
        between = (lcp, lcp)
    elif between is not None:
        lcp = _within(between, cached if whole is not False else None, found.tokens)
        numbers.derived["common_prefix_tokens"] = "similarity and f_keep"
    elif cached and (whole or cached == found.tokens):  # nothing reused may also mean cache_prompt = false
        lcp = cached
        numbers.derived["common_prefix_tokens"] = "cached"
    if lcp is not None and cached is not None and cached > lcp:
        lcp = cached
    return Prefix(lcp, exact, between)


def _from_threshold(seen: Observed, prompt: int | None, facts: Facts, between: tuple[int, int] | None) -> int | None:
    """The common prefix that the threshold of a search for checkpoints was worked out from; None where it is open.

    Images may take fewer positions than tokens (M-RoPE): then no threshold says how many tokens.
    """
    window = facts.window if facts.window is not None else facts.setting("n_swa")
    if window is None and facts.memory in ("hybrid", "recurrent"):
        window = 0
    if not seen.checks or prompt is None or window is None or "images" in facts.shows:
        return None
    low, high = between or (1, prompt)
    threshold, possible = (
        seen.checks[0].threshold,
        decision.representatives(facts.build, facts.build_min, facts.build_max),
    )
    found = {decision.common_of(threshold, window, build, prompt) for build in possible}
    fitting = [common for common in found if common is not None and low <= common <= high]
    return fitting[0] if len(fitting) == 1 else None


def _all_reused(seen: Observed, facts: Facts, *, shown: bool) -> bool | None:
    """Whether all of the common prefix was reused: the memory goes back to any token, or no line says that it did not.

    None where that is open. Sliding-window memory of full size holds no more than its window of a prompt that came back
    from RAM.
    """
    if seen.forced or seen.checks or seen.restored or seen.truncate_failed_at is not None:
        return False
    full = facts.memory == "swa" and facts.setting("swa_full") is True and seen.choice.found_keep is None
    if shown or full or facts.memory == "attention":
        return True
    return None if facts.memory is None else False


def _within(between: tuple[int, int], reused: int | None, length: int | None) -> int:
    """Choose within the bounds: what was reused, all that the slot held, or else the middle."""
    low, high = between
    if reused and low <= reused <= high:
        return reused
    return length if length is not None and low <= length <= high else (low + high + 1) // 2


def _from_shares(found: Held, prompt: int | None) -> tuple[int, int] | None:
    """Bounds of the common prefix from ``similarity`` and ``f_keep``, each rounded to three decimals.

    It is no longer than the prompt, nor than what the slot held.
    """
    similarity, keep, length = found.similarity, found.f_keep, found.tokens
    low, high = 0.0, -1.0
    if similarity is not None and prompt:
        low, high = (similarity - 0.0005) * prompt, (similarity + 0.0005) * prompt
    if keep is not None and length:
        keep_low, keep_high = (keep - 0.0005) * length, (keep + 0.0005) * length
        low = keep_low if keep_low > low else low
        high = keep_high if high < 0 or keep_high < high else high
    if high < 0 or high < low - 2:
        return None
    least, most = (int(low + 0.999) if low > 0 else 0), int(high)
    return least, max(least, min(most, prompt or most, length or most))


def judge(
    error: str | None,
    cancelled: bool,
    prompt: int | None,
    cached: int | None,
    lcp: int | None,
    reference: int | None,
    *,
    cold: bool,
) -> Loss:
    """Outcome and lost tokens against ``reference``, what could have been reused. ``cold``: none existed."""
    if error is not None:
        return ("failed", None, None, None)
    if cancelled:
        return ("cancelled", None, None, None)
    if cold:
        return ("cold" if cached is not None else "unknown", None, None, None)
    if reference is None or cached is None or prompt is None:
        return ("unknown", None, None, None)
    reachable = reference if reference < prompt else prompt - 1
    outcome: Outcome = "partial"
    if cached >= reachable - NEAR:
        outcome = "reused"
    elif cached <= 8 or cached <= reference * 0.05:
        outcome = "reprocessed"
    tokens = reference - cached if reference > cached else 0
    if lcp is None:
        return (outcome, tokens, None, None)
    kept = lcp if lcp > cached else cached
    return (outcome, tokens, reference - kept if reference > kept else 0, kept - cached)
