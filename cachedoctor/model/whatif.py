"""What a server would have reused under other settings, by replay; and which settings are worth changing."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.finding import Finding

MOST_WRONG = 0.05
"""Maximum error of the replay, request by request, under the recorded settings, as a share of the prompt tokens.

A saving is the difference of two replays, so it is no more certain than each of them. Settings that matter save at
least a fifth of the prompt tokens; with an error of a twentieth, their order is still right. For real servers replayed
with their own settings the error is below a hundredth."""


class ReplayFit(msgspec.Struct):
    """How far the replay, under the recorded settings, agrees with the reuse that the server reported."""

    requests: int
    """Requests of which the log shows what was reused."""
    equal: int
    """Of these, requests for which the replay matches to the token."""
    prompt_tokens: int
    """Prompt tokens of these requests together."""
    server_reused_tokens: int
    replay_reused_tokens: int
    wrong_tokens: int
    """Sum of the absolute errors of the replay over all requests."""


class Placed(msgspec.Struct):
    """What the replayed traffic consists of, and what could not be included."""

    requests: int
    """Requests that were replayed."""
    bodies: int | None
    """Request bodies that were given; None without any: texts are then not known."""
    exact: bool
    """Lengths come from the model's tokenizer or from the log; otherwise words and punctuation count as tokens."""
    bodies_left_out: int = 0
    """Bodies that match no request of the log, or that contain no prompt."""
    requests_without_body: int = 0
    """Requests that are replayed as a prompt that shares nothing."""
    requests_without_length: int = 0
    """Requests of the log that are not replayed, because it does not show their length."""
    assumed_turns: int = 0
    """Without bodies: turns assumed to continue the previous turn, though no line shows it."""
    open_tokens: int = 0
    """Computed tokens that may have been sent before: of requests with unknown text that did not continue the content
    of their slot."""
    sizes_known: bool = False
    """The log prints the size of saved prompts; otherwise every prompt is assumed to fit into the RAM cache."""
    images: int = 0
    """Requests with images; every image is assumed to have the same number of tokens."""
    answers_unlike: int = 0
    """With bodies only: requests whose recorded answer shows a different length; its reuse counts are ignored."""


class ReplaySetting(msgspec.Struct):
    """A setting under the name that the server's own option has."""

    name: str
    recorded: int | float | bool | str
    assumed: bool
    """True if nothing shows the value: it is the default of the build."""
    changed: int | float | bool | str


class ReplayAccount(msgspec.Struct):
    """Prompt tokens of the replayed requests: reused, new and lost add up to all."""

    requests: int
    prompt_tokens: int
    reused_tokens: int
    computed_tokens: int
    new_tokens: int | None
    """Never sent before, or the last token of a prompt, which is always computed; None for the server, which does not
    report it."""
    lost_tokens: dict[str, int] | None
    """Sent before and recomputed, by cause; None for the server."""
    prompt_ms: float | None
    """Milliseconds; for the server as printed, for the replay by its speed at each depth. None if there are no
    times."""
    too_long: int = 0
    """Requests that did not fit a slot's context; all sums exclude them."""


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
    """None without a log and without recorded counts: the replay cannot be checked."""
    settings: list[ReplaySetting]
    server: ReplayAccount | None
    """Account from the log or the recorded answers, for the requests in ``fit``."""
    replay: ReplayAccount
    """Account by the replay, under the recorded settings."""
    changed: ReplayAccount
    """Account by the replay, under the new settings."""
    conversations: list[ReplayedConversation]


class Candidate(msgspec.Struct):
    """Settings evaluated by replay."""

    options: str
    """Options in the form of the command line."""
    saved_tokens: int
    """Prompt tokens that are no longer computed."""
    saved_ms: float | None
    """Milliseconds; None if the log has no times."""
    memory_mib: float | None
    """Maximum additional MiB compared with now; None if the log prints no sizes."""
    memory_why: str
    """What the memory is used for, or which size is unknown."""


MemoryKind = Literal["slots", "ram", "checkpoints"]


class MemoryHeld(msgspec.Struct):
    """One kind of memory under the recorded settings: its peak content, and what that saved, by replay."""

    what: MemoryKind
    requests: int
    """Requests that reused something from it. A request that goes back to a checkpoint counts there as well as with the
    slot, or the RAM cache, that had it."""
    tokens: int
    """Prompt tokens that these reused."""
    ms: float | None
    """Milliseconds that computing them would have taken; None if the log has no times."""
    entries: int
    """Number of slots; or peak number of prompts in the RAM cache, or of checkpoints in all slots."""
    held_mib: float | None = None
    """Peak size; None if the log prints no sizes."""
    limit_mib: float | None = None
    """Size allowed by the settings; slots allocate it at start-up. None without a limit or without sizes."""
    made: int | None = None
    """Prompts that were ever saved to the RAM cache; None for other kinds."""
    options: str | None = None
    """The smallest value that keeps 99 % of all reused tokens; None if no smaller value does."""
    enough_mib: float | None = None
    """MiB that this value allows."""


