"""Fix ``freeze-clock``: dates and times of the system prompt stay as in the conversation's first request."""

from __future__ import annotations

import json

from cachedoctor.prompts.recognisers.stamps import stamps
from cachedoctor.proxy.edited_body import EditedBody, FollowedRequest, RequestText, system_strings
from cachedoctor.proxy.json_spans import Edit, inside


def freeze_clock(request: RequestText, followed: FollowedRequest) -> EditedBody | None:
    """Put the first request's dates and times in; that the texts around them are equal, the conversation proves."""
    found = [(string, stamp) for string in system_strings(request) for stamp in stamps(string.value)]
    known = followed.known
    if known.clock is None:
        known.clock = tuple(stamp.group() for _, stamp in found)
        return None
    if len(found) != len(known.clock):
        return None
    edits = []
    for (string, stamp), old in zip(found, known.clock, strict=True):
        if stamp.group() != old:
            start, end = inside(request.text, string, [*stamp.span()])
            edits.append(Edit(start, end, json.dumps(old)[1:-1]))
    if not edits:
        return None
    what = "1 date or time" if len(edits) == 1 else f"{len(edits)} dates or times"
    return EditedBody(edits, f"{what} of the system prompt as in the first request")
