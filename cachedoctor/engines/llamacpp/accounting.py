"""The arithmetic of one finished request: counts, bounds, common prefix, and what was lost before it."""

from __future__ import annotations

import math

import msgspec

from cachedoctor.engines.llamacpp.slot import ANSWER, SlotStretch
from cachedoctor.knowledge import decision
from cachedoctor.model import Between, Dropped, Facts, Outcome, Request
from cachedoctor.model.observed import Observed, Progressed

HALF = 0.0005
"""Shares are printed with three decimals."""
BY_RELEASE, BY_COMPUTED, BY_SHARES = "released - generated + 1", "prompt - processed", "similarity and f_keep"
"""How numbers that most logs do not print are derived."""


def by_threshold(seen: Observed, facts: Facts, prompt: int | None) -> Between | None:
    """Bounds of the common prefix from the threshold against which checkpoints were checked.

    An unknown window adds to the threshold, so only the lower bound is known. A threshold of 0 stands for every prefix
    inside the window.
    """
    check = next(iter(seen.checks))
    recurrent = check.pos_min == check.pos_max or facts.memory in ("hybrid", "recurrent")
    window = 0 if recurrent else _window(facts)
    if window is None:
        return (check.threshold, None) if check.threshold > 0 else None
    if check.threshold <= 0:
        return (0, window + 1) if window else None
    asked = decision.representatives(facts.build, facts.build_min, facts.build_max)
    lengths = [prompt] if prompt is not None else [check.threshold, 1 << 60]  # nothing new in the prompt, or something
    found = {decision.common_of(check.threshold, window, build, length) for build in asked for length in lengths}
    exact = [common for common in found if common is not None]
    return min(exact), max(exact)


def by_refusals(seen: Observed, f_keep: float | None) -> tuple[int, int] | None:
    """Bounds of the common prefix if no line prints the window: from ``f_keep``, and from refused checkpoints.

    A checkpoint that begins before the threshold was refused only for its end, as in builds from b9713 on: the end is
    after the prefix. None if the bounds are more than a tenth apart, or contradict each other.
    """
    if not seen.forced or seen.restore_failed is not None or f_keep is None or not seen.reach:
        return None
    ends = [c.pos_max for c in seen.checks if c.pos_min < min(c.threshold, c.pos_max)]
    low = max(math.ceil((f_keep - HALF) * seen.reach), *(check.threshold for check in seen.checks))
    high = min(ends, default=0) - 1
    return (low, high) if low <= high <= 1.1 * low else None


def _window(facts: Facts) -> int | None:
    """Sliding window in tokens, by the lines of requests or of the start."""
    found: int | None = facts.window if facts.window is not None else facts.setting("n_swa")
    return found


def narrowed(first: Between | None, second: Between | None) -> Between | None:
    """The intersection of both bounds; only the first if they contradict each other."""
    if first is None or second is None:
        return second if first is None else first
    low = max(first[0], second[0])
    high = second[1] if first[1] is None else first[1] if second[1] is None else min(first[1], second[1])
    return (low, high) if high is None or low <= high else first


def of_share(part: Between, share: float | None) -> Between | None:
    """Bounds of a whole from a part and its share of the whole, which is rounded to three decimals."""
    if share is None or share <= HALF:
        return None
    high = None if part[1] is None else int(part[1] / (share - HALF))
    return max(part[0], math.ceil(part[0] / (share + HALF))), high


def of_prompt(length: int | None, similarity: float | None) -> tuple[int, int] | None:
    """Bounds of the common prefix of a slot and a prompt of known length, from the similarity."""
    if not length or similarity is None:
        return None
    return max(0, math.ceil((similarity - HALF) * length)), math.floor((similarity + HALF) * length)


def prompt(seen: Observed, prefix: Between | None, similarity: float | None, cached: int | None) -> Between | None:
    """Bounds of the prompt's length if no line prints it: from common prefix, progress and computed tokens."""
    shared = None if prefix is None else of_share(prefix, similarity) or (prefix[0], None)
    said = seen.progress
    found = shared if said is None else narrowed(_by_progress(said, cached), shared)
    computed = None if not seen.processed_tokens or seen.parent is not None else (seen.processed_tokens, None)
    return narrowed(computed, found)


