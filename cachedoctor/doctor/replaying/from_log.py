"""The settings that a llama-server ran with, as its log and its command line show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from cachedoctor.diagnosis.replay.llamacpp.server_settings import Memory, ServerSettings
from cachedoctor.diagnosis.replay.prompt_tree import PromptTree
from cachedoctor.diagnosis.replay.traffic import Happened, TimedRequest, Traffic
from cachedoctor.doctor.replaying.rotation import SlotPrompt, turns
from cachedoctor.knowledge.builds import NEWEST
from cachedoctor.knowledge.decision import N_UBATCH
from cachedoctor.model import Facts, Request, Session
from cachedoctor.model.session import Sizes
from cachedoctor.model.terms import SettingName

_MIB = 1 << 20
_CELL = 12.0
"""Bytes of a saved state per token besides its keys and values: its position, and the sequence it belongs to."""
_ROUNDED = 8
"""Tokens by which the length of what a slot held may be off where it follows from rounded shares."""
_TEMPLATE = 64
"""Maximum tokens that any two prompts of one template share."""
_LONG = 1024
"""Tokens of a prompt for which every build with checkpoints makes one, where the memory needs them."""

_SAID: tuple[SettingName, ...] = (
    "cache_ram_mib",
    "ctx_checkpoints",
    "checkpoint_min_step",
    "cache_idle_slots",
    "kv_unified",
)


class ReplaySettings(NamedTuple):
    """Settings for the replay."""

    settings: ServerSettings
    assumed: tuple[str, ...]
    """Fields of the settings that nothing shows: the replay takes the default of the build, for ``build`` the newest
    possible one and for ``memory`` attention."""


def recorded(facts: Facts, requests: Sequence[Request] = ()) -> ReplaySettings:
    """Give the settings of a run, and which of them are assumed; with a session and its requests, sizes as well."""
    said: dict[str, Any] = {name: facts.setting(name) for name in _SAID if facts.setting(name) is not None}
    idle = facts.said("cache_idle_slots")
    if idle is not None and idle.value is False and idle.line is not None:
        del said["cache_idle_slots"]  # the server derived it from others, with which it comes back
    if facts.setting("cache_ram_mib") is None and facts.setting("ram_evictions") is None and _ram_off(facts):
        said["cache_ram_mib"] = 0
    if "ctx_checkpoints" not in said and requests and _no_checkpoints(requests):
        said["ctx_checkpoints"] = 0
    assumed: list[str] = [name for name in _SAID if name not in said and facts.said(name) is None]
    build = facts.build
    if build is None:
        assumed.append("build")
        build = NEWEST if facts.build_max is None else facts.build_max
    window = facts.window or facts.setting("n_swa") or 0
    memory = facts.memory
    if memory is None and "rewinding" in facts.shows:
        memory = "swa" if window > 1 else "hybrid"
    if memory is None:
        assumed.append("memory")
    sizes = _sizes(facts, requests, memory)
    slots = facts.n_slots
    if facts.n_slots is None:
        assumed.append("slots")
    return ReplaySettings(
        ServerSettings(
            build=build,
            memory=memory or "attention",
            window=window,
            slots=slots,
            context=_context(facts),
            swa_full=facts.setting("swa_full") is True,
            batch=facts.setting("n_batch") or 2048,
            ubatch=facts.setting("n_ubatch") or 512,
            projector=facts.setting("mmproj") is True,
            token_bytes=sizes.token,
            state_bytes=sizes.state,
            checkpoint_bytes=sizes.checkpoint,
            **said,
        ),
        tuple(assumed),
    )


class _Sizes(NamedTuple):
    """Bytes of a saved state."""

    token: float = 0.0
    state: float = 0.0
    checkpoint: float = 0.0


def _sizes(facts: Facts, requests: Sequence[Request], memory: Memory | None) -> _Sizes:
    """What the largest saved state and the largest checkpoint say; zeros where no size is printed.

    The part of a state with recurrent memory that has no length is what a checkpoint holds.
    """
    if not isinstance(facts, Session):
        return _Sizes()
    if not facts.sizes.entry:
        return _of_buffers(facts.sizes, memory)
    if facts.sizes.state and facts.sizes.state_tokens:
        checkpoint = (facts.sizes.checkpoint or 0.0) * _MIB
        state = checkpoint if memory in ("hybrid", "recurrent") else 0.0
        return _Sizes(max(0.0, facts.sizes.state * _MIB - state) / facts.sizes.state_tokens, state, checkpoint)
    longest = max(requests, key=lambda one: one.seen.choice.saved or 0, default=None)
    tokens = 0 if longest is None else longest.seen.choice.saved
    if longest is None or not tokens:
        tokens, held = max((one.seen.released_tokens or 0 for one in requests), default=0), 0
    else:
        held = longest.seen.held_checkpoints or 0
    checkpoint = (facts.sizes.checkpoint or 0.0) * _MIB
    state = checkpoint if memory in ("hybrid", "recurrent") else 0.0
    rest = facts.sizes.entry * _MIB - state - held * checkpoint
    return _Sizes(max(0.0, rest) / tokens, state, checkpoint) if tokens else _Sizes()


def _of_buffers(sizes: Sizes, memory: Memory | None) -> _Sizes:
    """What a saved prompt takes by the buffers of the start; a checkpoint holds what is not of single tokens."""
    checkpoint = (sizes.checkpoint or 0.0) * _MIB
    if not sizes.kv_token or memory in (None, "recurrent") or (memory == "swa" and not checkpoint):
        return _Sizes()
    state = 0.0 if memory == "attention" else max(sizes.recurrent, checkpoint)
    return _Sizes(sizes.kv_token + _CELL, state, checkpoint)


def _no_checkpoints(requests: Sequence[Request]) -> bool:
    """None was made for any prompt, though lines would say so."""
    long = [one.created for one in requests if (one.processed_tokens or 0) >= _LONG]
    return "rewinding" in requests[-1].facts.shows and bool(long) and all(made == 0 for made in long)


def _ram_off(facts: Facts) -> bool:
    """Lines about the RAM cache would have been printed, and were not."""
    return "accounting" in facts.shows and "ram_cache" not in facts.shows and facts.several


def _context(facts: Facts) -> int:
    whole: int | None = facts.setting("n_ctx")
    if whole is not None:
        return whole
    each = facts.n_ctx_slot or 1 << 20
    return each if facts.setting("kv_unified") else each * (facts.n_slots or 1)


class LogOrder(msgspec.Struct):
    """Requests of one server, each in its last revision, by the line at which it started."""

    requests: list[Request]
    happened: list[Happened]
    base: dict[int, int]
    """What is added to the line numbers of each session: another file begins at line 1 again."""

    def moments(self, request: Request) -> tuple[int, int]:
        """When a request started and ended."""
        base = self.base[request.session]
        return base + request.first_line, base + request.last_line


def log_order(requests: Iterable[Request]) -> LogOrder:
    """Order the requests of one server; a new session of it is a restart, and a sleep empties it as well."""
    last: dict[tuple[int, int], Request] = {}
    for request in requests:
        before = last.get((request.session, request.index))
        if before is None or before.revision <= request.revision:
            last[request.session, request.index] = request
    found = LogOrder(sorted(last.values(), key=lambda one: (one.session, one.first_line)), [], {})
    end, slept = 0, set[int]()
    for request in found.requests:
        if request.session not in found.base:
            found.base[request.session] = max(0, end - request.first_line + 2)
            if len(found.base) > 1:
                moment = found.moments(request)[0] - 1
                found.happened.append(Happened(moment, "restart", run=request.session, line=request.first_line))
        mark = request.marks.get("slept")
        if mark is not None and mark.line not in slept:
            slept.add(mark.line)
            moment = found.base[request.session] + mark.line
            found.happened.append(Happened(moment, "restart", line=mark.line))
        end = max(end, found.moments(request)[1])
    return found


class Recalled(msgspec.Struct):
    """Traffic, and what it was made of."""

    traffic: Traffic
    requests: list[Request]
    """The log's request for every request of the traffic."""
    assumed: set[int]
    """Indexes of the requests whose common prefix with the previous turn is not in the log."""
    unplaced: int
    """Requests whose length the log does not show, and choices of ``n > 1``."""


