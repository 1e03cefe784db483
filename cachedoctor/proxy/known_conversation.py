"""What fixes remember of a conversation, and of as many conversations as fit. Knows no body and no fix."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, NamedTuple

from cachedoctor.proxy.turn_trail import TurnTrail

MOST = 256
"""Conversations that are remembered: more than any server has slots."""
EACH = 4 << 20
"""Bytes that are remembered of one; one that has more is no longer edited."""
TOGETHER = 32 << 20
_HASH = 40
"""Bytes of a hash in a list."""
_REPLIES = 4
"""Answers since the last request that are remembered."""


class PinnedMessage(NamedTuple):
    """A system message in the middle of a conversation, where it was first."""

    turns: int
    """Turns in front of it."""
    prefix: int
    """Their hash."""
    said: str
    """What it says, however it is written."""
    raw: str
    """Its bytes as they were sent on."""


class Thought(NamedTuple):
    """The reasoning of a turn, as JSON."""

    fields: tuple[tuple[str, str], ...] = ()
    """Keys of the message and their values."""
    blocks: str = ""
    """Blocks in front of its content."""
    content: str = ""
    """The whole content, where the reasoning stands in its text."""


class KnownConversation:
    """What fixes remember of one conversation."""

    def __init__(self, trail: TurnTrail) -> None:
        self.head, self.prefixes = trail.head, trail.prefixes
        self.clock: tuple[str, ...] | None = None
        """Dates and times of the first request's system prompt."""
        self.tools: dict[str, str] | None = None
        """Its tools by name, as JSON; those that came later behind them."""
        self.pinned: list[PinnedMessage] = []
        self.thoughts: dict[int, Thought] = {}
        """By the hash of the turns up to theirs."""
        self.replies: deque[tuple[int, dict[str, Any]]] = deque(maxlen=_REPLIES)
        """Answers since the last request, as clients send them back, and the hash of the turns in front of them."""
        self.is_off = False
        """It is not edited: the server refused an edit, or it is too long."""

    def forget(self) -> None:
        """Forget what was for edits."""
        self.clock, self.tools, self.pinned, self.thoughts = None, None, [], {}
        self.replies.clear()

    @property
    def told(self) -> tuple[object, ...]:
        """What of it would be told in a later request."""
        return self.clock, self.tools, self.pinned, self.is_off

    @property
    def size(self) -> int:
        """Bytes of what is remembered."""
        texts = [*(self.clock or ()), *(self.tools or {}).values()]
        texts += [one.raw + one.said for one in self.pinned]
        thoughts = sum(
            len(one.blocks) + len(one.content) + sum(len(raw) for _, raw in one.fields) + _HASH
            for one in self.thoughts.values()
        )
        return _HASH * len(self.prefixes) + sum(map(len, texts)) + thoughts


class KnownConversations:
    """The conversations that went on last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[KnownConversation, int]] = OrderedDict()
        """By the identity of each, with the size that it had."""
        self._size = 0

    def follow(self, trail: TurnTrail) -> KnownConversation:
        """Give the conversation that a request goes on with; a new one where it goes on with none, or with several.

        It goes on where it has the same system prompt and all turns of the last request, or the first two of them.
        """
        if len(trail.prefixes) > 1:
            shared = [(trail.shared(one.prefixes), one) for one, _ in self._kept.values() if one.head == trail.head]
            going = [(count, one) for count, one in shared if count > 1 or (count and count == len(one.prefixes))]
            most = max((count for count, _ in going), default=0)
            found = [one for count, one in going if count == most]
            # Of conversations that began alike it is not to be known which one is meant.
            if found and all(one.told == found[-1].told for one in found):
                found[-1].prefixes = trail.prefixes
                return found[-1]
        return KnownConversation(trail)

    def keep(self, conversation: KnownConversation) -> None:
        """Remember a conversation as the last one."""
        conversation.is_off = conversation.is_off or conversation.size > EACH
        if conversation.is_off:
            conversation.forget()
        self._drop(id(conversation))
        self._kept[id(conversation)] = conversation, conversation.size
        self._size += conversation.size
        while len(self._kept) > MOST or (self._size > TOGETHER and len(self._kept) > 1):
            self._drop(next(iter(self._kept)))

    def _drop(self, key: int) -> None:
        if key in self._kept:
            self._size -= self._kept.pop(key)[1]
