"""What the first difference between two prompts is, and what to do about each kind."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cachedoctor.knowledge import clients
from cachedoctor.model import Advice, KnownClient
from cachedoctor.prompts import client_habits
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.recognisers import client_marks, edited_messages, generated_values, markup, tools
from cachedoctor.prompts.recognisers import edited_messages as hoisted
from cachedoctor.prompts.recognisers import markup as jsons
from cachedoctor.prompts.recognisers.base import FirstDifference, Recogniser, Recognition, shown, snippet

_STRIP = Advice("Behind a proxy or a router: remove the system block that starts with x-anthropic-billing-header.")
_CCH = Advice(
    "From b8929 on, llama-server rewrites cch= to a constant, but only on /v1/messages. If a proxy converts the "
    "request to /v1/chat/completions, the header stays."
)
_OTHER_FIELD = Advice("No llama-server build rewrites this field, so only turning the header off or removing it helps.")
_FREEZE = Advice("Freeze the value for the whole conversation, or move it to the end of the last user message.")
_KEEP_REASONING = [
    Advice(
        "From b9873 on, llama-server can keep reasoning if the template supports it; from b10809 on it does so by "
        "default. Kept reasoning uses context.",
        ["--reasoning-preserve"],
    ),
    Advice(
        "Older builds, with a template that has the switch (Qwen3.5 and newer; GLM has clear_thinking=false):",
        ["--chat-template-kwargs '{\"preserve_thinking\":true}'"],
    ),
    Advice(
        "The client must send the reasoning of earlier turns back unchanged, as reasoning_content (llama-server "
        "has accepted it since January 2026; vLLM expects `reasoning` from 0.20 on)."
    ),
]
_TOOLS = Advice(
    "Keep the tool list the same for the whole conversation; most templates write it before everything else."
)
_HISTORY = Advice("Only append to the history. Put new or changing text into the last user message.")
_OPENING = Advice(
    "Keep the system prompt and the first message the same for the whole conversation, because they come first. "
    "Put changing text into the last user message."
)
_OF_HISTORY = ("message-edited", "message-removed", "message-inserted", "message-moved")
_CUT = Advice(
    "Truncate rarely and in large pieces, because each time everything after the start is recomputed. Or give "
    "the conversation "
    "a larger context. Hybrid and recurrent models recompute the whole prompt if no checkpoint precedes the change."
)

_GENERIC: dict[str, list[Advice]] = {
    "timestamp": [_FREEZE, Advice("If the day is enough, send the date without the time.")],
    "uuid": [_FREEZE],
    "random-id": [
        _FREEZE,
        Advice("The client must send each tool call id back unchanged instead of making a new id for every request."),
    ],
    "counter": [Advice("Remove the number from the prompt, or move it to the end of the last user message.")],
    "path": [Advice("Start the client in the same folder, or move the path to the last user message.")],
    "git-state": [Advice("Read the repository state once per conversation, or through a tool when needed.")],
    "json-key-order": [Advice("Write JSON with sorted keys, or send back exactly the text that the model wrote.")],
    "json-spacing": [Advice("Send back exactly the text that the model wrote, instead of parsing and serialising it.")],
    "tool-added": [_TOOLS, Advice("MCP: connect all servers before the first request, and load no tools later.")],
    "tool-removed": [
        _TOOLS,
        Advice("MCP: a server that reconnects must not change the list; pin the tools you use."),
    ],
    "tools-reordered": [
        Advice("Sort the tools by name in the client or in a proxy; MCP servers list them in any order.")
    ],
    "tool-edited": [
        _TOOLS,
        Advice("Do not put changing values (a date, a path, a count) into a tool's description."),
    ],
    "reasoning-dropped": _KEEP_REASONING,
    "reasoning-added": [
        Advice("Send the reasoning of a turn in every later request, or in none."),
        Advice(
            "From b10809 on llama-server keeps reasoning by default; to drop it everywhere:",
            ["--no-reasoning-preserve"],
        ),
    ],
    "message-edited": [
        _HISTORY,
        Advice("This is expected after a real edit: everything after the edit must be recomputed."),
    ],
    "message-removed": [_HISTORY],
    "message-inserted": [_HISTORY],
    "message-moved": [_HISTORY],
    "front-truncated": [_CUT],
    "compacted": [
        Advice("This is expected once per compaction. Compact rarely, or give the conversation a larger context.")
    ],
    "whitespace": [Advice("Send every message back byte for byte: do not trim, wrap or convert line endings.")],
    "retokenised": [
        Advice(
            "The generated tokens differ from the tokens of their own text; no client can change that. The "
            "difference costs little with full attention; hybrid and recurrent models need a checkpoint before the "
            "change."
        )
    ],
    "image": [Advice("Send the same bytes of an image in every request: do not scale or re-encode it.")],
    "template": [
        Advice("Use one chat template, with the same chat_template_kwargs and reasoning settings, for all requests."),
        Advice(
            "At the start of a reply this costs few tokens; hybrid and recurrent models need a checkpoint "
            "before the change."
        ),
    ],
    "special-token": [
        Advice("Let only the client or only the server write this token; raw prompts must not add their own.")
    ],
    "system-hoisted": [
        Advice(
            "Send such text inside a user message. Or leave system messages where they are, because servers, "
            "gateways and templates that accept system messages only at the start move each new one there."
        )
    ],
    "mode-switched": [
        Advice("Give all modes the same list of tools, and state in the last message which tools may be used now.")
    ],
    "compaction-request": [
        Advice(
            "Request the summary at the end of the conversation itself: same system prompt, same tools, and the "
            "question as the last message."
        ),
        Advice("Otherwise each compaction recomputes the conversation: compact rarely."),
    ],
    "cache-salt": [
        Advice("Send the same cache_salt in all requests that may share a beginning, at least within a conversation.")
    ],
    "adapter": [
        Advice("Send the same adapters, with the same scales, in all requests of a conversation."),
    ],
    "appended": [],
    "other": [Advice("Keep the prompt the same up to the last user message; put changing text there.")],
}

_SIDE = Advice(
    "Side requests (titles, summaries, subagents) need their own slot: more slots (-np) or the RAM prompt cache."
)


def advise(
    kind: str, field: str | None, known: Sequence[clients.KnownHabit] = (), opening: bool = False
) -> list[Advice]:
    """What to do about a difference of this kind, the most specific first.

    ``known`` are the habits of clients that explain it. ``opening``: the system prompt or the first message differs,
    where advice to append to the history would miss.
    """
    found = [advice_of(k.habit) for k in known]
    if kind == "billing-header":
        own = found or [advice_of(clients.known("claude-code/billing-header").habit)]
        return [*own, _STRIP, _CCH if field == "cch" else _OTHER_FIELD]
    if kind == "other" and field == "conversation":
        return [*found, _SIDE]
    if opening and kind in _OF_HISTORY:
        return [*found, _OPENING]
    return [*found, *_GENERIC[kind]]


def advice_of(habit: clients.Habit) -> Advice:
    """What stops a habit of a client, and the version that no longer has it."""
    fixed = f" Version {habit.fixed} no longer causes this change." if habit.fixed is not None else ""
    return Advice(f"{habit.stop}{fixed}", habit.commands)


__all__ = ["REGISTRY", "RecognisedDifference", "recognise"]


class RecognisedDifference(msgspec.Struct):
    """What differs first."""

    kind: str
    """Stable handle: ``billing-header``, ``timestamp``, ``tool-added``, ..."""
    field: str | None
    """What varies in it (``cch``), or its name (``Tokens used``)."""
    a: str
    """The smallest distinctive piece of the first prompt; empty if there is none."""
    b: str
    explanation: str
    """One clause that can come after a colon."""
    advice: list[Advice]
    sure: bool
    """True if similar causes are excluded."""
    client: KnownClient | None = None
    """Client that writes it, if the prompts prove it."""


REGISTRY: tuple[Recogniser, ...] = (
    markup.image,
    client_marks.cache_salt,
    client_marks.adapter,
    markup.retokenised,
    markup.appended,
    client_marks.billing_header,
    client_marks.compaction_request,
    # Both sides say the same, in other words.
    jsons.json_key_order,
    jsons.json_spacing,
    markup.whitespace,
    markup.special_token,
    markup.template,
    # Lists that are equal but for whole items: too telling to be taken for a value inside an item.
    markup.reasoning_dropped,
    markup.reasoning_added,
    hoisted.system_hoisted,
    tools.tool_added,
    tools.tool_removed,
    tools.tools_reordered,
    edited_messages.front_truncated,
    edited_messages.text_truncated,
    edited_messages.message_moved,
    edited_messages.message_inserted,
    edited_messages.message_removed,
    generated_values.value,
    # An item that changed, in ways that no value explains.
    tools.tool_edited,
    edited_messages.compacted,
    generated_values.value_and_more,
    edited_messages.message_edited,
    edited_messages.other_conversation,
    markup.template_alone,
)
"""Recognisers in their order; the first match wins."""


def recognise(a: Prompt, b: Prompt, offset: int, same_text: bool = False) -> RecognisedDifference:
    """Say what differs at ``offset``, the first differing code point of the two texts.

    ``offset`` may be the length of the shorter text. ``same_text``: the caller knows the texts to be equal and only
    their tokens to differ.
    """
    d = FirstDifference(a, b, offset, same_text)
    found = next((found for recogniser in REGISTRY if (found := recogniser(d))), None) or _other(d)
    known = client_habits.known(found.kind, found.field, a, b, d.offset)
    return RecognisedDifference(
        kind=found.kind,
        field=found.field,
        a=shown(found.a),
        b=shown(found.b),
        explanation=found.explanation,
        advice=advise(found.kind, found.field, known, _opening(d)),
        sure=found.sure,
        client=client_habits.named(known),
    )


def _opening(d: FirstDifference) -> bool:
    """Whether the system prompt or the first message after it is what differs."""
    history = edited_messages.histories(d)
    return history is not None and history.at <= history.heads


def _other(d: FirstDifference) -> Recognition:
    a, b = snippet(d)
    return Recognition("other", a, b, "the texts differ in an unrecognised way", None, False)
