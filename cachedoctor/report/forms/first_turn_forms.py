"""What warming a common beginning is worth, in words, and the command that sends it."""

from __future__ import annotations

import shlex

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model.whatif import FirstTurn
from cachedoctor.report.words.numbers import count, duration

_NUMBER = late(r"(.+)#(\d+)\Z")


def words(found: FirstTurn) -> str:
    """Say what is common, what it costs to compute it once, and what that saves."""
    alike = f"{found.alike:,} of {found.conversations:,} conversations"
    common = f"the first {count(found.common_tokens, 'token')} are equal in {alike}"
    slots = "" if found.slots == 1 else f", in each of {found.slots:,} slots (id_slot)"
    when = "once" if found.starts == 1 else f"at the start and after each of {count(found.starts - 1, 'stop')}"
    cost = count(found.cost_tokens, "token") if found.cost_ms is None else duration(found.cost_ms)
    saved = count(found.saved_tokens, "token") + ("" if found.saved_ms is None else f", {duration(found.saved_ms)}")
    return f"{common}; computing them {when}{slots} before the requests begin costs {cost} and saves {saved}"


def commands(found: FirstTurn) -> list[str]:
    """Give the command that makes the body of a recorded one and sends it, where that stands on a line of a file."""
    place = _NUMBER.fullmatch(found.path)
    if place is None or not place[1].endswith((".jsonl", ".ndjson")):
        return []
    filler = '[{"role":"user","content":"ok"}] | .max_tokens = 1 | del(.stream, .id_slot)'
    body = f"(.body // .) | .messages = .messages[:{found.messages}] + {filler}"
    slots = [""] if found.slots == 1 else [f" | .id_slot = {slot}" for slot in range(found.slots)]
    send = "curl -s http://localhost:8080/v1/chat/completions -H 'Content-Type: application/json' -d @-"
    return [f"sed -n {place[2]}p {shlex.quote(place[1])} | jq -c {shlex.quote(body + slot)} | {send}" for slot in slots]
