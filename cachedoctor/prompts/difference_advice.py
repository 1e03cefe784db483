"""What to do about each kind of difference, for the client at hand where it is known. Knows kinds; compares nothing."""

from __future__ import annotations

import re

from cachedoctor.model import Advice
from cachedoctor.prompts.prompt import Prompt

_LOOK = 20_000
"""Code points at the head of a prompt in which a client names itself."""
_CLIENTS = (
    ("claude-code", re.compile(r"x-anthropic-billing-header:|You are Claude Code\b|Claude Agent SDK")),
    ("opencode", re.compile(r"\bYou are (?:an? )?opencode\b", re.I)),
    ("open-webui", re.compile(r"\bOpen WebUI\b|### Task:\nGenerate (?:a concise|1-3 broad tags)")),
    ("sillytavern", re.compile(r"\bSillyTavern\b|\[Start a new [Cc]hat\]|'s next reply in a fictional chat between")),
)
_OPENCODE_FILES = "OpenCode: keep AGENTS.md and what `instructions` in opencode.json lists the same during a session."

HEADER = [
    Advice(
        'Turn the header off in Claude Code: in its environment, or under "env" in ~/.claude/settings.json as '
        '{"env": {"CLAUDE_CODE_ATTRIBUTION_HEADER": "0"}}.',
        ["export CLAUDE_CODE_ATTRIBUTION_HEADER=0"],
    ),
    Advice("Behind a proxy or a router: drop the system block that starts with x-anthropic-billing-header."),
]
_CCH = Advice(
    "llama-server from b8929 on rewrites cch= to a constant, only on /v1/messages; what a proxy turns into "
    "/v1/chat/completions keeps it."
)
_OTHER_FIELD = Advice("No llama-server build rewrites this field, so only turning the header off or dropping it helps.")
_FREEZE = Advice("Freeze the value for the whole conversation, or move it to the end of the last user message.")
_KEEP_REASONING = [
    Advice(
        "llama-server from b9873 on keeps reasoning if the template can; from b10809 on that is the default. "
        "It costs context.",
        ["llama-server ... --reasoning-preserve"],
    ),
    Advice(
        "Older builds, with a template that knows the switch (Qwen3.5 and newer; GLM has clear_thinking=false):",
        ["llama-server ... --chat-template-kwargs '{\"preserve_thinking\":true}'"],
    ),
    Advice(
        "The client must send the reasoning of earlier turns back unchanged, as reasoning_content (llama-server "
        "accepts it since January 2026; vLLM from 0.20 on wants `reasoning`)."
    ),
]
_TOOLS = Advice("Keep the list of tools the same for the whole conversation: it stands in front of everything else.")
_HISTORY = Advice("Only append to the history. What is new, or changes, belongs into the last user message.")
_HEAD = Advice(
    "Keep the beginning of the prompt the same for the whole conversation: it stands in front of everything else. What "
    "changes belongs into the last user message."
)
_FIRST = re.compile(r"(?:system|instructions|messages\[0\]|input\[0\])(?:$|[.\[])")
"""Places at the head of a request, where there is no history to append to."""
_CUT = Advice(
    "Cut rarely and in large pieces: each cut recomputes everything behind the head. Or give the conversation a larger "
    "context. Hybrid and recurrent models recompute all of it if no checkpoint lies in front of the cut."
)

