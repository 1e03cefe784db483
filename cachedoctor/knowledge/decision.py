"""What a build of llama-server can reuse of a prompt that it holds, and which lines show it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from cachedoctor.knowledge.builds import NEWEST, SAMPLED

N_UBATCH = 512
"""Default of -ub, tokens."""
EVERY = 8192
"""Tokens between checkpoints during a long prompt (b8352 to b9294), and the least distance from b9873 on."""
LEAST = 64
"""Minimum tokens of the first checkpoint, and minimum distance, in builds before user turns placed checkpoints."""
USER_STEP = 256
"""Least distance from b9538 to b9713."""

FRAME = 24
"""Tokens that a template writes around a message: all its prompts share this many, and this many follow any turn."""
SIMILAR = 0.1
"""Share of a prompt that a slot must hold to be chosen for it, by default (b6628 and newer)."""
MAX_TURN = 1024
"""Maximum tokens that a turn adds to a short conversation; a long one may grow by half. A larger prompt is treated as a
new one."""
MIN_TURN = 16
"""Tokens that a turn adds at least: the end of the reply, a message, the opening of the next reply. Prompts of nearly
the same length are more likely requests that have nothing to do with each other."""
_PAD = 256
"""The cells of sliding-window memory are a multiple of it."""


def extends(prompt: int, total: int) -> bool:
    """Whether a prompt of this length can be the next turn of a conversation of ``total`` tokens."""
    return shortest(prompt) <= total <= prompt - MIN_TURN


def shortest(prompt: int) -> float:
    """Tokens that a conversation must have at least for a prompt of this length to be its next turn."""
    return min(prompt - MAX_TURN, prompt / 1.5)


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
    """Positions from ``first`` on that are more than ``step`` after the previous one, or that are always kept."""
    kept: list[int] = []
    for place in sorted(set(places)):
        if place >= first and (not kept or place > kept[-1] + step or place in (always or [])):
            kept.append(place)
    return kept


Saved = tuple[int, int]
"""A context checkpoint: the first and the last position of its state."""


class HeldState(msgspec.Struct, frozen=True):
    """What a slot holds when a prompt comes, in tokens and positions."""

    memory: str
    """``attention``, ``swa``, ``hybrid`` or ``recurrent``; sliding-window memory of full size is ``attention``."""
    tokens: int
    """Length of its content."""
    oldest: int
    """Smallest position that the memory still has; for a recurrent state its only one."""
    saved: Sequence[Saved] = ()
    """Checkpoints, the newest first."""
    window: int = 0
    """Window of sliding-window memory in tokens; else 0."""


class Decision(NamedTuple):
    """What the server does with a prompt."""

    reused: int
    """Tokens of it that are not recomputed."""
    threshold: int
    """Position before which the memory, or a checkpoint, must begin."""
    searched: bool
    """True if a checkpoint was needed."""
    taken: Saved | None = None
    """The checkpoint that was restored."""
    cleared: bool = False
    """The memory could not be truncated where reuse had to end, and was cleared (from b9294 on the process ends)."""


CHANGES = (5456, 6180, 6751, 7079, 8156, 8352, 8672, 8929, 9294, 9538, 9713)
"""Builds from which ``decide`` gives other answers."""


@lru_cache(maxsize=64)  # a log has few servers
def representatives(build: int | None, low: int | None, high: int | None) -> tuple[int, ...]:
    """Give one build for each set of rules that may apply, if the build is known or within a range (None: open)."""
    if build is not None:
        return (build,)
    least, most = low or SAMPLED[0], high or NEWEST
    return least, *(change for change in CHANGES if least < change <= most)


def decide(build: int, held: HeldState, common: int, new: int, projector: bool = False) -> Decision:
    """Give what a server of ``build`` reuses of a prompt of ``new`` tokens that shares ``common`` with its slot.

    ``projector``: one is loaded (--mmproj); some builds then look for no checkpoint.
    """
    whole = common >= new
    threshold = _threshold(common, held.window, build, whole)
    limit = held.tokens if build < 9294 else held.tokens + 1
    checked = 0 < common < limit and build >= 5456 and not (projector and 7079 <= build < 8156)
    if not (checked and (held.oldest > threshold or (held.oldest == threshold and build >= 8672))):
        return _cut(held, min(common, new), new, Decision(0, threshold, searched=False), held.tokens, build)
    taken = _newest(held.saved, common, threshold, build)
    found = Decision(0, threshold, True, taken)
    if taken is None:
        return found
    first, last = taken
    restored = last if build < 6751 else max(first + 1, last)  # of a sliding window one token less than it stands for
    return _cut(held, min(common, restored), new, found, last + 1, build)


def _newest(saved: Sequence[Saved], common: int, threshold: int, build: int) -> Saved | None:
    """The newest checkpoint that a server of ``build`` takes."""
    if build < 6180:
        return None
    below = threshold + 1 if build < 6751 else threshold
    if build >= 8929 and below < 1:
        below = 1  # one that begins at position 0 is always taken
    farthest = common if build >= 9713 else sys.maxsize
    for one in saved:
        if one[0] < below and one[1] <= farthest:
            return one
    return None


def _cut(held: HeldState, reused: int, new: int, found: Decision, end: int, build: int) -> Decision:
    """Cut the memory, which now reaches to ``end``: one token at least is computed, and a recurrent state is whole.

    From b6751 to b6900 the last token could be removed from the cells of a recurrent memory, whose state then still
    included it.
    """
    reused = new - 1 if reused >= new else reused
    whole = end - 1 if 6751 <= build < 7079 else end
    if held.memory in ("hybrid", "recurrent") and 0 < reused < whole:
        return Decision(0, found.threshold, found.searched, found.taken, cleared=True)
    return Decision(max(0, reused), found.threshold, found.searched, found.taken)


def reusable(
    memory: str,
    common: int,
    held: int,
    covered: list[int],
    build: int = NEWEST,
    window: int = 0,
    new: int | None = None,
) -> int:
    """Tokens of the common prefix that can be reused from checkpoints that are assumed.

    ``common``: longest common prefix; ``held``: tokens of the prompt that the slot holds; ``covered``: tokens covered
    by each checkpoint; ``window``: of sliding-window memory, tokens; ``new``: tokens of the new prompt, one of which at
    least is computed.
    """
    size = window if memory == "swa" else 0
    saved = [(_oldest(memory, n, size), n - 1) for n in sorted(covered, reverse=True)]
    slot = HeldState(memory, held, _oldest(memory, held, size), saved, size)
    return decide(build, slot, common, common + 1 if new is None else new).reused


def common_of(threshold: int, window: int, build: int, new: int) -> int | None:
    """Give the common prefix that leads to a printed threshold; None for 0, which many lead to."""
    whole = threshold + _back(window, build, True) >= new
    return threshold + _back(window, build, whole) if threshold > 0 else None


def _threshold(common: int, window: int, build: int, whole: bool) -> int:
    """Position before which the memory must still reach."""
    return max(0, common - _back(window, build, whole))


def _back(window: int, build: int, whole: bool) -> int:
    """Tokens of the common prefix that the memory must roll back. ``whole``: the prompt has nothing new."""
    if build < 6751 or 8672 <= build < 9294:
        return window
    if build < 8672:
        return max(1, window)
    return window + (1 if build < 9538 or whole else 0)


def _oldest(memory: str, tokens: int, window: int) -> int:
    """Smallest position that the memory holds after so many tokens in one go; a recurrent state is only its last one.

    After a jump back to a checkpoint a sliding-window memory may hold less: cells before the window of the new
    tokens are taken first, wherever they lie.
    """
    cells = -(-(window + N_UBATCH) // _PAD) * _PAD
    if memory == "attention":
        return 0
    return max(0, tokens - cells) if memory == "swa" else tokens - 1


Wanted = Literal["before", "choice", "prompt", "reused", "end"]
"""The request before it on its slot; the choice of its slot; how long its prompt is; what was reused; how it ended."""


class _Wording(msgspec.Struct, frozen=True):
    first: int
    last: int
    words: str


_NEWEST = 1 << 30
_TELLS: dict[Wanted, tuple[str, tuple[_Wording, ...]]] = {
    "before": (
        "the end of the previous request on the same slot",
        (
            _Wording(0, 6751, '"stop processing: n_past = N"'),
            _Wording(6752, _NEWEST, '"stop processing: n_tokens = N"'),
        ),
    ),
    "choice": (
        "how the slot was chosen",
        (
            _Wording(0, 6451, '"selected slot by lcs similarity" or "by lru", with -lv 4'),
            _Wording(6452, _NEWEST, '"selected slot by LCP similarity" or "by LRU"'),
        ),
    ),
    "prompt": (
        "the length of the prompt",
        (
            _Wording(0, 6751, '"new prompt, ... n_prompt_tokens = N"'),
            _Wording(6752, 9093, '"new prompt, ... task.n_tokens = N"'),
            _Wording(9094, _NEWEST, '"new prompt, ... task.n_tokens = N" with -lv 4'),
        ),
    ),
    "reused": (
        "the reused tokens",
        (
            _Wording(0, 6628, '"kv cache rm [N, end)"'),
            _Wording(6629, 9093, '"memory_seq_rm [N, end)"'),
            _Wording(9094, _NEWEST, '"cached n_tokens = N, memory_seq_rm [N, end)" with -lv 4'),
        ),
    ),
    "end": (
        "its result",
        (_Wording(0, _NEWEST, '"prompt eval time", or the server\'s "cancel task" or "task id = T, error:"'),),
    ),
}


def deciding(wanted: Wanted, low: int | None, high: int | None) -> str:
    """Say what a line shows, and how it begins in the builds from ``low`` to ``high``; None leaves an end open."""
    what, wordings = _TELLS[wanted]
    fitting = [w for w in wordings if (high is None or w.first <= high) and (low is None or w.last >= low)]
    if len(fitting) == 1:
        return f"{what} ({fitting[0].words})"
    said = [f"{w.words} {_builds(w)}" for w in fitting]
    return f"{what} ({'; '.join(said)})"


def _builds(wording: _Wording) -> str:
    if wording.last == _NEWEST:
        return f"from b{wording.first} on"
    return f"up to b{wording.last}" if not wording.first else f"from b{wording.first} to b{wording.last}"
