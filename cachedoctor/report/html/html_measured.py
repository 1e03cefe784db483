"""What logs without requests measured, for the page: its words, tables and drawings, and the first thing that is read.

Goes through samples and batches once and keeps what drawings need. Decides no words of what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from cachedoctor.model import BatchPeriod, CacheSample, PrefillBatch, Report, Rows, SamplePeriod, Session
from cachedoctor.report.html.reuse_chart import ChartSeries, Drawing
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words import traffic_words
from cachedoctor.report.words.measured_table import Grid, rate
from cachedoctor.report.words.measurements import Said, grid, largest, measures, said
from cachedoctor.report.words.numbers import number, percent

MOST = 5
"""Maximum servers shown: those with the most measurements."""
_DRAWN = 4
"""Engines or ranks drawn per server: those with most lines."""
_FOLLOWED = 64
"""Engines and ranks examined to select the ones to draw."""

_Place = tuple[int, str | None]
"""(session, engine or rank)"""


class TitledDrawing(NamedTuple):
    """A drawing and its title."""

    title: str
    drawing: Drawing


@dataclass(slots=True)
class MeasuredServer:
    """What was measured of a server."""

    name: str
    rows: Said
    grid: Grid | None
    rates: list[TitledDrawing]
    sums: list[TitledDrawing]
    undrawn: int
    """Engines or ranks without a drawing."""


def servers(report: Report) -> list[MeasuredServer]:
    """Return the servers of which most was measured, in their order."""
    shown = largest([session for session in report.sessions if measures(session)], MOST)
    if not shown:
        return []
    wanted = {session.index for session in shown}
    rates, sums = _followed(report.samples, CacheSample, wanted), _followed(report.batches, PrefillBatch, wanted)
    several = len(report.sessions) > 1
    return [_server(session, several, rates, sums) for session in shown]


def _server(
    session: Session, several: bool, rates: dict[_Place, ChartSeries], sums: dict[_Place, ChartSeries]
) -> MeasuredServer:
    engines, ranks = _of(session, rates), _of(session, sums)
    known = session
    place = f"{known.origin or f'Server {session.index + 1}'}: " if several else ""
    rated = [(_titled("Hit rate, engine", name), s.rates()) for name, s in engines[:_DRAWN]]
    summed = [(_titled("Prefill batches,", name), s.sums()) for name, s in ranks[:_DRAWN]]
    return MeasuredServer(
        cut(place + traffic_words.program(known), 80),
        said(session),
        grid(session),
        [TitledDrawing(title, drawing) for title, drawing in rated if drawing is not None],
        [TitledDrawing(title, drawing) for title, drawing in summed if drawing is not None],
        len(engines[_DRAWN:]) + len(ranks[_DRAWN:]),
    )


def _titled(what: str, name: str | None) -> str:
    return what.partition(",")[0] if name is None else f"{what} {cut(name, 40)}"


def _followed(
    rows: Rows | None, kind: type[CacheSample] | type[PrefillBatch], wanted: set[int]
) -> dict[_Place, ChartSeries]:
    found: dict[_Place, ChartSeries] = {}
    decoder = msgspec.json.Decoder(kind)
    for line in rows.lines() if rows is not None else ():
        row = decoder.decode(line)
        place = row.session, row.engine if isinstance(row, CacheSample) else row.rank
        series = found.get(place)
        if series is None:
            if row.session not in wanted or len(found) >= _FOLLOWED:
                continue
            series = found[place] = ChartSeries()
        series.add(row)
    return found


def _of(session: Session, found: dict[_Place, ChartSeries]) -> list[tuple[str | None, ChartSeries]]:
    """Those of a session, the ones with most lines first."""
    mine = [(name, series) for (index, name), series in found.items() if index == session.index]
    return sorted(mine, key=lambda of: -of[1].count)


# ---- the first thing that is read


def title(report: Report) -> str:
    """Say in a sentence what logs without requests measured."""
    sessions = [s for s in report.sessions if measures(s)]
    if len({s.engine for s in sessions}) > 1:
        return f"Measurements of {number(len(sessions))} servers"
    rates = [p.last_rate for s in sessions for p in s.periods if isinstance(p, SamplePeriod) if p.busy]
    known = [found for found in rates if found is not None]
    batches = [p for s in sessions for p in s.periods if isinstance(p, BatchPeriod)]
    cached, new = sum(p.cached_tokens for p in batches), sum(p.new_tokens for p in batches)
    if cached + new:
        return f"{percent(cached, cached + new)} of the tokens of prefill batches were reused"
    if len(known) == 1:
        return f"The hit rate was {rate(known[0])} at the end"
    if known:
        return f"Hit rates were from {rate(min(known))} to {rate(max(known))} at the end"
    if rates:
        return "The log shows no hit rate"
    told = [a for s in sessions for a in s.answers if a.prompt_tokens]
    if told:
        reused = percent(sum(a.cached_tokens for a in told), sum(a.prompt_tokens for a in told))
        return f"{reused} of the prompt tokens of the responses were reused"
    return "No cache statistics in this log"


def tiles(report: Report) -> list[tuple[str, str, str]]:
    """Return name, number and unit of what one server measured; nothing if there are several, or periods."""
    if len(report.sessions) != 1 or len(report.sessions[0].periods) != 1:
        return []
    (period,) = report.sessions[0].periods
    if isinstance(period, BatchPeriod):
        whole = period.cached_tokens + period.new_tokens
        share = percent(period.cached_tokens, whole) if whole else ""
        return [
            ("Prefill batches", number(period.batches), ""),
            ("Reused", number(period.cached_tokens), share),
            ("Computed", number(period.new_tokens), percent(period.new_tokens, whole) if whole else ""),
        ]
    found = [("Intervals", number(period.busy), f"with traffic, {number(period.seconds)} s")]
    if period.last_rate is not None:
        found.insert(0, ("Hit rate", rate(period.last_rate), "of the last 1,000 requests"))
    if period.computed_tokens is not None:
        found.append(("Computed", number(period.computed_tokens), "prompt tokens, about"))
    if period.answered is not None:
        found.append(("Answered", number(period.answered), "requests"))
    return found
