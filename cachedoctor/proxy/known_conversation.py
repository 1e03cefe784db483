"""What fixes remember of a conversation, and of as many conversations as fit. Knows no body and no fix.

A conversation belongs to one sender. A request goes on with one where it has all turns of the conversation's last
request, and where no other conversation of the sender may be meant: those that were forgotten count, too, by the places
at which they ended.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from cachedoctor.proxy.turn_trail import TurnTrail

MOST = 256
"""Conversations that are remembered: more than any server has slots."""
EACH = 4 << 20
"""Bytes that are remembered of one; one that has more is no longer edited."""
TOGETHER = 32 << 20
ENDS = 1 << 14
"""Places at which requests ended that are remembered, as hashes, longer than their conversations."""
_SEVERAL = None
"""What is remembered of a place where several conversations ended."""
_HASH = 40
"""Bytes of a hash in a list."""
_NOTED = 8 << 20
"""Bytes of answers that wait for the next request."""


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

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self.blocks) + len(self.content) + sum(len(raw) for _, raw in self.fields) + _HASH


class KnownConversation:
    """What fixes remember of one conversation."""

    def __init__(self, trail: TurnTrail, sender: bytes) -> None:
        self.sender, self.head = sender, trail.head
        self.turns, self.end, self.said = len(trail.prefixes), trail.prefixes[-1], trail.said
        """Of its last request."""
        self.clock: tuple[str, ...] | None = None
        """Dates and times of the first request's system prompt."""
        self.tools: dict[str, str] | None = None
        """Its tools by name, as JSON; those that came later behind them."""
        self.pinned: list[PinnedMessage] = []
        self.thoughts: dict[int, Thought] = {}
        """By the hash of the turns up to theirs."""
        self.doubtful: set[int] = set()
        """Turns, by hash, whose answers came twice with different reasoning: the same request was sent again."""
        self.is_off = False
        """It is not edited: the server refused an edit, or it is too long."""

    def is_before(self, trail: TurnTrail) -> bool:
        """Whether a request has all turns of its last one."""
        return self.turns <= len(trail.prefixes) and trail.prefixes[self.turns - 1] == self.end

    def go_on(self, trail: TurnTrail) -> None:
        """Its last request is this one now."""
        self.turns, self.end, self.said = len(trail.prefixes), trail.prefixes[-1], trail.said

    def hear(self, turn: int, thought: Thought) -> None:
        """Remember the reasoning of an answer; none of two that say the same after different reasoning."""
        if self.thoughts.get(turn, thought) != thought:
            del self.thoughts[turn]
            self.doubtful.add(turn)
        elif turn not in self.doubtful:
            self.thoughts[turn] = thought

    def forget(self) -> None:
        """Forget what was for edits."""
        self.clock, self.tools, self.pinned, self.thoughts, self.doubtful = None, None, [], {}, set()

    @property
    def size(self) -> int:
        """Bytes of what is remembered."""
        texts = [*(self.clock or ()), *(self.tools or {}).values()]
        texts += [one.raw + one.said for one in self.pinned]
        return sum(map(len, texts)) + sum(one.size for one in self.thoughts.values()) + _HASH * len(self.doubtful)


class KnownConversations:
    """The conversations that went on last, of all senders."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[KnownConversation, int]] = OrderedDict()
        """By the identity of each, with the size that it had."""
        self._size = 0
        self._ends: OrderedDict[int, int | None] = OrderedDict()
        """By the hash of a place: what the request said that ended there."""
        self._noted: list[tuple[KnownConversation, int, Thought]] = []
        """Reasoning of answers, with the hash of the turns up to it."""
        self._noted_size = 0
        self._noting = threading.Lock()

    def follow(self, trail: TurnTrail, sender: bytes) -> KnownConversation:
        """Give the conversation that a request goes on with; a new one where that is none, or not certain."""
        self._take_noted()
        places = [hash((sender, trail.head, prefix)) for prefix in trail.prefixes]
        found = self._found(trail, sender, places)
        if found is None:
            found = KnownConversation(trail, sender)
            is_other = self._ends.get(places[-1], trail.said) != trail.said
            self._ends[places[-1]] = _SEVERAL if is_other else trail.said
        else:
            found.go_on(trail)
            if self._ends.get(places[-1], 0) is not _SEVERAL:
                self._ends[places[-1]] = trail.said
        for place in places:
            if place in self._ends:
                self._ends.move_to_end(place)
        while len(self._ends) > ENDS:
            self._ends.popitem(last=False)
        return found

    def _found(self, trail: TurnTrail, sender: bytes, places: list[int]) -> KnownConversation | None:
        """The one conversation that a request can go on with."""
        begun = [one for one, _ in self._kept.values() if (one.sender, one.head) == (sender, trail.head)]
        before = [one for one in begun if one.is_before(trail)]
        # Whoever ended last in front of the request is meant, be it one that was forgotten.
        last = max((n for n, place in enumerate(places, 1) if place in self._ends), default=0)
        found = [one for one in before if one.turns == last]
        if len(found) != 1 or self._ends[places[last - 1]] is _SEVERAL:
            return None
        if last < len(places):
            return found[0]
        # The same request again: any that is shorter may have come to the same words.
        is_shared = len(before) > 1 or any(self._ends.get(place, 0) is _SEVERAL for place in places)
        return found[0] if found[0].said == trail.said and not is_shared else None

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

    def note(self, conversation: KnownConversation, turn: int, thought: Thought) -> None:
        """Remember the reasoning of an answer; waits for nobody."""
        with self._noting:
            if self._noted_size + thought.size <= _NOTED:
                self._noted.append((conversation, turn, thought))
                self._noted_size += thought.size

    def _take_noted(self) -> None:
        with self._noting:
            noted, self._noted, self._noted_size = self._noted, [], 0
        for conversation, turn, thought in noted:
            if id(conversation) in self._kept and not conversation.is_off:
                conversation.hear(turn, thought)
                self._kept[id(conversation)] = conversation, conversation.size
        self._size = sum(size for _, size in self._kept.values()) if noted else self._size

    def _drop(self, key: int) -> None:
        if key in self._kept:
            self._size -= self._kept.pop(key)[1]
