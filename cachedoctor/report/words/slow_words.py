"""What the time of a slow request went to, in two sentences. Knows SlowTurn; knows no format.

``task 41: 2 min 58 s = 2 min 41 s prompt (35,000 new tokens at 217/s) + 17 s reply``
"""

from __future__ import annotations

from cachedoctor.knowledge.launchers import FASTER
from cachedoctor.model import Report, SlowTurn
from cachedoctor.report.words.numbers import count, duration, number

_LONG = 5_000
"""Milliseconds from which on a turn is worth a row beside findings."""


def split(turn: SlowTurn) -> str:
    """Say how long it took, and what its prompt and its reply had of that."""
    prompt = f"{duration(turn.prompt_ms)} prompt ({_prompt(turn)})"
    if turn.reply_ms is None:
        return f"task {turn.task}: {prompt}, and a reply of which the log does not say how long it took"
    reply = f"{duration(turn.reply_ms)} reply"
    tokens = f" ({count(turn.reply_tokens, 'token')})" if turn.reply_tokens is not None else ""
    return f"task {turn.task}: {duration(turn.ms)} = {prompt} + {reply}{tokens}"


def _prompt(turn: SlowTurn) -> str:
    if turn.new_tokens is None or turn.again_tokens is None:
        return "the log does not say how much of it was new"
    computed = turn.new_tokens + turn.again_tokens + (turn.undecided_tokens or 0)
    parts = [
        (turn.reused_tokens, "reused"),
        (turn.new_tokens, "new"),
        (turn.again_tokens, "computed again"),
        (turn.undecided_tokens, "new or computed again"),
    ]
    (tokens, what), *others = [part for part in parts if part[0]] or [(0, "computed")]
    said = [f"{count(tokens or 0, 'token')} {what}", *(f"{number(n or 0)} {words}" for n, words in others)]
    speed = computed / turn.prompt_ms * 1000
    return ", ".join(said) + (f", {number(speed)}/s" if speed >= 1 else "")


def _share_again(turn: SlowTurn) -> float | None:
    """Share of the computed tokens that were computed again; None where most of it is not known."""
    if turn.new_tokens is None or turn.again_tokens is None or turn.undecided_tokens is None:
        return None
    computed = turn.new_tokens + turn.again_tokens + turn.undecided_tokens
    if 2 * turn.undecided_tokens >= max(computed, 1):
        return None
    return turn.again_tokens / max(computed, 1)


def reason(turn: SlowTurn, report: Report) -> str:
    """Say in one sentence why it took so long."""
    if turn.reply_ms is not None and turn.reply_ms > turn.prompt_ms:
        return "most of it is the reply: that is the speed of the machine, not the cache"
    again = _share_again(turn)
    if again is None:
        return "what of its prompt could have been reused is not in this log"
    if again >= 0.5:
        return "most of it is text that was computed before: that is the cache"
    return f"that is the speed of the machine, not the cache: {', '.join(['shorter prompts', *_faster(report)])}"


def _faster(report: Report) -> list[str]:
    """What else makes prompts faster, in the words of what starts the server; nothing where that is not known."""
    starts = {info.launcher for info in report.inputs} | {session.launcher for session in report.sessions}
    known = [words for launcher, words in FASTER.items() if launcher in starts]
    if known or any(session.program is not None for session in report.sessions):
        return known[:1]
    return ["more layers on the GPU, -ub"]


def not_the_cache(report: Report) -> SlowTurn | None:
    """Return the slowest request where it took long and the cache is not why; None otherwise."""
    turn = next(iter(report.slowest), None)
    again = None if turn is None else _share_again(turn)
    if turn is None or again is None or turn.ms < _LONG:
        return None
    return turn if 2 * again * turn.prompt_ms < turn.ms else None
