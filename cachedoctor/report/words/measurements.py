"""What logs without requests measured, in words and tables: of intervals, of batches, of counters, of responses.

These are different things: each has rows of its own, none is added to another. What is unknown is left out or called
unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from cachedoctor.knowledge.engines import ENGINES
from cachedoctor.model import Answers, BatchPeriod, Counters, KvEvents, Period, SamplePeriod, Session
from cachedoctor.redaction import sanitize
from cachedoctor.report.words import measured_table
from cachedoctor.report.words.measured_table import Grid, begun, rate
from cachedoctor.report.words.numbers import count, number, percent
from cachedoctor.report.words.traffic_words import LLAMA

LISTED = 6
"""Dumps of counters and sets of responses of one server that get a row each."""

Said = list[tuple[str, str]]
"""Pairs of a key and words."""


def measures(session: Session) -> bool:
    """Whether there is anything to say of it besides requests."""
    return session.engine != LLAMA or bool(session.periods or session.counters or session.answers or session.kv_events)


RATES_ALONE = "hit rates alone, without the lines that show what was computed"


def has_rates_alone(session: Session) -> bool:
    """Whether somebody took the hit rates out of a log of vLLM V0, which prints them on rows of their own."""
    samples = [period for period in session.periods if isinstance(period, SamplePeriod)]
    return bool(samples) and not any(period.samples for period in samples)


def said(session: Session) -> Said:
    """Say what was measured; what differs by engine or period is in ``grid``."""
    s = sanitize.mask(session)
    intervals, batches = _intervals(session.periods), _batches(session.periods)
    found: Said = []
    if intervals:
        found += _of_intervals(intervals)
    if batches:
        found += _of_batches(batches)
    if not intervals and not batches and has_log(session) and session.engine in ENGINES:
        found.append(("log", RATES_ALONE if has_rates_alone(session) else ENGINES[s.engine].unmeasured))
    found += _most([("metrics", _counted(counters)) for counters in session.counters])
    found += _most([("events", _published(events)) for events in session.kv_events])
    return found + _most([("requests" if a.source == "log" else "responses", _answered(a)) for a in session.answers])


def grid(session: Session) -> Grid | None:
    """Return a row for each engine and period, where there are several."""
    periods = sanitize.mask(session).periods
    intervals, batches = _intervals(periods), _batches(periods)
    if len(intervals) > 1:
        return measured_table.of_intervals(intervals)
    return measured_table.of_batches(batches) if len(batches) > 1 else None


def looked_at(sessions: Sequence[Session]) -> str:
    """Say what there was to check, of sessions of one engine."""
    intervals = [p for s in sessions for p in _intervals(s.periods)]
    batches = sum(p.batches for s in sessions for p in _batches(s.periods))
    busy, answers = sum(p.busy for p in intervals), sum(a.requests for s in sessions for a in s.answers)
    parts = []
    if busy:
        parts.append(f"{count(busy, 'interval')} with traffic")
    elif intervals:
        parts.append(f"{count(sum(p.samples for p in intervals), 'interval')} without traffic")
    if batches:
        parts.append(count(batches, "prefill batch") if batches == 1 else f"{number(batches)} prefill batches")
    if any(s.counters for s in sessions):
        parts.append("metrics")
    if answers:
        parts.append(count(answers, "response"))
    messages = sum(events.messages for s in sessions for events in s.kv_events)
    if messages:
        parts.append(count(messages, "message") + " of KV events")
    if not parts:
        parts.append(f"the settings of {count(len(sessions), 'server')}")
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def has_log(session: Session) -> bool:
    """Whether there is a log of it, and not only what lies beside one."""
    beside = {c.path for c in session.counters} | {a.path for a in session.answers if a.source != "log"}
    return session.path not in beside | {events.path for events in session.kv_events}


def largest(sessions: Sequence[Session], most: int) -> list[Session]:
    """Return the sessions of which most was measured, in their order."""
    kept = sorted(sessions, key=lambda s: -_amount(s))[:most]
    return sorted(kept, key=lambda s: s.index)


def _amount(session: Session) -> int:
    return sum(p.busy if isinstance(p, SamplePeriod) else p.batches for p in session.periods)


def _intervals(periods: list[Period]) -> list[SamplePeriod]:
    """Those in which an engine said something; of several, those with traffic."""
    found = [p for p in periods if isinstance(p, SamplePeriod) and p.samples]
    return [p for p in found if p.busy] or found


def _batches(periods: list[Period]) -> list[BatchPeriod]:
    return [p for p in periods if isinstance(p, BatchPeriod) and p.batches]


def _most(rows: Said) -> Said:
    if len(rows) <= LISTED:
        return rows
    return [*rows[:LISTED], (rows[LISTED][0], f"and {number(len(rows) - LISTED)} more")]


# ---- vLLM: intervals


def _of_intervals(periods: list[SamplePeriod]) -> Said:
    busy = sum(p.busy for p in periods)
    answered = _of_all_engines(periods)
    requests = "" if answered is None else f", {count(answered, 'request')} answered"
    if not busy:
        samples = count(sum(p.samples for p in periods), "interval")
        return [("log", f"{samples}, none with traffic{requests}")]
    if len(periods) > 1:
        engines = len({p.engine for p in periods})
        several = f" of {count(engines, 'engine')}" if engines > 1 else ""
        return [("log", f"{count(busy, 'interval')} with traffic{several}{requests}")]
    (only,) = periods
    found = [
        ("log", f"{count(busy, 'interval')} with traffic ({number(only.seconds)} s){requests}"),
        ("hit rate", _hit_rate(only)),
        _throughput(only),
    ]
    if only.looked_up_tokens is not None and only.looked_up_within is not None and only.last_rate:
        off = f" ± {number(only.looked_up_within)}"
        found.append(
            ("looked up", f"about {count(only.looked_up_tokens, 'prompt token')}{off} (computed / (1 - hit rate))")
        )
    if only.last_external_rate is not None:
        found.append(("external", f"hit rate {rate(only.last_external_rate)} at the end, for the same requests"))
    if only.kv_usage is not None:
        waited = f"; up to {count(only.waiting, 'request')} waited" if only.waiting else ""
        held = f"running requests filled at most {rate(only.kv_usage)} of the KV cache"
        found.append(("memory", held + waited))
    return found


def _of_all_engines(periods: list[SamplePeriod]) -> int | None:
    """Every engine counts what the whole server answered, so that those of several are not added up."""
    sums: dict[str | None, int] = {}
    for period in periods:
        if period.answered is not None:
            sums[period.engine] = sums.get(period.engine, 0) + period.answered
    return max(sums.values(), default=None)


def _hit_rate(period: SamplePeriod) -> str:
    named = _engine(period.engine)
    if period.last_rate is None:
        return f"unknown: the lines show no hit rate{named}"
    # Lines that name an engine (V1, 0.8 and newer) tell of the last 1,000 requests; V0's tell of all.
    of = "" if period.engine is None else f", of the last 1,000 requests{begun(period)}"
    between = ""
    if period.least_rate is not None and period.most_rate is not None and period.least_rate != period.most_rate:
        between = f" (from {rate(period.least_rate)} to {rate(period.most_rate)})"
    return f"{rate(period.last_rate)} at the end{of}{between}{named}"


def _engine(name: str | None) -> str:
    return "" if name is None else f", engine {name}"


def _throughput(period: SamplePeriod) -> tuple[str, str]:
    each = period.seconds / period.busy
    how = f"throughput x {each:.0f} s" if abs(each - round(each)) < 0.05 else "throughput x time"
    if period.computed_tokens is not None:
        off = f" ± {number(period.within)}" if period.within else ""
        return "computed", f"about {count(period.computed_tokens, 'prompt token')}{off} ({how})"
    if period.prompt_tokens is not None:
        return "prompts", f"about {count(period.prompt_tokens, 'token')}, including reused tokens ({how})"
    return "computed", "unknown: whether throughput includes reused tokens depends on the version"


# ---- SGLang: batches


def _of_batches(periods: list[BatchPeriod]) -> Said:
    batches = sum(p.batches for p in periods)
    new, cached = sum(p.new_tokens for p in periods), sum(p.cached_tokens for p in periods)
    words = "1 prefill batch" if batches == 1 else f"{number(batches)} prefill batches"
    reused = f"{count(cached, 'token')} reused"
    if cached + new:
        reused = f"{percent(cached, cached + new)} reused ({count(cached, 'token')})"
    found = [("batches", f"{words}: {reused}, {number(new)} computed")]
    wholes, longest = sum(p.wholes for p in periods), [p.largest_prompt for p in periods if p.largest_prompt]
    if wholes:
        most = f", the longest has {count(max(longest), 'token')}" if longest else ""
        cold = sum(p.cold for p in periods)
        nothing = (
            f"; {number(cold)} of these requests reused nothing" if cold else "; all of these requests reused something"
        )
        found.append(("prompts", f"known for {count(wholes, 'request')} that ran alone{most}{nothing}"))
    memory = _memory(periods)
    return [*found, ("memory", memory)] if memory else found


def _memory(periods: list[BatchPeriod]) -> str:
    found = []
    for name, words in (("token_usage", "KV pool"), ("swa_usage", "SWA pool"), ("mamba_usage", "Mamba pool")):
        known = [value for value in (getattr(p, name) for p in periods) if value is not None]
        if known:
            found.append(f"{words} up to {rate(max(known))} in use")
    retracted = sum(p.retracted for p in periods)
    if found or retracted:
        found.append(f"{count(retracted, 'request')} retracted")
    return ", ".join(found)


# ---- beside a log


def _counted(c: Counters) -> str:
    """What dumps of /metrics say; a difference of two when there are two."""
    since = f"since {c.since}" if c.since is not None else "since the start of the server"
    found = []
    if c.looked_up is not None:
        found.append(f"{count(c.looked_up, 'token')} looked up")
    elif c.prompt_tokens is not None:
        found.append(count(c.prompt_tokens, "prompt token"))
    if c.reused is not None:
        whole = c.looked_up if c.looked_up is not None else c.prompt_tokens
        found.append(f"{number(c.reused)} reused" + (f" ({percent(c.reused, whole)})" if whole else ""))
    if c.looked_up == 0 and c.prompt_tokens:
        found.append(f"although {count(c.prompt_tokens, 'prompt token')} were sent")
    if c.computed is not None:
        found.append(f"{number(c.computed)} computed")
    found += _tiers(c)
    if c.cached_external and not c.cached_by_tier:
        found.append(f"{number(c.cached_external)} came from an external cache")
    if c.external_looked_up:
        found.append(f"{number(c.external_looked_up)} looked up in an external cache")
        found += [f"{number(c.external_reused)} found there"] if c.external_reused is not None else []
    if c.evicted is not None:
        found.append(f"{number(c.evicted)} evicted")
    if c.preemptions is not None:
        found.append(count(c.preemptions, ENGINES[c.source].preemption if c.source in ENGINES else "preemption"))
    said = ", ".join(found) or "no prefix cache counters in the dump"
    return f"{c.path} {since}{_engine(c.engine)}: {said}"


_TIERS = {
    "device": "in GPU memory",
    "host": "in host memory",
    "disk": "on disk",
    "p2p": "with another server",
    "external_unspecified": "outside, place unknown",
    "storage": "in storage",
}
"""Where reused tokens were found, by the name that the server gives to it."""


def _tiers(c: Counters) -> list[str]:
    """Where reused tokens were found, unless all were in the memory of the GPU, as they are without other tiers."""
    known = {tier: tokens for tier, tokens in c.cached_by_tier.items() if tokens}
    if not known.keys() - {"device"}:
        return []
    first, *others = (f"{number(tokens)} {_TIERS.get(tier, f'in {tier}')}" for tier, tokens in known.items())
    return [f"found {first}", *others]


_ROWS = {
    "evicted": "stored again after eviction",
    "emptied": "stored again after the cache was emptied",
    "changed": "after a different beginning",
    "salted": "under another salt, adapter or image",
    "routed": "on a different engine",
    "present": "although they were cached",
    "new": "new",
}
_DOUBTS = {
    "groups": "cannot tell why blocks were stored: different kinds of layers have separate blocks",
    "tiers": "cannot tell why blocks were stored: some are restored from slower memory",
    "names": "cannot tell why blocks were stored: the hashes of this version do not include the text before a block",
}


def _published(events: KvEvents) -> str:
    """What recorded KV events say of the blocks that were stored."""
    rows = [f"{number(tokens)} {words}" for name, words in _ROWS.items() if (tokens := getattr(events, name))]
    gaps = []
    if events.missing:
        gaps.append(f"{count(events.missing, 'message')} missing")
    if events.late:
        gaps.append("the recording began after the server start")
    if events.unread:
        gaps.append(f"{count(events.unread, 'message')} not read")
    if events.forgotten:
        gaps.append(f"{count(events.forgotten, 'block')} no longer tracked")
    if events.restarts:
        gaps.append(count(events.restarts, "restart"))
    said = f"{count(events.stored, 'token')} computed and stored in blocks" + (f": {', '.join(rows)}" if rows else "")
    if events.doubt:
        said = _DOUBTS[events.doubt]
    return (
        f"{events.path}, {count(events.messages, 'message')} of KV events{''.join(f', {gap}' for gap in gaps)}: {said}"
    )


def _answered(answers: Answers) -> str:
    words = count(answers.requests, "request")
    if not answers.told:
        silent = "the lines of the log do" if answers.source == "log" else "the responses do"
        return f"{words}; reuse unknown: {silent} not show it"
    some = f", {number(answers.told)} of them with counts" if answers.told < answers.requests else ""
    share = f" ({percent(answers.cached_tokens, answers.prompt_tokens)})" if answers.prompt_tokens else ""
    return (
        f"{words}{some}: {count(answers.prompt_tokens, 'prompt token')}, {number(answers.cached_tokens)} reused{share}"
    )
