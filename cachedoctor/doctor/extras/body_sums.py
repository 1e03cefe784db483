"""Works out what given request bodies have in common, for a server whose log has no requests to match them to."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cachedoctor.diagnosis.replay import block_cache
from cachedoctor.diagnosis.replay.block_cache import Image, SentPrompt
from cachedoctor.knowledge.engines import in_blocks
from cachedoctor.knowledge.texts import Repeats, common_prefix
from cachedoctor.model import PromptDiff, SamplePeriod, SentBodies, Session, SettingName
from cachedoctor.prompts.prompt import Prompt

_MOST = 2_000
"""Bodies that are checked."""
_MOST_BYTES = 32 << 20
"""Of their text."""
_CHANGED = 0.3
"""Share of a body from which on repeated text makes it one that was changed."""
_OPENING = 64
"""Bytes at the end of a prompt that may be the opening of a reply."""
_BLOCK = 16
"""Tokens of a block on a GPU where the log does not show another size (0.7 to 0.33)."""
_FIT = 0.02
"""Share by which the count of bodies and that of answers may differ."""

Compare = Callable[[Prompt, Prompt], PromptDiff | None]


class _Body(NamedTuple):
    prompt: Prompt
    text: bytes
    salt: str


def summed(prompts: Sequence[Prompt], session: Session, compare: Compare) -> SentBodies | None:
    """Sum up bodies in the order in which they were sent; None for fewer than two.

    Args:
        prompts: as they were given.
        session: the server that they are of.
        compare: says what differs between two prompts.
    """
    bodies = _bodies(prompts)
    if len(bodies) < 2:
        return None
    size = sum(len(body.text) for body in bodies)
    beginnings, anywhere = _Beginnings(), _Beginnings()
    repeats, repeated, changed, salted = Repeats(), 0, 0, 0
    worst: tuple[int, int, int] | None = None
    shared = 0
    for at, body in enumerate(bodies):
        begins, _ = beginnings.add(body.salt, body.text)
        unsalted, goes_on = anywhere.add("", body.text)
        shared += begins
        salted += unsalted - begins
        again = repeats.of(body.text, unsalted)  # what a salt alone keeps apart is not text after a difference
        repeats.add(body.text)
        if goes_on or again.length < _CHANGED * len(body.text) or again.owner is None:
            continue
        repeated += again.length
        changed += 1
        if worst is None or again.length > worst[0]:
            worst = (again.length, again.owner, at)
    kept, endless = _replayed(bodies, session, size) if len(prompts) == len(bodies) else (None, None)
    return SentBodies(
        bodies=len(bodies),
        complete=_complete(len(prompts), session) and len(prompts) == len(bodies),
        size=size,
        shared=shared,
        endless=endless,
        kept=kept,
        repeated=repeated,
        changed=changed,
        salted=salted,
        salts=len({body.salt for body in bodies}),
        worst=None if worst is None else compare(bodies[worst[1]].prompt, bodies[worst[2]].prompt),
    )


def _bodies(prompts: Sequence[Prompt]) -> list[_Body]:
    found, size = [], 0
    for prompt in prompts[:_MOST]:
        body = _Body(prompt, prompt.text.encode("utf-8", "surrogatepass"), salt_of(prompt))
        size += len(body.text)
        if size > _MOST_BYTES:
            break
        found.append(body)
    return found


def salt_of(prompt: Prompt) -> str:
    """What the body asks to be kept apart by: vLLM's ``cache_salt``, SGLang's ``extra_key``."""
    body = prompt.body or {}
    return "\0".join(f"{name}={body[name]}" for name in ("cache_salt", "extra_key") if isinstance(body.get(name), str))


class _Beginnings:
    """The texts so far, in the order of their bytes: the one that has most in common with another is beside it."""

    def __init__(self) -> None:
        self._sorted: dict[str, list[bytes]] = {}
        self._seen: set[tuple[str, bytes]] = set()

    def add(self, key: str, text: bytes) -> tuple[int, bool]:
        """Give the longest beginning that an earlier text of the key had, and whether it was all of one."""
        known = self._sorted.setdefault(key, [])
        at = bisect_left(known, text)
        beside = [(common_prefix(other, text), len(other)) for other in known[max(0, at - 1) : at + 1]]
        best = max((length for length, _ in beside), default=0)
        ends = any(length == best and whole - length <= _OPENING for length, whole in beside)
        goes_on = best > 0 and (ends or (key, text[:best]) in self._seen)
        known.insert(at, text)
        self._seen.add((key, text))
        return best, goes_on


def _answered(session: Session) -> list[int]:
    """Counts of requests that anything beside the bodies tells."""
    found = [a.requests for a in session.answers if a.source == "responses"]
    found += [c.requests for c in session.counters if c.requests]
    periods = [p.answered for p in session.periods if isinstance(p, SamplePeriod) and p.answered]
    return [*found, *([sum(periods)] if periods else [])]


def _complete(bodies: int, session: Session) -> bool:
    return any(abs(count - bodies) <= _FIT * bodies for count in _answered(session))


def _tokens(bodies: int, session: Session) -> int | None:
    """Prompt tokens of just so many requests; None where nothing tells."""
    for answers in session.answers:
        if answers.told == bodies:
            return answers.prompt_tokens
    for counted in session.counters:
        if counted.requests == bodies and counted.prompt_tokens:
            return counted.prompt_tokens
    periods = [p for p in session.periods if isinstance(p, SamplePeriod) and p.busy]
    whole = [p.prompt_tokens if p.prompt_tokens is not None else p.looked_up_tokens for p in periods]
    known = [tokens for tokens in whole if tokens is not None]
    if sum(p.answered or 0 for p in periods) == bodies and len(known) == len(periods):
        return sum(known) or None
    return None


def _replayed(bodies: Sequence[_Body], session: Session, size: int) -> tuple[int | None, int | None]:
    """What a cache of blocks of the logged size still had of the beginnings, and what an endless one had.

    Bytes stand for tokens, so many for one. Unknown where the cache was emptied on the way.
    """
    room, tokens = session.setting("kv_tokens"), _tokens(len(bodies), session)
    names: tuple[SettingName, ...] = ("attention_block", "block_size")
    block = next((found for name in names if isinstance(found := session.setting(name), int)), _BLOCK)
    emptied = any(period.since == "reset" for period in session.periods)
    if not in_blocks(session.engine) or not isinstance(room, int) or not tokens or not block or emptied:
        return None, None
    each = size / tokens
    settings = block_cache.BlockSettings(max(1, round(block * each)), max(1, round(room * each)))
    sent = [SentPrompt(array("B", b.text), key=b.salt, images=_images(b.prompt)) for b in bodies]
    served = block_cache.serve(sent, settings)
    return sum(one.reused for one in served), sum(one.endless for one in served)


def _images(prompt: Prompt) -> list[Image]:
    """Where images stand is not known: they tell prompts apart from their first byte on where the text does not."""
    return [Image(0, 1, "".join(prompt.images))] if prompt.images else []
