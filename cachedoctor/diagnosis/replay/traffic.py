"""The requests to a server in order, without the server's results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec

from cachedoctor.diagnosis.replay.prompt_tree import PromptTree


class TimedRequest(msgspec.Struct, frozen=True, gc=False):
    """One request. Moments are positions in the order of the server's events; equal ones end before they start."""

    prompt: int
    """Index of the prompt in the tree."""
    content: int
    """What the slot holds when it has ended: the prompt and the reply, without the last token of it, which is never
    computed; a part of the prompt where it was cancelled; an id of its own after a context shift."""
    started: int
    ended: int
    conversation: int | None = None
    seconds: float | None = None
    """Arrival time in seconds, by any clock."""
    cache_prompt: bool = True
    id_slot: int | None = None
    """The slot that the client requested."""
    user_starts: tuple[int, ...] = ()
    """Token index at which each user message begins."""
    choices: int = 1
    """``n`` of the body."""
    images: bool = False
    cancelled: bool = False
    completion: bool = True
    """Not an embedding, reranking or infill request; the RAM cache is not used for these."""
    refused: bool = False
    """It took a slot and was not computed: the prompt was too long."""


class Happened(msgspec.Struct, frozen=True):
    """An event of the server other than a request."""

    moment: int
    what: Literal["restart", "save", "restore", "erase"]
    """``restart`` empties all that is not on disk: a new process, a sleep, a model that was unloaded. The others
    concern one slot."""
    slot: int = 0
    file: str = ""
    """Name of the slot file."""
    content: int | None = None
    """For a restore: the file's content in the tree, if the same replay did not save it before."""
    checkpoints: tuple[int, ...] = ()
    """Tokens of the checkpoints that such a file holds."""
    run: int | None = None
    """For a restart: number of the process run that begins with it; None for a sleep."""
    line: int | None = None
    """Number of its line in the log."""


class Ideal(NamedTuple):
    """The longest common prefix of a request with anything that was sent before it."""

    tokens: int
    """Longest common prefix."""
    owner: int | None
    """Index of a request that has this prefix; the latest one if several are equally good."""
    together: bool
    """That request was still running."""


class Traffic:
    """Requests in the order in which they started, and the tree of all their prompts and contents."""

    def __init__(self, tree: PromptTree, asked: Sequence[TimedRequest], happened: Sequence[Happened] = ()) -> None:
        """Take what was asked; ``asked`` is ordered by ``started``."""
        self.tree = tree
        self.asked = asked
        self.happened = happened

    @cached_property
    def moments(self) -> list[tuple[int, int, int]]:
        """(moment, kind, index) of all events, in order; kind 0: a request ended, 1: an event, 2: a request started."""
        ended = [(one.ended, 0, index) for index, one in enumerate(self.asked)]
        happened = [(one.moment, 1, index) for index, one in enumerate(self.happened)]
        started = [(one.started, 2, index) for index, one in enumerate(self.asked)]
        return sorted([*ended, *happened, *started])

    @cached_property
    def at_once(self) -> int:
        """Maximum number of requests that ran at the same time."""
        running = most = 0
        for _, kind, _ in self.moments:
            running += (kind == 2) - (kind == 0)
            most = max(most, running)
        return most

    @cached_property
    def is_free(self) -> bool:
        """No request names a slot, or uses more than one."""
        return all(one.id_slot is None and one.choices == 1 for one in self.asked)

    @cached_property
    def lengths(self) -> list[int]:
        """Number of tokens of every prompt."""
        length = self.tree.length
        return [length(one.prompt) for one in self.asked]

    @cached_property
    def places(self) -> list[int]:
        """Position of every prompt in the order of the tree."""
        places = self.tree.places
        return [places[one.prompt] for one in self.asked]

    @cached_property
    def nearest(self) -> list[tuple[int, int]]:
        """The first and last place in the tree's order that share as much with a prompt as anything sent before it."""
        alike = self.tree.alike
        return [alike(place, ideal.tokens) for place, ideal in zip(self.places, self.ideal, strict=True)]

    @cached_property
    def ideal(self) -> list[Ideal]:
        """For every request, the best reuse of an endless cache: restarts and settings do not matter."""
        found, running = [Ideal(0, None, False)] * len(self.asked), set[int]()
        places, shared = self.tree.places, self.tree.shared
        # What was sent at every moment, by place, text and request; taken out again from the last moment back, what is
        # beside it is what was beside it when it came.
        sent = [
            (places[text], text, index, 2 - kind, moment)
            for moment, (_, kind, index) in enumerate(self.moments)
            if kind != 1
            for text in (self.asked[index].content if kind == 0 else self.asked[index].prompt,)
        ]
        sent.sort()
        before, after = list(range(-1, len(sent) - 1)), list(range(1, len(sent) + 1))
        beside = dict[int, tuple[int, int]]()
        for at in sorted(range(len(sent)), key=lambda at: -sent[at][4]):
            left, right = before[at], after[at]
            if left >= 0:
                after[left] = right
            if right < len(sent):
                before[right] = left
            beside[sent[at][4]] = left, right
        for moment, (_, kind, index) in enumerate(self.moments):
            if kind == 0:
                running.discard(index)
            elif kind == 2:
                place = places[self.asked[index].prompt]
                best, owner = 0, None
                for other in beside[moment]:
                    if 0 <= other < len(sent):
                        common, whose = shared(sent[other][0], place), sent[other][2]
                        if common > best or (common == best and owner is not None and whose > owner):
                            best, owner = common, whose
                found[index] = Ideal(best, owner, owner in running)
                running.add(index)
        return found
