"""Cells of sliding-window memory: what holds for any use of them, and what a real server printed of its own."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cachedoctor.diagnosis.replay.llamacpp import window
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.llamacpp.window import Cells
from cachedoctor.diagnosis.replay.prompt_tree import PromptTree
from cachedoctor.diagnosis.replay.traffic import TimedRequest, Traffic

SMALL = ServerSettings(build=11549, memory="swa", window=6, slots=1, ubatch=10)
SIZE = 18


def _positions(cells: Cells) -> list[int]:
    return sorted(position + n for _, position, count in cells.runs for n in range(count))


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 45), st.booleans(), st.booleans()), max_size=8))
@settings(max_examples=60, deadline=None)
def test_the_window_is_always_there_and_no_cell_is_used_twice(steps: list[tuple[int, int, bool, bool]]) -> None:
    """Prompts and replies of any length, jumps back as far as the memory allows, saved states that are taken back."""
    cells, tokens = window.FRESH, 0
    for back, count, reply, save in steps:
        to = max(window.oldest(cells, tokens) + SMALL.window, tokens - back)
        tokens = to if window.oldest(cells, tokens) + SMALL.window <= tokens else 0
        cells = window.cut(cells, tokens)
        if save:
            cells = window.restored(cells, window.saved(cells, tokens, SMALL), SIZE)
        end = tokens + count
        if reply:
            cells = window.replied(cells, tokens, end, SMALL, SIZE)
        else:
            cells = window.written(cells, tokens, end, SMALL, SIZE, SMALL.ubatch)
        tokens = end
        held = _positions(cells)
        assert held == list(range(window.oldest(cells, tokens), tokens))
        assert len(held) >= min(tokens, SMALL.window)
        used = [cell + n for cell, _, length in cells.runs for n in range(length)]
        assert len(set(used)) == len(used)
        assert all(0 <= cell < SIZE for cell in used)


def test_cells_are_a_ring_as_long_as_nothing_is_cut() -> None:
    cells = window.written(window.FRESH, 0, 45, SMALL, SIZE, 10)
    assert window.oldest(cells, 45) == 45 - SIZE
    assert window.oldest(window.replied(cells, 45, 47, SMALL, SIZE), 47) == 47 - SIZE


def test_room_is_a_window_and_a_batch_rounded_up() -> None:
    """Cells counted from checkpoints of real servers: 640 up to b6900, 768 later."""
    sizes = [window.room(ServerSettings(build=build, window=128, slots=1)) for build in (6301, 6900, 8353, 11549)]
    assert sizes == [640, 640, 768, 768]
    assert window.room(ServerSettings(build=11549, window=1024, slots=2)) == 1536


def test_where_a_jump_back_lands_in_the_cells_decides_the_next_turn() -> None:
    """Every second turn of a rolling window is lost in b8672: in which cells the tokens lie decides what is gone.

    Lengths, and what was reused, are a real server's; checkpoints began at the positions that its log prints.
    """
    tree, asked, before = PromptTree(), list[TimedRequest](), None
    for at, length in enumerate((2866, 2810, 2756, 2700)):
        prompt = tree.branch(before, 1783, length)
        before = tree.branch(prompt, length, length + 5)
        asked.append(TimedRequest(prompt, before, 2 * at, 2 * at + 1))
    served = serve(Traffic(tree, asked), ServerSettings(build=8672, memory="swa", window=128, slots=1))
    assert [one.reused for one in served] == [0, 1783, 0, 1783]
    taken = [one.decision.taken for one in served if one.decision is not None]
    assert taken == [None, (1582, 2349), None, (1472, 2239)]
