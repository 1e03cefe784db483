"""The arithmetic of one finished request: counts that complete each other, common prefix, outcome, lost tokens.

Pure: numbers in, numbers out (formats of b5300 to b11549). ``release 2109, 6 generated, 65 processed``: the prompt has
2109 - 5 = 2104 tokens, of which 2104 - 65 = 2039 were reused.
"""

from __future__ import annotations

import msgspec

from cachedoctor.engines.llamacpp import intervals
from cachedoctor.model import Between, Facts, Outcome
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
    least: int | None = None
    """Its lower bound, where no more is known."""


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
    every build, and lines of checkpoints say what is reused: excerpts often end at them.
    """
    if seen.parent is not None:
        return Counts(None, None, None, {})
    derived: dict[str, str] = {}
    prompt, processed, cached = seen.prompt_tokens, seen.processed_tokens, seen.cached_tokens
    released, generated = seen.released_tokens, seen.generated_tokens
    if prompt is None and released is not None and generated and generated <= released and not shifted:
        prompt = released - generated + 1
        derived["prompt_tokens"] = "released - generated + 1"
    if seen.forced and cached != 0 and processed is None:
        cached = 0  # a line that says otherwise is one of a later batch, where the first is missing
        derived["cached_tokens"] = "forced re-processing reuses nothing"
    elif cached is None and processed is None and seen.restored_past is not None:
        cached = seen.restored_past
        derived["cached_tokens"] = "the restored checkpoint"
    elif cached is None and processed is None and seen.kept is not None:
        cached = seen.kept
        derived["cached_tokens"] = "pos_next of erased checkpoints"
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
    if tokens is None:
        tokens = choice.saved
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
    shares, whole = _from_shares(found, numbers.prompt), _all_reused(seen, facts, shown=shown)
    between, least, exact, near = shares, None, lcp is not None, None
    if lcp is not None:
        between = (lcp, lcp)
    elif seen.checks and "images" not in facts.shows:  # images may take fewer positions than tokens (M-RoPE)
        threshold = intervals.by_threshold(seen, facts, numbers.prompt)
        between, least = _with_threshold(threshold, shares)
        near = _pinned(between, threshold, shares)
        if between is None and least is not None:
            between = shares = intervals.by_refusals(seen, found.f_keep)
    if near is not None:
        lcp, exact = near[0], near[0] == near[1]
        numbers.derived["common_prefix_tokens"] = "checkpoint threshold + n_swa"
    elif lcp is None and between is not None and shares is not None:
        lcp = _within(between, cached if whole is not False else None, found.tokens)
        numbers.derived["common_prefix_tokens"] = "similarity and f_keep"
    elif lcp is None and cached and (whole or cached == found.tokens):
        lcp = cached  # nothing reused may also mean cache_prompt = false
        numbers.derived["common_prefix_tokens"] = "cached"
    elif lcp is None and seen.truncate_failed_at is not None:
        lcp, exact = seen.truncate_failed_at, True
        numbers.derived["common_prefix_tokens"] = "where the memory could not be cut"
    if lcp is not None and cached is not None and cached > lcp:
        lcp = cached
    return Prefix(lcp, exact, between, least)


def _with_threshold(
    threshold: Between | None, shares: tuple[int, int] | None
) -> tuple[tuple[int, int] | None, int | None]:
    """Bounds of the common prefix by the threshold of a search for checkpoints and by rounded shares.

    Or else its lower bound, where the window is not known. What contradicts the shares is not believed.
    """
    bounds = intervals.narrowed(shares, threshold)
    if bounds is None:
        return None, None
    low, high = bounds
    return (None, low) if high is None else ((low, high), None)


def _pinned(
    between: tuple[int, int] | None, threshold: Between | None, shares: tuple[int, int] | None
) -> tuple[int, int] | None:
    """Bounds that a threshold leaves, where they leave one number; or two, where no shares say more."""
    if between is None or threshold is None or threshold[1] is None:
        return None
    inside = threshold[0] <= between[0] and between[1] <= threshold[1]
    return between if inside and between[1] - between[0] <= (shares is None) else None


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


def judge_cut(cached: int | None, prefix: Prefix, reference: int | None) -> Loss:
    """Lost tokens of a request whose outcome is unknown, as its beginning or end is missing.

    What the server could not reuse needs no length of the prompt; what the client changed is an upper bound without it.
    """
    lcp, between = prefix.tokens, prefix.between
    if lcp is None and between is None:
        return ("unknown", None, None, None)
    most = lcp if lcp is not None else between[1] if between is not None else 0
    client = None if reference is None else max(0, reference - most)
    server = None if cached is None or lcp is None else max(0, lcp - cached)
    known = [part for part in (client, server) if part is not None]
    return ("unknown", sum(known) if known else None, client, server)
