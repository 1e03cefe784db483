"""Answers ``cachedoctor tune``: which settings would save most, and what they take in memory."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

import cachedoctor
from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.memory_use import ENOUGH
from cachedoctor.diagnosis.replay.llamacpp.replays import Hope, Replayed, Replays, is_ideal_most
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.doctor import processes
from cachedoctor.doctor.processes import Killed
from cachedoctor.doctor.replaying import trials
from cachedoctor.doctor.replaying.server_names import FIELDS
from cachedoctor.doctor.replaying.trials import SIMILARITIES, compare
from cachedoctor.doctor.scratch import printable
from cachedoctor.doctor.whatif import block_replay
from cachedoctor.doctor.whatif.accounts import account, candidate, learn, replay_base, room, saved_ms, settings_rows
from cachedoctor.doctor.whatif.agents import agents_fit, block_agents_fit
from cachedoctor.doctor.whatif.block_evidence import BlockEvidence
from cachedoctor.doctor.whatif.evidence import ServerTraffic
from cachedoctor.doctor.whatif.first_turn import first_turn
from cachedoctor.doctor.whatif.memory_bill import memory_bill
from cachedoctor.doctor.whatif.more_memory import MemoryCost, more_memory
from cachedoctor.doctor.whatif.request_kinds import request_kinds
from cachedoctor.doctor.whatif.stops import restores, stops
from cachedoctor.knowledge import builds, server_options
from cachedoctor.knowledge.server_options import lacking
from cachedoctor.model.whatif import Candidate, ReplayAccount, ReplayFit, Tuning

LEAST_SHARE = 0.01
"""Share of the computed tokens: a smaller saving is not worth a restart."""
_ENOUGH = 0.99
"""Share of a setting's best saving that is enough to take a smaller value."""
_SLOTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
_RAM = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
"""Sizes of the RAM cache in MiB."""
_DEFAULT_RAM = (8192,)
"""Default size in MiB, of every build that has a RAM cache."""
_STEPS = (64, 256, 1024, 2048)
_CONTEXTS = (2, 4)
"""Multiples of the present context."""


class _Saved(NamedTuple):
    tokens: int
    ms: float | None


class _Replay(NamedTuple):
    """What a process found."""

    saved: _Saved | None
    replayed: Replayed | None
    """The replay; None if it was given up."""


class _Tried(NamedTuple):
    changes: dict[str, Any]
    settings: ServerSettings
    saved: int
    saved_ms: float | None
    memory: MemoryCost


