"""What a build of llama-server can reuse of a prompt that it holds, given the common prefix. Pure functions.

Source: the slot logic of llama.cpp between b5300 and b11549 (checkpoint creation: PR #15293, #16382, #20288, #22929,
#24176, #28302; the check itself: #21510, #24110). Knows no log line and no request.
"""

from __future__ import annotations

from cachedoctor.knowledge.builds import NEWEST

N_BATCH, N_UBATCH = 2048, 512
"""Defaults of -b and -ub, tokens."""
EVERY = 8192
"""Tokens between checkpoints during a long prompt (b8352 to b9294), and the least distance from b9873 on."""


def checkpoints(length: int, user_starts: list[int], build: int = NEWEST, memory: str = "hybrid") -> list[int]:
    """Tokens covered by the checkpoints that the build makes while it computes a prompt of ``length`` tokens.

    ``user_starts``: token index at which each user message begins, where known.
    """
    if build < 6180 or (build < 6751 and memory != "swa") or length < 64:
        return []
    if build < 6751:
        return [length]
    if build < 8156:
        return _sorted([length - 64], length)
    if build < 8352:
        return _sorted([length - N_UBATCH], length)
    ends = [length - 4 - N_UBATCH, length - 4]
    if build < 9538:
        return _sorted([*range(EVERY, length, EVERY), *ends], length)
    if build < 9873:
        last = user_starts[-1:]
        return _sorted([*last, *(end for end in ends if not last or end > last[0])], length)
    kept: list[int] = []
    for start in user_starts[:-1]:
        if not kept or start > kept[-1] + EVERY:
            kept.append(start)
    near_end = [] if build < 10068 and kept else ends  # b9873 skips those too close to the one before
    return _sorted([*kept, *user_starts[-1:], *near_end], length)


def _sorted(places: list[int], length: int) -> list[int]:
    return sorted({place for place in places if 0 < place <= length})


def reusable(
    memory: str, common: int, held: int, covered: list[int], build: int = NEWEST, window: int = 0
) -> int:
    """Tokens of the common prefix that can be reused.

    ``common``: longest common prefix; ``held``: tokens of the prompt that the slot holds; ``covered``: tokens covered
    by each checkpoint; ``window``: of sliding-window memory, tokens. Attention memory can be cut anywhere; the others
    go on from their end, or back to a checkpoint at or below the common prefix.
    """
    if memory == "attention" or common >= held:
        return common
    if memory == "swa" and held - common <= N_UBATCH:
        return common  # the cells still hold a whole window before that place
    if build < 6180 or (build < 6751 and memory != "swa"):
        return 0
    strict = memory != "swa" and (6751 <= build < 8672 or build == 9294)  # a state exactly at the prefix was refused
    fitting = [place for place in covered if place < common or (place == common and not strict)]
    return max(fitting, default=0)
