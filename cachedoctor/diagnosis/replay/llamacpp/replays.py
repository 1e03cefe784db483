"""Many settings on one traffic: of those that come to the same, one is replayed."""

from __future__ import annotations

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
    """Settings that were replayed, and how far others may be from them without a decision that is another one."""

    asked: ServerSettings
    settings: ServerSettings
    """Resolved."""
    below: float
    above: float
    peak: RamPeak

    def is_same_under(self, other: ServerSettings) -> bool:
        """Whether a server with other resolved settings would have done the same with every request."""
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


class _UnexplainedReplay(ReplayedServer):
    """A replayed server that does not say why tokens were lost: no decision needs that, and it takes a sixth."""

    def _cause(self, *_: object) -> Cause:
        return ""

    def _lose(self, *_: object) -> None:
        pass

    def _replaced(self, *_: object) -> None:
        pass


class Replays:
    """One traffic, and the settings that it was replayed under."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._done: list[Replayed] = []

    def served(self, settings: ServerSettings) -> list[Served]:
        """Give what ``serve`` gives, without a cause."""
        server = _UnexplainedReplay(self._traffic, settings.resolved())
        served = server.run()
        self._note(settings, server)
        return served

    def measured(self, settings: ServerSettings) -> tuple[list[Served], MemoryUse]:
        """Give what ``measured`` gives."""
        server = MeasuredReplay(self._traffic, settings.resolved())
        served = server.run()
        self._note(settings, server)
        return served, server.use

    def same(self, settings: ServerSettings) -> ServerSettings:
        """The first settings that were replayed and come to the same; those that are asked for where there are none."""
        wanted = settings.resolved()
        return next((one.asked for one in self._done if one.is_same_under(wanted)), settings)

    @property
    def last(self) -> Replayed:
        """What was replayed last."""
        return self._done[-1]

    def take(self, replayed: Replayed) -> None:
        """Take what another process replayed of the same traffic."""
        self._done.append(replayed)

    def _note(self, settings: ServerSettings, server: ReplayedServer) -> None:
        self._done.append(Replayed(settings, server.settings, server.below, server.above, server.ram_peak))
