"""The order in which a log's requests started and ended, with the restarts and sleeps of the server between them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cachedoctor.model import Request
from cachedoctor.replay.traffic import Happened


class LogOrder(msgspec.Struct):
    """Requests of one server, each in its last revision, by the line at which it started."""

    requests: list[Request]
    happened: list[Happened]
    base: dict[int, int]
    """Of each session, what is added to its line numbers: another file begins at line 1 again."""

    def moments(self, request: Request) -> tuple[int, int]:
        """When a request started and ended."""
        base = self.base[request.session]
        return base + request.first_line, base + request.last_line


def log_order(requests: Iterable[Request]) -> LogOrder:
    """Order the requests of one server; a new session of it is a restart, and a sleep empties it as well."""
    last: dict[tuple[int, int], Request] = {}
    for request in requests:
        before = last.get((request.session, request.index))
        if before is None or before.revision <= request.revision:
            last[request.session, request.index] = request
    found = LogOrder(sorted(last.values(), key=lambda one: (one.session, one.first_line)), [], {})
    end, slept = 0, set[int]()
    for request in found.requests:
        if request.session not in found.base:
            found.base[request.session] = max(0, end - request.first_line + 2)
            if len(found.base) > 1:
                found.happened.append(Happened(found.moments(request)[0] - 1, "restart"))
        mark = request.marks.get("slept")
        if mark is not None and mark.line not in slept:
            slept.add(mark.line)
            found.happened.append(Happened(found.base[request.session] + mark.line, "restart"))
        end = max(end, found.moments(request)[1])
    return found
