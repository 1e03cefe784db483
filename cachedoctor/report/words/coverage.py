"""What the rules checked without a finding: requests of one engine, measurements of another."""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.knowledge.decision import Wanted, deciding
from cachedoctor.knowledge.engines import ENGINES
from cachedoctor.model import Answers, BatchPeriod, Period, Report, RequestRow, SamplePeriod, Totals
from cachedoctor.report.words.measurements import RATES_ALONE, has_rates_alone, looked_at
from cachedoctor.report.words.numbers import count, number, percent
from cachedoctor.report.words.traffic_words import LLAMA, account_parts, program, rules_of, whole


def checked(report: Report) -> str:
    """Say how many rules checked what; empty if there was nothing to check."""
    parts = []
    if report.totals.requests:
        parts.append(f"{_rules(report, LLAMA)} checked {count(report.totals.requests, 'request')}")
    for name in dict.fromkeys(s.engine for s in report.sessions if s.engine != LLAMA):
        sessions = [s for s in report.sessions if s.engine == name]
        seen, called = looked_at(sessions), program(sessions[0])
        known = rules_of(name, {rule.code for rule in report.rules})
        words = f"{_rules(report, name)} for {called} checked {seen}"
        parts.append(words if known else f"No rule covers {called} ({seen})")
    return "; ".join(parts)


class CannotTell(NamedTuple):
    """Why requests could not be assessed, and what would help."""

    why: str
    give: str
    missing: list[str]
    """Log lines of these builds that would decide, the most conclusive first; empty if none is known."""
    others: str
    """What was found in what could be checked; empty without any."""
    partly: bool = False
    """True if it can be decided for other requests."""
    alone: bool = True
    """True if there is nothing to compare with: reuse can only be seen in a second request."""

    @property
    def sentence(self) -> str:
        """All of it in sentences."""
        missing = f" Missing here: {'; '.join(self.missing)}." if self.missing else ""
        share = "; reuse can only be seen in a second request" if self.alone else ""
        said = f"Cannot tell{' for' if self.partly else ':'} {self.why}{share}. {self.give}"
        return " ".join(filter(None, (said + missing, self.others)))


def cannot_tell(report: Report) -> CannotTell | None:
    """Return why requests could not be assessed; None if some could, or if a finding says it."""
    requests, judged = report.totals.requests, report.totals.judged_requests
    if not report.findings and (nothing := _nothing_reused(report)):
        return nothing
    if too_little(report) and not report.findings:
        return _incomparable(report)
    if not requests and not report.findings and not _has_measurements(report):
        words = checked(report)
        others = f"{words} and found nothing." if words else ""
        if any(info.bytes > _LONGEST_ROW * max(info.lines, 1) for info in report.inputs):
            lost = "the input is one long row, so nothing was checked: its line breaks are lost"
            return CannotTell(lost, _BREAKS, [], others, alone=False)
        return CannotTell("no requests in the input, so nothing was checked", _REQUESTS, [], others, alone=False)
    if not requests or judged is None:
        return None
    if only_short(report) and not report.findings:
        return _too_short(report)
    if not judged:
        if report.undecided and all(row.held_tokens == 0 and not row.cached_tokens for row in report.undecided):
            why = f"{count(requests, 'request')}, cold: the slot was empty, so nothing could be reused"
            return CannotTell(why, _NEXT, [], "", alone=False)
        missing = (
            "the previous request is missing"
            if requests == 1
            else ("no request has both its predecessor and its result in the log")
        )
        return CannotTell(f"{count(requests, 'request')}; {missing}", _GIVE, _missing(report), "")
    left_open = report.totals.open_requests or 0
    if report.findings or left_open < _LEFT_OPEN * requests:
        return None
    why = f"{number(left_open)} of {count(requests, 'request')}: the previous request is not in this log"
    return CannotTell(why, _GIVE, _missing(report), f"{checked(report)} and found nothing in the other requests.", True)


def nothing_checked(report: Report) -> bool:
    """Whether no request was checked for what it could have reused, and nothing measured can be compared."""
    if report.totals.requests:
        return report.totals.judged_requests == 0 or only_short(report)
    return not _has_measurements(report) or too_little(report)


def only_short(report: Report) -> bool:
    """Whether every request was too short to check, and none reused anything."""
    totals = report.totals
    return bool(totals.judged_requests) and totals.checked_requests == 0 and not totals.cached_tokens


def _has_measurements(report: Report) -> bool:
    """Whether something other than requests shows how prompts were served."""
    return any(s.periods or s.answers or s.counters or s.kv_events for s in report.sessions)


def _too_short(report: Report) -> CannotTell:
    totals = report.totals
    few = "1 request, which is" if totals.requests == 1 else f"{count(totals.requests, 'request')}, all"
    why = f"{few} shorter than {count(totals.short_below or 0, 'token')}: too short to check"
    return CannotTell(why, _LONGER, [], "", alone=False)