class _Search:
    """Replays settings, each once."""

    def __init__(self, evidence: ServerTraffic, limit: float | None) -> None:
        self.evidence, self.limit = evidence, limit
        self._replays = Replays(evidence.traffic)
        self.served, self.use = self._replays.measured(evidence.settings)
        base = replay_base(evidence, self.served)
        self.fit: ReplayFit | None = base.fit
        self.base: ReplayAccount = account(evidence, self.served, evidence.settings)
        wrong = 0 if base.fit is None else base.fit.wrong_tokens
        self.least = max(wrong, int(LEAST_SHARE * self.base.computed_tokens)) + 1
        """Tokens that a change has to save to be worth it."""
        self.enough = -(1 - ENOUGH) * self.base.reused_tokens
        """The same for a smaller limit, which may cost some tokens."""
        self._longest = max(evidence.traffic.lengths)
        self._known: dict[ServerSettings, _Saved | None] = {
            evidence.settings: _Saved(0, saved_ms(self.base, self.base))
        }
        self._given_up: dict[ServerSettings, float] = {}
        """Settings whose replay was stopped, and what it would not have saved."""
        self._hopes: dict[bool, Hope] = {}

    def tried(self, changes: dict[str, Any], least: float | None = None) -> _Tried | None:
        """Replay with changes; None where prompts do not fit any more, or a conversation is worse off.

        ``least``: tokens without which nobody asks for it, ``self.least`` where nothing is said.
        """
        base, least = self.evidence.settings, self.least if least is None else least
        settings = replace(base, **changes)
        same = self._same(settings)
        if same not in self._known and self._given_up.get(same, float("inf")) > least:
            self._note(same, least, self._replayed((same, least)))
        found = self._known.get(same)
        return None if found is None else _Tried(changes, settings, *found, more_memory(base, settings))

    def try_together(self, changes: Sequence[tuple[dict[str, Any], float]]) -> None:
        """Replay many changes on all cores where that is faster, as ``tried`` would; what fails is left for it."""
        cores = processes.cores_for(len(self.evidence.traffic.asked))
        if cores < 2:
            return
        waiting = deque({replace(self.evidence.settings, **one): least for one, least in changes}.items())
        with contextlib.suppress(Exception), processes.running(self._replayed, cores, "fork") as pool:
            while waiting or pool.busy:
                while waiting and pool.busy < pool.width:
                    settings, least = waiting.popleft()
                    if self._same(settings) == settings and settings not in self._known:
                        pool.submit((settings, least))
                for (settings, least), done in pool.wait() if pool.busy else ():
                    if not isinstance(done, Killed):
                        self._note(settings, least, done)
                        if done.replayed is not None:
                            self._replays.take(done.replayed)

    def _same(self, settings: ServerSettings) -> ServerSettings:
        """Settings that were replayed, or are recorded, and come to the same; else these."""
        same = self._replays.same(settings)
        # It is also counted which prompts fit.
        return same if room(settings) > self._longest < room(same) else settings

    def _note(self, settings: ServerSettings, least: float, done: _Replay) -> None:
        if done.replayed is None:
            self._given_up[settings] = least
        else:
            self._known[settings] = done.saved

    def _replayed(self, task: tuple[ServerSettings, float]) -> _Replay:
        settings, least = task
        hope = self._hope(settings)
        served = self._replays.served(settings, hope._replace(tokens=hope.tokens - self.base.reused_tokens - least))
        return _Replay(None, None) if served is None else _Replay(self._saved(served, settings), self._replays.last)

    def _hope(self, settings: ServerSettings) -> Hope:
        traffic, ideal = self.evidence.traffic, is_ideal_most(self.evidence.traffic, settings)
        if ideal not in self._hopes:
            most = [one.tokens for one in traffic.ideal] if ideal else traffic.lengths
            self._hopes[ideal] = trials.hope(self.evidence.conversations, self.served, most)
        return self._hopes[ideal]

    def _saved(self, served: Sequence[Served], settings: ServerSettings) -> _Saved | None:
        found = account(self.evidence, served, settings)
        if found.too_long > self.base.too_long or found.requests != self.base.requests:
            return None
        if compare(self.evidence.conversations, self.served, served).worst:
            return None
        return _Saved(found.reused_tokens - self.base.reused_tokens, saved_ms(self.base, found))

    def allowed(self, one: _Tried) -> bool:
        """Whether it stays within the limit of memory."""
        return self.limit is None or (one.memory.mib is not None and one.memory.mib <= self.limit)

    def candidate(self, one: _Tried) -> Candidate:
        """Put it in words."""
        return candidate(self.evidence.settings, one.settings, one.saved, one.saved_ms, one.memory)


def tune(
    evidence: ServerTraffic | BlockEvidence,
    paths: Sequence[str],
    limit_mib: float | None = None,
    words: Sequence[str] = (),
) -> Tuning:
    """Rank settings by what they would have saved.

    Args:
        evidence: what is replayed.
        paths: what it was read from.
        limit_mib: MiB that all changes together may take more.
        words: NAME=VALUE of settings that ran and that nothing else says.

    Raises:
        CacheDoctorError: the replay does not explain the log, or a setting is not known, or the log shows it.
    """
    if isinstance(evidence, BlockEvidence):
        replay = block_replay.BlockReplay(evidence)
        tuned = block_replay.tune(replay, paths, limit_mib, words)
        tuned.agents = block_agents_fit(replay)
        return tuned
    learn(evidence, words)
    if evidence.killed and limit_mib is None:
        limit_mib = 0.0
    search = _Search(evidence, limit_mib)
    bill, changes = memory_bill(evidence, search.served, search.use)
    families = list(_families(evidence))
    bigger = [(one, search.least) for family in families for one in family]
    search.try_together([*((one, search.enough) for one in changes), *bigger])
    least = _smaller(search, changes)
    bill.least = None if least is None else search.candidate(least)
    # Not a smaller context: prompts that grow would not fit any more.
    spared = [one for one in changes if "context" not in one] if limit_mib is not None else []
    smaller = _smaller(search, spared)
    helped, over = list[_Tried](), list[_Tried]()
    for family in families:
        found = [one for changes in family if (one := search.tried(changes)) and one.saved >= search.least]
        within = [one for one in found if search.allowed(one)]
        chosen = _smallest(within or found)
        if chosen is not None and not within and smaller is not None:
            paid = search.tried(_merged([chosen.changes, smaller.changes]))
            if paid is not None and paid.saved >= search.least and search.allowed(paid):
                chosen, within = paid, [paid]
        if chosen is not None:
            (helped if within else over).append(chosen)
    helped.sort(key=_rank)
    best = _together(search, helped)
    return Tuning(
        cachedoctor.__version__,
        [printable(path) for path in paths],
        evidence.placed,
        search.fit,
        settings_rows(evidence, evidence.settings if best is None else best.settings),
        search.base,
        search.least,
        limit_mib,
        [search.candidate(one).options for one in over],
        [search.candidate(one) for one in helped],
        None if best is None else search.candidate(best),
        evidence.cause(),
        bill,
        agents_fit(evidence, search.served, search.base),
        stops(evidence, search.served),
        *restores(evidence.requests),
        first_turn(evidence, search.served, search.least),
        request_kinds(evidence, search.served),
    )


