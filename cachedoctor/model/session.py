"""One run of a server process: its settings, and incidents that concern no single request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, Literal

import msgspec

from cachedoctor.model.account import ClientName
from cachedoctor.model.bounds import Count, Long
from cachedoctor.model.diff import PromptDiff
from cachedoctor.model.fix import Launcher
from cachedoctor.model.kv_events import KvEvents
from cachedoctor.model.log_lines import LogFile, Mark
from cachedoctor.model.measured import Answers, Counters, Period, SentBodies
from cachedoctor.model.terms import SettingName, Shows

IncidentName = Literal[
    "adapters",  # requests may name LoRA adapters as their model; the names, one a line, in ``field``
    "batch_failed",  # the model could not compute a batch, and its requests fail
    "batch_refused",  # the same, because its positions do not fit the memory
    "checkpoint_failed",  # a checkpoint could not be restored, and no search for one is under way
    "computed",  # prompts after the first, of a program that prints numbers of each: tokens that were computed
    "counter_wrong",  # a request reused nothing by its counter, and took far less time than one that reused nothing
    "cut",  # a prompt did not fit and the server removed a part of it: tokens, limit, keep, erased, messages
    "disk_evicted",  # a prompt left the disk tier of the prompt cache: size, limit in MiB
    "disk_failed",  # a prompt could not be written to the disk tier, or read back
    "dropped",  # a program dropped a saved prefix: tokens
    "evicted",  # a prompt left the RAM prompt cache: size in MiB
    "killed",  # the system ended the server because memory ran out
    "memory_short",  # it ended another server of this input
    "no_room",  # a batch found no free cells and is tried again in smaller pieces
    "overflow",  # a prompt did not fit into the context: tokens, limit
    "header",  # the billing header of a client, with other values than where it came before
    "match_alone",  # the next in an excerpt without the line of the request: tokens; place, held, prompt
    "not_restored",  # more of a prompt was in the cache than was reused: tokens; place, held, cached, prompt
    "oversize",  # a prompt is larger than the RAM prompt cache: size, limit in MiB
    "parted",  # a prompt diverges from what the program held, after a common beginning: the same numbers
    "parted_early",  # the same, and hardly anything is common
    "positions",  # a batch does not begin where the memory ends: stored, start
    "purged",  # an idle slot was emptied to make room: slot, tokens
    "ram_failed",  # a prompt of the RAM cache could not be restored: size in bytes
    "refused",  # the server refused a request for another reason
    "shifted",  # the context was shifted, in a program or build whose requests are not read: limit
    "unasked",  # a slot of an old llama.cpp was emptied, as its request did not ask for the cache: tokens that it held
    "unknown_error",  # an error in words that no reader knows
    "unloaded",  # a program unloaded a model to make room for another
    "value",  # a date or an id that is another one in the second of two prompts: number of its line
    "state_failed",  # libllama could not load a saved state, of whatever kind
]  # fmt: skip


class Incident(msgspec.Struct):
    """The first line of a server that reports an incident of this kind."""

    mark: Mark
    numbers: dict[str, float] = msgspec.field(default_factory=dict)
    """Its fields by name, and those of lines that belong to it."""
    before: Mark | None = None
    """The line that it is compared with."""
    field: str = ""
    """What differs between the two."""
    followed: bool = False
    """A request whose start and end are both in the log has ended since then."""
    count: Long = 1
    """Number of such lines."""


_RELEASE = re.compile(r"\d{1,4}(?:\.\d{1,4}){0,2}")

Memory = Literal["attention", "swa", "hybrid", "recurrent"]


class Setting(msgspec.Struct):
    """A fact about the server and the line that shows it."""

    value: Any
    line: int | None
    text: bytes = b""
    """The line itself, if a finding may quote it."""


class GivenOption(msgspec.Struct, frozen=True):
    """A command line option that was given with the log."""

    written: str
    """Option as typed: ``-cram``, ``LLAMA_ARG_CACHE_RAM``."""
    option: str | None
    """Key of the option in the table of options; None for a name that never was one."""
    value: bool | int | float | str | None
    """None if it cannot be parsed."""
    env: bool = False
    """True if set in the environment, where unknown names are ignored."""


class Sizes(msgspec.Struct):
    """What the log shows of the memory that saved states use, in MiB; what it does not show is None or empty."""

    checkpoint: float | None = None
    """The largest context checkpoint."""
    entry: float | None = None
    """The largest prompt of the RAM cache, checkpoints included."""
    state: float | None = None
    """The largest state that was saved to the RAM cache, without checkpoints."""
    state_tokens: int = 0
    """Tokens of that state."""
    conversations: dict[int, float] = msgspec.field(default_factory=dict)
    """Largest saved state of each conversation."""
    short: int = 0
    """Number of checkpoints by which a list was too short to keep every one that was missed later."""
    kv_token: float = 0.0
    """Bytes per token in the attention cache, from the buffer size at start-up; 0 if no line shows it."""
    recurrent: float = 0.0
    """Bytes of the recurrent state of one slot, from the same lines."""
    ram: float | None = None
    """Size of the RAM cache when its state was last printed."""
    ram_most: float = 0.0
    """Largest RAM cache size printed; 0 if no line prints its state."""
    saving_most: float = 0.0
    """Peak RAM cache size while a prompt was saved: the printed size plus the entries evicted just before."""
    saving: float | None = None
    """Size of the state that is being copied to the RAM cache, with its checkpoints; None once that is over."""
    evicted: float = 0.0
    """Size of what left the RAM cache since its state was last printed."""


class Undecided(msgspec.Struct):
    """Tokens that a server computed without a known reason."""

    tokens: int
    """Tokens that may have been new, changed, or lost."""
    requests: int
    """Requests with such tokens."""
    lost: int
    """Tokens that the server lost without a known cause."""
    alike: int
    """Tokens of first prompts that began like their slot's content, which was equally long."""
    alike_requests: int
    named: int
    """Requests that may have lost something and whose slot the client had named."""
    anew: int
    """Tokens possibly repeated in first prompts that are longer than the content they displaced and begin like it."""
    anew_at: Mark | None
    """Line of the last of these prompts."""
    returns: int
    """Requests for which the RAM cache restored what another conversation had displaced."""
    all_requests: int
    """All requests whose tokens are assigned to a row; the two sums below are theirs."""
    cached_tokens: int
    prompt_tokens: int
    worst: Mark
    """Line of the request with the most unexplained tokens."""
    level: int = 0
    """Tokens of first prompts that shared little with their slot's content, which was equally long."""
    level_requests: int = 0
    able: int = 0
    """Tokens of first prompts that may continue a conversation which had lost its slot."""
    able_requests: int = 0
    first_requests: int = 0
    """First prompts on slots that held something."""
    grown: int = 0
    """Tokens of prompts that shared nothing with any slot, although by its length each continued the previous one."""
    grown_requests: int = 0


