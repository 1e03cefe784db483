"""Conclusions from the facts of a server, and the tokens that its build had to reuse of a request.

Does not use the real reuse: the answer is compared with it.
"""

from __future__ import annotations

from functools import cached_property
from operator import attrgetter
from typing import Literal

import msgspec

from cachedoctor.knowledge import builds, decision
from cachedoctor.knowledge.decision import Decision, HeldState, Saved
from cachedoctor.model import Facts, Request

PRINTS_CHECKS = 8352
"""From this build on every checkpoint that is checked is printed (not yet in b8156)."""


class Setup:
    """Facts of a server, and conclusions from them."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @cached_property
    def rewinds_badly(self) -> bool | None:
        """Whether the memory needs checkpoints to go back (SWA, hybrid, recurrent); None if unknown."""
        f = self.facts
        if f.memory is not None:
            return f.memory != "attention" and not (f.memory == "swa" and f.setting("swa_full") is True)
        return True if "rewinding" in f.shows else None

    @cached_property
    def ram(self) -> Literal["on", "off"] | None:
        """Whether the RAM prompt cache is on.

        Known from a start-up line, from its updates, or from missing updates at a level that would show them.
        """
        f = self.facts
        if f.at_least(6629) is False:
            return "off"  # the cache came with PR #16391, between b6628 and b6751
        if f.setting("mmproj") is True and f.at_least(7965) is False:
            return "off"  # announced, but not used with mmproj up to b7964
        limit = f.setting("cache_ram_mib")
        if limit is not None:
            return "off" if limit == 0 else "on"
        if "ram_cache" in f.shows or f.setting("ram_evictions"):
            return "on"
        if "accounting" in f.shows and f.at_least(6751) and f.several:
            return "off"
        if f.starts_cold and f.at_least(8929) and f.setting("cache_idle_slots") is not False:
            return "on"  # a disabled cache makes these builds warn that --cache-idle-slots needs it
        return None

    @cached_property
    def ram_keeps_all(self) -> bool:
        """Whether the RAM prompt cache is on, and no prompt is known to have left it or to have been too large."""
        return self.ram == "on" and self.facts.ram_kept_all()

    # ---- for the replay of decisions

    @cached_property
    def builds(self) -> tuple[int, ...]:
        """One build for each set of rules that may apply."""
        return decision.representatives(self.facts.build, self.facts.build_min, self.facts.build_max)

    @cached_property
    def prints_searches(self) -> bool:
        """A search for checkpoints is printed at the default level."""
        return self.facts.at_least(builds.LOGS_REDUCED_AGAIN) is False

    @cached_property
    def prints_checks(self) -> bool | None:
        """Whether every checked checkpoint is printed together with the search; None if the build is not certain."""
        return self.facts.at_least(PRINTS_CHECKS)

    @cached_property
    def projector(self) -> bool:
        """A multimodal projector is loaded."""
        return self.facts.setting("mmproj") is True

    @cached_property
    def swa(self) -> int | None:
        """Sliding window by the start-up lines, in tokens."""
        found: int | None = self.facts.setting("n_swa")
        return found

    @cached_property
    def window(self) -> int | None:
        """Sliding window by request lines, or else by start-up lines, in tokens."""
        return self.facts.window if self.facts.window is not None else self.swa


ROUNDING = 64
"""Tokens: where the rounded shares of a log leave more than this open, the common prefix is unknown."""


class Replay(msgspec.Struct, frozen=True):
    """The tokens that the server had to reuse."""

    least: int | None = None
    most: int | None = None
    """Tokens; they differ where the log gives the common prefix as a rounded share. None when a number is missing."""
    missing: tuple[str, ...] = ()
    """What the log lacks: build, memory, prompt_length, common_prefix, slot_length, window, oldest_position,
    checkpoints_held, image_positions."""
    decision: Decision | None = None
    """The whole decision, unless rounding or several possible builds leave it open."""

    @property
    def answer(self) -> tuple[int | None, tuple[str, ...]]:
        """Tokens reused if they are known exactly, and what the log lacks if they are not."""
        if self.least is not None and self.least == self.most:
            return self.least, self.missing
        return None, self.missing or ("common_prefix",)


class _LacksError(Exception):
    """A number that the decision depends on is not in the log."""


_UNKNOWN = Replay(missing=("common_prefix",))


def replay(request: Request, setup: Setup) -> Replay:
    """Repeat the decision for every possible build of the server and every possible common prefix.

    Those that would have printed other lines than the log has are left out, unless all would have.
    """
    if (
        request.prefix_between is None
        and "ram_failed" not in request.marks
        and (request.held_tokens != 0 or request.restored_from_ram)
    ):
        return _UNKNOWN  # whatever the build
    missing: set[str] = set()
    found: dict[tuple[int, int], Decision] = {}
    for build in setup.builds:
        try:
            for common in _common(request, setup, build):
                found[build, common] = _decide(request, setup, build, common)
        except _LacksError as lack:
            missing.add(str(lack))
    if missing:
        return Replay(missing=tuple(sorted(missing)))
    images = "images" in setup.facts.shows
    if len(found) == 1 and not images:
        only = found.popitem()[1]
        return Replay(only.reused, only.reused, decision=only)
    # Images may take fewer positions than tokens (M-RoPE): no threshold says how many tokens.
    fitting = {key: answer for key, answer in found.items() if agrees(answer, request, setup)}
    if not fitting and images:
        return Replay(missing=("image_positions",))
    fitting = fitting or found
    answers = set(fitting.values())
    least, most = min(a.reused for a in answers), max(a.reused for a in answers)
    if most - least > ROUNDING or (least < most and len({common for _, common in fitting}) == 1):
        return Replay(missing=("build" if len({build for build, _ in fitting}) > 1 else "common_prefix",))
    return Replay(least, most, decision=answers.pop() if len(answers) == 1 else None)


def would_reuse(request: Request, setup: Setup, build: int) -> int | None:
    """Tokens that a server of ``build`` would have reused of this slot's content; None if the log does not show it.

    A list of checked checkpoints ends at the restored one: everything after it is unknown.
    """
    try:
        commons = _common(request, setup, build)
        found = {_decide(request, setup, build, common) for common in commons}
    except _LacksError:
        return None
    listed = request.seen.checks or setup.prints_checks is not None
    unseen = not listed or not searched(request) or (request.seen.checks and request.restored)
    if any(answer.searched and answer.taken is None and unseen for answer in found):
        return None
    reused = {answer.reused for answer in found}
    return reused.pop() if len(reused) == 1 else None


def agrees(found: Decision, request: Request, setup: Setup) -> bool:
    """Whether the server would have printed the same lines: a search or none, the threshold, the checkpoint."""
    if not shown(request, setup):
        return True
    if found.searched != searched(request):
        return False
    if request.seen.checks and request.seen.checks[0].threshold != found.threshold:
        return False
    return found.taken == request.seen.restored_at


def shown(request: Request, setup: Setup) -> bool:
    """Whether a search for checkpoints would be in this log."""
    return request.tried is not None or setup.prints_searches


def searched(request: Request) -> bool:
    """Whether the log shows that the server searched for a checkpoint."""
    return bool(
        request.seen.checks or request.seen.forced or request.restored or request.seen.oldest_position is not None
    )


def _common(request: Request, setup: Setup, build: int) -> set[int]:
    """The common prefix; or both ends of what it may be, and what a printed threshold or a mere continuation make it."""
    if "ram_failed" in request.marks and build >= 7079:
        return {0}  # the slot is cleared when its prompt does not come back whole
    if _may_swap(request, setup) or "ram_failed" in request.marks:
        raise _LacksError("common_prefix")
    if request.held_tokens == 0 and not request.restored_from_ram:
        return {0}
    if request.prefix_between is None:
        raise _LacksError("common_prefix")
    moved = 0 if "n_past" in request.marks else request.seen.reused_chunks  # that line counts them in
    low, high = request.prefix_between[0] + moved, request.prefix_between[1] + moved
    if low == high:
        return {low}
    if request.seen.checks and request.prompt_tokens is not None:
        window = setup.facts.window or setup.swa or 0
        exact = decision.common_of(request.seen.checks[0].threshold, window, build, request.prompt_tokens)
        if exact is not None and low <= exact <= high:
            return {exact}
    held = request.held_tokens
    return {low, high} if held is None or not low < held < high else {low, held, high}


def _may_swap(request: Request, setup: Setup) -> bool:
    """Whether a prompt of the RAM cache may have replaced the slot's content without a word (from b9873 on)."""
    if request.restored_from_ram is not None or request.lcp_exact or shown(request, setup):
        return False
    if setup.facts.setting("cache_ram_mib") == 0:
        return False
    return request.seen.choice.selected_by != "lcp" or (request.f_keep or 0) < 0.5