def _smaller(search: _Search, changes: Sequence[dict[str, int]]) -> _Tried | None:
    """All smaller values together, without those that cost reuse beside the others."""
    merged, best = dict[str, Any](), None
    for one in changes:
        found = search.tried({**merged, **one}, search.enough)
        if found is not None and found.saved >= search.enough:
            merged, best = {**merged, **one}, found
    return best


def _rank(one: _Tried) -> tuple[float, float]:
    """By tokens saved, then by memory, what is not known last."""
    return -one.saved, float("inf") if one.memory.mib is None else one.memory.mib


def _smallest(found: Sequence[_Tried]) -> _Tried | None:
    """Of values that save about the same the first, which is the smallest."""
    most = max((one.saved for one in found), default=0)
    return next((one for one in found if one.saved >= _ENOUGH * most), None)


def _together(search: _Search, helped: Sequence[_Tried]) -> _Tried | None:
    """Merge those that helped, best first, and drop what the others made needless."""
    if not helped:
        return None
    best, parts = helped[0], [helped[0].changes]
    for one in helped[1:]:
        merged = search.tried(_merged([*parts, one.changes]))
        if merged is not None and search.allowed(merged) and merged.saved >= best.saved + search.least:
            best, parts = merged, [*parts, one.changes]
    for part in list(parts):
        fewer = [other for other in parts if other is not part]
        without = search.tried(_merged(fewer)) if fewer else None
        if without is not None and search.allowed(without) and without.saved > best.saved - search.least:
            best, parts = without, fewer
    return best


def _merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All changes; where two are about the same setting the first counts."""
    return {name: value for part in reversed(parts) for name, value in part.items()}


# ---- what is tried


def _families(evidence: ServerTraffic) -> Iterator[Iterable[dict[str, Any]]]:
    """Values of one setting after the other, the cheapest first; only what the build has."""
    base = evidence.settings
    now, build = base.resolved(), base.build
    yield list(_slots(evidence, now))
    if _has("slot_prompt_similarity", build):
        close = sorted(SIMILARITIES, key=lambda value: abs(value - (now.slot_prompt_similarity or 0.0)))
        yield [{"slot_prompt_similarity": value} for value in close if value != now.slot_prompt_similarity]
    if now.kv_unified:
        yield [{"context": times * now.context} for times in _CONTEXTS]
    if _has("cache_ram", build) and (now.cache_ram_mib or 0) >= 0:
        # Where no line shows what a saved prompt takes, the replay lets all of them fit: a small size would be a guess.
        sizes = _RAM if base.token_bytes else _DEFAULT_RAM
        yield [{"cache_ram_mib": mib} for mib in sizes if mib > (now.cache_ram_mib or 0)]
    if _has("kv_unified", build) and not now.kv_unified and (now.slots or 1) > 1:
        yield [{"kv_unified": True, "slots": now.slots}]
    yield from _going_back(now)
    if build < builds.NEWEST and "build" not in evidence.assumed:
        yield [{"build": builds.NEWEST}]


def _slots(evidence: ServerTraffic, now: ServerSettings) -> Iterator[dict[str, Any]]:
    """More slots, up to the conversations that there are; each keeps the context that it has."""
    slots = now.slots or 1
    known = {number for number in evidence.conversations if number is not None}
    most = max(len(known) + 1, 2)
    for number in _SLOTS:
        if slots < number and (number <= most or number == next(n for n in (*_SLOTS, most) if n >= most)):
            context = now.context if now.kv_unified else now.context // slots * number
            yield {"slots": number, "context": context, "kv_unified": now.kv_unified}


def _going_back(now: ServerSettings) -> Iterator[Iterable[dict[str, Any]]]:
    """What is needed only where the memory cannot go back anywhere."""
    if now.kind == "attention":
        return
    if _has("ctx_checkpoints", now.build):
        limit = now.ctx_checkpoints or 0
        yield [{"ctx_checkpoints": number} for number in (3, 8, 32, 64, 128) if number > limit]
    if _has("checkpoint_min_step", now.build):
        step = now.checkpoint_min_step or 0
        yield [{"checkpoint_min_step": tokens} for tokens in sorted(_STEPS, reverse=True) if tokens < step]
    if now.memory == "swa" and _has("swa_full", now.build):
        yield [{"swa_full": True}]


def _has(key: str, build: int) -> bool:
    return key in FIELDS and not lacking(server_options.BY_KEY[key], build, build)