def _by_progress(said: Progressed, cached: int | None) -> Between:
    """Shares are printed with six decimals, from b9294 on with two."""
    if said.counts == "computed":
        return math.floor(said.tokens / (said.share + 0.005)), None
    low, high = math.floor(said.tokens / (said.share + 5e-7)), math.ceil(said.tokens / max(said.share - 5e-7, 1e-7))
    return (low if said.counts == "all" or cached == 0 else said.tokens), high


def held_between(seen: Observed, prefix: Between | None, f_keep: float | None) -> Between | None:
    """Bounds of the length of the slot's content if no line prints it; ``prefix``: common prefix with the prompt."""
    reach = (seen.reach, None) if seen.reach else None
    return narrowed(None if prefix is None else of_share(prefix, f_keep), reach)


NEAR = 64
"""Tokens short of the reference that still count as reused: the reply's last tokens and end-of-prompt checkpoints."""


class TokenCounts(msgspec.Struct, frozen=True, gc=False):
    """Prompt, reused and computed tokens, and how the counts that the log does not print were derived."""

    prompt: int | None
    cached: int | None
    processed: int | None
    derived: dict[str, str]


class CommonPrefix(msgspec.Struct, frozen=True, gc=False):
    """The longest common prefix with the slot's content when processing began, in tokens."""

    tokens: int | None
    exact: bool
    """It was printed, or follows from a printed threshold; not estimated from rounded shares."""
    between: tuple[int, int] | None
    """Its bounds as the log gives them, before the reused tokens narrow them; equal if it is exact."""
    least: int | None = None
    """Its lower bound, where no more is known."""
    source: str | None = None
    """What it was derived from, where it was not printed."""


class SlotContent(msgspec.Struct, frozen=True, gc=False):
    """The slot's content after the choice of the slot, and what is known of its common prefix with the prompt."""

    tokens: int | None
    thread: int | None
    prefix: int | None
    """Common prefix as printed."""
    similarity: float | None
    f_keep: float | None


Loss = tuple[Outcome, int | None, int | None, int | None]
"""Outcome; lost tokens (reference - cached), split into reference - LCP, which the client changed, and LCP - cached,
which the server could not reuse."""


def counts(seen: Observed, *, shifted: bool) -> TokenCounts:
    """Complete prompt, cached and processed tokens from each other and from the length at release.

    ``prompt = release - (generated - 1)``, ``cached = prompt - processed``: the last sampled token never enters the
    slot. After a context shift this is wrong, so nothing is derived then. A forced re-processing reuses nothing in
    every build. Lines about checkpoints show what is reused: excerpts often end at these lines.
    """
    if seen.parent is not None:
        return TokenCounts(None, None, None, {})
    derived: dict[str, str] = {}
    prompt, processed, cached = seen.prompt_tokens, seen.processed_tokens, seen.cached_tokens
    if prompt is None and not shifted:
        released, generated = seen.released_tokens, seen.generated_tokens
        if released is not None and generated and generated <= released:
            prompt = released - generated + 1
            derived["prompt_tokens"] = BY_RELEASE
    if processed is None:
        cached, source = _reused_untimed(seen)
        if source is not None:
            derived["cached_tokens"] = source
    if prompt is None:
        return TokenCounts(None, cached, processed, derived)
    if cached is not None and cached > prompt:  # lines of two requests in a torn log
        cached = None
    if processed is not None and (not shifted or seen.cut_prompt):
        rest = prompt - processed
        if rest >= 0:
            if cached is None:
                derived["cached_tokens"] = BY_COMPUTED
            cached = rest  # the second witness wins: a failed truncation is silent up to b6628
    elif cached is not None and processed is None and not seen.cancelled and not seen.error:
        processed = prompt - cached
        derived["processed_tokens"] = "prompt - cached"
    return TokenCounts(prompt, cached, processed, derived)


def _reused_untimed(seen: Observed) -> tuple[int | None, str | None]:
    """Reused tokens of a request of which no line shows what it computed, and how they were derived."""
    cached = seen.cached_tokens
    if seen.forced and cached != 0:  # a line that says otherwise is one of a later batch, where the first is missing
        return 0, "forced re-processing reuses nothing"
    if cached is None and seen.restored_past is not None:
        return seen.restored_past, "the restored checkpoint"
    if cached is None and seen.kept is not None:
        return seen.kept, "pos_next of erased checkpoints"
    return cached, None