class Twins(msgspec.Struct):
    """Prompts of one length that were computed at once on several slots."""

    length: int
    mark: Mark
    """Line of a request that began while another one was running."""
    requests: int = 0
    """These prompts without the first one."""
    tokens: int = 0
    """Computed tokens of these; if they are one prompt, all were recomputed."""


class Facts(msgspec.Struct, frozen=True):
    """What is known of one run of a server at a moment. Unknown is None.

    A request keeps the facts that it ended under: what the log shows later replaces them, and changes none.
    """

    index: Count
    path: str
    origin: str | None = None
    """Router port or compose service; None if the log shows neither."""
    build: Count | None = None
    build_min: Count | None = None
    """Oldest build that writes all wordings seen."""
    build_max: Count | None = None
    build_source: str | None = None
    """"line", "option", "wording", "paste" (the text above an excerpt), or None. Of vLLM and SGLang, which have
    versions: "line", "source", or None."""
    model: str | None = None
    memory: Memory | None = None
    n_slots: Count | None = None
    n_ctx_slot: Count | None = None
    """Context of one slot in tokens."""
    settings: Mapping[str, Setting] = msgspec.field(default_factory=dict)
    seen: AbstractSet[str] = frozenset()
    """Ids of the messages that occurred; for the engine alone."""
    shows: frozenset[Shows] = frozenset()
    """The facts that the observed lines can show."""
    window: int | None = None
    """Sliding window in tokens as the request lines print it; 0 or 1 for a model without one."""
    given: Sequence[GivenOption] = ()
    """Options of the command line, where it was given."""
    starts_cold: bool = False
    """The start of the process is in the log, so that its slots were empty."""
    several: bool = False
    """True if more than one request has begun."""
    lenient: bool = False
    """Some lines are not as the server printed them, so what they prove is not certain."""

    def setting(self, name: SettingName) -> Any:
        """Value of a setting, or None when unknown."""
        found = self.settings.get(name)
        return None if found is None else found.value

    def said(self, name: SettingName) -> Setting | None:
        """A setting with the line that shows it, or None if unknown."""
        return self.settings.get(name)

    def ram_kept_all(self) -> bool:
        """Whether no prompt is known to have been evicted from the RAM cache for lack of space, or to have been too
        large for it.

        Both are counted as evictions; a server without that cache has none.
        """
        return "ram_evictions" not in self.settings

    def at_least(self, build: int) -> bool | None:
        """Whether the server is of ``build`` or newer; None when the log leaves it open."""
        if self.build is not None:
            return self.build >= build
        if self.build_min is not None and self.build_min >= build:
            return True
        if self.build_max is not None and self.build_max < build:
            return False
        return None


