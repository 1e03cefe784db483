"""A request that continues what its slot holds is concluded from its numbers at once: as it is step by step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import FIXTURES
from msgspec.structs import replace

import cachedoctor
from cachedoctor.engines.llamacpp import server_run, settle
from cachedoctor.engines.llamacpp.settle import NOTHING_MORE, ConversationMemory, Effects
from cachedoctor.engines.llamacpp.slot import Slot
from cachedoctor.model import Facts, Request
from cachedoctor.model.log_lines import LogFile
from cachedoctor.model.observed import Observed

LOGS = sorted(path for folder in ("days", "measured", "cases") for path in (FIXTURES / folder).rglob("*.log"))


class BothWays:
    """Settles requests; concludes those that are plain in the other way, too, and what the slot of others held."""

    def __init__(self) -> None:
        self.plain = self.lost = self.odd = 0

    def __call__(
        self,
        seen: Observed,
        facts: Facts,
        past: ConversationMemory,
        file: LogFile,
        slot: Slot,
        slots: Mapping[int, Slot],
        *,
        shown: bool,
    ) -> tuple[Request, Effects | None]:
        found = None
        if not seen.odd and not past.eventful:
            found = settle.plain(seen, facts, past.conversations, shown=shown)
        if found is None:
            self.odd += 1
        elif isinstance(found, settle.Content):
            self.lost += 1
            assert settle.content(seen, facts, past, shifted=False, shown=shown) == found
        else:
            self.plain += 1
            owner, numbers, more = settle.concluded(seen, facts, past, slot, slots, shown=shown)
            assert (owner, numbers) == found
            assert list(numbers[4]) == list(found[1][4]), "what was derived, in its order"
            assert more.marks == seen.marks
            assert replace(more, marks=None, resumed=None) == NOTHING_MORE
        return settle.settle(seen, facts, past, file, slot, slots, shown=shown)


@pytest.fixture
def both_ways(monkeypatch: pytest.MonkeyPatch) -> BothWays:
    settling = BothWays()
    monkeypatch.setattr(server_run, "settle", settling)
    return settling


def test_what_is_plain_follows_step_by_step_as_well(both_ways: BothWays, pytestconfig: pytest.Config) -> None:
    """Of bundled logs of many builds, memories and levels: by default every sixth."""
    every = 1 if pytestconfig.getoption("--all") else 6
    for log in LOGS[::every]:
        cachedoctor.analyze(log.as_posix())
    assert both_ways.plain > 200 / every
    assert both_ways.lost > 50 / every
    assert both_ways.odd > 500 / every


TURN = """\
0.0{n}.000.001 I slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, f_sim_best = {similar} (> 0.100 thold), f_keep = {keep}
0.0{n}.000.002 I slot launch_slot_: id  0 | task {n} | processing task, is_child = 0
0.0{n}.100.001 I slot print_timing: id  0 | task {n} | prompt eval time =     100.00 ms /  {computed:5} tokens (    1.00 ms per token,  1000.00 tokens per second)
0.0{n}.200.001 I slot print_timing: id  0 | task {n} |        eval time =     100.00 ms /    11 tokens (   10.00 ms per token,   100.00 tokens per second)
0.0{n}.200.002 I slot print_timing: id  0 | task {n} |       total time =     200.00 ms /   {total} tokens
0.0{n}.200.003 I slot      release: id  0 | task {n} | stop processing: n_tokens = {total}, truncated = 0
"""  # noqa: E501


def turns(*said: tuple[str, str, int, int]) -> str:
    """A start, a first prompt of 10,000 tokens with a reply of ten more, and turns of which this was said."""
    first = TURN.format(n=1, similar="0.000", keep="0.000", computed=10000, total=10010)
    first = first.replace("LCP similarity, f_sim_best = 0.000 (> 0.100 thold), f_keep = 0.000", "LRU, t_last = -1")
    rest = (
        TURN.format(n=n, similar=similar, keep=keep, computed=computed, total=total)
        for n, (similar, keep, computed, total) in enumerate(said, 2)
    )
    start = "0.00.001.981 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 32768, kv_unified = 'false'\n"
    return start + first + "".join(rest)


@pytest.mark.parametrize(
    ("said", "is_plain"),
    [
        # 10,010 of 11,110 are 0.901: prompt 11120 - 10, cached 11110 - 1100 = 10010, all that the slot held
        (("0.901", "1.000", 1100, 11120), True),
        # 9,900 of 10,010 reused: 110 tokens short of what the slot held
        (("0.901", "1.000", 1210, 11120), False),
        # by its shares the slot held some 20,000 tokens, which its last request did not leave there
        (("0.901", "0.500", 1100, 11120), False),
    ],
)
def test_a_turn_is_plain_where_all_was_reused_and_the_shares_fit(
    said: tuple[str, str, int, int], is_plain: bool, both_ways: BothWays, tmp_path: Path
) -> None:
    log = tmp_path / "turns.log"
    log.write_text(turns(said))
    report = cachedoctor.analyze(log.as_posix())
    (_, turn) = report.requests
    assert both_ways.plain == is_plain
    assert (turn.prompt_tokens, turn.cached_tokens) == (11110, 11110 - said[2])


def test_a_request_whose_context_was_shifted_is_odd(both_ways: BothWays, tmp_path: Path) -> None:
    """Truncated far below the 32,768 tokens of its context: the length at its release does not give the prompt's."""
    log = tmp_path / "turns.log"
    said = turns(("0.901", "1.000", 1100, 11120)).replace(
        "n_tokens = 11120, truncated = 0", "n_tokens = 11120, truncated = 1"
    )
    log.write_text(said)
    (_, turn) = cachedoctor.analyze(log.as_posix()).requests
    assert both_ways.plain == 0
    assert turn.prompt_tokens is None
