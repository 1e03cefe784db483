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
    """How far a replay with the recorded settings agrees with the reuse that the server reported."""

    requests: int
    """Requests for which the log shows the reuse."""
    equal: int
    """Number of these requests for which the replay calculates exactly the same reuse."""
    prompt_tokens: int
    """Prompt tokens of these requests together."""
    server_reused_tokens: int
    replay_reused_tokens: int
    wrong_tokens: int
    """Sum of the absolute errors of the replay over all requests."""


class Placed(msgspec.Struct):
    """Size of the replayed traffic, and the parts that were left out."""

    requests: int
    """Number of replayed requests."""
    bodies: int | None
    """Number of given request bodies; None without bodies (the texts are then unknown)."""
    exact: bool
    """True if lengths come from the model's tokenizer or from the log. If False, words and punctuation count as
    tokens."""
    bodies_left_out: int = 0
    """Bodies that match no request of the log, or that contain no prompt."""
    requests_without_body: int = 0
    """Requests without a body; the replay assumes that their prompts share nothing."""
    requests_without_length: int = 0
    """Requests that are not replayed, because the log does not show their length."""
    assumed_turns: int = 0
    """Without bodies: turns that are assumed to extend the previous turn, although no line shows it."""
    open_tokens: int = 0
    """Computed tokens that may have been sent before. They belong to requests with unknown text that did not extend the
    content of their slot."""
    sizes_known: bool = False
    """True if the log prints the size of saved prompts. If False, every prompt is assumed to fit into the RAM cache."""
    images: int = 0
    """Requests with images; every image is assumed to have the same number of tokens."""
    answers_unlike: int = 0
    """With bodies only: requests whose recorded response shows a different length. The reuse in these responses is
    ignored."""


class ReplaySetting(msgspec.Struct):
    """A setting, named like the server's option."""

    name: str
    recorded: int | float | bool | str
    assumed: bool
    """True if no input shows the value, so the default of the build is used."""
    changed: int | float | bool | str


class ReplayAccount(msgspec.Struct):
    """Prompt tokens of the replayed requests; reused, new and lost tokens add up to all prompt tokens."""

    requests: int
    prompt_tokens: int
    reused_tokens: int
    computed_tokens: int
    new_tokens: int | None
    """Tokens never sent before, and the last token of each prompt, which is always computed. None for the server, which
    does not report this number."""
    lost_tokens: dict[str, int] | None
    """Tokens sent before and recomputed, by cause; None for the server."""
    prompt_ms: float | None
    """Prompt time in milliseconds: for the server as printed, for a replay from the server's speed at each depth. None
    if there are no times."""
    too_long: int = 0
    """Requests that did not fit a slot's context; all sums exclude them."""


class ReplayedConversation(msgspec.Struct):
    """One conversation with the recorded and with the new settings."""

    conversation: int | None
    """Number of the conversation, from 0, in the order of first requests; None for requests without a conversation."""
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
    """Account of the replay with the recorded settings."""
    changed: ReplayAccount
    """Account of the replay with the new settings."""
    conversations: list[ReplayedConversation]


class Candidate(msgspec.Struct):
    """Settings evaluated by replay."""

    options: str
    """Options in the form of the command line."""
    saved_tokens: int
    """Prompt tokens that are no longer computed."""
    saved_ms: float | None
    """Time saved in milliseconds; None if the log has no times."""
    memory_mib: float | None
    """Maximum extra memory compared with now, in MiB; None if the log prints no sizes."""
    memory_why: str
    """Purpose of the memory, or the size that is unknown."""


MemoryKind = Literal["slots", "ram", "checkpoints"]


class MemoryHeld(msgspec.Struct):
    """One kind of memory in a replay with the recorded settings: its peak content, and the tokens that it saved."""

    what: MemoryKind
    requests: int
    """Requests that reused something from this memory. A request that goes back to a checkpoint counts for the
    checkpoints, and also for the slot or RAM cache with the checkpoint."""
    tokens: int
    """Prompt tokens that these requests reused."""
    ms: float | None
    """Milliseconds that computing these tokens would have taken; None if the log has no times."""
    entries: int
    """Number of slots, peak number of prompts in the RAM cache, or peak number of checkpoints in all slots."""
    held_mib: float | None = None
    """Peak size; None if the log prints no sizes."""
    limit_mib: float | None = None
    """Size allowed by the settings (slots allocate this size at start-up); None without a limit or without sizes."""
    made: int | None = None
    """Prompts that were ever saved to the RAM cache; None for other kinds."""
    options: str | None = None
    """The smallest value that keeps 99 % of all reused tokens; None if no smaller value keeps them."""
    enough_mib: float | None = None
    """Size that this value allows, in MiB."""


class MemoryBill(msgspec.Struct):
    """Memory that was used, and the tokens that it saved."""

    held: list[MemoryHeld]
    saving_mib: float | None
    """Peak memory of RAM cache, the prompt being saved and the checkpoints of the slots: a lower bound of the process
    memory in addition to model and slots. None if the log prints no sizes."""
    logged_mib: float | None
    """Peak size of the RAM cache in the log; None if the log does not print the size."""
    logged_saving_mib: float | None
    """Peak size in the log while a prompt was saved."""
    killed: bool
    """True if the system killed this server because memory ran out; changes that need more memory are then not
    advised."""
    least: Candidate | None = None
    """All smaller values that together keep 99 % of the reused tokens; None if there are none."""


