"""CD704: a program prints where a prompt parts from what it held, and much that it held stands behind that place."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.programs import own_settings


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Say it of prompts that parted behind a common beginning, and of those that have hardly anything in common."""
    found = []
    if (said := kit.stated(session, "parted")) is not None:
        found.append(_history(session, said))
    if (said := kit.stated(session, "parted_early")) is not None:
        found.append(_head(session, said))
    return found


def _place(said: kit.Incident) -> str:
    n = said.numbers
    worst = ", in the worst of them" if said.count > 1 else ""
    said_by_itself = f" ({said.field})" if " " not in said.field and said.field else ""
    return f"token {kit.n(n['place'])} of {kit.n(n['held'])}{said_by_itself}{worst}"


def _history(session: kit.Session, said: kit.Incident) -> kit.SessionFinding:
    tokens = said.numbers["tokens"]
    return kit.finding(
        f"{kit.times(said.count)} parted from what {session.program} held at {_place(said)}: {kit.n(tokens)} tokens behind differ",
        "Up to that place the prompt is what was sent before. There it goes on otherwise, and nothing behind a difference can be reused. A client does this "
        "that rewrites its history: it moves a system message, drops reasoning or old tool results, or sums up. Another conversation with the same beginning (system prompt and tools) looks the same, and nothing is wrong with it.",
        [
            own_settings.compare(),
            *own_settings.room(session),
            kit.Remedy("Let the client append only: what it adds or drops belongs to the end of the conversation."),
        ],
        key="history",
        ruled_out=[_ANOTHER],
        evidence=[(said.mark, "where the prompt parts")],
        confidence="low",
    )


_ANOTHER = kit.RuledOut(
    "new-conversations", "not excluded: another conversation that begins alike; nothing is to mend then"
)


def _head(session: kit.Session, said: kit.Incident) -> kit.SessionFinding:
    return kit.finding(
        f"{kit.times(said.count)} parted from what {session.program} held at the beginning: {_place(said)}",
        "Either the client changes the beginning of its prompts (a clock, an id, the order of its tools), or another conversation came. The log does not tell "
        "which, and with the second nothing is wrong.",
        [
            own_settings.compare(),
            *own_settings.room(session),
        ],
        key="head",
        ruled_out=[_ANOTHER],
        evidence=[(said.mark, "where the prompt parts")],
        confidence="low",
    )


RULE = kit.session_rule(
    __name__,
    "A program prints where prompts part from what it held",
    inspect,
    engine="omlx",
    on=("parted", "parted_early"),
)