def _decide(request: Request, setup: Setup, build: int, common: int) -> Decision:
    new = request.prompt_tokens
    if new is None:
        raise _LacksError("prompt_length")
    if common == 0:
        return Decision(0, 0, searched=False)
    projector = setup.projector
    return decision.decide(build, _held(request, setup, build, common), common, new, projector)


def _held(request: Request, setup: Setup, build: int, common: int) -> HeldState:
    """What the slot held; a printed search, or its absence, stands for numbers that only decide about a search."""
    visible, tokens = shown(request, setup), request.held_tokens
    memory, window = _memory(request, setup, build)
    oldest = request.seen.oldest_position
    if memory in ("attention", "full"):
        # even a full-size memory holds no more than its window when it came back from RAM
        begins = oldest or (common if memory == "full" and searched(request) else 0)
        return HeldState("attention", common + 1 if tokens is None else tokens, begins, window=window)
    if tokens is None:
        if not visible:
            raise _LacksError("slot_length")
        cut = searched(request) or request.seen.truncate_failed_at is not None
        tokens = common + 1 if cut else common
    elif memory != "swa":
        oldest = tokens - 1
    if oldest is None:
        if not visible:
            raise _LacksError("oldest_position")
        oldest = common if searched(request) else -1
    return HeldState(memory, tokens, oldest, _saved(request, setup, build), window)


