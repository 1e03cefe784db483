"""What a server would have reused under other settings, by replay; and which settings are worth changing."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.finding import Finding

MOST_WRONG = 0.05
"""Share of the prompt tokens by which the replay may be off, request by request, under the recorded settings.

What a setting saves is a difference of two replays and can be no surer than each of them; settings that matter save a
fifth of the prompt tokens and more, and with a twentieth their order is still right. Real servers that are replayed
with their own settings stay below a hundredth."""


class ReplayFit(msgspec.Struct):
    """How far the replay, under the recorded settings, agrees with what the server said that it reused."""

    requests: int
    """Requests of which the log shows what was reused."""
    equal: int
    """Of these, those of which the replay says the same, to the token."""
    prompt_tokens: int
    """Of these requests, all together."""
    server_reused_tokens: int
    replay_reused_tokens: int
    wrong_tokens: int
    """Sum over the requests of how far the replay is off, whichever way."""


class Placed(msgspec.Struct):
    """What the traffic was made of, and what could not be placed in it."""

    requests: int
    """Requests that were replayed."""
    bodies: int | None
    """Request bodies that were given; None without any: texts are then not known."""
    exact: bool
    """Lengths are those of the model's tokenizer, or of the log; else tokens are words and signs."""
    bodies_left_out: int = 0
    """Bodies that no request of the log fits, or that hold no prompt."""
    requests_without_body: int = 0
    """Replayed as a prompt that shares nothing."""
    requests_without_length: int = 0
    """Requests of the log that are not replayed: it does not say how long they were."""
    assumed_turns: int = 0
    """Without bodies: turns that no line shows to continue the turn before, and that are taken to."""
    open_tokens: int = 0
    """Computed tokens that may have been sent before: of requests whose text is not known, and
    that did not continue what their slot held."""
    sizes_known: bool = False
    """The log prints what a saved prompt takes; else every prompt is taken to fit into the RAM cache."""
    images: int = 0
    """Requests with images, each of which is taken to have as many tokens as the others."""
    answers_unlike: int = 0
    """Of bodies alone: requests whose recorded answer counts another length; what it says of reuse is left out."""


class ReplaySetting(msgspec.Struct):
    """A setting under the name that the server's own option has."""

    name: str
    recorded: int | float | bool | str
    assumed: bool
    """Nothing says it: the default of the build."""
    changed: int | float | bool | str


class ReplayAccount(msgspec.Struct):
    """Prompt tokens of the replayed requests: reused, new and lost add up to all."""

    requests: int
    prompt_tokens: int
    reused_tokens: int
    computed_tokens: int
    new_tokens: int | None
    """Never sent before, or the last of a prompt, which is always computed; None of the server, which does not say."""
    lost_tokens: dict[str, int] | None
    """Sent before and recomputed, by the cause; None of the server."""
    prompt_ms: float | None
    """Milliseconds; of the server as printed, of the replay by its speed at each depth. None where there are no
    times."""
    too_long: int = 0
    """Requests that did not fit the context of a slot; they are in no sum."""


class ReplayedConversation(msgspec.Struct):
    """One conversation under both settings."""

    conversation: int | None
    """Numbered from 0 by their first requests; None: requests that belong to none."""
    requests: int
    prompt_tokens: int
    server_reused_tokens: int | None
    replay_reused_tokens: int
    changed_reused_tokens: int


class Simulation(msgspec.Struct):
    """The account of a log, or of request bodies, under other settings."""

    tool_version: str
    inputs: list[str]
    placed: Placed
    fit: ReplayFit | None
    """None without a log and without recorded counts: there is nothing to hold the replay against."""
    settings: list[ReplaySetting]
    server: ReplayAccount | None
    """As the log or the recorded answers say, of the requests in ``fit``."""
    replay: ReplayAccount
    """By the replay, under the recorded settings."""
    changed: ReplayAccount
    """By the replay, under the new ones."""
    conversations: list[ReplayedConversation]


class Candidate(msgspec.Struct):
    """Settings that the replay was asked about."""

    options: str
    """In the form of the command line."""
    saved_tokens: int
    """Prompt tokens that are not computed any more."""
    saved_ms: float | None
    """Milliseconds; None where the log has no times."""
    memory_mib: float | None
    """MiB that it may take more than now, at most; None where the log prints no sizes."""
    memory_why: str
    """What the memory is taken for, or which size is not known."""


MemoryKind = Literal["slots", "ram", "checkpoints"]


class MemoryHeld(msgspec.Struct):
    """One kind of memory under the recorded settings: what it held at most, and what that saved. By the replay."""

    what: MemoryKind
    requests: int
    """Requests that reused something out of it. A request that goes back to a checkpoint counts there as well as with
    the slot, or the RAM cache, that had it."""
    tokens: int
    """Prompt tokens that these reused."""
    ms: float | None
    """Milliseconds that computing them would have taken; None where the log has no times."""
    entries: int
    """Slots that there are; prompts of the RAM cache, or checkpoints in all slots, at most at once."""
    held_mib: float | None = None
    """At most at once; None where the log prints no sizes."""
    limit_mib: float | None = None
    """What the settings allow: of slots it is taken at the start; None without a limit or without sizes."""
    made: int | None = None
    """Prompts that were ever saved to the RAM cache; None of others."""
    options: str | None = None
    """The smallest value that keeps 99 % of all that was reused; None where nothing smaller does."""
    enough_mib: float | None = None
    """What that value allows."""