def held_content(seen: Observed) -> SlotContent:
    """The slot's content by the lines before the first batch: its own, or a prompt from the RAM cache or a file."""
    choice = seen.choice
    tokens, thread = (0, None) if choice.t_last == -1 else (seen.held_tokens, seen.held_thread)
    if thread == ANSWER and choice.selected_by == "lcp":
        thread = None  # the client may have kept this answer
    if tokens is None:
        tokens = choice.saved
    keep = choice.found_keep
    if keep is None or choice.found_sim is None:
        return SlotContent(tokens, thread, choice.lcp, choice.similarity, choice.f_keep)
    same = next((c for c in choice.candidates if c[0] and abs(c[1] / c[0] - keep) < 0.0006), None)
    tokens, prefix = same if same is not None else (None, None)
    return SlotContent(tokens, None, prefix, choice.found_sim, keep)


def prefix(
    seen: Observed,
    found: SlotContent,
    numbers: TokenCounts,
    shares: tuple[int, int] | None,
    facts: Facts,
    *,
    shown: bool,
) -> CommonPrefix:
    """Derive the common prefix if it was not printed: from a threshold, the rounded shares, or the reused tokens.

    Args:
        seen: what was printed.
        found: the slot's content.
        numbers: token counts.
        shares: bounds by the rounded shares.
        facts: what is known of the server.
        shown: this log would have lines about checkpoints, so without such lines nothing made the reuse shorter.
    """
    lcp, cached = found.prefix, numbers.cached
    if lcp is not None and cached is not None and seen.reused_chunks and cached <= lcp - seen.reused_chunks:
        lcp -= seen.reused_chunks  # moved to its end, and given up again for a checkpoint before them
    if cached is not None and seen.reused_chunks:
        cached = max(0, cached - seen.reused_chunks)  # moved there by --cache-reuse, not part of the prefix
    between, least, exact, near, source = shares, None, lcp is not None, None, None
    if lcp is not None:
        between = (lcp, lcp)
    elif seen.checks and "images" not in facts.shows:  # images may take fewer positions than tokens (M-RoPE)
        threshold = by_threshold(seen, facts, numbers.prompt)
        between, least = _with_threshold(threshold, shares)
        near = _pinned(between, threshold, shares)
        if between is None and least is not None:
            between = shares = by_refusals(seen, found.f_keep)
    if near is not None:
        lcp, exact = near[0], near[0] == near[1]
        source = "checkpoint threshold + n_swa"
    elif lcp is None and between is not None and shares is not None:
        whole = _all_reused(seen, facts, shown=shown) is not False
        lcp = _within(between, cached if whole else None, found.tokens)
        source = BY_SHARES
    elif lcp is None and cached and (cached == found.tokens or _all_reused(seen, facts, shown=shown)):
        lcp = cached  # nothing reused may also mean cache_prompt = false
        source = "cached"
    elif lcp is None and seen.truncate_failed_at is not None:
        lcp, exact = seen.truncate_failed_at, True
        source = "where the truncation failed"
    if lcp is not None and cached is not None and cached > lcp:
        lcp = cached
    if lcp is None and between is None and seen.parted and seen.restored_past is not None:
        between = (seen.restored_past, seen.parted - 1)  # a longer common prefix had restored a later checkpoint
    return CommonPrefix(lcp, exact, between, least, source)


def _with_threshold(
    threshold: Between | None, shares: tuple[int, int] | None
) -> tuple[tuple[int, int] | None, int | None]:
    """Bounds of the common prefix by the threshold of a search for checkpoints and by rounded shares.

    Or else its lower bound, where the window is not known. What contradicts the shares is not believed.
    """
    bounds = narrowed(shares, threshold)
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
    """Whether all of the common prefix was reused: the memory goes back to any token, or no line shows that it did not.

    None if that is open. Sliding-window memory of full size holds no more than its window of a prompt that came back
    from RAM.
    """
    if seen.forced or seen.checks or seen.restored or seen.truncate_failed_at is not None:
        return False
    memory = facts.memory
    if shown or memory == "attention":
        return True
    if memory is None:
        return None
    return memory == "swa" and facts.setting("swa_full") is True and seen.choice.found_keep is None