def _memory(request: Request, setup: Setup, build: int) -> tuple[str, int]:
    """Kind of memory, and its window where it has one; ``full`` is sliding-window memory of full size."""
    window = setup.window
    memory = setup.facts.memory or _guess(request, setup, window)
    if memory != "swa":
        return memory, 0
    if setup.facts.setting("swa_full") is True:
        return "full", 0 if build >= 8929 else window or 0
    if window is None and shown(request, setup) and not request.seen.checks:
        return "swa", 0  # whether it searched is known, and nothing was measured against a threshold
    if window is None:
        raise _LacksError("window")
    return memory, window


def _guess(request: Request, setup: Setup, window: int | None) -> str:
    """Kind of memory by what its checkpoints look like, where the start-up lines do not show it."""
    if window is not None and window > 1:
        return "swa"
    span = request.seen.restored_at or (request.seen.held_positions[-1] if request.seen.held_positions else None)
    if request.seen.checks:
        span = request.seen.checks[0].pos_min, request.seen.checks[0].pos_max
    if span is not None:
        return "recurrent" if span[0] == span[1] else "swa"
    if shown(request, setup) and not searched(request) and setup.facts.at_least(6751) is True:
        # nothing had to be gone back to, which is all that the kind decides about; a failed cut is printed
        return "attention" if request.seen.truncate_failed_at is None else "recurrent"
    if searched(request):
        return "swa"
    raise _LacksError("memory")


_span_of = attrgetter("pos_min", "pos_max")


def _saved(request: Request, setup: Setup, build: int) -> list[Saved]:
    """Checkpoints that the slot held, the newest first, down to the one that the server took."""
    visible = shown(request, setup)
    if build < 6180 or (visible and not searched(request)):
        return []
    if request.seen.checks:
        return list(map(_span_of, request.seen.checks))
    prints = setup.prints_checks
    if prints or (prints is None and build >= PRINTS_CHECKS):
        if not visible:
            raise _LacksError("checkpoints_held")
        return []
    if not request.seen.positions_known:
        raise _LacksError("checkpoints_held")
    return request.seen.held_positions[::-1]
