"""Messages that were added, removed, moved or changed, and system messages moved to the front."""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.prompts import bare_texts
from cachedoctor.prompts.prompt import CHAT, short
from cachedoctor.prompts.recognisers.base import FirstDifference, Recognition, shown, snippet
from cachedoctor.prompts.recognisers.turns import MessageTurn, from_body, from_text, head

_TOOLS = late(r"(?<!\s)\s*+(?:(?<!#)#++ Tools\b|<tools>|\[AVAILABLE_TOOLS\]|(?<!#)#++ Functions\b|<functions>)")
"""What templates write into the system message after the client's own text."""


def system_hoisted(d: FirstDifference) -> Recognition | None:
    """Text was added exactly where the system prompt ended, while the conversation continued after it as it was.

    A client that adds to its own system prompt looks the same, so it is never sure.
    """
    h = histories(d)
    if h is None or not h.heads:
        return None
    heads = head(h.b)
    said, now = h.a[h.heads :], h.b[heads:]
    if len(now) <= len(said) or [turn.key for turn in said] != [turn.key for turn in now[: len(said)]]:
        return None
    added = _added(h, heads)
    if not added:
        return None
    count = "a message" if heads - h.heads <= 1 else f"{heads - h.heads} messages"
    text = f"{count} more at the end of the system prompt; the rest of the conversation is unchanged"
    if heads - h.heads > 1:
        text = text.replace("stands", "stand")
    return Recognition("system-hoisted", "", shown(added), text, "system", False)


def _added(h: Histories, heads: int) -> str:
    """The text after the first prompt's system prompt; empty if that itself changed."""
    if h.at == h.heads and heads > h.heads:
        return h.b[h.heads].text
    if h.at != h.heads - 1 or heads < h.heads:
        return ""
    more = "".join(turn.text for turn in h.b[h.heads : heads])
    return _behind(h.a[h.at], h.b[h.at]) or (more if h.a[h.at].key == h.b[h.at].key else "")


def _behind(old: MessageTurn, new: MessageTurn) -> str:
    """The lines that the new system message has between the client's text of the old one and the template's tools."""
    tools = _TOOLS.search(old.text)
    own, rest = (old.text, "") if tools is None else (old.text[: tools.start()], old.text[tools.start() :])
    own = own.rstrip()
    if not own or len(new.text) <= len(old.text) or not new.text.startswith(own) or not new.text.endswith(rest):
        return ""
    added = new.text[len(own) : len(new.text) - len(rest)]
    return added.strip() if added.lstrip(" ").startswith("\n") else ""


_TRIES = 8
"""Places of a repeated message that are tried."""
_SUMMARY = late(
    r"\bsummar(?:y|i[sz]ed|ies|i[sz]ation)\b|\bcompact(?:ed|ion)\b|conversation so far|previous conversation"
    r"|continued from a|earlier messages",
    re.I,
)
_SUMMARY_REACH = 2000
_REPLY_OPENING = 64
"""Code points of the longest generation prompt."""
_REMINDER = late(r"<system-reminder>[^<]*(?:<(?!/?system-reminder>)[^<]*)*</system-reminder>")
_NAMES = {"": "a message", "tool": "a tool result", "function_call_output": "a tool result", "ipython": "a tool result"}
_ROLES = frozenset({"user", "assistant", "system", "developer", "tool", "function", "model"})
"""Roles of the APIs and of chat templates."""


class Histories(msgspec.Struct):
    """The turns of both prompts."""

    a: list[MessageTurn]
    b: list[MessageTurn]
    at: int
    """Index of the first turn that is not the same in both."""

    @property
    def heads(self) -> int:
        """How many turns make the head of the first prompt."""
        return head(self.a)


def of_bodies(d: FirstDifference) -> Histories | None:
    """The messages of two request bodies."""
    if "bodies" not in d.memo:
        found = [from_body(p.body) if p.body is not None else None for p in (d.a, d.b)]
        d.memo["bodies"] = None if found[0] is None or found[1] is None else _histories(found[0], found[1])
    known = d.memo["bodies"]
    return known if isinstance(known, Histories) else None


def of_texts(d: FirstDifference) -> Histories | None:
    """The turns of two rendered prompts, if the first turn that differs is where the texts do."""
    if "texts" not in d.memo:
        found = [from_text(p) for p in (d.a, d.b)]
        known = None if found[0] is None or found[1] is None else _histories(found[0], found[1])
        d.memo["texts"] = known if known is not None and _holds_offset(known, d.offset) else None
    known = d.memo["texts"]  # type: ignore[assignment]
    return known if isinstance(known, Histories) else None