def build(requests: Iterable[Request]) -> Recalled:
    """Make traffic of the requests of one server, whatever the order in which they come."""
    order = log_order(requests)
    similar = any(request.seen.choice.selected_by == "lcp" for request in order.requests)
    recall, asked, found = _Recall(similar=similar), list[TimedRequest](), list[Request]()
    before, contents, chains = rotating(order.requests), dict[int, int](), dict[int, int]()
    for at, request in enumerate(order.requests):
        recall.begin(request.session)
        turn_of = contents.get(before[at]) if at in before else None
        one = recall.asked(request, order.moments(request), len(asked), turn_of)
        if one is None:
            continue
        contents[at] = one.content
        if before:
            chains[at] = chains.get(before[at], len(chains)) if at in before else len(chains)
            one = msgspec.structs.replace(one, conversation=chains[at])
        asked.append(one)
        found.append(request)
    asked = _with_user_starts(asked, found, recall.tree)
    traffic = Traffic(recall.tree, asked, [*order.happened, *recall.restored])
    return Recalled(traffic, found, recall.assumed, len(order.requests) - len(found))


def rotating(requests: Sequence[Request]) -> dict[int, int]:
    """The turns that lengths alone tell, of one run without a RAM cache that could have brought a prompt back."""
    if not requests or requests[0].session != requests[-1].session or not _loses_prompts(requests[-1].facts):
        return {}
    prompts = []
    for one in requests:
        length, cached = one.prompt_tokens, one.cached_tokens
        if length is None or cached is None:
            return {}
        prompts.append(SlotPrompt(length, one.seen.released_tokens or length, one.slot, cached <= _TEMPLATE))
    return turns(prompts)


