"""Inputs made to cost time: what the tests read at a moderate size, and ``benchmarks/hostile.py`` at growing ones.

``n`` is the size in characters,
tokens or items; the time may grow with it, not with its square.
"""

from __future__ import annotations

import json
import random
from typing import Any

Body = dict[str, Any]

# ---- two prompts that part somewhere in a long repetition

PIECES = [
    "<think>",
    "<|im_start|>user\n",
    "<tools>",
    "{",
    '{"a":',
    "<system-reminder>",
    "x-anthropic-billing-header: a=b;",
    "10:30 ",
    "a1",
    "/a",
    " ",
    "2026-09-01",
    "[",
    "M a\n",
    "1,",
    "<|channel>thought",
    "[INST]",
    "-",
    "A. ",
    "<|im_start|>user\ncontinue<|im_end|>",
    "<|a",
]


def prompts(piece: str, n: int) -> list[tuple[str, str]]:
    """Pairs of texts of about ``n`` characters, or twice as many, with the difference behind, between, or in front."""
    common = piece * (n // len(piece))
    ends = (("x", "y"), ("x" + common, "y" + common), (common + "x", "y"), (" ", "\n" + common))
    return [(common + a, common + b) for a, b in ends]


# ---- two bodies with many messages or tools


def said(*turns: tuple[str, str], **more: object) -> Body:
    """A chat body of (role, content)."""
    return {"messages": [{"role": role, "content": content} for role, content in turns], **more}


def histories(n: int) -> list[tuple[str, Body, Body]]:
    """(kind, a, b): what the difference is called, in bodies of ``n`` messages."""
    system, ask, again, other = ("system", "You are Marlow."), ("user", "Read it."), ("user", "Which?"), ("user", "Go.")
    turns = [("user" if i % 2 == 0 else "assistant", f"{i} " + "words " * 20) for i in range(n)]
    tools = [{"type": "function", "function": {"name": f"t{i}", "description": "Does it."}} for i in range(n // 2)]
    same = [("user", "continue")] * (n // 2)
    return [
        ("front-truncated", said(system, *turns), said(system, *turns[n // 5 :])),
        ("tools-reordered", said(system, *turns, tools=tools), said(system, *turns, tools=tools[::-1])),
        ("front-truncated", said(system, ask, *same, again), said(system, *same, other)),
    ]


# ---- files of prompts

TOO_DEEP = "[", "x"
"""What is repeated, and what ends it."""


def one_long_body(n: int) -> bytes:
    return json.dumps(said(*[("user", "x")] * n)).encode()


def many_bodies(n: int) -> bytes:
    return b'{"prompt":"x"}\n' * n


def growing_chats(n: int, longest: int = 300) -> list[Body]:
    """``n`` prompts, each a turn longer than the one before; at ``longest`` turns the chat begins again."""
    turns = [f"turn number {i} of a long conversation" for i in range(longest)]
    roles = ("user", "assistant")
    chat = [(roles[i % 2], text) for i, text in enumerate(turns)]
    return [said(("system", "S"), *chat[: 1 + i % longest]) for i in range(n)]


# ---- token sequences

Pair = tuple[list[int], list[int]]


def tokens(n: int, seed: int = 0, kinds: int = 5_000) -> list[int]:
    return random.Random(seed).choices(range(kinds), k=n)


def shuffled_blocks(n: int, size: int) -> Pair:
    a = list(range(n))
    parts = [a[i : i + size] for i in range(0, n, size)]
    random.Random(3).shuffle(parts)
    return a, [t for part in parts for t in part]


def nested(n: int) -> Pair:
    """Only the last token is unique; without it and what follows, only the one before it is, and so on."""
    a, b = ([t for i in range(n // 4) for t in (i + 1, filler, i, filler)] for filler in (-1, -2))
    return a, b


SEQUENCES = {
    "all equal": lambda n: ([1] * n, [2] + [1] * (n // 2) + [3]),
    "periodic": lambda n: (list(range(97)) * (n // 97), [5, *list(range(89)) * (n // 89)]),
    "period shifted": lambda n: (list(range(97)) * (n // 97), list(range(50, 147)) * (n // 97)),
    "permutations": lambda n: (random.Random(1).sample(range(n), n), random.Random(2).sample(range(n), n)),
    "reversed": lambda n: (list(range(n)), list(range(n))[::-1]),
    "two kinds": lambda n: (tokens(n, 1, 2), tokens(n, 2, 2)),
    "rotated": lambda n: (tokens(n), tokens(n)[n // 2 :] + tokens(n)[: n // 2]),
    "blocks out of order": lambda n: shuffled_blocks(n, 40),
    "blocks repeated": lambda n: (tokens(40) * (n // 40), tokens(40)[7:] * (n // 40) + [-1]),
    "an anchor per round": nested,
}

# ---- one endless line of a log

UNITS = [
    b"\r",
    b"\x1b]",
    b"\x1b[",
    b"a\r",
    b"> ",
    b"[",
    b"1",
    b" ",
    b"a ",
    b"\r1",
    b"{",
    b'{"a":',
    b"<1>1 - ",
    b"2026-11-20 ",
    b'\\"',
]
LEADS = [b"", b"2026-11-20 12:00:00 ", b"<1>1 - a b c d [", b'time=a level=b msg="', b"a  | ", b"[53409] "]

# ---- what lies beside a log: a beginning, and what comes again and again

DUMPS = [
    (b'a{x="', b'\\"'),
    (b"a{", b'x="1",'),
    (b"a", b"{"),
    (b"a ", b"9"),
    (b"a 1", b" "),
    (b"# HELP a", b" "),
    (b"", b"a 1\n"),
    (b"", b'a{x="1",y="2"} 1\n'),
    (b"", b"{\n"),
    (b"a 1", b"\r"),
]
ANSWERS = [
    (b'{"', b'\\"'),
    (b'{"a', b"\n"),
    (b"", b'{"a\n'),
    (b"", b"{}"),
    (b"[", b"{},"),
    (b"[", b'"a",'),
    (b"", b"{}\n"),
    (b"", b'data: {"id":"a","usage":{"prompt_tokens":1}}\n'),
    (b"", b"data: {\n"),
    (b'{"a":"', b"x"),
    (b"[{}\n", b"\n"),
]

SECRETS = [
    "/home/- ",
    "/Users/- b/",
    "C:\\Users\\",
    "a@",
    "a.b+",
    "@a.",
    "sk-",
    "eyJ",
    "eyJhbGciOi.",
    "AKIA",
    "-----BEGIN PRIVATE KEY-----",
    "api key ",
    "token = ",
    "bearer ",
    "://a:b",
    "a://",
    "aA0",
    "0",
    "_",
    " | a",
]
"""Beginnings of what looks like a secret, again and again."""

HEADS = [
    b"",
    b"0.00.205.552 I ",
    b"0.00.205.552 I slot launch_slot_: id  0 | task 7 | ",
    b"0.00.736.093 W slot   operator(): id  0 | task 7 | old: ...  | ",
    b"llama_model_loader: - kv 0: ",
    b"srv  log_server_r: done request: ",
]
"""Beginnings of messages; what follows is read by the patterns of the catalogue."""