def histories(d: FirstDifference) -> Histories | None:
    """The turns of both prompts, where they differ at the offset: from the bodies, else from the texts."""
    if any(place.startswith(("tools", "chat_template", "reasoning_effort")) for place in d.places):
        return None
    known = of_bodies(d) or of_texts(d)
    return None if known is None or known.at == len(known.a) == len(known.b) else known


def front_truncated(d: FirstDifference) -> Recognition | None:
    """The oldest messages were dropped; the head stands, and what follows is the later part."""
    h = histories(d)
    if h is None or h.at != h.heads:
        return None
    gone = _gone(h)
    if not gone or _elsewhere(h.a[h.at : h.at + gone], h.a, h.b):
        return None
    behind = " after the start" if h.heads else ""
    text = f"the oldest {_messages(gone)} dropped{behind}; the rest is unchanged"
    return Recognition("front-truncated", _text(h.a[h.at]), _text(h.b[h.at]), text)


def text_truncated(d: FirstDifference) -> Recognition | None:
    """The same of a text without turns: its oldest part after the start was dropped, and it goes on after the rest."""
    texts = (d.a, d.b)
    if any(one.kind in CHAT or from_text(one) is not None for one in texts) or any(map(bare_texts.fills_in, texts)):
        return None
    gone = bare_texts.dropped(d.a.text, d.b.text, d.offset)
    if gone is None:
        return None
    behind = " after the start" if d.offset else ""
    text = f"{gone:,} characters of the oldest text were dropped{behind}; the rest is unchanged"
    return Recognition("front-truncated", *snippet(d), text)


def message_removed(d: FirstDifference) -> Recognition | None:
    """Messages are gone from the middle or the end; those after them are the same."""
    h = histories(d)
    if h is None:
        return None
    gone = _gone(h) or (len(h.a) - h.at if h.at == len(h.b) else 0)
    if not gone or _elsewhere(h.a[h.at : h.at + gone], h.a, h.b):
        return None
    removed = h.a[h.at]
    text = f"{_counted(gone)} removed, the first as number {h.at + 1} of {len(h.a)}"
    return Recognition("message-removed", _text(removed), "", text, removed.role or None)


def message_inserted(d: FirstDifference) -> Recognition | None:
    """Messages come before ones that were there before."""
    h = histories(d)
    if h is None:
        return None
    came = _gone(_swap(h))
    if not came and h.at == len(h.a) and len(d.a.text) - d.offset <= _REPLY_OPENING:
        came = len(h.b) - h.at  # where the first prompt opens a reply, the second one has another message
    if not came or _elsewhere(h.b[h.at : h.at + came], h.b, h.a):
        return None
    added = h.b[h.at]
    text = f"{_counted(came)} inserted, the first as number {h.at + 1} of {len(h.b)}"
    return Recognition("message-inserted", "", _text(added), text, added.role or None)


def message_moved(d: FirstDifference) -> Recognition | None:
    """A message, or a <system-reminder> inside one, stands elsewhere."""
    h = histories(d)
    if h is None or h.at >= min(len(h.a), len(h.b)):
        return None
    reminder = _moved_reminder(h)
    if reminder:
        text = "a <system-reminder> moved to another message"
        return Recognition("message-moved", shown(reminder), "", text, "system-reminder")
    gone, came = _gone(h), _gone(_swap(h))
    moved = h.a[h.at : h.at + gone] if gone else h.b[h.at : h.at + came]
    if not moved or not _elsewhere(moved, *((h.a, h.b) if gone else (h.b, h.a))):
        return None
    text = f"{_counted(len(moved))} moved to another place in the history"
    return Recognition("message-moved", _text(h.a[h.at]), _text(h.b[h.at]), text, moved[0].role or None)


def compacted(d: FirstDifference) -> Recognition | None:
    """A summary stands where the history was."""
    h = histories(d)
    if h is None or h.at > h.heads + 1 or len(h.a) - h.at < 2 or h.at >= len(h.b) or len(h.b) >= len(h.a):
        return None
    known = {turn.key for turn in h.a}
    new = [turn for turn in h.b[h.at : h.at + 3] if turn.key not in known]
    old = h.a[h.at].text[:_SUMMARY_REACH]
    named = any(_SUMMARY.search(turn.text[:_SUMMARY_REACH]) for turn in new) and not _SUMMARY.search(old)
    kept = len(h.a) > 3 and len(h.b) > h.at + 1 and h.b[-1].key in {turn.key for turn in h.a[h.at + 2 :]}
    if not new or not (named or kept):
        return None
    text = f"{len(h.a) - h.at} messages were replaced by {len(h.b) - h.at}" + (": a summary" if named else "")
    return Recognition("compacted", _text(h.a[h.at]), _text(h.b[h.at]), text, None, named)


