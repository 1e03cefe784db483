"""The page of a fleet: causes with fixes, the worst logs, builds, clients, days; links to each log's report.

Loads nothing; its script makes the buttons that copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, TypeVar
from urllib.parse import quote

import msgspec

from cachedoctor.model.stats import FleetCause, FleetCauseGroup, FleetGroup, FleetLog, FleetPage
from cachedoctor.redaction.secrets import hidden
from cachedoctor.report.html import html_page
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words.numbers import count

_WORST = 10
"""Logs and causes that are shown at once; the others are folded."""
_GROUPS = 8
"""Causes of builds, and of clients, that are shown at once."""
_PATH = 160
"""Characters of a path that are shown."""
_Group = TypeVar("_Group", FleetGroup, FleetCauseGroup)


def write(page: FleetPage, out: IO[bytes]) -> None:
    """Write the page."""
    shown = msgspec.structs.replace(
        page,
        logs=[_log(log) for log in page.logs],
        causes=[_cause(cause) for cause in page.causes],
        cause_builds=_named(page.cause_builds),
        cause_clients=_named(page.cause_clients),
        builds=_named(page.builds),
        clients=_named(page.clients),
        amiss=[
            msgspec.structs.replace(one, path=cut(one.path, _PATH), reason=hidden(one.reason)) for one in page.amiss
        ],
    )
    html = html_page.render(
        "fleet.html.j2",
        page=shown,
        title=_title(page),
        lead=_lead(page),
        unread=_unread(page),
        worst_logs=_WORST,
        groups_shown=_GROUPS,
        avoidable=page.sums.avoidable_tokens,
        days_known=any(day.group is not None for day in page.days),
        clients_known=any(client.group is not None for client in page.clients),
        parts=max((log.sums.avoidable_tokens or 0 for log in page.logs), default=0),
    )
    out.write(html.encode())


def _title(page: FleetPage) -> str:
    if not page.all_logs:
        return "No server log was read"
    uncounted = sum(cause.severity != "note" for cause in page.causes)
    if not page.sums.avoidable_tokens and uncounted:
        return f"{count(page.all_logs, 'log')}: {count(uncounted, 'cause')}, and no log counts the tokens"
    if not page.sums.avoidable_tokens:
        return f"{count(page.all_logs, 'log')}: no avoidable tokens known"
    return f"{count(page.sums.avoidable_tokens, 'prompt token')} could have been reused"


def _lead(page: FleetPage) -> str:
    words = [f"{count(page.all_logs, 'log')} with {count(page.servers, 'server run')}"]
    if page.sums.requests:
        words.append(count(page.sums.requests, "request"))
    read = page.files.get("read", 0)
    words.append(f"{count(read, 'file')} read")
    if page.files.get("no log"):
        words.append(f"{count(page.files['no log'], 'file')} without server log lines")
    missing = f" Not yet read: {count(page.waiting, 'log')}." if page.waiting else ""
    return ", ".join(words) + "." + missing


def _unread(page: FleetPage) -> str:
    """Say how many files could not be read, or not to their end; nothing if all could."""
    kinds = (("failed", "could not be read"), ("cut", "could not be read to the end"))
    words = [f"{count(page.files[status], 'file')} {what}" for status, what in kinds if page.files.get(status)]
    return ", ".join(words)


def _log(log: FleetLog) -> FleetLog:
    return msgspec.structs.replace(log, log=cut(log.log, _PATH), report=_address(log.report))


def _cause(cause: FleetCause) -> FleetCause:
    fix = cause.fix and hidden(cause.fix)
    return msgspec.structs.replace(cause, worst=cut(cause.worst, _PATH), report=_address(cause.report), fix=fix)


def _address(report: str | None) -> str | None:
    return None if report is None else quote(report)


def _named(groups: Iterable[_Group]) -> list[_Group]:
    """Groups with names that may be shown: they are words of the logs."""
    return [msgspec.structs.replace(one, group=one.group and cut(hidden(one.group), _PATH)) for one in groups]