class Session(Facts, frozen=False, gc=False):  # type: ignore[misc]  # msgspec allows it, dataclasses do not
    """One run of a server process, as a report lists it: its facts at the end, and sums over its requests."""

    settings: dict[str, Setting] = msgspec.field(default_factory=dict)
    seen: set[str] = msgspec.field(default_factory=set)
    given: list[GivenOption] = msgspec.field(default_factory=list)
    engine: str = "llama.cpp"
    version: str | None = None
    """``0.32.0``, of an engine that has versions."""
    version_min: str | None = None
    """Oldest version that can have written all messages of the log."""
    version_max: str | None = None
    cmdline: str | None = None
    """The command line itself, as it was given or is in a pasted issue; it may hold secrets."""
    launcher: Launcher | None = None
    """The launcher, as the user stated or the wrappers show; the advice depends on it."""
    first_line: Long = 1
    last_line: Long = 1
    files: Sequence[LogFile] = ()
    """Files of a rotated log, as far as they were read; line numbers continue from file to file."""
    n_requests: Count = 0
    sizes: Sizes = msgspec.field(default_factory=Sizes)
    at_once: int = 0
    """Largest number of conversations in use between two turns of one of them, itself included; with this many slots
    each would have kept its own."""

    periods: list[Period] = msgspec.field(default_factory=list)
    """For vLLM and SGLang: what was seen from one reset of the cache to the next, by engine; at most 64."""
    counters: list[Counters] = msgspec.field(default_factory=list)
    """From dumps of /metrics that were given."""
    answers: list[Answers] = msgspec.field(default_factory=list)
    """What responses show of their requests, given with the log or logged by the server."""
    kv_events: list[KvEvents] = msgspec.field(default_factory=list)
    """From recordings that were given."""
    program: str | None = None
    """Name of the program in its own spelling, if it has no rules of its own."""
    incidents: dict[IncidentName, Incident] = msgspec.field(default_factory=dict)
    """Lines that report an incident; the first of each kind."""
    n_whole: Count = 0
    """Requests whose start and end are both in the log."""
    mixed: bool = False
    """Lines of several servers are mixed, without a name in front of them: no finding is certain."""
    parted: list[PromptDiff] = msgspec.field(default_factory=list)
    """Request bodies given with the log of a server without requests: each, in their order, against the earlier one
    that it shares most with; at most 256."""
    undecided: Undecided | None = None
    """Tokens for which the log does not show why they were computed; None if there are none."""
    stopped: Mark | None = None
    """Line that shows an orderly shutdown of the server; None if it ended otherwise, or no line shows it."""
    twins: list[Twins] = msgspec.field(default_factory=list)
    """Prompts that may have been sent twice, by their length."""
    callers: dict[ClientName, int] = msgspec.field(default_factory=dict)
    """Answered requests of vLLM and SGLang by client, if access lines show it."""
    sent: SentBodies | None = None
    """What these bodies have in common."""

    def learn(self, **facts: Any) -> None:
        """Set facts by their names; everywhere else they are read-only."""
        for name, value in facts.items():
            setattr(self, name, value)

    def file_of(self, line: int) -> LogFile:
        """Return the file that contains one of its lines."""
        for file in reversed(self.files):
            if line > file.before:
                return file
        return LogFile(self.path)

    def since(self, version: str) -> bool | None:
        """Whether the server is of ``version`` or newer, for an engine with versions; None if that is open."""
        wanted = release(version)
        if self.version is not None:
            return release(self.version) >= wanted
        if self.version_min is not None and release(self.version_min) >= wanted:
            return True
        if self.version_max is not None and release(self.version_max) < wanted:
            return False
        return None


@lru_cache(maxsize=64)
def release(version: str) -> tuple[int, ...]:
    """Numbers of a version that can be compared: ``0.10.2.post1`` and ``0.10.2rc1`` are (0, 10, 2)."""
    found = _RELEASE.match(version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
