"""What a build of llama-server can reuse of a prompt that it holds, given the common prefix. Pure functions.

Source: the slot logic of llama.cpp between b5300 and b11549 (checkpoint creation: PR #15293, #16382, #20288, #22929,
#24176, #28302; the check itself: #21510, #24110). Simplified: default batch sizes; text only, so that a position is a
token; the prompt was computed in one go, while a conversation leaves a checkpoint of every request; no limit on the
number of checkpoints, no --cache-reuse, no LoRA. Knows no log line and no request.
"""

from __future__ import annotations

from cachedoctor.knowledge.builds import NEWEST

N_UBATCH = 512
"""Default of -ub, tokens."""
EVERY = 8192
"""Tokens between checkpoints during a long prompt (b8352 to b9294), and the least distance from b9873 on."""
LEAST = 64
"""Tokens that the first checkpoint covers at least, and the least distance, until the user's turns came into it."""
USER_STEP = 256
"""Least distance from b9538 to b9713."""

_PAD = 256
"""The cells of sliding-window memory are a multiple of it."""


def checkpoints(length: int, user_starts: list[int], build: int = NEWEST, memory: str = "hybrid") -> list[int]:
    """Tokens covered by the checkpoints that the build makes while it computes a prompt of ``length`` tokens.

    ``user_starts``: token index at which each user message begins, where known; builds before b9538 do not ask.
    """
    if memory == "attention" or build < 6180 or (build < 6751 and memory != "swa"):
        return []
    if build < 6751:
        return [length] if length else []
    ends = [length - 4 - N_UBATCH, length - 4]
    if build < 8352:  # the position of the last covered token counted, not their number
        return [place for place in [length - (LEAST if build < 8156 else N_UBATCH)] if place > LEAST]
    if build < 9538:
        return _spaced([*range(EVERY, max(0, ends[0]), EVERY), *ends], LEAST, first=LEAST)
    starts = sorted(start for start in user_starts if 0 < start < length)
    last = starts[-1:]
    if build < 9873:
        return _spaced([*last, *(end for end in ends if not last or end > last[0])], USER_STEP)
    if build < 10068:
        return _spaced([*starts, *ends], EVERY, always=last)
    return _spaced([*starts, *ends], EVERY, always=[*last, *ends])


def _spaced(places: list[int], step: int, first: int = 1, always: list[int] | None = None) -> list[int]:
    """Places from ``first`` on that lie more than ``step`` behind the one before, or that are kept whatever happens."""
    kept: list[int] = []
    for place in sorted(set(places)):
        if place >= first and (not kept or place > kept[-1] + step or place in (always or [])):
            kept.append(place)
    return kept


def reusable(
    memory: str,
    common: int,
    held: int,
    covered: list[int],
    build: int = NEWEST,
    window: int = 0,
    new: int | None = None,
) -> int:
    """Tokens of the common prefix that can be reused.

    ``common``: longest common prefix; ``held``: tokens of the prompt that the slot holds; ``covered``: tokens covered
    by each checkpoint; ``window``: of sliding-window memory, tokens; ``new``: tokens of the new prompt, one of which at
    least is computed. Attention memory can be cut anywhere; the others go on from their end, or back to a checkpoint.
    """
    whole = new is not None and common >= new
    most = max(0, common - 1) if whole else common
    if memory == "attention" or common == 0 or (common >= held and build < 9294):
        return most
    if memory != "swa" and build < 6751:
        return 0 if common < held else most
    size = window if memory == "swa" else 0
    threshold = _threshold(common, size, build, whole)
    oldest = _oldest(memory, held, size)
    if oldest < threshold or (oldest == threshold and build < 8672) or (memory == "swa" and build < 5456):
        return most
    fitting = [place for place in covered if _accepted(place, memory, common, threshold, size, build)]
    if not fitting or build < 6180:
        return 0
    newest = max(fitting)
    return min(most, newest - 1 if memory == "swa" else newest)


def _threshold(common: int, window: int, build: int, whole: bool) -> int:
    """Position in front of which the memory must still reach."""
    if build < 6751 or 8672 <= build < 9294:
        back = window
    elif build < 8672:
        back = max(1, window)
    else:
        back = window + (1 if build < 9538 or whole else 0)
    return max(0, common - back)


def _oldest(memory: str, tokens: int, window: int) -> int:
    """Smallest position that the memory holds after so many tokens; a recurrent state is only its last one."""
    cells = -(-(window + N_UBATCH) // _PAD) * _PAD
    return max(0, tokens - cells) if memory == "swa" else tokens - 1


def _accepted(covered: int, memory: str, common: int, threshold: int, window: int, build: int) -> bool:
    oldest = _oldest(memory, covered, window)
    fits = oldest < threshold or (oldest == threshold and build < 6751) or (oldest == 0 and build >= 8929)
    if not fits or (build >= 9713 and covered - 1 > common):
        return False
    return memory == "swa" or covered <= common