class MemoryBill(msgspec.Struct):
    """Memory used, compared with the tokens that it saved."""

    held: list[MemoryHeld]
    saving_mib: float | None
    """RAM cache while a prompt was saved, with the checkpoints of the slots, at most: a lower bound of what the process
    took beside model and slots. None if the log prints no sizes."""
    logged_mib: float | None
    """Peak size of the RAM cache as the log prints it; None if it does not."""
    logged_saving_mib: float | None
    """Peak size while a prompt was saved."""
    killed: bool
    """The OS killed this server because memory ran out: nothing that needs more memory is advised."""
    least: Candidate | None = None
    """All smaller values together, as far as they keep 99 % of what was reused; None if there are none."""


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
    """Conversations that alternate on a server, and the settings that keep all of them."""

    alternating: int
    """Most conversations in use at the same time."""
    conversations: int
    """All conversations with several requests."""
    kept: int
    """Conversations that lost nothing for lack of slots or RAM cache under the recorded settings."""
    span_s: float | None
    """Seconds from the first request to the last; None if the log has no clock."""
    keep_all: list[Candidate] = msgspec.field(default_factory=list)
    """The smallest value of each setting that keeps all, the one that takes least memory first; empty if all are
    kept, or no such setting is known."""
    saved_ms_per_day: float | None = None
    """Milliseconds per day that the first change would save with such traffic; None if the traffic covers less than an
    hour."""
    sessions: CacheSessions | None = None
    """Cache sessions that the bodies name (SGLang's ``session_id``); None if they name none."""


class FirstTurn(msgspec.Struct):
    """The prefix that conversations share, and what computing it in advance saves."""

    common_tokens: int
    """Tokens that conversations with the same prefix share with their warm-up request."""
    alike: int
    """Conversations with this prefix."""
    conversations: int
    path: str
    """The request whose beginning is sent to warm the cache: ``bodies.jsonl#4``."""
    messages: int
    """Messages of it that are kept, after tools and system prompt."""
    slots: int
    """Slots to which it is sent: 1 where one is enough, else all of them."""
    starts: int
    """Times that it is sent: at the start, and after every stop."""
    cost_tokens: int
    """Tokens computed by the warm-up requests."""
    cost_ms: float | None
    saved_tokens: int
    """Tokens that the requests of the traffic no longer compute, by replay."""
    saved_ms: float | None


KindName = Literal["main turn", "title", "summary", "autocomplete", "tool search"]


class RequestKind(msgspec.Struct):
    """Requests of one kind, as their bodies show it."""

    kind: KindName
    """``title``: also tags and follow-ups. ``summary``: also compaction. ``main turn``: all others."""
    requests: int
    prompt_tokens: int
    computed_tokens: int
    """Computed tokens by the replay, under the recorded settings."""
    ms: float | None
    """Milliseconds of computing these; None if the log has no times."""
    displaced_tokens: int = 0
    """Additional tokens that other requests would have reused without these, by replay; 0 for main turns."""


StopReason = Literal["sleep", "out of memory", "told to", "unknown"]


class ServerStop(msgspec.Struct):
    """An end of all caches: the process ended, or the server slept."""

    line: int | None
    """For a sleep, the line that shows it; for a process, the first line of a request to the next process."""
    reason: StopReason
    """``sleep``: --sleep-idle-seconds. ``told to``: it ended in order, as on a deploy, a swap to another model, or when
    a keep-alive or ttl ran out. ``unknown``: its last lines are not there, as after a crash."""
    launcher: str | None
    """Launcher of the server, as far as the log shows it."""
    requests: int
    """Requests until the next stop that found less than they had sent before."""
    lost_tokens: int
    """Tokens that these requests recomputed because of it."""
    lost_ms: float | None


class ServerRestore(msgspec.Struct):
    """A saved state that was restored into a slot, and how much of it the next request reused."""

    line: int
    source: Literal["slot file", "RAM cache"]
    slot: int
    restored_tokens: int | None
    """None if no line shows how much that was."""
    prompt_tokens: int
    reused_tokens: int
    worked: bool
    """True if at least half of the restored tokens were reused."""
    why: str
    """Why it did not work; empty if it did."""


class Tuning(msgspec.Struct):
    """Settings ranked by what they would have saved."""

    tool_version: str
    inputs: list[str]
    placed: Placed
    fit: ReplayFit | None
    settings: list[ReplaySetting]
    replay: ReplayAccount
    """Account by the replay, under the recorded settings."""
    least_tokens: int
    """What a setting must save to be listed: more than the replay's own error, and more than 1 % of what is
    computed."""
    memory_limit_mib: float | None
    over_limit: list[str]
    """Options that save tokens but need more memory than the limit, or an unknown amount."""
    singles: list[Candidate]
    """Single changes that help, the best first."""
    best: Candidate | None
    """The merged set; None if there is nothing to gain."""
    cause: Finding | None = None
    """The finding of the log that cost most tokens."""
    bill: MemoryBill | None = None
    """Memory used, compared with the tokens that it saved; None for vLLM and SGLang."""
    agents: AgentsFit | None = None
    """None unless at least two distinguishable conversations alternate."""
    stops: list[ServerStop] = []
    """Restarts and sleeps in the log."""
    restores: list[ServerRestore] = []
    """Restores: all from slot files; from the RAM cache only those that failed."""
    ram_restores: int = 0
    """Number of all restores from the RAM cache."""
    first_turn: FirstTurn | None = None
    """None if no prefix is worth it, and without bodies."""
    kinds: list[RequestKind] = []
    """Kinds of requests, the most expensive first; empty if all are main turns, and without bodies."""
