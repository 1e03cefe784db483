"""Blocks in which every line is llama-server's own: neither wrappers nor other engines are searched for in them."""

from __future__ import annotations

import pytest

from cachedoctor.inputs.envelope.shapes import candidates, is_plain


@pytest.mark.parametrize(
    "line",
    [
        b"0.00.001.981 I srv    load_model: initializing",
        b"slot update_slots: id  0 | task 1 | prompt done, n_tokens = 5",
        b"srv  update_slots: all slots are idle",
        b"prompt eval time =    1577.65 ms /  1758 tokens",
        b"       eval time =    4968.00 ms /   207 tokens",
        b"      total time =    6545.65 ms /  1965 tokens",
    ],
)
def test_lines_of_the_server_alone_are_plain(line: bytes) -> None:
    assert is_plain(line + b"\n")
    assert is_plain(line + b"\n" + line + b"\n")
    assert candidates(line + b"\n") == []


@pytest.mark.parametrize(
    "line",
    [
        b"srv  | 0.00.001.981 I srv    load_model: initializing",  # services of these names
        b"slot | srv  update_slots: all slots are idle",
        b"slot apply_checkp: id  0 | task 1 | n_past = 5",  # a fork's
        b"[57130] 0.00.001.981 I srv    load_model: initializing",
        b" 0.00.001.981 I srv    load_model: initializing",
        b"INFO 11-20 23:54:10 [core.py:402] init engine",
        b"",
    ],
)
def test_a_block_with_another_line_is_not(line: bytes) -> None:
    own = b"srv  update_slots: all slots are idle\n"
    assert not is_plain(line + b"\n" + own)
    assert not is_plain(own + line + b"\n" + own)
    assert not is_plain(own + line + b"\n")
