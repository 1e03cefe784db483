"""CD704: a program prints where a prompt diverges from what it held, and much that it held comes after that place."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.programs import own_settings


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Say it of prompts that parted after a common beginning, and of those that have hardly anything in common."""
    found = []
    if (said := kit.stated(session, "parted")) is not None:
        found.append(_history(session, said))
    if (said := kit.stated(session, "parted_early")) is not None:
        found.append(_head(session, said))
    return found


def _place(said: kit.Incident) -> str:
    n = said.numbers
    worst = "in the worst one" if said.count > 1 else ""
    said_by_itself = f" ({said.field})" if " " not in said.field and said.field else ""
    return f"token {kit.n(n['place'])} of {kit.n(n['held'])}{said_by_itself}{worst}"


def _history(session: kit.Session, said: kit.Incident) -> kit.SessionFinding:
    tokens = said.numbers["tokens"]
    return kit.finding(
        f"{kit.times(said.count)} diverged from what {session.program} held at {_place(said)}: {kit.n(tokens)} tokens after it differ",
        "Up to that place the prompt is unchanged. After it the text differs, and nothing after a difference can be reused. A client does this "
        "when it rewrites its history: it moves a system message, drops reasoning or old tool results, or summarises. Another conversation with the same beginning (system prompt and tools) looks the same, and is fine.",
        [
            own_settings.compare(),
            *own_settings.room(session),
            kit.Remedy("Make the client append only: it should add or drop text only at the end of the conversation."),
        ],
        key="history",
        evidence=[(said.mark, "where the prompt diverges")],
        confidence="low",
    )


def _head(session: kit.Session, said: kit.Incident) -> kit.SessionFinding:
    return kit.finding(
        f"{kit.times(said.count)} diverged at the beginning from what {session.program} held: {_place(said)}",
        "Either the client changes the beginning of its prompts (a clock, an id, the order of its tools), or another conversation used the server. The log cannot show "
        "which; the second is fine.",
        [
            own_settings.compare(),
            *own_settings.room(session),
        ],
        key="head",
        evidence=[(said.mark, "where the prompt diverges")],
        confidence="low",
    )


RULE = kit.session_rule(
    __name__,
    "A program logs where prompts diverge from what it held",
    inspect,
    engine="omlx",
    on=("parted", "parted_early"),
)
