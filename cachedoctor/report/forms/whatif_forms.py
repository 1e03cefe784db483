"""What-if in words, as text and JSON (``cachedoctor.simulate/1``, ``cachedoctor.tune/1``, frozen)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import IO, Literal, get_args

import msgspec

from cachedoctor.model import Finding
from cachedoctor.model.report import Tool
from cachedoctor.model.whatif import (
    MOST_WRONG,
    AgentsFit,
    Candidate,
    FirstTurn,
    MemoryBill,
    Placed,
    ReplayAccount,
    ReplayedConversation,
    ReplayFit,
    ReplaySetting,
    RequestKind,
    ServerRestore,
    ServerStop,
    Simulation,
    Tuning,
)
from cachedoctor.redaction import sanitize
from cachedoctor.report.base import Appearance
from cachedoctor.report.forms import first_turn_forms, kind_forms, memory_forms, stop_forms
from cachedoctor.report.text import page as text_table
from cachedoctor.report.text.page import TextPage
from cachedoctor.report.words import do_now
from cachedoctor.report.words.measured_table import Heading, MeasuredCells
from cachedoctor.report.words.numbers import count, duration, first_sentence, number, percent

ACCOUNTS = [Heading("server"), Heading("replay"), Heading("changed")]
CANDIDATES = [Heading("tokens saved"), Heading("prompt time"), Heading("memory")]
CONVERSATIONS = [Heading("requests"), Heading("prompt"), *ACCOUNTS]
UNKNOWN = "-"
OPEN_SHARE = 0.25
"""Share of the computed tokens: if more may have been sent before, the effect of a change is unknown."""
_MOST = 20
"""Maximum conversations in the text output."""


def traffic(inputs: Sequence[str], placed: Placed) -> str:
    """Say what was replayed."""
    bodies = "from the log only" if placed.bodies is None else f"with {_bodies(placed.bodies)}"
    return f"{', '.join(inputs)}: {count(placed.requests, 'request')} replayed, {bodies}"


def _bodies(number_of: int) -> str:
    return "1 request body" if number_of == 1 else f"{number_of:,} request bodies"


def fit_words(found: ReplayFit | None) -> str:
    """Say how far the replay agrees with the server under the recorded settings."""
    if found is None:
        return "the error of the replay is unknown, because neither a log nor counts of the server were given"
    off = percent(found.wrong_tokens, found.prompt_tokens) if found.prompt_tokens else "0 %"
    if not found.requests:
        return (
            f"the replay reuses {count(found.replay_reused_tokens, 'token')} in all, the server "
            f"{number(found.server_reused_tokens)} (totals of the log): an error of {off} of the prompt tokens; reuse "
            "of single requests is unknown (--responses adds it)"
        )
    return (
        f"{found.equal:,} of {count(found.requests, 'request')} have the same reuse as on the server; the "
        "replay reuses "
        f"{count(found.replay_reused_tokens, 'token')}, the server {number(found.server_reused_tokens)}; "
        f"the error of single requests is {off} of the prompt tokens{_unlike(found)}"
    )


def _is_unlike(found: ReplayFit | None) -> bool:
    return found is not None and found.wrong_tokens > MOST_WRONG * found.prompt_tokens


def _unlike(found: ReplayFit) -> str:
    """Report a replay that differs from the server; a log with a larger difference is refused before."""
    if not _is_unlike(found):
        return ""
    return (
        ". The server ran with other settings than assumed here, or is not llama-server, so the effect of a "
        "change is unknown. --cmdline sets the start command, --ran memory=hybrid the kind of model"
    )


def notes(placed: Placed, settings: Sequence[ReplaySetting]) -> list[str]:
    """List what could not be replayed, and what was assumed."""
    found = []
    if not placed.exact:
        found.append("without --tokenizer, words and punctuation count as tokens, so numbers are approximate")
    if placed.bodies is None:
        found.append(
            "without --requests, text counts as new unless a line of the log shows that an earlier prompt had this text"
        )
    if placed.assumed_turns:
        turns = count(placed.assumed_turns, "turn")
        found.append(f"assumed for {turns}: each extends the whole previous turn (the log doesn't show it)")
    if placed.bodies_left_out:
        found.append(
            f"{_bodies(placed.bodies_left_out)} not matched: no request in the log fits, or the body has no prompt"
        )
    if placed.answers_unlike:
        unlike = count(placed.answers_unlike, "recorded answer")
        found.append(f"{unlike} counted a different length than the tokenizer; the recorded reuse is left out")
    if placed.requests_without_body:
        found.append(f"{count(placed.requests_without_body, 'request')} without a body, assumed to share nothing")
    if placed.requests_without_length:
        found.append(f"{count(placed.requests_without_length, 'request')} left out: the log does not show the length")
    if placed.images:
        found.append(f"{count(placed.images, 'request')} with images, all assumed to have the same number of tokens")
    ram = next((row.changed for row in settings if row.name == "cache-ram"), 0)
    if ram and not placed.sizes_known:
        found.append("the size of saved prompts is unknown; all are assumed to fit into the RAM cache")
    return found


def changes(settings: Sequence[ReplaySetting]) -> list[str]:
    """Name the settings that differ."""
    return [
        f"{row.name}: {_value(row.recorded)} -> {_value(row.changed)}"
        for row in settings
        if row.recorded != row.changed
    ]


def assumed_settings(settings: Sequence[ReplaySetting]) -> str:
    """List settings that nothing shows, with the defaults that were assumed."""
    return ", ".join(f"{row.name} {_value(row.recorded)}" for row in settings if row.assumed)


def _value(value: int | float | bool | str) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def account_rows(server: ReplayAccount | None, replay: ReplayAccount, changed: ReplayAccount) -> list[MeasuredCells]:
    """Write the three accounts side by side; what is unknown is a dash."""
    three = (server, replay, changed)
    causes = dict.fromkeys([*(replay.lost_tokens or {}), *(changed.lost_tokens or {})])
    found = [
        MeasuredCells("requests", [_cell(one, "requests") for one in three]),
        MeasuredCells("prompt tokens", [_cell(one, "prompt_tokens") for one in three]),
        MeasuredCells("reused", [_cell(one, "reused_tokens") for one in three]),
        MeasuredCells("computed", [_cell(one, "computed_tokens") for one in three]),
        MeasuredCells("  new", [_cell(one, "new_tokens") for one in three]),
        *(MeasuredCells(f"  lost: {cause}", [_lost(one, cause) for one in three]) for cause in causes),
        MeasuredCells("prompt time", [_time(one) for one in three]),
    ]
    if replay.too_long or changed.too_long:
        found.append(MeasuredCells("too long for a slot", [_cell(one, "too_long") for one in (None, replay, changed)]))
    return found


def _cell(one: ReplayAccount | None, field: str) -> str:
    value = None if one is None else getattr(one, field)
    return UNKNOWN if value is None else number(value)


def _lost(one: ReplayAccount | None, cause: str) -> str:
    return UNKNOWN if one is None or one.lost_tokens is None else number(one.lost_tokens.get(cause, 0))


def _time(one: ReplayAccount | None) -> str:
    return UNKNOWN if one is None or one.prompt_ms is None else duration(one.prompt_ms)


def conversation_rows(found: Sequence[ReplayedConversation]) -> tuple[list[MeasuredCells], int]:
    """Write the conversations in which most changes, in their order, and how many are left out."""
    shown = sorted(found, key=lambda one: -abs(one.changed_reused_tokens - one.replay_reused_tokens))[:_MOST]
    order = [one for one in found if one in shown]
    cells = [
        MeasuredCells(
            "no conversation" if one.conversation is None else f"conversation {one.conversation}",
            [
                number(one.requests),
                number(one.prompt_tokens),
                UNKNOWN if one.server_reused_tokens is None else number(one.server_reused_tokens),
                number(one.replay_reused_tokens),
                number(one.changed_reused_tokens),
            ],
        )
        for one in order
    ]
    return cells, len(found) - len(order)


def whatif_verdict(replay: ReplayAccount, changed: ReplayAccount, placed: Placed, found: ReplayFit | None) -> str:
    """Say in a sentence what the change would have done."""
    words = _verdict(replay, changed, placed)
    return (
        f"In the replay, which differs from the server's behaviour: {words[0].lower()}{words[1:]}"
        if _is_unlike(found)
        else words
    )


def _verdict(replay: ReplayAccount, changed: ReplayAccount, placed: Placed) -> str:
    saved = replay.computed_tokens - changed.computed_tokens
    if changed.too_long != replay.too_long:
        fewer = count(abs(changed.too_long - replay.too_long), "request")
        moved = (
            "no longer fit the context of a slot" if changed.too_long > replay.too_long else "fit only with the change"
        )
        return f"{fewer} {moved}, so the sums cover different requests."
    if not saved:
        return f"Cannot tell: {open_tokens(placed)}." if is_open(replay, placed) else "Nothing changes."
    words = f"The change {'saves' if saved > 0 else 'costs'} {count(abs(saved), 'prompt token')}"
    words += f" ({number(replay.computed_tokens)} -> {number(changed.computed_tokens)} computed)"
    if replay.prompt_ms is not None and changed.prompt_ms is not None:
        words += f", {duration(abs(replay.prompt_ms - changed.prompt_ms))} of prompt time"
    return f"{words}; {open_tokens(placed)}." if is_open(replay, placed) else f"{words}."


def is_open(replay: ReplayAccount, placed: Placed) -> bool:
    """True if much of what was computed may have been sent before, which the log does not show."""
    return placed.open_tokens > OPEN_SHARE * replay.computed_tokens


def open_tokens(placed: Placed) -> str:
    """Say for how many tokens it is unknown whether they had been sent before."""
    return (
        f"the log does not show whether {count(placed.open_tokens, 'computed token')} had been sent before; "
        "pass the bodies with --requests and the model with --tokenizer"
    )


def candidate(one: Candidate) -> MeasuredCells:
    """Write a candidate as a row."""
    memory = "unknown" if one.memory_mib is None else f"{one.memory_mib:+,.0f} MiB" if one.memory_mib else "0 MiB"
    time = UNKNOWN if one.saved_ms is None else f"{'-' if one.saved_ms >= 0 else '+'}{duration(abs(one.saved_ms))}"
    return MeasuredCells(one.options, [number(one.saved_tokens), time, memory])


def advice(shown: Tuning) -> str:
    """Say in a sentence what the best set of settings does, or that there is nothing to gain."""
    best, computed = shown.best, shown.replay.computed_tokens
    if best is None and shown.over_limit:
        return "Nothing to gain within the memory limit: the settings above need more."
    if best is None:
        tried = f"none of the settings tried saves {number(shown.least_tokens)} of {count(computed, 'computed token')}"
        if _is_settled(shown):
            return f"Nothing to gain: {tried}. The cause is not a server setting:"
        if is_open(shown.replay, shown.placed):
            return f"Cannot tell: {tried}, but {open_tokens(shown.placed)}."
        return f"Nothing to gain: {tried}. {_computed_why(shown.replay)}."
    words = f"saves {number(best.saved_tokens)} of {count(computed, 'computed prompt token')}"
    words += f" ({percent(best.saved_tokens, computed)})"
    if best.saved_ms is not None:
        words += f", {duration(best.saved_ms)} of prompt time"
    memory = "an unknown amount of" if best.memory_mib is None else f"at most {best.memory_mib:,.0f} MiB"
    why = f" ({best.memory_why})" if best.memory_why else ""
    return f"{words}; needs no more memory." if best.memory_mib == 0 else f"{words}; needs {memory} more memory{why}."


def _is_settled(shown: Tuning) -> bool:
    """Whether the log shows for certain why most was computed, and no option of the server changes that."""
    cause = shown.cause
    if cause is None or cause.confidence != "high" or 2 * cause.cost.tokens < shown.replay.computed_tokens:
        return False
    return not any(remedy.options for remedy in cause.remedies if remedy.purpose == "fix")


def _computed_why(replay: ReplayAccount) -> str:
    """Say why tokens were computed that no setting saves."""
    lost = {cause: tokens for cause, tokens in (replay.lost_tokens or {}).items() if tokens}
    again = ", ".join(f"{cause}: {count(tokens, 'token')}" for cause, tokens in lost.items())
    parts = [f"had been sent before and were lost ({again})"] if again else []
    if replay.new_tokens:
        new = f"{number(replay.new_tokens)} tokens were never sent after the same beginning"
        parts = [f"{new}: new text, or text after a change by the client", *parts]
    return "; other tokens ".join(parts) or "Nothing was computed"


def _cause(page: TextPage, found: Finding, placed: Placed) -> None:
    """Write which finding of the log cost most, and what to do about it first."""
    cause = sanitize.mask(found)
    _listed(page, "cause", [f"{cause.code} {cause.name}: {cause.claim}"])
    do = do_now.of_finding(cause)
    if placed.bodies is not None and cause.confidence != "high":
        _listed(page, "try", ["Pass the same --requests to cachedoctor analyze, which compares the texts."])
    elif do is not None:
        for at, command in enumerate(do.commands):  # on rows of their own, so that they can be copied
            page.row((f"{'' if at else do.kind:<9} ", "bold"), (command, "green"))
        _listed(page, "" if do.commands else do.kind, [first_sentence(do.words)])


Form = Literal["text", "json"]
FORMATS: tuple[Form, ...] = get_args(Form)


class SimulateDocument(msgspec.Struct):
    """What other settings would have reused. Unknown values are None. Within version 1 keys are only added."""

    schema: Literal["cachedoctor.simulate/1"]
    tool: Tool
    inputs: list[str]
    placed: Placed
    fit: ReplayFit | None
    """How well the replay agrees with the server; None without a log."""
    settings: list[ReplaySetting]
    server: ReplayAccount | None
    """Account from the log; None without a log."""
    replay: ReplayAccount
    """Account of the replay with the recorded settings."""
    changed: ReplayAccount
    """Account of the replay with the new settings."""
    conversations: list[ReplayedConversation]
    """The conversations; empty if there is only one conversation."""


class TuneDocument(msgspec.Struct):
    """Settings, ranked by the tokens that each would have saved. Unknown values are None. Within version 1 keys are
    only added."""

    schema: Literal["cachedoctor.tune/1"]
    tool: Tool
    inputs: list[str]
    placed: Placed
    fit: ReplayFit | None
    """How well the replay agrees with the server; None without a log."""
    settings: list[ReplaySetting]
    """``changed`` is the value in the best set."""
    replay: ReplayAccount
    """Account of the replay with the recorded settings."""
    least_tokens: int
    """Tokens that a setting must save to be listed."""
    memory_limit_mib: float | None
    """Maximum extra memory of all changes together, in MiB."""
    over_limit: list[str]
    """Options that save tokens but need more memory than the limit, or an unknown amount."""
    singles: list[Candidate]
    """Single changes that help, the best change first."""
    best: Candidate | None
    """The merged set of changes; None if there is nothing to gain."""
    memory: MemoryBill | None = None
    """Memory that was used, and the tokens that it saved; None for vLLM and SGLang. Added after the first release of
    v1: may be missing."""
    agents: AgentsFit | None = None
    """How many conversations alternate, and which settings keep all of them; None if no conversations alternate. Added
    after the first release of v1: may be missing."""
    stops: list[ServerStop] = []
    """Restarts and sleeps, and the tokens recomputed because of each. Added after the first release of v1: may be
    missing."""
    restores: list[ServerRestore] = []
    """Restores of saved states: all from slot files, and the failed ones from the RAM cache. Added after the first
    release of v1: may be missing."""
    ram_restores: int = 0
    """Number of all restores from the RAM cache. Added after the first release of v1: may be missing."""
    first_turn: FirstTurn | None = None
    """The prefix that conversations share, and the tokens saved by computing it in advance. Added after the first
    release of v1: may be missing."""
    kinds: list[RequestKind] = []
    """Kinds of requests, the kind with most prompt time first; empty if all requests are main turns. Added after the
    first release of v1: may be missing."""


def write_simulation(form: Form, shown: Simulation, out: IO[bytes], look: Appearance) -> None:
    """Write what would have been reused under other settings."""
    if form == "json":
        tool = Tool("cachedoctor", shown.tool_version)
        document = SimulateDocument(
            "cachedoctor.simulate/1", tool, shown.inputs, shown.placed, shown.fit, shown.settings, shown.server,
            shown.replay, shown.changed, shown.conversations,
        )  # fmt: skip
        out.write(msgspec.json.encode(document) + b"\n")
        return
    text = io.StringIO()
    page = TextPage(text, look.width, look.color, look.ascii_only)
    _head(page, shown.inputs, shown.placed, shown.fit, shown.settings)
    _listed(page, "changed", changes(shown.settings) or ["nothing: no --set was given, or everything is already set"])
    page.gap()
    text_table.show_table(page, "", ACCOUNTS, account_rows(shown.server, shown.replay, shown.changed))
    rows, left_out = conversation_rows(shown.conversations)
    if rows:
        page.gap()
        text_table.show_table(page, "reused in", CONVERSATIONS, rows)
        if left_out:
            page.prose([], f"and {left_out:,} more with smaller changes; -f json has all.", 0)
    page.gap()
    page.prose([], whatif_verdict(shown.replay, shown.changed, shown.placed, shown.fit), 2)
    out.write(look.encode(text.getvalue()))


def write_tuning(form: Form, shown: Tuning, out: IO[bytes], look: Appearance) -> None:
    """Write which settings would have saved most."""
    if form == "json":
        tool = Tool("cachedoctor", shown.tool_version)
        document = TuneDocument(
            "cachedoctor.tune/1", tool, shown.inputs, shown.placed, shown.fit, shown.settings, shown.replay,
            shown.least_tokens, shown.memory_limit_mib, shown.over_limit, shown.singles, shown.best, shown.bill,
            shown.agents, shown.stops, shown.restores, shown.ram_restores, shown.first_turn, shown.kinds,
        )  # fmt: skip
        out.write(msgspec.json.encode(document) + b"\n")
        return
    text = io.StringIO()
    page = TextPage(text, look.width, look.color, look.ascii_only)
    _head(page, shown.inputs, shown.placed, shown.fit, shown.settings)
    if shown.bill is not None:
        page.gap()
        _listed(page, "memory", memory_forms.bill(shown.bill))
    if shown.agents is not None:
        _listed(page, "agents", [memory_forms.agents(shown.agents, shown.settings)])
    _listed(page, "kinds", kind_forms.kinds(shown.kinds))
    if shown.first_turn is not None:
        _listed(page, "warming", [first_turn_forms.words(shown.first_turn)])
        for command in first_turn_forms.commands(shown.first_turn):
            page.row("          ", (command, "green"))
    _listed(page, "stops", stop_forms.stops(shown.stops, shown.replay))
    _listed(page, "restores", stop_forms.restores(shown.restores, shown.ram_restores))
    if shown.singles:
        page.gap()
        rows = [candidate(one) for one in shown.singles]
        text_table.show_table(page, "one change", CANDIDATES, rows)
    page.gap()
    for options in shown.over_limit:
        page.row(("over the memory limit, or unknown: ", "bold"), options)
    if shown.best is not None:
        # A command is on a row of its own, so that it can be copied.
        page.row((shown.best.options, "green"))
    page.prose([], advice(shown), 2)
    if shown.best is None and shown.cause is not None and not shown.over_limit:
        _cause(page, shown.cause, shown.placed)
    out.write(look.encode(text.getvalue()))


def _head(
    page: TextPage, inputs: Sequence[str], placed: Placed, fit: ReplayFit | None, settings: Sequence[ReplaySetting]
) -> None:
    page.facts([], traffic(inputs, placed), 0)
    _listed(page, "replay", [fit_words(fit)])
    _listed(page, "note", notes(placed, settings))
    assumed = assumed_settings(settings)
    _listed(page, "assumed", [f"not shown by any input: {assumed}"] if assumed else [])


def _listed(page: TextPage, key: str, found: Sequence[str]) -> None:
    for at, line in enumerate(found):
        page.prose([(f"{'' if at else key:<9} ", "bold")], line, 10)