def too_little(report: Report) -> bool:
    """Whether nothing was measured that shows reuse: one interval or batch, which is nothing to compare, or none with
    traffic; or only requests with unknown reuse, or a single one that reused little."""
    if report.totals.requests or not report.sessions:
        return False
    if any(s.engine == LLAMA or s.counters or s.kv_events for s in report.sessions):
        return False
    answers = [a for s in report.sessions for a in s.answers]
    if answers:
        first = sum(a.requests for a in answers) == 1 and all(_is_mostly_computed(a) for a in answers)
        return (first or not any(a.told for a in answers)) and not any(s.periods for s in report.sessions)
    periods = [period for s in report.sessions for period in s.periods]
    if not periods:
        return False
    return max(map(_amount, periods)) <= 1 or _no_rates(report)


def _is_mostly_computed(answers: Answers) -> bool:
    """Whether more was computed than reused, which the prompt before may explain, or not."""
    return 2 * answers.cached_tokens < answers.prompt_tokens or not answers.cached_tokens


def _no_rates(report: Report) -> bool:
    """Whether vLLM had traffic, and no line of it prints how much was reused."""
    samples = [period for s in report.sessions for period in s.periods if isinstance(period, SamplePeriod)]
    return any(period.busy for period in samples) and not any(period.rates for period in samples)


def _nothing_reused(report: Report) -> CannotTell | None:
    """Return that batches of several long prompts reused almost nothing, for a reason that no rule could find."""
    periods = [period for s in report.sessions for period in s.periods if isinstance(period, BatchPeriod)]
    if report.totals.requests or any(s.counters or s.answers or s.kv_events for s in report.sessions):
        return None
    computed, reused = sum(period.new_tokens for period in periods), sum(period.cached_tokens for period in periods)
    many = sum(period.seqs for period in periods) >= _MANY and computed >= _MUCH
    if not many or reused > _LITTLE * (computed + reused):
        return None
    little = f"another {number(reused)} reused" if reused else "none of these were reused"
    return CannotTell(
        f"{looked_at(report.sessions)}, {number(computed)} tokens{' computed' if reused else ''}, {little}",
        "To be sure, give the log from the server start, which shows whether the cache is on, and the request "
        "bodies. Prompts without a common beginning reuse nothing, which is fine.",
        [],
        f"The available lines were checked: {checked(report)} and found nothing.",
    )


def _amount(period: Period) -> int:
    """Intervals with traffic, or the requests of prefill batches."""
    return period.busy if isinstance(period, SamplePeriod) else max(period.batches, period.seqs)


def _incomparable(report: Report) -> CannotTell:
    """Say that nothing shows reuse, what was checked anyway, and what would help."""
    engines = dict.fromkeys(session.engine for session in report.sessions)
    what = ", ".join(looked_at([s for s in report.sessions if s.engine == engine]) for engine in engines)
    blind = len({rule.code for rule in report.not_evaluated})
    left = f", {count(blind, 'rule')} could not be checked" if blind else ""
    looked = checked(report)
    others = (
        "" if looked.startswith("No rule") else f"The available lines were checked: {looked} and found nothing{left}."
    )
    if any(a.told for s in report.sessions for a in s.answers):
        return CannotTell(f"{what}; the previous request is missing", _BEFORE, [], others)
    if any(s.answers for s in report.sessions):
        return CannotTell(f"{what}, but no line shows how much was reused", _USAGE, [], others, alone=False)
    if _no_rates(report):
        hints = "".join(f"; {hint}" for name in engines if name in ENGINES and (hint := ENGINES[name].rates_hint))
        why = f"{what}, but no line shows a hit rate{hints}"
        return CannotTell(why, _TRAFFIC, [], others, alone=False)
    if any(map(has_rates_alone, report.sessions)):
        return CannotTell(RATES_ALONE, _THROUGHPUT, [], others, alone=False)
    if not any(_amount(period) for s in report.sessions for period in s.periods):
        what = "no prompt was computed in these lines, so nothing could be reused"
        return CannotTell(what, _TRAFFIC, [], others, alone=False)
    return CannotTell(f"{what}, but there is no earlier traffic to compare with", _TRAFFIC, [], others)


def _missing(report: Report) -> list[str]:
    """Name the lines of these builds that would decide; nothing for a fork, which has words of its own."""
    sessions = {session.index: session for session in report.sessions}
    said: dict[str, None] = {}
    for row in report.undecided:
        session = sessions.get(row.session)
        if session is None or session.program is not None:
            continue
        low, high = (session.build_min, session.build_max) if session.build is None else (session.build, session.build)
        said |= {deciding(wanted, low, high): None for wanted in _lacking(row)}
    return list(said)


def _lacking(row: RequestRow) -> list[Wanted]:
    """Numbers of a request that are unknown, the most important first."""
    lacks: dict[Wanted, bool] = {
        "before": row.reference_tokens is None or row.outcome == "cold",
        "choice": row.selected_by is None and row.common_prefix_tokens is None,
        "prompt": row.prompt_tokens is None,
        "reused": row.cached_tokens is None,
        "end": row.outcome == "cancelled" and not _is_timed(row),
    }
    return [wanted for wanted, is_lacking in lacks.items() if is_lacking]


