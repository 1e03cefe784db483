"""CD102: a date, time, id or counter near the head of the prompt changes."""

from __future__ import annotations

import re

import msgspec

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.client import changes
from cachedoctor.diagnosis.rules.client.changes import (
    by_difference,
    from_prompts,
    header_field,
    prompts_prove,
    references,
    texts_prove,
    why_client,
)
from cachedoctor.knowledge import clients
from cachedoctor.knowledge.late_patterns import late

_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_KINDS = [
    (
        "date or time",
        late(rf"\d{{4}}-\d\d|\d\d?:\d\d|\d{{4}}[/.]\d\d|{_DAY}|{_MONTH} \d|\b(?:date|time|clock|today|now)\b", re.I),
    ),
    ("UUID", late(r"[0-9a-f]{8}-[0-9a-f]{4}|[0-9a-f]{4}-[0-9a-f]{12}", re.I)),
    (
        "random id",
        late(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,}\b|(?:id|session|request|trace)\W{1,3}$", re.I),
    ),
]
_VALUES = ("timestamp", "uuid", "random-id", "counter", "path", "git-state", "system-hoisted")
"""Kinds of differences between given prompts."""
_VALUE = late(r"^[\s\"':=]*[0-9A-Fa-f]")


def volatile_kind(old: str, new: str) -> str | None:
    """Kind of value that differs at the bars of an ``old:`` / ``new:`` pair, or None when it is no such value."""
    before, bar, after_new = new.partition(" | ")
    _, _, after_old = old.partition(" | ")
    if not bar or not after_old or not (_VALUE.match(after_new) and _VALUE.match(after_old)):
        return None
    around = before.rpartition("\n")[2][-40:] + after_new.partition("\n")[0][:24]  # of its own line
    for kind, pattern in _KINDS:
        if pattern.search(around):
            return kind
    return "number" if re.match(r"^\s*\d", after_new) and re.match(r"^\s*\d", after_old) else None


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when values of a volatile kind differ at the bar and most of the prompt lies after it."""
    if s.text_alone:
        return _by_text(s.request.seen.old_text or "", s.request.seen.new_text or "")
    if not s.lost:
        return None
    first = s.changed(*_VALUES)
    if first is not None:
        return from_prompts(s, first)
    r = s.request
    if s.known or r.seen.old_text is None or r.seen.new_text is None or s.own_slot is False or not s.early:
        return None
    if s.lcp is None:  # how much the client changed is not known: the values themselves have to differ
        found = _by_text(r.seen.old_text, r.seen.new_text)
        return None if found is None else msgspec.structs.replace(found, tokens=s.lost)
    if s.client_lost < kit.MIN_LOST or header_field(r.seen.new_text) is not None:
        return None
    before = r.seen.new_text.partition(" | ")[0].strip(" .")
    kind = volatile_kind(r.seen.old_text, r.seen.new_text)
    if kind is None or not before:
        return None  # without a word before the bar (SLOTS_N_DIFF=0) the kind would be a guess
    return kit.Match(
        s.lost, "high" if kind != "number" else "medium", _client(r.seen.old_text, r.seen.new_text), found=kind
    )


def _client(old: str, new: str) -> str:
    """The client that wrote the text at the bars; empty if it is unknown. Each has a finding of its own."""
    known = clients.printed(old, new)
    return "" if known is None else known.handle


_NAME = late(r"[/\\]|\.[A-Za-z]{1,4}\b|=")
"""Found in a word next to the bar that is a path, a file or a command, as tool calls have them in their newest message."""


def _by_text(old: str, new: str) -> kit.Match | None:
    """Fire on a date, a clock or an id at the bars of the texts alone; how much lies after them is not known."""
    if header_field(new) is not None:
        return None
    before, _, after = new.partition(" | ")
    words = before.split()[-1:] + after.split()[:1] + old.partition(" | ")[2].split()[:1]
    kind = volatile_kind(old, new)
    if kind in (None, "number") or not before.strip(" .") or any(_NAME.search(word) for word in words):
        return None
    same = old.partition(" | ")[2].strip() == after.strip()
    return None if same else kit.Match(0, "medium", _client(old, new), found=kind)


_HOISTED = "system-hoisted"
_WHY = "Reuse ends at the first differing token, even if the rest is the same."
_FREEZE = kit.Remedy(
    "In the client: freeze the value for the whole conversation, or move it into the last user message."
)
_LOOK = kit.Remedy(
    "Compare both prompts with: cachedoctor diff PROMPT1 PROMPT2", ["cachedoctor diff before.txt after.txt"]
)


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show both texts."""
    if not isinstance(match.found, str):
        return prompts_prove(s, match)
    return texts_prove(s, kind=match.found)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Name the kind of value and where it belongs."""
    f, r = g.numbers, g.worst_request
    at = "" if f["lcp"] is None else f" at {kit.token(f['lcp'])}"
    cost = (
        f"{kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}; the prompt has {kit.n(r.prompt_tokens)} tokens"
        if g.tokens
        else f"{kit.times(g.count)}; this log does not show the cost"
    )
    return kit.FindingText(
        f"{_head(f['kind'], at)}: {cost}",
        f"{_WHY}{why_client(g)}",
        [*by_difference(g, [_FREEZE]), _LOOK],
        [
            kit.RuledOut("billing-header", "the text at the bar is not a billing header"),
            kit.RuledOut("slot-held-other-prompt", "the texts before the bar are the same"),
        ],
        references(g),
    )


def _head(kind: str, at: str) -> str:
    return f"the system prompt grew by a message{at}" if kind == _HOISTED else f"a {kind}{at} changed"


def of_bodies(_: kit.Session, difference: kit.PromptDiff) -> kit.ChangeText | None:
    """Report it from two given bodies."""
    first = difference.first
    if first is None or first.kind not in _VALUES:
        return None
    return changes.of_bodies(difference, _head(first.kind, f" at {changes.place(difference)}"), _WHY, [_FREEZE, _LOOK])


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the first change in a pasted diff of two prompts."""
    said = kit.stated(session, "value")
    if said is None or said.before is None or not kit.unfinished(session):
        return []
    words = kit.FindingText(
        f"a {said.field} in line {kit.n(said.numbers['place'])} of the prompt changed; this input does not show the cost",
        "Reuse ends at the first differing token, even if the rest is the same. A diff does not show how much of the prompt comes "
        "after that line; a change near the end costs almost nothing.",
        [_FREEZE, _LOOK],
        [
            kit.RuledOut(
                "history-rewritten",
                "apart from values of this kind, the first changed line is the same in both prompts",
            )
        ],
    )
    evidence = [(said.mark, "the value in the second prompt"), (said.before, "the same value in the first prompt")]
    return [kit.SessionFinding(words, "", evidence, confidence="medium")]


RULE = kit.rule(
    __name__,
    "A date, time, id or counter at the start of the prompt changes",
    decide,
    prove,
    say,
    on=("text", "bar"),
    needs=advice.needs_text,
    alone=alone,
    stated=("value",),
    of_bodies=of_bodies,
)
