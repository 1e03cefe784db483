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
from cachedoctor.model import ClientName, PromptDiff, SamplePeriod, SentBodies, Session, SettingName
from cachedoctor.model.measured import SentChange
from cachedoctor.prompts import client_habits
from cachedoctor.prompts.prompt import Prompt

_MOST = 2_000
"""Bodies that are checked."""
_MOST_BYTES = 32 << 20
"""Bytes of their text that are checked."""
_CHANGED = 0.3
"""Share of a body that repeats earlier text, from which on the body counts as changed."""
_EDITED = 0.1
"""The same for an edit of the history or of the tools, which no new prompt has by chance."""
_EDITS = ("message-", "reasoning-", "tool-", "tools-", "front-truncated", "compacted")
"""Prefixes of the kinds of such differences."""
_COMPARED = 256
"""Changed bodies that are compared with the earlier ones."""
_OPENING = 64
"""Bytes at the end of a prompt that may be the opening of a reply."""
_BLOCK = 16
"""Tokens of a block on a GPU where the log does not show another size (0.7 to 0.33)."""
_FIT = 0.02
"""Share by which the count of bodies and that of answers may differ."""

Compare = Callable[[Prompt, Prompt], PromptDiff | None]


class _Again(NamedTuple):
    """A body that repeats text of an earlier one behind a difference."""

    length: int
    """Bytes that it repeats."""
    owner: int
    """Number of the earlier body."""
    at: int
    is_most: bool
    """So much of it is repeated that no other evidence of a change is needed."""


class _Body(NamedTuple):
    prompt: Prompt
    text: bytes
    salt: str
    adapter: str
    """The LoRA adapter that it asks for; empty for none."""

    @property
    def scope(self) -> str:
        """Blocks are shared within it alone."""
        return f"{self.salt}\0{self.adapter}"


def summed(prompts: Sequence[Prompt], session: Session, compare: Compare, *, hashed: bool = False) -> SentBodies | None:
    """Sum up bodies in the order in which they were sent; None for fewer than two.

    Args:
        prompts: as they were given.
        session: the server that they are of.
        compare: says what differs between two prompts.
        hashed: clients are named by hashes alone.
    """
    bodies = _bodies(prompts, session)
    if len(bodies) < 2:
        return None
    size = sum(len(body.text) for body in bodies)
    beginnings, under_salt, anywhere = _Beginnings(), _Beginnings(), _Beginnings()
    repeats, salted, resumed, adapted, switched, shared = Repeats(), 0, 0, 0, 0, 0
    again: list[_Again] = []
    for at, body in enumerate(bodies):
        begins, _ = beginnings.add(body.scope, body.text)
        of_salt = under_salt.add(body.salt, body.text)[0] if "adapters" in session.incidents else begins
        unsalted, goes_on = anywhere.add("", body.text)
        shared += begins
        salted, adapted = salted + unsalted - of_salt, adapted + of_salt - begins
        if goes_on:
            resumed, switched = resumed + unsalted - of_salt, switched + of_salt - begins
        found = repeats.of(body.text, unsalted)  # what a salt alone keeps apart is not text after a difference
        repeats.add(body.text)
        if not goes_on and found.length >= _EDITED * len(body.text) and found.owner is not None:
            again.append(_Again(found.length, found.owner, at, found.length >= _CHANGED * len(body.text)))
    senders = [client_habits.asker(body.prompt, hashed=hashed) for body in bodies]
    again, changes = _changes(again, bodies, senders, compare)
    kept, endless = _replayed(bodies, session, size) if len(prompts) == len(bodies) else (None, None)
    return SentBodies(
        bodies=len(bodies),
        complete=_complete(len(prompts), session) and len(prompts) == len(bodies),
        size=size,
        shared=shared,
        endless=endless,
        kept=kept,
        repeated=sum(one.length for one in again),
        changed=len(again),
        salted=salted,
        resumed=resumed,
        salts=len({body.salt for body in bodies if body.salt}),
        with_salt=sum(bool(body.salt) for body in bodies),
        senders=len(set(senders)),
        adapted=adapted,
        switched=switched,
        adapters=len({body.adapter for body in bodies}),
        changes=changes,
        tokens=_tokens(len(bodies), session),
    )


def _changes(
    again: list[_Again], bodies: Sequence[_Body], senders: Sequence[ClientName | None], compare: Compare
) -> tuple[list[_Again], list[SentChange]]:
    """Compare bodies with those whose text they repeat; gives those that changed what was sent before, and how.

    A newest message that is made of text of another newest message changes nothing: documents in another order are new.
    """
    left, found = list[_Again](), dict[tuple[str, str], SentChange]()
    most = dict[tuple[str, str], int]()
    for number, one in enumerate(again):
        difference = compare(bodies[one.owner].prompt, bodies[one.at].prompt) if number < _COMPARED else None
        first = None if difference is None else difference.first
        if first is not None and _is_newest(first.place, bodies[one.owner].prompt, bodies[one.at].prompt):
            continue
        if not one.is_most and (first is None or not first.kind.startswith(_EDITS)):
            continue
        left.append(one)
        if difference is None or first is None:
            continue
        key = first.kind, (first.place or "").partition("[")[0]
        change = found.setdefault(key, SentChange(difference))
        change.bodies += 1
        change.repeated += one.length
        if senders[one.at] not in change.senders:
            change.senders.append(senders[one.at])
        if one.length > most.get(key, 0):
            most[key], change.worst = one.length, difference
    return left, sorted(found.values(), key=lambda change: -change.repeated)


def _is_newest(place: str | None, earlier: Prompt, later: Prompt) -> bool:
    """Whether a place is in the newest message of both prompts, which no earlier request had."""
    messages = [(prompt.body or {}).get("messages") for prompt in (earlier, later)]
    if place is None or not all(isinstance(found, list) and found for found in messages):
        return False
    return all(isinstance(found, list) and place.startswith(f"messages[{len(found) - 1}]") for found in messages)


def _bodies(prompts: Sequence[Prompt], session: Session) -> list[_Body]:
    found, size, loaded = [], 0, session.incidents.get("adapters")
    adapters = frozenset(loaded.field.split("\n") if loaded else ())
    for prompt in prompts[:_MOST]:
        model = (prompt.body or {}).get("model")
        adapter = model if isinstance(model, str) and model in adapters else ""
        body = _Body(prompt, prompt.text.encode("utf-8", "surrogatepass"), salt_of(prompt), adapter)
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
    found = [a.requests for a in session.answers]
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
    sent = [SentPrompt(array("B", b.text), key=b.scope, images=_images(b.prompt)) for b in bodies]
    served = block_cache.serve(sent, settings)
    return sum(one.reused for one in served), sum(one.endless for one in served)


def _images(prompt: Prompt) -> list[Image]:
    """Where images stand is not known: they tell prompts apart from their first byte on where the text does not."""
    return [Image(0, 1, "".join(prompt.images))] if prompt.images else []
