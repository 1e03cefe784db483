"""Sums of what a replay or the server reused; a replay that does not explain the log is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.doctor.findings.history import PromptSpeed
from cachedoctor.doctor.replaying.server_names import FIELDS, changed, command_line, listed
from cachedoctor.doctor.whatif.evidence import ServerTraffic
from cachedoctor.doctor.whatif.more_memory import MemoryCost
from cachedoctor.knowledge import server_options
from cachedoctor.knowledge.server_options import lacking
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.whatif import MOST_WRONG, Candidate, ReplayAccount, ReplayFit, ReplaySetting


def saved_ms(base: ReplayAccount, now: ReplayAccount) -> float | None:
    """Milliseconds of prompt time that one replay takes less than the other; None where the log shows no speed."""
    if now.prompt_ms is None or base.prompt_ms is None:
        return None
    return round(base.prompt_ms - now.prompt_ms, 3)


def candidate(
    base: ServerSettings, settings: ServerSettings, saved: int, ms: float | None, memory: MemoryCost
) -> Candidate:
    """Put settings that help into options, with what they save and take."""
    mib = None if memory.mib is None else round(memory.mib, 1)
    return Candidate(command_line(base, settings), saved, ms, mib, memory.why)


def fits(evidence: ServerTraffic, settings: ServerSettings) -> list[bool]:
    """Say of every request whether its prompt fits the context that a slot has then."""
    most = room(settings)
    return [length < most for length in evidence.traffic.lengths]


def room(settings: ServerSettings) -> int:
    """Tokens of context that a slot has."""
    whole = settings.resolved()
    return whole.context if whole.kv_unified else whole.context // (whole.slots or 1)


def account(evidence: ServerTraffic, served: Sequence[Served], settings: ServerSettings) -> ReplayAccount:
    """Sum up a replay."""
    found = ReplayAccount(0, 0, 0, 0, 0, {}, None)
    new, lost, ms = 0, dict[str, int](), 0.0
    most, each, slope = room(settings), _at_depth_0(evidence.speed), evidence.speed.slope
    for one, asked, length in zip(served, evidence.traffic.asked, evidence.traffic.lengths, strict=True):
        if length >= most or one.chosen_by == "none" or asked.refused:
            found.too_long += length >= most
            continue
        reused, best = one.reused, one.best
        found.requests += 1
        found.prompt_tokens += length
        found.reused_tokens += reused
        if best > reused:
            lost[one.cause or "other"] = lost.get(one.cause or "other", 0) + best - reused
            new += length - best
        else:
            new += length - reused
        ms += each * (length - reused) * (1 + slope * (reused + length) / 2)
    found.computed_tokens = found.prompt_tokens - found.reused_tokens
    found.new_tokens, found.lost_tokens = new, dict(sorted(lost.items(), key=lambda row: -row[1]))
    found.prompt_ms = round(ms, 3) if evidence.speed.count else None
    return found


def span_ms(speed: PromptSpeed, start: int, end: int) -> float:
    """Milliseconds that the tokens from ``start`` to ``end`` of a prompt take; 0 where no speed is known."""
    return _at_depth_0(speed) * (end - start) * (1 + speed.slope * (start + end) / 2)


def _at_depth_0(speed: PromptSpeed) -> float:
    """Milliseconds of a token there: what gives the measured time of all that was learnt."""
    weighted = speed.weight + speed.slope * speed.depth
    return speed.per_token / weighted if weighted else 0.0


def server_account(evidence: ServerTraffic) -> ReplayAccount | None:
    """Sum up what the server said, of the requests of which it did; None where nothing does."""
    if not evidence.is_counted:
        return None
    found = ReplayAccount(0, 0, 0, 0, None, None, None)
    times = list[float | None]()
    for asked, reused, ms in zip(evidence.traffic.asked, evidence.reused, evidence.prompt_ms, strict=True):
        if reused is None:
            continue
        found.requests += 1
        found.prompt_tokens += evidence.traffic.tree.length(asked.prompt)
        found.reused_tokens += reused
        times.append(ms)
    found.computed_tokens = found.prompt_tokens - found.reused_tokens
    known = [ms for ms in times if ms is not None]
    found.prompt_ms = round(sum(known), 3) if known and len(known) == len(times) else None
    return found


def fit(evidence: ServerTraffic, served: Sequence[Served]) -> ReplayFit | None:
    """Hold the replay under the recorded settings against what the server said; None where nothing does."""
    if not evidence.is_counted:
        return None
    found = ReplayFit(0, 0, 0, 0, 0, 0)
    for asked, one, reused in zip(evidence.traffic.asked, served, evidence.reused, strict=True):
        if reused is None:
            continue
        found.requests += 1
        found.equal += one.reused == reused
        found.prompt_tokens += evidence.traffic.tree.length(asked.prompt)
        found.server_reused_tokens += reused
        found.replay_reused_tokens += one.reused
        found.wrong_tokens += abs(one.reused - reused)
    return found


LEAST_COUNTED = 0.5
"""Minimum share of the requests for which the log must show what was reused."""
_REFUSED = 3


class Base(NamedTuple):
    """The replay under the recorded settings."""

    served: list[Served]
    fit: ReplayFit | None


def replay_base(evidence: ServerTraffic, served: list[Served] | None = None) -> Base:
    """Replay under the recorded settings, unless that is ``served`` already.

    Of bodies alone nearly all of these are assumed: there the fit is only said.

    Raises:
        CacheDoctorError: the replay does not explain the log, or the log shows too little to know.
    """
    served = serve(evidence.traffic, evidence.settings) if served is None else served
    found = fit(evidence, served)
    if found is not None and evidence.from_log:
        _refuse(evidence, found)
    return Base(served, found)


def _refuse(evidence: ServerTraffic, found: ReplayFit) -> None:
    whole = len(evidence.reused)
    if found.requests < LEAST_COUNTED * whole or not found.requests:
        raise CacheDoctorError(
            f"the log shows reuse for {found.requests:,} of {whole:,} requests, too few to trust a replay",
            "start the server with -lv 4, or give the bodies with --requests and the model with --tokenizer",
            _REFUSED,
        )
    if found.wrong_tokens > MOST_WRONG * found.prompt_tokens:
        share = 100 * found.wrong_tokens / max(1, found.prompt_tokens)
        raise CacheDoctorError(
            f"the replay does not reproduce the log: {found.equal:,} of {found.requests:,} requests have "
            f"the same reuse, and the replay is off by {share:.1f} % of the prompt tokens "
            f"(the limit is {100 * MOST_WRONG:.0f} %)",
            _hint(evidence),
            _REFUSED,
        )


def _hint(evidence: ServerTraffic) -> str:
    if evidence.placed.bodies is not None and not evidence.placed.exact:
        return "give the model's tokenizer and template: --tokenizer MODEL.gguf"
    build = evidence.settings.build
    there = [server_options.BY_KEY[key] for key in FIELDS if not lacking(server_options.BY_KEY[key], build, build)]
    assumed = [option.names[0].text for option in there if FIELDS[option.key] in evidence.assumed]
    if "memory" in evidence.assumed:
        return (
            "set the kind of model, e.g. --ran memory=hybrid (or attention, swa, recurrent); the log does not show it"
        )
    if assumed:
        return "give the server command: --cmdline 'llama-server ...'; the log does not show " + ", ".join(assumed)
    if evidence.placed.bodies is None:
        return "give the request bodies: --requests BODIES --tokenizer MODEL.gguf"
    return "check that the bodies are complete and from this server"


def learn(evidence: ServerTraffic, words: Sequence[str]) -> None:
    """Take settings that ran, each NAME=VALUE, into what was recorded.

    Raises:
        CacheDoctorError: a setting is not known, or the log shows it.
    """
    said = changed(evidence.settings, words, model_open="memory" in evidence.assumed)
    for name in ServerSettings.__struct_fields__:
        if getattr(said, name) != getattr(evidence.settings, name):
            if name not in evidence.assumed and name != "window":
                raise CacheDoctorError(f"--ran: the log contradicts {name}", "remove the option")
            evidence.assumed -= {name}
    evidence.settings = said


def settings_rows(evidence: ServerTraffic, wanted: ServerSettings) -> list[ReplaySetting]:
    """List the settings of both replays by the names that the server's options have."""
    old, new = listed(evidence.settings), listed(wanted)
    fields = {server_options.BY_KEY[key].names[0].text.lstrip("-"): field for key, field in FIELDS.items()}
    return [
        ReplaySetting(name, old.get(name, "-"), fields.get(name, name) in evidence.assumed, new.get(name, "-"))
        for name in {**old, **new}
    ]
