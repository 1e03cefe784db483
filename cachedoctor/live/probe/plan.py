"""The decision table: which prompts are sent, in which order, and which prefix each shares."""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from typing import Any, NamedTuple

Body = dict[str, Any]
"""Keys of a chat request that make its prompt: ``messages`` and ``tools``."""

MOST_REQUESTS = 12
_CHARS = 4
"""Characters per token of plain English."""
_SIDE = 64
"""Pixels of each side: some models take nothing smaller than a few dozen."""
IMAGE_TOKENS = 600
"""Maximum tokens that most models use for a small image."""
_NOUNS = ("harbour", "ledger", "lantern", "bridge", "kettle", "window", "orchard", "compass", "archive", "market")
_VERBS = ("opens", "closes", "follows", "carries", "measures", "repairs", "counts", "paints", "hides", "turns")
_TOOLS = ("read_file", "list_folder", "run_tests", "search_text", "show_diff")


class Question(NamedTuple):
    """A question of the table."""

    name: str
    asks: str
    body: Body
    after: tuple[str, ...] = ()
    """Questions whose prompts the server may still hold; their longest common prefix with this one is what it can
    reuse."""
    together: str | None = None
    """The question that is sent at the same time."""
    control: bool = False
    """No part of it was sent before: almost nothing may be reused."""
    extra: tuple[tuple[str, bool], ...] = ()
    """Further keys of the request."""
    optional: bool = False
    """A deviation is worth a note; it is not a fault of a cache."""
    goes_back: bool = False
    """It diverges before the end of what the server holds; some memories can then only return to checkpoints."""
    picture: str = ""
    """Text; with an image, the image follows the last message, and this text follows the image."""