def _within(between: tuple[int, int], reused: int | None, length: int | None) -> int:
    """Choose within the bounds: what was reused, all that the slot held, or else the middle."""
    low, high = between
    if reused and low <= reused <= high:
        return reused
    return length if length is not None and low <= length <= high else (low + high + 1) // 2


def shares(found: SlotContent, prompt: int | None) -> tuple[tuple[int, int] | None, bool]:
    """Bounds of the common prefix from ``similarity`` and ``f_keep``, each rounded to three decimals.

    It is no longer than the prompt, nor than what the slot held. And whether both surely fit what the slot was left
    with; the bounds decide where they may not.
    """
    similarity, keep, length = found.similarity, found.f_keep, found.tokens
    low, high, fits = 0.0, -1.0, False
    if similarity is not None and prompt:
        low, high = (similarity - HALF) * prompt, (similarity + HALF) * prompt
    if keep is not None and length:
        keep_low, keep_high = (keep - HALF) * length, (keep + HALF) * length
        fits = keep > HALF and keep_low < high - 1 and keep_high > low + 1 and length > low
        low = keep_low if keep_low > low else low
        high = keep_high if high < 0 or keep_high < high else high
    if high < 0 or high < low - 2:
        return None, fits
    least, most = (int(low + 0.999) if low > 0 else 0), int(high)
    if prompt and prompt < most:
        most = prompt
    if length and length < most:
        most = length
    return (least, most if most > least else least), fits


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
    """Outcome and lost tokens against ``reference``, the tokens that could be reused. ``cold``: there were none."""
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


def judge_cut(cached: int | None, prefix: CommonPrefix, reference: int | None) -> Loss:
    """Lost tokens of a request whose outcome is unknown, because its beginning or end is missing.

    The server's part does not need the length of the prompt; without it, the client's part is an upper bound.
    """
    lcp, between = prefix.tokens, prefix.between
    if lcp is None and between is None:
        return ("unknown", None, None, None)
    most = lcp if lcp is not None else between[1] if between is not None else 0
    client = None if reference is None else max(0, reference - most)
    server = None if cached is None or lcp is None else max(0, lcp - cached)
    known = [part for part in (client, server) if part is not None]
    return ("unknown", sum(known) if known else None, client, server)


def missed(request: Request, dropped: list[Dropped]) -> Dropped | None:
    """Return the dropped checkpoint that would have restored most of the common prefix, if more than was reused.

    A checkpoint of sliding-window memory must reach back far enough after the prefix (by the strictest comparison of
    b6751 to b11549); a recurrent state needs no window.
    """
    lcp, start, window = request.common_prefix_tokens, request.marks["start"].line, request.facts.setting("n_swa")
    if lcp is None or (request.cached_tokens is None and not request.cut):
        return None
    cached = request.cached_tokens or 0
    known = [d for d in dropped if d.line < start and d.tokens <= lcp]
    usable = [d for d in known if d.pos_min in (0, d.pos_max) or (window is not None and d.pos_min < lcp - window - 1)]
    best = max(usable, key=lambda d: d.tokens, default=None)
    if best is None or best.tokens <= cached:
        return None
    # a longer list would hold what left after it, too, wherever that lay
    behind = sum(1 for d in dropped if best.line <= d.line < start)
    return msgspec.structs.replace(best, behind=behind)


def stretch(request: Request) -> SlotStretch | None:
    """The part of its slot's content that a request processed; None if the log does not show it."""
    cached, prompt, mark = request.cached_tokens, request.prompt_tokens, request.marks.get("cached")
    created, exact = request.created, request.lcp_exact
    whole = not (request.shifted or request.seen.reused_chunks or request.seen.images or request.restored_from_ram)
    if cached is None or prompt is None or mark is None or created is None or not whole or request.partial:
        return None
    diverged = request.common_prefix_tokens if exact else cached
    if diverged is None or ((request.restored or request.seen.forced) and not exact):
        return None
    if diverged >= prompt - 1:
        diverged = prompt  # a repeated prompt computes its last token again
    return SlotStretch(cached, prompt, diverged, created, mark)