def _loses_prompts(facts: Facts) -> bool:
    """Whether a prompt is lost with its slot: the RAM cache is off, or too small for what was put into it."""
    return facts.setting("cache_ram_mib") == 0 or bool(facts.setting("ram_evictions")) or _ram_off(facts)


class _Recall:
    """What slots and conversations last held, as ids of the tree."""

    def __init__(self, *, similar: bool) -> None:
        """Start empty. ``similar``: the server is known to choose slots for what they hold."""
        self.tree = PromptTree()
        self.assumed: set[int] = set()
        self._similar = similar
        self._session = -1
        self._slots: dict[int, int] = {}
        self._left: dict[int, tuple[int, int]] = {}
        """What each slot still holds certainly, and since when."""
        self._threads: dict[tuple[int, int], int] = {}
        self._lengths: dict[int, int] = {}
        self.restored: list[Happened] = []
        """Slot files that were read."""

    def begin(self, session: int) -> None:
        """A request of ``session`` comes: in a new one slots are empty, and conversations have new numbers."""
        if session != self._session:
            self._session = session
            self._slots.clear()
            self._left.clear()

    def asked(
        self, request: Request, moments: tuple[int, int], number: int, turn_of: int | None
    ) -> TimedRequest | None:
        """The request with its prompt in the tree; None where its length is not known.

        ``turn_of``: the content that it continues, where the lengths of all prompts tell that.
        """
        if not request.marks.keys().isdisjoint(("slept", "slot_erased", "slot_file")):
            self._left.clear()
        idle = [content for content, ended in self._left.values() if ended < moments[0]]
        if request.facts.setting("kv_unified") is not False:
            self._left.clear()  # idle slots may be cleared when a request begins
        self._left.pop(request.slot, None)
        length = request.prompt_tokens or request.seen.error_tokens
        if length is None and request.seen.cancelled:
            length = request.seen.released_tokens
        if not length or request.parent is not None:
            return None
        if turn_of is None:
            from_file = self._from_file(request, moments[0]) if file_tokens(request) else None
            of, common = from_file or self._beginning(request, length, number, idle)
        else:
            of, common = turn_of, min(self.tree.length(turn_of), length)
            self.assumed.add(number)
        prompt = self.tree.branch(of, common, length)
        held = request.seen.released_tokens
        if request.seen.error is not None:
            content = prompt
        elif request.shifted:
            content = self.tree.branch(None, 0, held or length)
        else:
            content = self.tree.branch(prompt, length, held or length)
        if request.seen.error is None:
            self._slots[request.slot] = self._lengths[self.tree.length(content)] = content
            self._left[request.slot] = content, moments[1]
            if request.thread is not None:
                self._threads[request.session, request.thread] = content
        return TimedRequest(
            prompt,
            content,
            *moments,
            conversation=request.thread,
            cache_prompt=not _not_asked(request),
            id_slot=request.slot if request.seen.choice.selected_by == "id" else None,
            images=request.seen.images,
            cancelled=request.seen.cancelled,
            completion=not _not_saved(request),
            refused=request.seen.error is not None,
        )

    def _from_file(self, request: Request, moment: int) -> tuple[int, int]:
        """What a slot file had put into the slot, and how much of it the prompt begins with."""
        held, reused = file_tokens(request) or 0, request.cached_tokens or 0
        content = of_about(self._lengths, held, reused)
        if content is None:
            content = self.tree.branch(None, 0, max(held, reused))
        self.restored.append(restore(request, moment, content))
        return content, max(request.common_prefix_tokens or 0, reused)

    def _beginning(self, request: Request, length: int, number: int, idle: Sequence[int]) -> tuple[int | None, int]:
        """What the prompt begins like, and for how many tokens; ``idle``: what idle slots held then."""
        own = None if request.thread is None else self._threads.get((request.session, request.thread))
        own = None if own is None else self._of_length(request.reference_tokens, [own])
        held = self._held(request)
        shared = request.common_prefix_tokens
        if shared is None or shared < (request.cached_tokens or 0):
            shared = request.cached_tokens or 0
        if own is None or held == own:
            return (held, shared) if held is not None else (None, 0)
        if request.reference_lcp is not None:
            known = request.reference_lcp
        elif request.ram_refused or (own in idle and self._unlike(request)):
            known = shared
        else:
            known = min(self.tree.length(own), length)
            self.assumed.add(number)
        return (own, known) if known >= shared or held is None else (held, shared)

    def _unlike(self, request: Request) -> bool:
        """Whether no idle slot held enough of the prompt to be chosen for it; up to b6628 the measure was another."""
        return self._similar and request.seen.choice.selected_by == "lru" and request.facts.at_least(6751) is True

    def _held(self, request: Request) -> int | None:
        """What the slot held when the prompt was checked: by its length, where that is known."""
        thread = request.held_thread
        whose = None if thread is None else self._threads.get((request.session, thread))
        return self._of_length(request.held_tokens, [whose, self._slots.get(request.slot)])

    def _of_length(self, length: int | None, likely: list[int | None]) -> int | None:
        """The first of the likely contents that has a length, else the last one that had; else the first likely."""
        known = [one for one in likely if one is not None]
        fits = [one for one in known if self.tree.length(one) == length]
        if fits or not length or length not in self._lengths:
            return next(iter([*fits, *known]), None)
        return self._lengths[length]