def prose(seed: str, chars: int) -> str:
    """Give plain sentences of about so many characters, the same for a seed."""
    state = sum(ord(c) * (i + 7) for i, c in enumerate(seed))
    parts, length = [], 0
    while length < chars:
        state = (state * 1103515245 + 12345) % (1 << 31)
        noun, verb, other = _NOUNS[state // 7 % 10], _VERBS[state // 77 % 10], _NOUNS[state // 777 % 10]
        parts.append(f"The {noun} {verb} the {other} at {state // 7777 % 24} o'clock.")
        length += len(parts[-1]) + 1
    return " ".join(parts)


def tools() -> list[Body]:
    """Five harmless tools."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": prose(name, 80),
                "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
            },
        }
        for name in _TOOLS
    ]


def table(nonce: str, prompt_tokens: int) -> list[Question]:
    """Give the questions in their order; ``nonce`` makes this run's prompts unique."""
    system = _system(nonce, prompt_tokens)
    user = _user("Which of these is open? " + prose(nonce + "u", prompt_tokens * _CHARS // 8) + " Answer yes or no.")
    edited = _user(str(user["content"]).replace("Answer yes or no.", "Answer with a number."))
    answer = {"role": "assistant", "content": "Yes."}
    more = _user("And now? " + prose(nonce + "m", prompt_tokens * _CHARS // 4))
    turn = [system, user, answer, more]
    back = [system, edited, answer, _user("And now?")]
    other = [_system(nonce[::-1], prompt_tokens), user]
    back_on = [*back, answer, _user("Are you sure?")]
    middle = [*back_on, answer, {"role": "system", "content": "Be brief from now on."}, _user("Go on.")]
    look = [*back_on, answer, _user("What is this?")]
    behind = prose(nonce + "i", prompt_tokens * _CHARS // 4)
    thought = {"role": "assistant", "content": "Yes.", "reasoning_content": prose(nonce + "r", 200)}
    armed = [_system(nonce[6:] + nonce[:6], prompt_tokens), user]
    with_tools = {"messages": armed, "tools": tools()}
    permuted = {"messages": armed, "tools": tools()[::-1]}
    other_on = [*other, answer, _user("And after that?")]
    return [
        Question("first", "a new prompt", {"messages": [system, user]}, control=True),
        Question("again", "the same prompt", {"messages": [system, user]}, ("first",), goes_back=True),
        Question("turn", "the same prompt, one more turn", {"messages": turn}, ("again",)),
        Question(
            "tail",
            "the first prompt, its end edited",
            {"messages": [system, edited]},
            ("again", "turn"),
            goes_back=True,
        ),
        Question("head", "start edited: must recompute", {"messages": other}, control=True),
        Question("back", "the first chat after another one", {"messages": back}, ("tail",), goes_back=True),
        Question("tools", "a prompt with tools", with_tools, optional=True),
        Question("tools-again", "same prompt, same tools", with_tools, ("tools",), goes_back=True),
        Question("pair-a", "two at once, the first chat", {"messages": back_on}, ("back",), "pair-b", goes_back=True),
        Question("pair-b", "two at once, the other chat", {"messages": other_on}, ("head",), goes_back=True),
        Question("system", "a system message in the middle", {"messages": middle}, ("pair-a",), optional=True),
        Question("look", "a prompt with an image", {"messages": look}, ("pair-a",), optional=True, picture=behind),
        Question(
            "image",
            "the same image prompt again",
            {"messages": look},
            ("look",),
            optional=True,
            goes_back=True,
            picture=behind,
        ),
        Question(
            "reasoning",
            "old reasoning sent back",
            {"messages": [system, edited, thought, more]},
            ("back",),
            optional=True,
        ),
        Question("permuted", "tools in another order", permuted, ("tools-again",), optional=True),
        Question(
            "messages",
            "last chat by /v1/messages",
            {"messages": back_on},
            ("pair-a", "system"),
            optional=True,
            goes_back=True,
        ),
    ]


def forced(first: Question) -> Question:
    """Give the question for a server that reused nothing: the same prompt, with reuse requested explicitly."""
    return Question(
        "forced",
        "again with cache_prompt true",
        first.body,
        ("again",),
        goes_back=True,
        extra=(("cache_prompt", True),),
    )


def short(nonce: str) -> Question:
    """Give the question that measures the time of an answer without a prompt to compute; for servers that count
    nothing."""
    return Question("short", "to measure the reply time", {"messages": [_user(f"{nonce} ?")]})


def pictured(ask: Question, seed: str) -> Body:
    """Give the body with its image: noise that is the same for a seed."""
    *before, last = ask.body["messages"]
    url = f"data:image/png;base64,{base64.b64encode(_png(seed)).decode()}"
    said, behind = ({"type": "text", "text": text} for text in (last["content"], ask.picture))
    parts = [said, {"type": "image_url", "image_url": {"url": url}}, behind]
    return {**ask.body, "messages": [*before, {**last, "content": parts}]}


def _png(seed: str) -> bytes:
    """Give a PNG of 8-bit RGB, 64 pixels wide and high (https://www.w3.org/TR/png-3/)."""
    colours = random.Random(seed)  # noqa: S311 - nothing here is secret
    tile = bytes(colours.randrange(256) for _ in range(3 * _SIDE))
    rows = b"".join(b"\0" + tile[3 * row :] + tile[: 3 * row] for row in range(_SIDE))
    head = struct.pack(">2I5B", _SIDE, _SIDE, 8, 2, 0, 0, 0)
    chunks = [b"IHDR" + head, b"IDAT" + zlib.compress(rows), b"IEND"]
    parts = (struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def words(body: Body) -> str:
    """Give the prompt approximately as templates write it: tools, then the messages."""
    parts = [json.dumps(tool) for tool in body.get("tools", [])]
    return "\n".join(
        [*parts, *(f"{m['role']}\n{m.get('reasoning_content', '')}{m['content']}" for m in body["messages"])]
    )


def common(a: list[int] | str, b: list[int] | str) -> int:
    """Return the length of the common prefix of two prompts."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _system(nonce: str, prompt_tokens: int) -> Body:
    return {"role": "system", "content": f"{nonce} is your name. " + prose(nonce, prompt_tokens * _CHARS * 3 // 4)}


def _user(text: str) -> Body:
    return {"role": "user", "content": text}