def _is_timed(row: RequestRow) -> bool:
    """Whether the row with its prompt time was read; it prints nan for a prompt of which nothing was computed."""
    return row.prompt_ms is not None or (row.processed_tokens is not None and "processed_tokens" not in row.derived)


_MANY = 4
"""Requests: the first is always cold, and two or three more may each begin a conversation of their own."""
_LITTLE = 0.01
"""Share of the prompt tokens: the first token or two of every prompt are equal, and reusing them means nothing."""
_MUCH = 10_000
"""Tokens: if fewer were computed in total, it does not matter why."""
_LEFT_OPEN = 0.1
"""Share of requests that cannot be assessed: above it, the other requests say little about the server."""
_BEFORE = "To be sure, give the log from the previous request on, or better the whole log."
_TRAFFIC = (
    "To be sure, give a few minutes of log with traffic, or better the whole log, or dumps of /metrics from before "
    "and after the traffic."
)
_THROUGHPUT = 'To be sure, also give the rows "Avg prompt throughput: ...", which are above the rows of the hit rate.'
_NEXT = "To be sure, also give the lines of the next turn of the same conversation."
_LONGEST_ROW = 2_000
"""Average bytes per row that no server's output reaches."""
_BREAKS = "To be sure, give the log with its line breaks: the file itself, or a copy from the terminal."
_REQUESTS = "To be sure, give the log lines of some requests, or better the whole log."
_LONGER = (
    "To be sure, give the lines of a long prompt and of the previous prompt. Prompts shorter than "
    "min-prompt-tokens are "
    "not checked."
)
_USAGE = "To be sure, give log lines that show the reuse, or pass the responses with usage (--responses)."
_GIVE = (
    'To be sure, give the last two turns, from the line "selected slot" before the previous answer to the end, '
    "or better the whole log."
)


def _rules(report: Report, name: str) -> str:
    closed = {rule.code for rule in report.not_evaluated}.union(report.ignored)
    return count(len(rules_of(name, {rule.code for rule in report.rules}) - closed), "rule")


CUT = "CD902"
"""Code of the finding that only reports a truncated log."""
_FEW_LOST = 0.01
"""Maximum lost share of the prompt tokens at which the cache is reported as working."""
_SMALL = frozenset({"reused", "new", "rounding"})
"""Rows of the account that no fix can change."""


class Healthy(NamedTuple):
    """Statement for a report without a cause."""

    key: str
    words: str

    @property
    def sentence(self) -> str:
        """Key and words, for words that are incomplete without the key."""
        return f"{self.key} {self.words}" if self.key == "no cause" else self.words


def healthy(report: Report, looked: str) -> Healthy | None:
    """Say what the cache did where no cause was found; None if there were no requests to look at.

    ``looked``: the result of ``checked``.
    """
    totals, account = report.totals, whole(report)
    if report.filtered is not None:
        return None  # the sums are of the whole log
    if not totals.requests or account is None:
        return Healthy("no findings", looked) if looked else None
    rows = account_parts(account)
    lost = sum(part.tokens for part in rows if part.row not in _SMALL)
    new = sum(part.tokens for part in rows if part.row == "new")
    open_ = max(account.not_placed, totals.open_requests or 0)
    left = f"; unknown for {count(open_, 'request')}" if open_ else ""
    cut = sum(finding.count for finding in report.findings if finding.code == CUT)
    left += f"; {count(cut, 'request')} {'is' if cut == 1 else 'are'} incomplete in this log" if cut else ""
    if lost > _FEW_LOST * account.prompt_tokens:
        words = ", ".join(f"{percent(part.tokens, account.prompt_tokens)} {part.words}" for part in rows)
        return Healthy("no cause", f"causes of the computed tokens: {words}{left}")
    key = "cache works"
    if cut == totals.requests and not totals.prompt_ms:
        key, left = (
            "so far",
            f"; this log does not show the end of {'the' if cut == 1 else 'any'} request, or whether it failed",
        )
    rounding = sum(part.tokens for part in rows if part.row == "rounding")
    text = f"{number(new)} computed tokens were new text" + (
        f", and {count(rounding, 'unchanged token')} had to be recomputed too" if rounding else ""
    )
    if not lost:
        return Healthy(key, f"{_every(totals)}: {text}{left}")
    few = f"{number(lost)} of {count(account.prompt_tokens, 'prompt token')}"
    share = percent(lost, account.prompt_tokens)
    return Healthy(key, f"{text}; {few} ({share}) were lost, too few for a finding{left}")


def _every(totals: Totals) -> str:
    if totals.requests == 1:
        return "the request reused all it could"
    return "every request reused all it could" if totals.cached_tokens else "no request had anything to reuse"
