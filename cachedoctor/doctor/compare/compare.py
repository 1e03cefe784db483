"""Compares two reports: settings, traffic, findings, reuse and time, and how certain that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import cachedoctor
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.run import drive, source_of
from cachedoctor.doctor.compare import metrics
from cachedoctor.doctor.compare.metrics import Measured, read_measured
from cachedoctor.doctor.compare.reports import is_report, read_whole, without_requests
from cachedoctor.doctor.compare.tally import Tally
from cachedoctor.doctor.scratch import printable
from cachedoctor.doctor.stored_fleet import StoredFleet, is_fleet
from cachedoctor.inputs.sources.base import Told, unheard
from cachedoctor.knowledge import builds
from cachedoctor.model import (
    SEVERITY_ORDER,
    Change,
    ComparedSide,
    Comparison,
    Difference,
    Finding,
    FindingChange,
    FindingSide,
    NotEvaluated,
    Report,
    Session,
)
from cachedoctor.report.words import traffic_words

_LENGTH = 1.25
"""From this factor on prompts are called longer or shorter, and conversations too."""
_SPEED = 1.2
_MOST = 12
"""Settings that are named."""
_UNKNOWN = "unknown"

_FACTS: dict[str, tuple[Callable[[Session], Any], str]] = {
    "build": (
        lambda s: builds.describe(s.build, s.build_min, s.build_max),
        "different builds reuse and log differently",
    ),
    "model": (lambda s: s.model, "different models: times and tokens are not comparable"),
    "memory": (lambda s: s.memory, "different kinds of memory can go back to different positions"),
    "slots": (lambda s: s.n_slots, ""),
    "context of a slot": (lambda s: s.n_ctx_slot, ""),
}


def differences(before: Report, after: Report, old: Tally, new: Tally) -> list[Difference]:
    """Name what differs; the servers first, then the traffic."""
    return [*_servers(before, after), *_traffic(old, new)]


def _servers(before: Report, after: Report) -> Iterator[Difference]:
    sessions = [report.sessions for report in (before, after)]
    for name, (fact, caveat) in _FACTS.items():
        was, now = (_values([fact(s) for s in some]) for some in sessions)
        same = name == "build" and _same_builds(*sessions)
        if was != now and _UNKNOWN not in (was, now) and not same:
            yield Difference(name, was, now, caveat)
    names = dict.fromkeys(name for some in sessions for s in some for name in s.settings if name != "restarted")
    changed = []
    for name in names:
        was, now = (_values([_setting(s, name) for s in some]) for some in sessions)
        if was != now and _UNKNOWN not in (was, now):
            changed.append(Difference(name, was, now, ""))
    yield from changed[:_MOST]


def _setting(session: Session, name: str) -> object:
    found = session.settings.get(name)
    return None if found is None else found.value


def _same_builds(before: Sequence[Session], after: Sequence[Session]) -> bool:
    """Whether every server of either side may be of the same build as one of the other side."""
    old, new = ([_range(session) for session in some] for some in (before, after))
    return all(any(_overlap(a, b) for b in new) for a in old) and all(any(_overlap(a, b) for a in old) for b in new)


def _range(session: Session) -> tuple[float, float]:
    """Builds that the server may be of."""
    return session.build or session.build_min or 0, session.build or session.build_max or math.inf


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return max(one[0], other[0]) <= min(one[1], other[1])


def _values(found: list[Any]) -> str:
    """Say all values that there are; what a log does not show is unknown, which is not a difference."""
    known = dict.fromkeys(str(value) for value in found if value is not None)
    shown = list(known)[:3]
    return ", ".join(shown + [f"and {len(known) - 3} more"] * (len(known) > 3)) or _UNKNOWN


def _traffic(old: Tally, new: Tally) -> Iterator[Difference]:
    if _apart(old.median_length, new.median_length, _LENGTH):
        caveat = "prompts of different length alone can change tokens and times per request"
        yield Difference("median prompt", _tokens_config_diff(old), _tokens_config_diff(new), caveat)
    was, now = _turns(old), _turns(new)
    if _apart(was, now, _LENGTH):
        caveat = "first requests have less to reuse, so compare the reuse of later requests"
        yield Difference("requests per conversation", f"{was:.1f}", f"{now:.1f}", caveat)
    was, now = _share(old), _share(new)
    if abs(was - now) > 1 - 1 / _LENGTH:
        caveat = "requests with unknown reuse may differ from the other requests"
        yield Difference("requests with unknown reuse", f"{was:.0%}", f"{now:.0%}", caveat)
    was, now = _speed(old), _speed(new)
    if _apart(was, now, _SPEED):
        caveat = "a machine of different speed alone can change times"
        yield Difference("computed prompt tokens per second", f"{was:,.0f}", f"{now:,.0f}", caveat)


def _apart(was: float | None, now: float | None, factor: float) -> bool:
    return bool(was and now) and max(was or 0, now or 0) > factor * min(was or 0, now or 0)


def _tokens_config_diff(tally: Tally) -> str:
    return f"{tally.median_length or 0:,.0f} tokens"


def _turns(tally: Tally) -> float:
    return tally.all.requests / tally.conversations if tally.conversations else 0.0


def _share(tally: Tally) -> float:
    return tally.unknown / tally.requests if tally.requests else 0.0


def _speed(tally: Tally) -> float:
    return tally.all.ms_processed / tally.all.ms * 1000 if tally.all.ms else 0.0


_CHANCE = 0.05
"""Probability that the new requests miss a finding by chance, above which it may still be there."""
_ORDER: tuple[Change, ...] = ("came", "stayed", "went", "hidden", "revealed")
_Code = tuple[str, str]


def report_of(path: str, build: int | None, max_unpacked: int, told: Told = unheard) -> Report:
    """Return the report at ``path``, or that of the log or of the fleet there.

    Args:
        build: of a log that does not say it.
        max_unpacked: bytes that a log may unpack to.
        told: hears of bytes as they are read.

    Raises:
        CacheDoctorError: it cannot be read at all.
    """
    if is_report(path):
        return read_whole(path, told)
    if path != "-" and is_fleet(path):
        return _fleet(path)
    analyzer = Analyzer(build)
    error = drive(analyzer, source_of(path, max_unpacked, told))
    report = analyzer.finish()
    if error is not None and not any(i.lines for i in report.inputs):
        raise error
    return report


def _fleet(path: str) -> Report:
    """One report of all logs of a fleet."""
    from cachedoctor.report.tables.table_writer import require_polars

    require_polars("the result of a fleet")
    return StoredFleet(path).report()


def compare(before: Report, after: Report, names: tuple[str, str]) -> Comparison | None:
    """Compare two reports; ``names`` are those of the two inputs.

    None where they have nothing alike.
    """
    old, new = Tally(before), Tally(after)
    bare = [without_requests(report) and not tally.rows for report, tally in ((before, old), (after, new))]
    both = read_measured(before, after) if all(bare) else None
    if any(bare) and both is None:
        return None
    found = metrics.measures(old, new) if both is None else metrics.compare_measured(*both)
    was, now = both or (None, None)
    return Comparison(
        cachedoctor.__version__,
        _side(before, old, names[0], was),
        _side(after, new, names[1], now),
        found[0].verdict,
        found[0].why,
        found,
        _findings(before, after, old, new, both is not None),
        differences(before, after, old, new),
    )


def _side(report: Report, tally: Tally, name: str, found: Measured | None) -> ComparedSide:
    error = next((i.error for i in report.inputs if i.error is not None), None)
    servers = list(dict.fromkeys(_server(s) for s in report.sessions))
    sums = tally.all
    side = ComparedSide(
        printable(name), error, servers, tally.requests, tally.unknown, tally.conversations,
        sums.prompt, sums.cached, sums.processed, round(sums.ms, 3), tally.median_length,
        pieces=tally.conversations,
    )  # fmt: skip
    if found is None:
        return side
    side.piece, side.pieces = found.piece, found.pieces
    if found.piece != "rate":
        side.prompt_tokens = round(sum(term.lower for term in found.terms))
        side.cached_tokens = round(sum(term.upper for term in found.terms))
        side.processed_tokens = side.prompt_tokens - side.cached_tokens
    return side


def _server(session: Session) -> str:
    parts = [f"{session.engine} {traffic_words.version(session)}"]
    if session.memory:
        parts.append(f"{session.memory} memory")
    if session.n_slots:
        parts.append(f"{session.n_slots:,} slot{'' if session.n_slots == 1 else 's'}")
    return ", ".join([*parts, *([session.model] if session.model else [])])


# ---- findings


class _VisibleSide(NamedTuple):
    """What one side could have shown, and did."""

    report: Report
    requests: int
    """Children included, as findings count them."""
    has_traffic: bool
    """There are requests, or measurements of them."""
    findings: dict[_Code, FindingSide]


def _findings(before: Report, after: Report, old: Tally, new: Tally, is_measured: bool) -> list[FindingChange]:
    sides = [
        _VisibleSide(report, tally.rows, is_measured or bool(tally.rows), _by_code(report, tally.rows))
        for report, tally in ((before, old), (after, new))
    ]
    changes = [_change(code, *sides) for code in {**sides[0].findings, **sides[1].findings}]
    return sorted(
        changes,
        key=lambda c: (_ORDER.index(c.change), -max(_tokens_compare(c.before), _tokens_compare(c.after)), c.code),
    )


def _tokens_compare(side: FindingSide | None) -> int:
    return side.tokens if side is not None else 0


def _by_code(report: Report, requests: int) -> dict[_Code, FindingSide]:
    """Findings of one code are one: what parts them (the server, the input) has other names on the other side."""
    groups: dict[_Code, list[Finding]] = {}
    for finding in report.findings:
        groups.setdefault((finding.code, finding.name), []).append(finding)
    return {code: _finding_side(found, requests) for code, found in groups.items()}


def _finding_side(found: list[Finding], requests: int) -> FindingSide:
    times = [f.cost.ms for f in found if f.cost.ms is not None]
    return FindingSide(
        severity=max((f.severity for f in found), key=lambda s: SEVERITY_ORDER[s]),
        count=sum(f.count for f in found),
        requests=requests,
        tokens=sum(f.cost.tokens for f in found),
        ms=round(sum(times), 3) if times else None,
        claims=[f.claim for f in found],
        of="requests" if any(f.requests for f in found) else "servers",
    )


def _change(code: _Code, before: _VisibleSide, after: _VisibleSide) -> FindingChange:
    old, new = before.findings.get(code), after.findings.get(code)
    if old is not None and new is not None:
        return FindingChange("stayed", *code, old, new, True, "", "")
    seen, missing, other = (old, after, "AFTER") if old is not None else (new, before, "BEFORE")
    unseen = _unseen(code[0], missing)
    if unseen is not None:
        change: Change = "hidden" if old is not None else "revealed"
        return FindingChange(
            change, *code, old, new, False, f"{other} could not show this finding: {unseen.reason}", unseen.enable
        )
    note = _chance(seen, missing.requests, other)
    return FindingChange("went" if old is not None else "came", *code, old, new, not note, note, "")


def _unseen(code: str, side: _VisibleSide) -> NotEvaluated | None:
    """Why the report could not have had this finding; None when it could."""
    report = side.report
    if code in report.ignored:
        return NotEvaluated(
            code, "", "the rule was switched off when the report was written", "analyze its log again with this rule"
        )
    found = next((rule for rule in report.not_evaluated if rule.code == code), None)
    if found is not None:
        return found
    if not any(rule.code == code for rule in report.rules):
        reason = f"cachedoctor {report.tool_version}, which wrote the report, did not have this rule"
        return NotEvaluated(code, "", reason, "analyze its log again")
    if not side.has_traffic:
        return NotEvaluated(code, "", "the input has no requests", "")
    return None


def _chance(seen: FindingSide | None, requests: int, other: str) -> str:
    """Say so when as few ``requests`` would miss a finding of this rate by chance."""
    if seen is None or seen.of == "servers" or not seen.requests:
        return ""
    rate = min(1.0, seen.count / seen.requests)
    if (1 - rate) ** requests <= _CHANCE:
        return ""
    few = "1 request" if requests == 1 else f"{requests:,} requests"
    hit = f"the finding affected {min(seen.count, seen.requests):,} of {seen.requests:,} requests"
    return f"may be chance: {hit}, and {other} has only {few}"
