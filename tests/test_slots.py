"""Reuse of each slot along its requests: counted exactly in bounded memory, drawn with its number beside it."""

from __future__ import annotations

import io
import json
import random

import made
import pytest
from command import FIRST, SECOND, THIRD
from conftest import json_of

from cachedoctor.doctor.analysis.sums import CELLS, Reuse
from cachedoctor.model import CacheDoctorError, InputInfo, Judged, Report, Request, Session, SlotReuse, Totals
from cachedoctor.redaction import sanitize
from cachedoctor.report.text import text_report
from cachedoctor.report.text.header import bars, joined
from cachedoctor.report.wire.stored import StoredRequests, read

SERVERS = [Session(n, "a.log", origin=origin) for n, origin in enumerate([None, None, "8081", "8082", None])]
Asked = tuple[int, int, int | None, int | None]
"""Session, slot, prompt and reused tokens of a request."""


def request(session: int, slot: int, prompt: int | None, cached: int | None, parent: int | None = None) -> Request:
    return made.request(session=session, slot=slot, parent=parent, prompt_tokens=prompt, cached_tokens=cached)


def counted(asked: list[Asked], first: int = 0) -> Reuse:
    """Counted as if they had ended together."""
    reuse = Reuse()
    servers = [Session(server.index - first, "a.log", server.origin) for server in SERVERS[first:]]
    reuse.add([Judged(request(session - first, *rest)) for session, *rest in asked], servers)
    return reuse


def shown(slots: list[SlotReuse], width: int = 80, ascii_only: bool = False, sessions: int = 1) -> list[str]:
    """The rows of the slots in a report."""
    out = io.StringIO()
    report = Report("0", [InputInfo("a.log", lines=9, recognised=9)], SERVERS[:sessions], Totals(9), StoredRequests([]),
                    [], [], [], slots=slots)  # fmt: skip
    text_report.render(sanitize.report(report), out, width, ascii_only=ascii_only, verbose=True)
    return [row for row in out.getvalue().splitlines() if row.startswith(("slot", "others"))]


