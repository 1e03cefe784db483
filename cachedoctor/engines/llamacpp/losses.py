"""What a finished request lost by what happened to its slot before it: dropped checkpoints, a prompt changed in place.

Pure: ``erasing old context checkpoint (pos_min = 1949, pos_max = 1949 ...)`` two turns ago, a common prefix of 1,960
tokens now, and nothing reused.
"""

from __future__ import annotations

import msgspec

from cachedoctor.engines.llamacpp.slot import Stretch
from cachedoctor.model import Dropped, Request


def missed(request: Request, dropped: list[Dropped]) -> Dropped | None:
    """Return the dropped checkpoint that would have given back most of the common prefix, if more than was reused.

    A checkpoint of sliding-window memory must reach back far enough behind the prefix (the strictest of the
    comparisons, b6751 to b11549); a recurrent state stands for itself.
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


def stretch(request: Request) -> Stretch | None:
    """What a request processed of its slot's content; None where the log does not tell."""
    cached, prompt, mark = request.cached_tokens, request.prompt_tokens, request.marks.get("cached")
    created, exact = request.created, request.lcp_exact
    whole = not (request.shifted or request.reused_chunks or request.images or request.restored_from_ram)
    if cached is None or prompt is None or mark is None or created is None or not whole or request.partial:
        return None
    diverged = request.common_prefix_tokens if exact else cached
    if diverged is None or ((request.restored or request.forced) and not exact):
        return None
    if diverged >= prompt - 1:
        diverged = prompt  # a repeated prompt computes its last token again
    return Stretch(cached, prompt, diverged, created, mark)