class CacheSessions(msgspec.Struct):
    """Cache sessions in the bodies (SGLang's ``session_id``)."""

    sessions: int
    requests: int
    """Number of requests with a session."""
    tokens: int
    """Cache size, in tokens, for the prompts and replies of all sessions together; common beginnings count once."""
    pool_tokens: int
    """Size of the cache in tokens."""


class AgentsFit(msgspec.Struct):
    """Conversations that alternate on a server, and the settings that keep all of these conversations."""

    alternating: int
    """Most conversations in use at the same time."""
    conversations: int
    """All conversations with several requests."""
    kept: int
    """Conversations that lost nothing because of too few slots or too little RAM cache, with the recorded settings."""
    span_s: float | None
    """Seconds from the first request to the last; None if the log has no clock."""
    keep_all: list[Candidate] = msgspec.field(default_factory=list)
    """The smallest value of each setting that keeps all conversations, the setting with the least memory first; empty
    if all conversations were kept, or if no such setting is known."""
    saved_ms_per_day: float | None = None
    """Milliseconds per day that the first change would save with such traffic; None if the traffic covers less than an
    hour."""
    sessions: CacheSessions | None = None
    """Cache sessions in the bodies (SGLang's ``session_id``); None if the bodies have none."""


class FirstTurn(msgspec.Struct):
    """The prefix that conversations share, and the tokens saved by computing it in advance."""

    common_tokens: int
    """Tokens that conversations with the same prefix share with their warm-up request."""
    alike: int
    """Conversations with this prefix."""
    conversations: int
    path: str
    """The request whose beginning is sent to fill the cache in advance: ``bodies.jsonl#4``."""
    messages: int
    """Number of messages of this request that are sent, after tools and system prompt."""
    slots: int
    """Number of slots to which the warm-up request is sent: 1 if one slot is enough, or else all slots."""
    starts: int
    """How often the warm-up request is sent: at the start, and after every stop."""
    cost_tokens: int
    """Tokens computed by the warm-up requests."""
    cost_ms: float | None
    saved_tokens: int
    """Tokens that the other requests no longer compute, according to the replay."""
    saved_ms: float | None


KindName = Literal["main turn", "title", "summary", "autocomplete", "tool search"]


class RequestKind(msgspec.Struct):
    """Requests of one kind; the bodies show the kind."""

    kind: KindName
    """``title``: also tags and follow-ups. ``summary``: also compaction. ``main turn``: all others."""
    requests: int
    prompt_tokens: int
    computed_tokens: int
    """Computed tokens in the replay with the recorded settings."""
    ms: float | None
    """Milliseconds that computing these tokens took; None if the log has no times."""
    displaced_tokens: int = 0
    """Additional tokens that other requests would have reused without these requests, according to the replay; 0 for
    main turns."""


StopReason = Literal["sleep", "out of memory", "told to", "unknown"]


class ServerStop(msgspec.Struct):
    """An event that empties all caches: the process ended, or the server slept."""

    line: int | None
    """For a sleep, the line that shows the sleep. For the end of a process, the first line of a request to the next
    process."""
    reason: StopReason
    """``sleep``: --sleep-idle-seconds. ``told to``: the server was stopped, for example by a deploy, a swap to another
    model, or an expired keep-alive or ttl. ``unknown``: the usual last lines are missing, as after a crash."""
    launcher: str | None
    """Launcher of the server, as far as the log shows it."""
    requests: int
    """Requests until the next stop that had to recompute tokens because of this stop."""
    lost_tokens: int
    """Tokens that these requests recomputed because of the stop."""
    lost_ms: float | None


class ServerRestore(msgspec.Struct):
    """A saved state that was restored into a slot, and how much of it the next request reused."""

    line: int
    source: Literal["slot file", "RAM cache"]
    slot: int
    restored_tokens: int | None
    """Tokens of the restored state; None if no line shows the number."""
    prompt_tokens: int
    reused_tokens: int
    worked: bool
    """True if at least half of the restored tokens were reused."""
    why: str
    """Why the restore did not work; empty if it worked."""


class Tuning(msgspec.Struct):
    """Settings ranked by what they would have saved."""

    tool_version: str
    inputs: list[str]
    placed: Placed
    fit: ReplayFit | None
    settings: list[ReplaySetting]
    replay: ReplayAccount
    """Account of the replay with the recorded settings."""
    least_tokens: int
    """What a setting must save to be listed: more than the replay's own error, and more than 1 % of what is
    computed."""
    memory_limit_mib: float | None
    over_limit: list[str]
    """Options that save tokens but need more memory than the limit, or an unknown amount."""
    singles: list[Candidate]
    """Single changes that help, the best change first."""
    best: Candidate | None
    """The merged set; None if there is nothing to gain."""
    cause: Finding | None = None
    """The finding of the log that cost most tokens."""
    bill: MemoryBill | None = None
    """Memory that was used, and the tokens that it saved; None for vLLM and SGLang."""
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