def message_edited(d: FirstDifference) -> Recognition | None:
    """A message at the same place has another text."""
    h = histories(d)
    if h is None or h.at >= min(len(h.a), len(h.b)):
        return None
    old, new = h.a[h.at], h.b[h.at]
    a, b = snippet(d)
    if old.role != new.role:
        text = f"message {h.at + 1} has the role {_by(new.role)} instead of {_by(old.role)}"
        return Recognition("message-edited", a, b, text, "role", old.text == new.text)
    others = len({turn.key for turn in h.a[h.heads :]} & {turn.key for turn in h.b[h.heads :]})
    if h.at <= h.heads and not others and min(len(h.a), len(h.b)) - h.at > 1:
        return None  # no message in common: another conversation
    if old.role in ("system", "developer"):
        what = "the system prompt changed"
    else:
        what = f"{_NAMES.get(old.role, f'a message of role {_by(old.role)}')} changed: number {h.at + 1} of {len(h.a)}"
    return Recognition("message-edited", a, b, what, _field(old, new))


def _by(role: str) -> str:
    """Name a role; one that is not of the APIs may be a key, and becomes a hash."""
    return role if role in _ROLES else short(role) if role else "nobody"


def other_conversation(d: FirstDifference) -> Recognition | None:
    """No message is the same, whatever the heads are."""
    h = histories(d)
    if h is None or h.at > h.heads or h.at >= min(len(h.a), len(h.b)) or h.a[h.at].role != h.b[h.at].role:
        return None
    a, b = snippet(d)
    return Recognition(
        "other", a, b, "the prompts have no message in common: they are two conversations", "conversation", False
    )


def _histories(a: list[MessageTurn], b: list[MessageTurn]) -> Histories:
    limit = min(len(a), len(b))
    return Histories(a, b, next((i for i in range(limit) if a[i].key != b[i].key), limit))


def _holds_offset(h: Histories, offset: int) -> bool:
    for turns in (h.a, h.b):
        if h.at < len(turns):
            start, end = turns[h.at].start, turns[h.at].end
            if start is not None and end is not None and start <= offset <= end:
                return True
    return h.at == len(h.a) or h.at == len(h.b)


def _swap(h: Histories) -> Histories:
    return Histories(h.b, h.a, h.at)


def _gone(h: Histories) -> int:
    """How many turns of A from the first difference on are missing in B, which continues those after them."""
    if h.at >= len(h.b):
        return 0
    wanted, tries = h.b[h.at].key, 0
    for at in range(h.at + 1, len(h.a)):
        if h.a[at].key != wanted:
            continue
        # The last turn of A may be a reply that B's client sent back in other words.
        shared = zip(h.a[at:], h.b[h.at :], strict=False)
        same = next((i for i, (x, y) in enumerate(shared) if x.key != y.key), min(len(h.a) - at, len(h.b) - h.at))
        if same >= min(len(h.a) - at - 1, len(h.b) - h.at, 3):
            return at - h.at
        tries += 1
        if tries == _TRIES:
            break
    return 0


def _elsewhere(turns: list[MessageTurn], old: list[MessageTurn], new: list[MessageTurn]) -> bool:
    """Whether the other prompt has all these turns, as often as this one: then they moved."""
    before, after = (Counter(turn.key for turn in side) for side in (old, new))
    return all(after[turn.key] >= before[turn.key] for turn in turns)


def _moved_reminder(h: Histories) -> str | None:
    old, new = h.a[h.at].text, h.b[h.at].text
    if _REMINDER.sub("", old).split() != _REMINDER.sub("", new).split():
        return None
    for left, right, turns in ((old, new, h.b), (new, old, h.a)):
        kept = set(_REMINDER.findall(right))
        for reminder in _REMINDER.findall(left):
            if reminder not in kept and any(reminder in turn.text for turn in turns[h.at + 1 :]):
                return str(reminder)
    return None


def _field(old: MessageTurn, new: MessageTurn) -> str | None:
    if old.text == new.text and old.extra != new.extra:
        return "tool_calls"
    if old.text == new.text and old.reasoning != new.reasoning:
        return "reasoning"
    if _REMINDER.sub("", old.text).split() == _REMINDER.sub("", new.text).split() and old.text != new.text:
        return "system-reminder"
    return old.role or None


def _text(turn: MessageTurn) -> str:
    return shown(f"{turn.role}: {(turn.text or turn.extra or turn.reasoning)[:200]}")


def _messages(count: int) -> str:
    return f"{count} messages were" if count > 1 else "message was"


def _counted(count: int) -> str:
    return _messages(count) if count > 1 else "1 message was"