class MemoryBill(msgspec.Struct):
    """What memory held against what it saved."""

    held: list[MemoryHeld]
    saving_mib: float | None
    """RAM cache while a prompt was saved, with the checkpoints of the slots, at most: a lower bound of what the process
    took beside model and slots. None where the log prints no sizes."""
    logged_mib: float | None
    """The RAM cache at most as the log prints it; None where it does not."""
    logged_saving_mib: float | None
    """The same while a prompt was saved."""
    killed: bool
    """The system ended this server for lack of memory: then nothing that takes more is advised."""
    least: Candidate | None = None
    """All smaller values together, as far as they keep 99 % of what was reused; None where there are none."""


class CacheSessions(msgspec.Struct):
    """Sessions that bodies name for the server's cache (SGLang's ``session_id``)."""

    sessions: int
    requests: int
    """Those with a session."""
    tokens: int
    """Tokens that prompts and replies of all sessions take in the cache together, common beginnings counted once."""
    pool_tokens: int
    """Tokens that the cache holds."""


class AgentsFit(msgspec.Struct):
    """Conversations that alternate on a server, and what keeps all of them."""

    alternating: int
    """Conversations that are in use at once, at most."""
    conversations: int
    """All of several requests."""
    kept: int
    """Those that lost nothing for lack of slots or RAM cache under the recorded settings."""
    span_s: float | None
    """Seconds from the first request to the last; None where the log has no clock."""
    keep_all: list[Candidate] = msgspec.field(default_factory=list)
    """The smallest value of each setting that keeps all, the one that takes least memory first; empty where all are
    kept, or no such setting is known."""
    saved_ms_per_day: float | None = None
    """Milliseconds that the first of these would save in a day of such traffic; None for less than an hour of it."""
    sessions: CacheSessions | None = None
    """SGLang: those that the bodies name; None where they name none."""


class FirstTurn(msgspec.Struct):
    """The beginning that conversations share, and what it is worth to compute it before they begin."""

    common_tokens: int
    """Tokens that the conversations which begin alike share with the request that warms them."""
    alike: int
    """Conversations that begin so."""
    conversations: int
    path: str
    """The request whose head warms: ``bodies.jsonl#4``."""
    messages: int
    """Messages of it that are kept, behind tools and system prompt."""
    slots: int
    """Slots to which it is sent: 1 where one is enough, else all of them."""
    starts: int
    """Times that it is sent: at the start, and after every stop."""
    cost_tokens: int
    """Computed by the requests that warm."""
    cost_ms: float | None
    saved_tokens: int
    """Not computed any more in the requests of the traffic, by replay."""
    saved_ms: float | None


KindName = Literal["main turn", "title", "summary", "autocomplete", "tool search"]


class RequestKind(msgspec.Struct):
    """Requests of one kind, as their bodies tell it."""

    kind: KindName
    """``title``: also tags and follow-ups. ``summary``: also compaction. ``main turn``: all that nothing else is known
    of."""
    requests: int
    prompt_tokens: int
    computed_tokens: int
    """By the replay under the recorded settings."""
    ms: float | None
    """Milliseconds of computing these; None where the log has no times."""
    displaced_tokens: int = 0
    """What the other requests would have reused more without these, by replay; 0 of main turns."""


StopReason = Literal["sleep", "out of memory", "told to", "unknown"]


class ServerStop(msgspec.Struct):
    """An end of all caches: the process ended, or the server slept."""

    line: int | None
    """Of a sleep the line that says so, of a process the first line of a request of the next one."""
    reason: StopReason
    """``sleep``: --sleep-idle-seconds. ``told to``: it ended in order, as on a deploy, a swap to another model, or when
    a keep-alive or ttl ran out. ``unknown``: its last lines are not there, as after a crash."""
    launcher: str | None
    """What starts the server, as far as the log shows."""
    requests: int
    """Requests until the next stop that found less than they had sent before."""
    lost_tokens: int
    """What these recomputed because of it."""
    lost_ms: float | None


class ServerRestore(msgspec.Struct):
    """A saved state that was put back into a slot, and what the next request made of it."""

    line: int
    source: Literal["slot file", "RAM cache"]
    slot: int
    restored_tokens: int | None
    """None where no line shows how much that was."""
    prompt_tokens: int
    reused_tokens: int
    worked: bool
    """At least half of what was put back was reused."""
    why: str
    """Why not; empty where it worked."""


class Tuning(msgspec.Struct):
    """Settings ranked by what they would have saved."""

    tool_version: str
    inputs: list[str]
    placed: Placed
    fit: ReplayFit | None
    settings: list[ReplaySetting]
    replay: ReplayAccount
    """By the replay, under the recorded settings."""
    least_tokens: int
    """What a setting must save to be listed: more than the replay's own error, and more than 1 % of what is
    computed."""
    memory_limit_mib: float | None
    over_limit: list[str]
    """Options that save tokens and need more memory than the limit, or nobody knows how much."""
    singles: list[Candidate]
    """Single changes that help, the best first."""
    best: Candidate | None
    """The merged set; None when there is nothing to gain."""
    cause: Finding | None = None
    """The finding of the log that cost most tokens."""
    bill: MemoryBill | None = None
    """What memory held against what it saved; None of vLLM and SGLang."""
    agents: AgentsFit | None = None
    """None where no two conversations alternate, or nothing tells them apart."""
    stops: list[ServerStop] = []
    """Restarts and sleeps in the log."""
    restores: list[ServerRestore] = []
    """From slot files all; from the RAM cache those that did not work."""
    ram_restores: int = 0
    """From the RAM cache, all."""
    first_turn: FirstTurn | None = None
    """None where no beginning is worth it, and without bodies."""
    kinds: list[RequestKind] = []
    """Kinds of requests, what takes most first; empty where all are main turns, and without bodies."""
