"""Clients that change what the server holds: each gives the next body of its conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from e2e.client import prose, system, user

Message = dict[str, Any]
Body = dict[str, Any]
TURNS = 6


class Faulty(NamedTuple):
    """A client, and the fix that is for it."""

    name: str
    fix: str
    body: Callable[[int, list[Message]], Body]
    """Body of the n-th request of a conversation, of which the messages so far are given."""
    path: str = "/v1/chat/completions"
    options: tuple[str, ...] = ()
    tokens: int = 16
    """Of each answer."""
    is_refused: bool = False
    """The server refuses what the fix makes of it."""


HEAD = prose(1, 1500)


def _tool(name: str) -> Body:
    return {"type": "function", "function": {"name": name, "description": prose(len(name), 200), "parameters": {}}}


def _billing(n: int, said: list[Message]) -> Body:
    header = f"x-anthropic-billing-header: cc_version=2.1.36.a; cc_entrypoint=cli; cch={0xABCDE + n:05x};"
    return {"messages": [system(f"{header}\n{HEAD}"), *said]}


def _clock(n: int, said: list[Message]) -> Body:
    return {"messages": [system(f"It is Monday, 23 November 2026, 10:{n:02d}:07.\n{HEAD}"), *said]}


def _shuffled(n: int, said: list[Message]) -> Body:
    tools = [_tool(name) for name in ("read", "write", "search")]
    return {"messages": [system(HEAD), *said], "tools": tools[n % 3 :] + tools[: n % 3]}


def _modes(n: int, said: list[Message]) -> Body:
    """Tools come and go with a mode; the last one is there from the fourth request on."""
    names = ["read", "write", "search"] if n % 2 == 0 else ["read", "search"]
    return {"messages": [system(HEAD), *said], "tools": [_tool(name) for name in [*names, *["plan"] * (n > 2)]]}


def _thoughtless(n: int, said: list[Message]) -> Body:
    """Leaves the reasoning of all earlier answers out, in a loop of tools, where templates keep it."""
    bare = [{k: v for k, v in message.items() if k != "reasoning_content"} for message in said]
    return {"messages": [system(HEAD), *bare], "chat_template_kwargs": {"preserve_thinking": True}}


def _reminder(n: int, said: list[Message]) -> Body:
    """Ends with a system message that is new each time and gone in the next request."""
    note = system(f"{9000 - 7 * n} tokens are left. {prose(n, 200)}")
    return {"messages": [system(HEAD), *said, note]}


def _travelling(n: int, said: list[Message]) -> Body:
    """Adds a reminder to the newest message of the user, and to no older one."""
    added = f"\n\n<system-reminder>\n{prose(4, 200)}\n</system-reminder>"
    return {"messages": [system(HEAD), *said[:-1], user(said[-1]["content"] + added)]}


def _wandering(n: int, said: list[Message]) -> Body:
    """Has one system message before the newest message, always the same."""
    return {"messages": [system(HEAD), *said[:-1], system(f"Be brief. {prose(3, 200)}"), *said[-1:]]}


def _anthropic(n: int, said: list[Message]) -> Body:
    return {"system": HEAD, "messages": [*said, system(f"{9000 - 7 * n} tokens are left. {prose(n, 200)}")]}


def asked(n: int) -> Message:
    """What the user says next."""
    return user(prose(100 + n, 300))


# The answer begins inside of its reasoning, which the digits of the model never end.
THINKING = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.reasoning_content %}{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}"
    "{{- m.content or '' }}{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}"
)
# As the templates of some models: all system messages are in front.
HOISTING = (
    "{%- for m in messages if m.role == 'system' %}"
    "{{- '<|im_start|>system\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- for m in messages if m.role != 'system' %}{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') }}"
    "{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
# As those of some models: the user speaks once, then the model.
STRICT = (
    "{%- for m in messages %}{%- if not loop.first and m.role == 'user' and loop.previtem.role == 'user' %}"
    "{{- raise_exception('user and assistant must take turns') }}{%- endif %}{%- endfor %}" + HOISTING
)
TEMPLATES = {"thinking": THINKING, "hoisting": HOISTING, "strict": STRICT}

ALL = [
    Faulty("billing-header", "strip-billing-header", _billing),
    Faulty("clock", "freeze-clock", _clock),
    Faulty("tools-shuffled", "sort-tools", _shuffled),
    Faulty("tools-kept-order", "keep-tools", _shuffled),
    Faulty("tool-modes", "keep-tools", _modes),
    Faulty("reasoning", "keep-reasoning", _thoughtless, options=("thinking",), tokens=400),
    Faulty("reminders", "pin-mid-system", _reminder, tokens=200),
    Faulty("travelling", "keep-reminders", _travelling, tokens=200),
    Faulty("wandering", "pin-mid-system", _wandering, tokens=200),
    Faulty("hoisted", "pin-mid-system", _anthropic, "/v1/messages", ("hoisting",)),
    Faulty("strict", "pin-mid-system", _anthropic, "/v1/messages", ("strict",), is_refused=True),
]
