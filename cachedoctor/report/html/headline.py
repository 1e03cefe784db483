"""The first thing that is read: what it cost, and the main cause in plain words. Knows the Report's sums."""

from __future__ import annotations

from dataclasses import dataclass

from cachedoctor.model import Report, Totals
from cachedoctor.report.html import html_measured
from cachedoctor.report.html.axis import box
from cachedoctor.report.html.token_split import KINDS, Tokens
from cachedoctor.report.words import slow_words
from cachedoctor.report.words.coverage import checked, undecided
from cachedoctor.report.words.filter_words import filtered
from cachedoctor.report.words.measurements import measures
from cachedoctor.report.words.numbers import count, duration, number, percent, unknown_lengths
from cachedoctor.report.words.sentences import capital
from cachedoctor.report.words.server_words import LLAMA
from cachedoctor.report.words.verdicts import healthy, leading

WIDTH = 1000


@dataclass(slots=True)
class Headline:
    """Words and the bar under them."""

    title: str
    lead: str
    tiles: list[tuple[str, str, str]]
    """Name, number, share or time."""
    bar: list[tuple[str, str, str, str, str]]
    """Kind, its piece of the bar, words, number, share."""
    note: str
    """How recomputed and avoidable go together, where they differ."""


def headline(report: Report, split: Tokens) -> Headline:
    """Say it in one sentence.

    Args:
        split: the prompt tokens of all requests that the totals count.
    """
    if not report.totals.requests and any(map(measures, report.sessions)):
        return Headline(html_measured.title(report), _checked(report), html_measured.tiles(report), [], "")
    title, lead = _title(report)
    if report.filtered is not None:  # sums are of the whole log, requests are not
        return Headline(title, lead, _tiles(report.totals), [], "")
    if any(session.engine != LLAMA for session in report.sessions):
        lead += " What servers of other engines measured stands below."
    return Headline(title, lead, _tiles(report.totals), _bar(split), _note(report.totals, split))


def _checked(report: Report) -> str:
    """What stands under measurements."""
    if report.findings:
        return "The log has measurements and no requests: the findings below are about the server as a whole."
    if undecided(report):
        return undecided(report)
    said = checked(report)
    return f"No findings. {said[:1].upper()}{said[1:]}."


def _title(report: Report) -> tuple[str, str]:
    t = report.totals
    if not t.requests:
        return "No requests in this log", "Nothing was checked: a log is read from where requests are in it."
    if not t.prompt_tokens:
        return (
            f"{count(t.requests, 'request')}, but {unknown_lengths(t.requests)}",
            "What would make it say so stands under “What this log cannot show”.",
        )
    if report.filtered is not None and not report.findings:
        return "No findings in what is shown", filtered(report)
    if t.avoidable_tokens:
        return (
            f"{count(t.avoidable_tokens, 'prompt token')} were computed again without need",
            _saved(t),
        )
    reused = percent(t.cached_tokens, t.prompt_tokens)
    if undecided(report) and not report.findings:
        return "Cannot tell whether the cache was lost", undecided(report).removeprefix("Cannot tell: ")
    if leading(report):
        return f"{reused} of the prompt tokens were reused", "The findings below cost no tokens that could be counted."
    blind = len({rule.code for rule in report.not_evaluated})
    left = f" {count(blind, 'rule')} could not be evaluated." if blind else ""
    said, turn = healthy(report), next(iter(report.slowest), None)
    words = "" if said is None else f"{capital(said.sentence)}."
    slow = f" Slowest turn: {slow_words.split(turn)}; {slow_words.reason(turn, report)}." if turn is not None else ""
    none = "No cause found" if report.findings else "No findings"
    return f"{none}: {reused} of the prompt tokens were reused", f"{words}{left}{slow}"


def _saved(t: Totals) -> str:
    share = f"That is {percent(t.avoidable_tokens, t.prompt_tokens)} of all prompt tokens"
    if not t.avoidable_ms:
        return f"{share}."
    of = f", {percent(min(t.avoidable_ms, t.prompt_ms), t.prompt_ms)} of all prompt time" if t.prompt_ms else ""
    return f"{share} and {duration(t.avoidable_ms)}{of}."


def _note(t: Totals, split: Tokens) -> str:
    if not 0 < t.avoidable_tokens < split.recomputed:
        return ""
    return (
        f"The findings account for {number(t.avoidable_tokens)} of the {count(split.recomputed, 'recomputed token')}."
    )


def _tiles(t: Totals) -> list[tuple[str, str, str]]:
    tiles = [("Requests", number(t.requests), "")]
    if not t.prompt_tokens:
        return tiles
    spent = f" in {duration(t.prompt_ms)}" if t.prompt_ms else ""
    time = f" · {duration(t.avoidable_ms)}" if t.avoidable_ms else ""
    return [
        *tiles,
        ("Prompt tokens", number(t.prompt_tokens), "sent by clients"),
        ("Reused", number(t.cached_tokens), percent(t.cached_tokens, t.prompt_tokens)),
        ("Computed", *_computed(t, spent)),
        ("Avoidable", number(t.avoidable_tokens), percent(t.avoidable_tokens, t.prompt_tokens) + time),
    ]


def _computed(t: Totals, spent: str) -> tuple[str, str]:
    """Figure and caption of what was computed; what the log does not tell is no 0."""
    known = percent(t.processed_tokens, t.prompt_tokens) + spent
    if not t.unknown_tokens:
        return number(t.processed_tokens), known
    rest = f"unknown of {number(t.unknown_tokens)}: {count(t.unknown_requests, 'request')} without timings"
    return (number(t.processed_tokens), f"{known} · {rest}") if t.processed_tokens else ("unknown", rest)


def _bar(split: Tokens) -> list[tuple[str, str, str, str, str]]:
    if not split.prompt:
        return []
    pieces, x = [], 0.0
    for (kind, words), amount in zip(KINDS.items(), split, strict=True):
        wide = WIDTH * amount / split.prompt
        if amount:
            pieces.append((kind, box(x, 0, wide, 28), words, number(amount), percent(amount, split.prompt)))
        x += wide
    return pieces
