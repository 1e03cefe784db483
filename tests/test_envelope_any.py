"""The Unwrapper reads anything: cut anywhere, wrapped at random, broken, endless."""

from __future__ import annotations

import random

import pytest
from hostile_inputs import LEADS, UNITS
from hypothesis import given, settings
from hypothesis import strategies as st
from wrapped import LINES, LOG, SLOT, SRV, UP, docker, jsonl, unwrap

MIXED = "".join(
    [
        f"llama-1  | [53409] {UP}\n",
        f"{SLOT}\r\n",
        docker(UP[:50]),
        f"2026-05-29 11:02:40 [DEBUG]\n {SRV}\n",
        f"[model.gguf] {SLOT}\n[model.gguf] tail\n[other] tail\n",
        docker(UP[50:] + "\n"),
        "\x1b[0m10%\r" + UP + "\n\n",
        jsonl("a\nb\n"),
        "2026-05-29 11:02:40 early\n2026-05-29 11:02:40 " + SLOT + "\n2026-05-29 11:02:40 late\n",
        "2026-11-20T12:00:00.013123Z stderr P part\n" + LOG,
        docker("never finished"),
    ]
)


@given(st.sets(st.integers(0, MIXED.count("\n"))))
def test_cuts_between_lines_change_nothing(cuts: set[int]) -> None:
    assert unwrap(MIXED, tuple(cuts)) == unwrap(MIXED)


SCRAPS = [*MIXED.encode().split(b"\n"), b"\n", b"\x1b[", b"\r", b"\0", b"{", b"[", b"<", b"\xff", b"2026-11-20", b"| "]


@settings(deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(SCRAPS)), max_size=30), st.booleans())
def test_any_bytes_are_read(scraps: list[bytes], in_lines: bool) -> None:
    data = (b"\n" if in_lines else b"").join(scraps) + b"\n"
    bodies = unwrap(data)
    assert sum(map(len, bodies.values())) <= 2 * data.count(b"\n")
    assert unwrap(data, tuple(range(1, data.count(b"\n")))) == bodies


@pytest.mark.sample(20)
@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("unit", UNITS)
def test_a_long_hostile_line_is_one_line(unit: bytes, lead: bytes) -> None:
    """Whatever is made of it, it stays line 1 and leaves the lines around it alone."""
    bodies = unwrap(SLOT.encode() + b"\n" + lead + unit * 20_000 + b"\n" + SRV.encode() + b"\n")
    found = sorted((number, body) for lines in bodies.values() for number, body in lines)
    assert found[0] == (1, SLOT)
    assert found[-1] == (3, SRV)
    assert [number for number, _ in found[1:-1]] in ([2], [])
    assert all(len(body) <= len(lead) + len(unit) * 20_000 for _, body in found[1:-1])


def test_no_line_is_lost_among_random_wrappers() -> None:
    leads = ["", "llama-1  | ", "[53409] ", "2026-11-20T12:00:00.013123Z ", "<tiny> ", "> ", "[INFO] ", "12:"]
    rng = random.Random(7)
    text = "".join(f"{rng.choice(leads)}{rng.choice(LINES)}\n" for _ in range(500))
    assert sorted(number for bodies in unwrap(text).values() for number, _ in bodies) == list(range(1, 501))


def test_servers_beyond_a_limit_go_together() -> None:
    """Each has its own state: a log that invents names must not fill the memory."""
    bodies = unwrap("".join(f"srv-{at}  | {SLOT}\n" for at in range(300)))
    assert len(bodies) == 257
    assert [number for number, _ in bodies[None]] == list(range(257, 301))
    assert [number for number, _ in bodies["srv-255"]] == [256]