def file_tokens(request: Request) -> int | None:
    """Tokens that a slot file had put into the slot, about, as they may follow from rounded shares; None without one.

    A slot that had served no request since the start holds nothing else.
    """
    if "slot_file" not in request.marks and not request.seen.fresh:
        return None
    return request.held_tokens or (request.seen.choice.saved if request.seen.fresh else None)


def of_about(lengths: dict[int, int], held: int, least: int) -> int | None:
    """What is known to have had this length, within what rounding allows, and at least ``least`` tokens."""
    near = [length for length in lengths if abs(length - held) <= _ROUNDED and length >= least]
    return lengths[min(near, key=lambda length: abs(length - held))] if near else None


def restore(request: Request, moment: int, content: int) -> Happened:
    """The slot file that a request found in its slot; that it went back to a checkpoint shows that the file has it."""
    reused, common = request.cached_tokens or 0, request.common_prefix_tokens
    gone_back = request.facts.memory not in (None, "attention") and 0 < reused < (common or 0)
    return Happened(moment, "restore", request.slot, content=content, checkpoints=(reused,) if gone_back else ())


def _not_asked(request: Request) -> bool:
    """Whether the body said "cache_prompt": false, which no line prints: nothing was reused of what was there, and
    nothing forced that (as CD109 proves it)."""
    if (
        request.cached_tokens != 0
        or request.seen.choice.selected_by != "lcp"
        or (request.similarity or 0) < 0.5
        or request.seen.checks
    ):
        return False
    if request.seen.forced or request.shifted or request.seen.truncate_failed_at is not None:
        return False
    return request.facts.memory == "attention" or ((request.f_keep or 0) >= 0.9995 and "forcing" in request.facts.shows)


def _not_saved(request: Request) -> bool:
    """Whether the RAM cache took no part in it though it had to: an infill, an embedding, a ranking."""
    facts = request.facts
    ram = (
        bool(facts.setting("cache_ram_mib")) and "ram_search" in facts.shows and "cached_tokens" not in request.derived
    )
    return (
        ram
        and request.seen.choice.selected_by == "lru"
        and not request.seen.choice.looked
        and bool(request.held_tokens)
    )


def _with_user_starts(
    asked: Sequence[TimedRequest], requests: Sequence[Request], tree: PromptTree
) -> list[TimedRequest]:
    """Give requests the places of checkpoints that later ones print, where they are not near the end of a prompt."""
    places: list[set[int]] = [set() for _ in asked]
    latest: dict[int, list[int]] = {}
    for at, request in enumerate(requests):
        printed = [(check.pos_min, check.pos_max) for check in request.seen.checks]
        printed += [*request.seen.held_positions, *([request.seen.restored_at] if request.seen.restored_at else [])]
        for _, last in printed:
            tokens = last + 1
            for before in reversed(latest.get(request.slot, [])):
                length = tree.length(asked[before].prompt)
                if (requests[before].cached_tokens or 0) < tokens <= length:
                    if tokens not in (length - 4, length - 4 - N_UBATCH):
                        places[before].add(tokens)
                    break
        if request.seen.error is None:
            latest.setdefault(request.slot, []).append(at)
    return [
        msgspec.structs.replace(one, user_starts=tuple(sorted(found))) if found else one
        for one, found in zip(asked, places, strict=True)
    ]