_GENERIC: dict[str, list[Advice]] = {
    "timestamp": [_FREEZE, Advice("If the day is enough, send the date without the time.")],
    "uuid": [_FREEZE],
    "random-id": [
        _FREEZE,
        Advice("Ids of tool calls: the client must send each back as it came, not make a new one for every request."),
    ],
    "counter": [Advice("Take the number out of the prompt, or move it to the end of the last user message.")],
    "path": [Advice("Start the client in the same folder, or move the path to the last user message.")],
    "git-state": [
        Advice("Read the state of the repository once per conversation, or through a tool when it is needed.")
    ],
    "json-key-order": [Advice("Write JSON with sorted keys, or send back the very text that the model wrote.")],
    "json-spacing": [Advice("Send back the very text that the model wrote, instead of parsing and writing it again.")],
    "tool-added": [_TOOLS, Advice("MCP: connect all servers before the first request, and load no tools later on.")],
    "tool-removed": [
        _TOOLS,
        Advice("MCP: a server that reconnects must not change the list; pin the tools that are used."),
    ],
    "tools-reordered": [
        Advice("Sort the tools by name in the client or in a proxy; MCP servers give them in any order.")
    ],
    "tool-edited": [
        _TOOLS,
        Advice("Nothing that changes (a date, a path, a count) belongs into a tool's description."),
    ],
    "reasoning-dropped": _KEEP_REASONING,
    "reasoning-added": [
        Advice("Send the reasoning of a turn in every later request, or in none."),
        Advice(
            "From b10809 on llama-server keeps reasoning by default; to leave it out everywhere:",
            ["llama-server ... --no-reasoning-preserve"],
        ),
    ],
    "message-edited": [
        _HISTORY,
        Advice("After a real edit this is expected: what stands behind it must be computed again."),
    ],
    "message-removed": [_HISTORY],
    "message-inserted": [_HISTORY],
    "message-moved": [_HISTORY],
    "front-truncated": [_CUT],
    "compacted": [Advice("Expected once per compaction. Compact rarely, or give the conversation a larger context.")],
    "whitespace": [Advice("Send every message back byte for byte: do not trim, wrap or convert line ends.")],
    "retokenised": [
        Advice(
            "The model wrote tokens that its own text does not split into; no client can change that. "
            "It costs little on attention memory; hybrid and recurrent models need a checkpoint in front of it."
        )
    ],
    "image": [Advice("Send the same bytes of an image in every request: do not scale or encode it again.")],
    "template": [
        Advice("Use one chat template, with the same chat_template_kwargs and reasoning settings, for all requests."),
        Advice(
            "At the opening of a reply it costs few tokens; hybrid and recurrent models need a checkpoint "
            "in front of it."
        ),
    ],
    "special-token": [
        Advice("Let either the client or the server write this token: raw prompts must not bring their own.")
    ],
    "appended": [],
    "other": [Advice("Keep the prompt the same up to the last user message; what changes belongs there.")],
}

_BY_CLIENT: dict[tuple[str, str], list[Advice]] = {
    ("claude-code", "git-state"): [
        Advice(
            "Claude Code: leave the git status out of the system prompt (its commit instructions go with it).",
            ["export CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS=1"],
        )
    ],
    ("opencode", "message-moved"): [
        Advice(
            "OpenCode 1.14.19 moves its <system-reminder> to the newest user message (issue 23595, open): a client bug."
        )
    ],
    ("opencode", "reasoning-dropped"): [Advice("OpenCode: update; its loss of reasoning (issue 19081) is closed.")],
    ("opencode", "message-edited"): [Advice(_OPENCODE_FILES)],
    ("open-webui", "timestamp"): [
        Advice(
            "Open WebUI: take {{CURRENT_DATETIME}} and {{CURRENT_TIME}} out of the system prompt; {{CURRENT_DATE}} "
            "changes once a day."
        )
    ],
    ("open-webui", "other"): [
        Advice(
            "Open WebUI sends titles, tags and follow-ups as requests of their own: turn them off or give them a "
            "model of their own (Admin Settings, Interface).",
            ["export ENABLE_TITLE_GENERATION=False ENABLE_TAGS_GENERATION=False ENABLE_FOLLOW_UP_GENERATION=False"],
        )
    ],
    ("sillytavern", "timestamp"): [Advice("SillyTavern: take {{time}} and {{date}} out of the card and the prompts.")],
}
_SILLY = Advice(
    "SillyTavern: lorebook entries, author's note and {{random}} at a depth change the history; put them at the end "
    "(depth 0). KoboldCpp keeps several prompts with --smartcache."
)
for _kind in ("message-edited", "message-inserted", "message-moved", "message-removed"):
    _BY_CLIENT["sillytavern", _kind] = [_SILLY]
_SIDE = Advice(
    "Requests of their own (titles, summaries, subagents) need a slot of their own: more slots (-np) or the RAM "
    "prompt cache."
)


def advise(kind: str, field: str | None, a: Prompt, b: Prompt) -> list[Advice]:
    """What to do about a difference of this kind, the most specific first."""
    if kind == "billing-header":
        return [*HEADER, _CCH if field == "cch" else _OTHER_FIELD]
    found = [advice for name in clients(a, b) for advice in _BY_CLIENT.get((name, kind), [])]
    if kind == "other" and field == "conversation":
        return [*found, _SIDE]
    return [*found, *_GENERIC[kind]]


def at(place: str | None, advice: list[Advice]) -> list[Advice]:
    """The same advice for a place in the request: of a head nobody can say that it is only to be appended to."""
    if place is None or _FIRST.match(place) is None:
        return advice
    return [_HEAD if one is _HISTORY else one for one in advice]


def clients(a: Prompt, b: Prompt) -> list[str]:
    """The clients that name themselves at the head of the prompts."""
    heads = [a.text[:_LOOK], b.text[:_LOOK]]
    return [name for name, pattern in _CLIENTS if any(pattern.search(text) for text in heads)]
