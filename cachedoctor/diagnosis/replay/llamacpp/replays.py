"""Replays one traffic under many settings; settings with equal results are replayed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from cachedoctor.diagnosis.replay.llamacpp.content import Cause, Served
from cachedoctor.diagnosis.replay.llamacpp.memory_use import MeasuredReplay, MemoryUse
from cachedoctor.diagnosis.replay.llamacpp.ram_entries import RamPeak
from cachedoctor.diagnosis.replay.llamacpp.server import ReplayedServer
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.traffic import Traffic

_BY_PROMPT = 6751
"""Build from which on the similarity of a slot is a share of the prompt."""
_ROUNDED = 1e-9
"""Share by which a quotient may be off."""


class Replayed(NamedTuple):
    """Settings that were replayed, and the range of other settings that lead to the same decisions."""

    asked: ServerSettings
    settings: ServerSettings
    """Resolved."""
    below: float
    above: float
    peak: RamPeak

    def is_same_under(self, other: ServerSettings) -> bool:
        """Whether a server with other resolved settings would have made the same decisions for every request."""
        own = self.settings
        return (
            _without_limits(own) == _without_limits(other)
            and self._is_as_similar(other.slot_prompt_similarity or 0.0)
            and self._has_room(other)
            and self._fits_ram(other)
        )

    def _is_as_similar(self, similarity: float) -> bool:
        own = self.settings.slot_prompt_similarity or 0.0
        if similarity == own or not similarity or not own or self.settings.build < _BY_PROMPT:
            return similarity == own
        return self.below * (1 + _ROUNDED) < similarity < self.above * (1 - _ROUNDED)

    def _has_room(self, other: ServerSettings) -> bool:
        """The context is a limit of the RAM cache, and of the slots that share it."""
        least = min(self.settings.context, other.context)
        return other.context == self.settings.context or (not other.kv_unified and least >= self.peak.tokens)

    def _fits_ram(self, other: ServerSettings) -> bool:
        if other.cache_ram_mib == self.settings.cache_ram_mib:
            return True
        context = min(self.settings.context, other.context)
        least = min(self.settings.ram_bytes, other.ram_bytes)
        return least > 0 and self.peak.bytes <= least and self.peak.tokens <= context


def _without_limits(settings: ServerSettings) -> ServerSettings:
    return replace(settings, slot_prompt_similarity=None, context=0, cache_ram_mib=None)


class Hope(NamedTuple):
    """The reuse that a replay can still reach; the replay stops if that is too little."""

    most: Sequence[int]
    """Tokens that each request can reuse at most."""
    conversations: Sequence[int | None]
    """Conversation of each request."""
    tokens: float
    """Tokens that all requests together may fall short of ``most``."""
    of_each: Mapping[int | None, int]
    """Tokens that the requests of each conversation may fall short of it."""


class _HopelessError(Exception):
    """It cannot reach what is asked for."""


class _UnexplainedReplay(ReplayedServer):
    """A replayed server that does not say why tokens were lost: no decision needs that, and it takes a sixth."""

    def __init__(self, traffic: Traffic, settings: ServerSettings, hope: Hope | None) -> None:
        super().__init__(traffic, settings)
        self._hope, self._tokens, self._of_each = hope, 0.0, dict[int | None, int]()
        if hope is not None:
            self._tokens, self._of_each = hope.tokens, dict(hope.of_each)

    def _start(self, index: int) -> bool:
        started, hope = super()._start(index), self._hope
        if started and hope is not None and (short := hope.most[index] - self.served[index].reused):
            whose, of_each = hope.conversations[index], self._of_each
            self._tokens -= short
            of_each[whose] -= short
            if self._tokens < 0 or of_each[whose] < 0:
                raise _HopelessError
        return started

    def _cause(self, *_: object) -> Cause:
        return ""

    def _lose(self, *_: object) -> None:
        pass

    def _replaced(self, *_: object) -> None:
        pass


def is_ideal_most(traffic: Traffic, settings: ServerSettings) -> bool:
    """Whether no request reuses more than the best content that had been sent when it came.

    A waiting request may find content that was sent later, moved chunks are more than a prefix, and nobody knows when
    the text of a slot file was sent.
    """
    known = settings.cache_reuse == 0 and all(event.content is None for event in traffic.happened)
    return known and traffic.is_free and traffic.at_once <= (settings.slots or 1)


class Replays:
    """One traffic, and the settings under which it was replayed."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._done: list[Replayed] = []

    def served(self, settings: ServerSettings, hope: Hope | None = None) -> list[Served] | None:
        """Return the result of ``serve``, without a cause; None if the goal can no longer be reached."""
        if hope is not None and hope.tokens < 0:
            return None
        server = _UnexplainedReplay(self._traffic, settings.resolved(), hope)
        try:
            served = server.run()
        except _HopelessError:
            server.ram = None  # it knows the server
            return None
        self._note(settings, server)
        return served

    def measured(self, settings: ServerSettings) -> tuple[list[Served], MemoryUse]:
        """Return the result of ``measured``."""
        server = MeasuredReplay(self._traffic, settings.resolved())
        served = server.run()
        self._note(settings, server)
        return served, server.use

    def same(self, settings: ServerSettings) -> ServerSettings:
        """Return the first replayed settings with the same result; the given settings if there are none."""
        wanted = settings.resolved()
        return next((one.asked for one in self._done if one.is_same_under(wanted)), settings)

    @property
    def last(self) -> Replayed:
        """The last replay."""
        return self._done[-1]

    def take(self, replayed: Replayed) -> None:
        """Add a replay of the same traffic by another process."""
        self._done.append(replayed)

    def _note(self, settings: ServerSettings, server: ReplayedServer) -> None:
        self._done.append(Replayed(settings, server.settings, server.below, server.above, server.ram_peak))
