"""The positions of one slot's tokens in the cells of sliding-window memory, and how far back they reach. Pure.

New tokens go into cells that are empty or that contain positions before the window, from the head on; then the head
moves after them. All tokens older than an overwritten token are dropped. This was found by comparison with the
checkpoint positions that real servers print. Cells that several slots share are treated as if each slot had its own
cells.
"""

from __future__ import annotations

import msgspec

from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings

WINDOW_ONLY = 9538
"""From this build on a saved state holds only the window, in older builds all cells (checkpoint sizes in real logs)."""

Run = tuple[int, int, int]
"""Tokens that follow each other: first cell, first position, count."""


class Cells(msgspec.Struct, frozen=True, gc=False):
    """The cells of a slot."""

    head: int = 0
    runs: tuple[Run, ...] = ()
    """Runs in the order of the cells."""


FRESH = Cells()


def room(settings: ServerSettings) -> int:
    """Number of cells of a slot: the window and one batch, rounded up."""
    pad = 32 if settings.build < 7079 else 256
    windows = settings.window * (settings.slots or 1 if settings.kv_unified else 1)
    return -(-(windows + settings.ubatch) // pad) * pad


def oldest(cells: Cells, tokens: int) -> int:
    """Smallest remaining position; ``tokens`` if there is none."""
    return min((position for _, position, _ in cells.runs), default=tokens)


def cut(cells: Cells, end: int) -> Cells:
    """Drop all positions from ``end`` on; the head goes back to the first emptied cell."""
    runs, head = [], cells.head
    for cell, position, count in cells.runs:
        stays = min(count, max(0, end - position))
        if stays:
            runs.append((cell, position, stays))
        if stays < count:
            head = min(head, cell + stays)
    return Cells(head, tuple(runs))


def saved(cells: Cells, tokens: int, settings: ServerSettings) -> tuple[Run, ...]:
    """The runs of a saved state, in the order of the cells."""
    least = tokens - settings.window if settings.build >= WINDOW_ONLY else 0
    return _behind(cells.runs, least - 1)


def restored(cells: Cells, runs: tuple[Run, ...], size: int) -> Cells:
    """Replace everything by a saved state: in one piece from the head on if it fits, otherwise from cell 0."""
    count = sum(run[2] for run in runs)
    at = cut(cells, 0).head
    if at + count > size or at > 2 * count:
        at = 0
    placed = []
    for _, position, length in runs:
        placed.append((at, position, length))
        at += length
    return Cells(at, tuple(placed))


def written(cells: Cells, begin: int, end: int, settings: ServerSettings, size: int, step: int) -> Cells:
    """Write the positions from ``begin`` to ``end`` into cells, ``step`` at a time."""
    for at in range(begin, end, step):
        cells = _batch(cells, at, min(step, end - at), settings.window, size)
    return cells


def replied(cells: Cells, begin: int, end: int, settings: ServerSettings, size: int) -> Cells:
    """Write positions one token at a time: with each token, more positions are before the window."""
    at = begin
    while at < end:
        pieces = _usable(cells, at - settings.window, 1, size)
        count = min(end - at, pieces[0][1]) if pieces else 1
        cells = _batch(cells, at, count, settings.window, size)
        at += count
    return cells


def _batch(cells: Cells, at: int, count: int, window: int, size: int) -> Cells:
    """Put ``count`` positions from ``at`` on into cells at once."""
    new: list[Run] = []
    for cell, length in _usable(cells, at - window, count, size):
        taken = min(length, count)
        new.append((cell, at, taken))
        at += taken
        count -= taken
        if not count:
            break
    gone = max((_last_under(cells.runs, cell, length) for cell, _, length in new), default=-1)
    head = new[-1][0] + new[-1][2] if new else cells.head
    return Cells(head, _joined(sorted([*_behind(cells.runs, gone), *new])))


def _usable(cells: Cells, masked: int, count: int, size: int) -> list[tuple[int, int]]:
    """(first cell, length) of what is empty or holds positions up to ``masked``, from the head on and round."""
    found, at, used = list[tuple[int, int]](), 0, 0
    for cell, position, length in cells.runs:
        free = min(length, max(0, masked + 1 - position))
        if cell + free > at:
            found.append((at, cell + free - at))
        at, used = cell + length, used + length
    if at < size:
        found.append((at, size - at))
    head = 0 if cells.head > used + 2 * count else cells.head
    behind = [(max(cell, head), cell + length - max(cell, head)) for cell, length in found if cell + length > head]
    return [*behind, *((cell, min(length, head - cell)) for cell, length in found if cell < head)]


def _last_under(runs: tuple[Run, ...], cell: int, length: int) -> int:
    """Largest position that lies in some cells; -1 where they are empty."""
    last = -1
    for first, position, count in runs:
        end = min(first + count, cell + length)
        if max(first, cell) < end:
            last = max(last, position + end - first - 1)
    return last


def _behind(runs: tuple[Run, ...], gone: int) -> tuple[Run, ...]:
    """The runs without positions up to ``gone``."""
    left = []
    for cell, position, count in runs:
        drop = max(0, gone + 1 - position)
        if drop < count:
            left.append((cell + drop, position + drop, count - drop))
    return tuple(left)


def _joined(runs: list[Run]) -> tuple[Run, ...]:
    """Runs that continue from each other as one."""
    out: list[Run] = []
    for cell, position, count in runs:
        if out and out[-1][0] + out[-1][2] == cell and out[-1][1] + out[-1][2] == position:
            out[-1] = (out[-1][0], out[-1][1], out[-1][2] + count)
        else:
            out.append((cell, position, count))
    return tuple(out)