def test_a_cell_for_each_request_until_there_are_too_many() -> None:
    asked: list[Asked] = [(0, 0, 100, at % 101) for at in range(CELLS)]
    (slot,) = counted(asked).slots()
    assert (slot.step, slot.cells) == (1, [(100, at) for at in range(CELLS)])
    (slot,) = counted([*asked, (0, 0, 50, 7)]).slots()
    assert (slot.requests, slot.step) == (CELLS + 1, 2)
    assert slot.cells == [*((200, 4 * at + 1) for at in range(CELLS // 2)), (50, 7)]


def test_every_cell_is_the_sum_of_its_requests() -> None:
    """Of 5,000 requests, some unknown, against plain slices."""
    chance = random.Random(3)
    asked: list[Asked] = [(0, 0, *chance.choice([(None, None), (9, None), (n, n // 3)])) for n in range(1, 5001)]
    (slot,) = counted(asked).slots()
    assert slot.requests == 5000
    assert slot.step == 128  # 64 cells of 64 are too few
    for at, cell in enumerate(slot.cells):
        known = [(p, c) for _, _, p, c in asked[at * 128 : at * 128 + 128] if p is not None and c is not None]
        assert cell == ((sum(p for p, _ in known), sum(c for _, c in known)) if known else None)


def test_unknown_is_none_and_choices_of_one_request_are_left_out() -> None:
    reuse = counted([(0, 1, None, 5), (0, 1, 100, 0)])
    reuse.add([Judged(request(0, 1, 100, 100, parent=3))], SERVERS)
    assert reuse.slots() == [SlotReuse(0, 1, 2, 1, [None, (100, 0)])]


def test_slots_from_8_on_share_a_row() -> None:
    """However many a log names, and one that is unknown."""
    slots = counted([(0, slot, 10, 5) for slot in (7, 8, 3, 2_000_000_000, -1)]).slots()
    assert [(slot.slot, slot.requests) for slot in slots] == [(3, 1), (7, 1), (None, 3)]


def test_the_busiest_life_is_shown_and_the_earlier_of_two_alike() -> None:
    """A life is over when its server has another one; servers beside each other continue."""
    two, three = [(1, 0, 10, 5)] * 2, [(4, 0, 10, 5)] * 3
    assert counted([(0, 0, 10, 5), *two, (2, 0, 10, 5)]).slots()[0].session == 1
    assert counted([(0, 0, 10, 5), (0, 1, 10, 5), *two]).slots()[0].session == 0
    assert counted([*two, (2, 0, 1, 0), *three, (2, 0, 1, 0), (2, 0, 1, 0), (2, 0, 1, 0)]).slots()[0].session == 2


@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", range(30))
def test_parts_add_up_to_the_whole(seed: int) -> None:
    """Cut between two lives, as ``--jobs`` cuts."""
    chance = random.Random(seed)
    before: list[Asked] = [(s, chance.randrange(12), 10, 4) for s in (0, 1) for _ in range(chance.randrange(1, 200))]
    after: list[Asked] = [(4, chance.randrange(12), 10, 4) for _ in range(chance.randrange(1, 200))]
    first, second = counted(before), counted(after, first=4)
    first.finish()
    second.finish()
    first.merge(second, 4)
    assert first.slots() == counted(before + after).slots()


def test_the_report_has_the_slots_of_the_log() -> None:
    """Nothing was reused by the three requests of this log."""
    slots = json.loads(json_of([(FIRST + SECOND + THIRD).encode()]))["slots"]
    assert slots == [
        {"session": 0, "slot": 0, "requests": 3, "step": 1, "cells": [[1900, 0], [2035, 0], [2135, 0]]}
    ]  # fmt: skip


# ---- drawn


def test_bars_grow_with_reuse_and_gaps_are_unknown() -> None:
    """Nothing is the lowest bar, all the highest; more than all, as a torn log may say, is not higher."""
    cells: list[tuple[int, int] | None] = [(80, 0), (80, 9), (80, 10), None, (80, 79), (80, 80), (80, 99)]
    assert bars(cells) == "▁▁▂·███"
    assert bars(cells, ascii_only=True) == "...?###"


def test_a_row_has_the_number_beside_its_bars() -> None:
    """As people who cannot see the bars need it."""
    slots = [SlotReuse(0, 0, 3, 1, [(100, 0), (100, 100), None]), SlotReuse(0, 2, 1, 1, [None])]
    assert shown(slots) == ["slot 0    ▁█·  50.0 % reused, 3 requests", "slot 2    ·    unknown, 1 request"]
    assert shown(slots, ascii_only=True)[0] == "slot 0    .#?  50.0 % reused, 3 requests"
    assert shown(slots, 40)[0] == "slot 0    ▁█·  50.0 %, 3 requests"
    assert shown(slots, sessions=2)[0].endswith(" (server 1)")


def test_no_row_without_anything_to_see() -> None:
    assert shown([SlotReuse(0, 0, 1, 1, [(100, 50)])]) == []
    assert shown([SlotReuse(0, 0, 9, 1, [None] * 9)]) == []
    assert len(shown([SlotReuse(0, 0, 1, 1, [(9, 0)]), SlotReuse(0, 1, 1, 1, [None])])) == 2


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_bars_fit_and_mean_as_many_requests_in_every_slot(width: int) -> None:
    slots = [
        SlotReuse(0, 0, 64 * 16, 16, [(160, 80)] * 64),
        SlotReuse(0, 1, 3, 1, [(10, 0)] * 3),
        SlotReuse(0, None, 40 * 64, 64, [(640, 0)] * 40),
    ]
    one, other, others = shown(slots, width)
    assert all(len(row) <= width for row in (one, other, others))
    drawn = one.count("▅")
    assert drawn in (4, 8, 16, 32, 64)
    assert other.count("▁") == 1
    if width >= 60:
        assert f", {1024 // drawn} a bar" in one
        assert f", {1024 // drawn} a bar" in other
        assert f"{2560 // others.count('▁'):,} a bar" in others


def test_joining_keeps_the_sums() -> None:
    slot = SlotReuse(0, 0, 5, 1, [(1, 0), (2, 1), None, None, (5, 5)])
    assert joined(slot, 1) == slot.cells
    assert joined(slot, 2) == [(3, 1), None, (5, 5)]
    assert joined(slot, 4) == [(3, 1), (5, 5)]
    assert joined(slot, 8) == [(8, 6)]


@pytest.mark.parametrize("change", [{"step": 0}, {"cells": [[0, 0]]}, {"cells": [[5, -1]]}, {"cells": [[1]]}])
def test_a_stored_report_with_impossible_slots_is_refused(change: dict[str, object]) -> None:
    data = json.loads(json_of([FIRST.encode()]))
    data["slots"][0] |= change
    with pytest.raises(CacheDoctorError, match="is not a JSON report"):
        read(json.dumps(data).encode(), "x.json")
