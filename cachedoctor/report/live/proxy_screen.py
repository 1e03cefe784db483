"""What passes a proxy as rows for a screen of any size: a row for each conversation."""

from __future__ import annotations

import time

from rich.cells import cell_len
from rich.text import Text

from cachedoctor.model.view import ConversationView, PassingView
from cachedoctor.report.live.screen import Screenful, ScreenRows
from cachedoctor.report.text.concise import tokens
from cachedoctor.report.words.numbers import count, number, percent

_TALL, _ROOMY, _WIDE = 12, 20, 60
"""Rows needed for gaps and words below the table, and for two rows of each entry; cells needed for all table
columns."""
_KEYS = "q quits   arrows: other conversations   ? help"
_HELP = (
    ("#", "number of the conversation, given by the proxy"),
    ("requests", "requests so far"),
    ("prompt", "prompt tokens of the last request, counted by the server"),
    ("reused", "prompt tokens of the last request taken from the cache"),
    ("again", "tokens of earlier prompts that were recomputed, in total"),
    ("changed", "the client's last change of earlier text: what, where, and in how many requests"),
    ("lost", "requests that only extended the prompt, but were largely recomputed"),
    ("", ""),
    ("q", "quit, like Ctrl-C"),
    ("arrows", "down and up (or j and k) select the conversation shown below in full"),
    ("?", "show or hide this page"),
)


def draw(
    view: PassingView, width: int, height: int, ascii_only: bool = False, chosen: Screenful | None = None
) -> list[Text]:
    """Give at most ``height`` rows of at most ``width`` cells."""
    page = ScreenRows(width, height, ascii_only)
    chosen = chosen or Screenful()
    if chosen.helps:
        for key, words in (("cachedoctor watch", ""), *_HELP):
            page.keyed(key, words, 2)
        return page.taken
    tall = height >= _TALL
    page.left -= tall  # for the last row
    _head(page, view)
    if tall:
        page.gap()
    first = min(chosen.first, max(len(view.conversations) - 1, 0))
    below = _below(view.conversations[first]) if tall and view.conversations else []
    most = 2 if height >= _ROOMY else 1
    _table(page, view.conversations, first, page.left - (most * len(below) + 1 if below else 0))
    if below:
        page.gap()
        for key, words in below:
            page.keyed(key, words, most)
    while page.left > 0 and tall:
        page.gap()
    page.left += tall
    page.row((_KEYS if chosen.keyed else "Ctrl-C quits", "dim"))
    return page.taken


def summary(view: PassingView, width: int, ascii_only: bool = False) -> list[Text]:
    """Give all conversations, for the end."""
    page = ScreenRows(width, len(view.conversations) + 8, ascii_only)
    _head(page, view)
    page.gap()
    _table(page, view.conversations, None, page.left)
    return page.taken


def _head(page: ScreenRows, view: PassingView) -> None:
    seen = count(view.requests, "request")
    name = page.visible(view.path)
    room = page.width - len("cachedoctor  ") - len(seen) - 1
    shown = name if cell_len(name) <= room else "..." + name[-max(room - 3, 0) :] if room > 3 else ""
    page.row(("cachedoctor ", "bold"), f"{shown:<{max(room, 0)}}", "  ", (seen, "dim"))
    if view.counted:
        share = percent(view.cached_tokens, view.prompt_tokens) if view.prompt_tokens else "0 %"
        all_ = "" if view.counted == view.requests else f", in {count(view.counted, 'request')} with counts"
        page.keyed("reused", f"{number(view.cached_tokens)} of {number(view.prompt_tokens)} tokens ({share}){all_}")
        page.keyed("again", f"{number(view.recomputed)} tokens of earlier prompts recomputed")
    else:
        page.keyed("reused", "unknown: no response had counts" if view.requests else "waiting for the first request")
    if view.failed or view.unread:
        unread = f"{count(view.unread, 'line')} not read" if view.unread else ""
        failed = f"{count(view.failed, 'request')} failed" if view.failed else ""
        page.keyed("trouble", ", ".join(part for part in (failed, unread) if part))


def _table(page: ScreenRows, rows: list[ConversationView], first: int | None, room: int) -> None:
    """One row for each conversation; of too many, those around the chosen one."""
    if room < 1:
        return
    if page.left > 2:
        page.row((_cells(page, "#", "requests", "prompt", "reused", "again") + "changed", "bold"))
        room -= 1
    if not rows:
        page.row(("no conversation yet", "dim"))
        return
    many = len(rows) > room
    begin = max(0, min((first or 0) - room // 2, len(rows) - room + 1)) if many else 0
    shown = rows[begin : begin + max(room - many, 1)]
    for at, row in enumerate(shown, begin):
        costs = "yellow" if row.recomputed else ""
        cells = _cells(
            page, f"#{row.number}", number(row.requests), tokens(row.prompt_tokens), tokens(row.cached_tokens),
            tokens(row.recomputed) if row.requests > 1 else "",
        )  # fmt: skip
        page.row((cells, "bold" if at == first else ""), (_changed(row), costs))
    if many and page.left > 0:
        page.row((f"and {count(len(rows) - len(shown), 'other conversation')}", "dim"))


def _cells(page: ScreenRows, name: str, requests: str, prompt: str, reused: str, again: str) -> str:
    if page.width < _WIDE:
        return f"{name:<5} {again:>9}  "
    return f"{name:<5}{requests:>8} {prompt:>9} {reused:>9} {again:>9}  "


def _changed(row: ConversationView) -> str:
    """What happened in a conversation, in a few words."""
    parts = [f"failed: {row.trouble}"] if row.trouble else []
    if row.kind is not None:
        where = f" in {row.place}" if row.place else ""
        times = f"{number(row.changes)} x " if row.changes > 1 else ""
        parts.append(f"{times}{row.kind}{where}")
    if row.lost:
        parts.append(f"lost {number(row.lost)} times" if row.lost > 1 else "lost by the server")
    return "; ".join(parts) or ("only extended" if row.requests > 1 else "a new conversation")


def _below(row: ConversationView) -> list[tuple[str, str]]:
    """All that is known of one conversation."""
    clock = time.strftime("%H:%M:%S", time.localtime(row.last))
    model = f", {row.model}" if row.model else ""
    found = [(f"#{row.number}", f"{count(row.requests, 'request')}, the last at {clock}{model}")]
    if row.explanation:
        where = f" in {row.place}" if row.place else ""
        found.append(("changed", f"{row.kind}{where}: {row.explanation}"))
    if row.advice:
        found.append(("fix", row.advice))
    if row.lost:
        times = count(row.lost, "request")
        found.append(("lost", f"in {times} although the client changed nothing: see the server's log"))
    return found
