"""What clients send in the cases.

Every function takes a Client and sends through it. A probe's ``expect`` is counted in characters of the messages that
an earlier request had too, which is their length in tokens without the frames of the template: never too much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from e2e.client import Client, Message, prose, size, system, tool, user

HEAD = 2000
"""Tokens of a system prompt: enough that losing it is a warning."""
Traffic = Callable[[Client], None]


def assistant(reply: str, reasoning: str = "") -> Message:
    message = {"role": "assistant", "content": reply}
    return {**message, "reasoning_content": reasoning} if reasoning else message


def grow(client: Client, messages: list[Message], label: str, seed: int, **fields: Any) -> None:
    """Add a user message, send, and add the reply; what was sent before is to be reused."""
    expect = size(messages) if len(messages) > 1 else None
    messages.append(user(prose(seed, 300)))
    messages.append(assistant(client.chat(messages, expect, label, **fields)))


def taking_turns(conversations: int, rounds: int = 3, longer: int = -500, first: int = 2 * HEAD) -> Traffic:
    """Several conversations, one request of each in turn; each begins ``longer`` tokens longer than the last."""

    def send(client: Client) -> None:
        threads = [[system(prose(100 + i, first + longer * i))] for i in range(conversations)]
        for step in range(rounds):
            for i, messages in enumerate(threads):
                grow(client, messages, f"{'ABCDEFGH'[i]}{step + 1}", 10 * i + step)

    return send


def named_empty_slot(client: Client) -> None:
    """Two conversations on slot 0; then the first one names slot 1, which is empty, unless the client names none."""
    first, second = [system(prose(1, 2 * HEAD))], [system(prose(2, HEAD))]

    def send(messages: list[Message], slot: int, label: str, seed: int) -> None:
        grow(client, messages, label, seed, **({"id_slot": slot} if client.habits.get("names_slots", True) else {}))

    send(first, 0, "A1", 10)
    send(second, 0, "B1", 20)
    send(first, 1, "A2", 11)
    send(second, 0, "B2", 21)


def restored_file(client: Client) -> None:
    """One slot: a conversation is saved to a file, grows, and leaves for another; then the file is restored.

    The file has its first turn, unless the client saves its last one.
    """
    first, second = [system(prose(1, HEAD))], [system(prose(2, HEAD))]
    grow(client, first, "A1", 10)
    client.slot_file("save")
    first.append(user(prose(11, HEAD)))
    first.append(assistant(client.chat(first)))
    if client.habits.get("saves_last_turn"):
        client.slot_file("save")
    grow(client, second, "B1", 20)
    client.slot_file("restore")
    grow(client, first, "A3", 13)
    grow(client, [system(prose(3, HEAD))], "C1", 30)


def changing_head(line: Callable[[Client, int], str]) -> Traffic:
    """One conversation whose system prompt begins with what ``line`` gives for each request."""

    def send(client: Client) -> None:
        body, messages = prose(1, HEAD), list[Message]()
        for step in range(4):
            expect = HEAD + size(messages) if step else None
            messages.append(user(prose(20 + step, 300)))
            head = system(line(client, step) + body)
            messages.append(assistant(client.chat([head, *messages], expect, f"turn {step + 1}")))

    return send


def billing_line(client: Client, step: int) -> str:
    """The header of a client that reads CLAUDE_CODE_ATTRIBUTION_HEADER as Claude Code does: 0 turns it off."""
    if client.env.get("CLAUDE_CODE_ATTRIBUTION_HEADER", "1").lower() in ("0", "false", "no", "off"):
        return ""
    cch = ("82c9b", "b791f", "0d3e6", "5fa10")[step]
    return f"x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch={cch};\n"


def dated_line(client: Client, step: int) -> str:
    """A date and time that is new in every request, unless the client freezes it for the conversation."""
    minute = 0 if client.habits.get("frozen") else 7 * step + 3
    return f"Current date and time: 2026-11-20 14:{minute:02d}:{minute:02d} UTC\n\n"


def uncached(client: Client) -> None:
    """One conversation; the client sends its own idea of cache_prompt, if it has one."""
    fields = {"cache_prompt": client.habits["cache_prompt"]} if "cache_prompt" in client.habits else {}
    messages = [system(prose(1, HEAD))]
    for step in range(4):
        grow(client, messages, f"turn {step + 1}", step, **fields)


def regenerated(last: int) -> Traffic:
    """The last user message, ``last`` tokens long, is edited and sent again, twice; all before it is unchanged."""

    def send(client: Client) -> None:
        messages = [system(prose(1, HEAD))]
        for step in range(2):
            grow(client, messages, f"turn {step + 1}", step)
        shared = size(messages)
        client.chat([*messages, user(prose(50, last))])
        for step in range(2):
            append_only = [user(prose(50, last)), assistant("1")] if client.habits.get("append_only") else []
            edited = [*messages, *append_only, user(f"{step} {prose(60 + step, last)}")]
            client.chat(edited, shared + size(append_only), f"edit {step + 1}")

    return send


def reply_replaced(first: int) -> Traffic:
    """Two conversations whose first prompt has about ``first`` tokens, and whose reply the client replaces."""

    def send(client: Client) -> None:
        for i in range(2):
            opening = [system(prose(i, first - 150)), user(prose(10 + i, 100))]
            client.chat(opening)
            other = [*opening, assistant("another reply"), user(prose(20 + i, 1500))]
            client.chat(other, size(opening), f"{'AB'[i]}2")

    return send


def long_prompt(tokens: int) -> Traffic:
    """A conversation whose first prompt has ``tokens`` tokens, and its next turn."""

    def send(client: Client) -> None:
        messages = [system(prose(1, tokens - 400)), user(prose(2, 300))]
        reply = client.chat(messages, 0, "first")
        client.chat([*messages, assistant(reply), user(prose(3, 100))], size(messages), "second")

    return send


def same_again(client: Client) -> None:
    """A prompt is sent three times; its reply has one token."""
    messages = [system(prose(1, HEAD)), user(prose(2, 300))]
    client.chat(messages, tokens=1)
    for step in range(2):
        client.chat(messages, size(messages), f"again {step + 1}", tokens=1)


def parted_at_checkpoint(client: Client) -> None:
    """A text, and another that diverges 4 tokens before its end: there these builds make their last checkpoint."""
    text = prose(1, 3000)
    client.complete(text)
    client.complete(text[:-4] + "####" + prose(2, 400), 3000 - 4, "second text")


def middle_edited(client: Client) -> None:
    """A conversation of two long messages; the second is edited, twice, and after it the client continues."""
    head = [system(prose(1, 2 * HEAD)), user(prose(2, 200)), assistant("noted")]
    client.chat([*head, user(prose(3, 3000))])
    for step in range(2):
        client.chat([*head, user(prose(10 + step, 3000))], size(head), f"edit {step + 1}")


def long_replies(client: Client) -> None:
    """Replies that fill a context of 3,072 tokens, and the turn after each."""
    for i in range(2):
        messages = [system(prose(i, HEAD)), user(prose(10 + i, 300))]
        reply = client.chat(messages, tokens=1200, label=f"{'AB'[i]}1")
        client.chat([*messages, assistant(reply[:200]), user(prose(20 + i, 100))], size(messages), f"{'AB'[i]}2")


def reasoning(thought: int, result: int, first: int = 3 * HEAD) -> Traffic:
    """Tool loops after a head of ``first`` tokens: before each call ``thought`` tokens, after it ``result``.

    Each new user message makes the template drop the reasoning before it, unless it is told to preserve it.
    """

    def send(client: Client) -> None:
        messages = [system(prose(1, first)), user(prose(2, 200))]
        sent: list[Message] = []
        for turn in range(3):
            for step in range(3):
                # A reply is rendered after its reasoning, which was no part of what was generated: it is not reusable.
                expect = size(sent) if step == 0 and turn else None
                reply = client.chat(messages, expect, f"user message {turn + 1}")
                sent = list(messages)
                messages.append(assistant(reply, prose(100 + 10 * turn + step, thought)))
                if step < 2:
                    messages.append(tool(prose(200 + 10 * turn + step, result)))
            messages.append(user(prose(300 + turn, 200)))

    return send
